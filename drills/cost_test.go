package drills

import (
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/trace"
)

const (
	// limitCost and limitAllocations are what a guarded call may take more than a plain one.
	limitCost        = 5 * time.Microsecond
	limitAllocations = 12
)

// costed is a call with some of the layer around it, on top of the one before.
type costed struct {
	name string
	once func()
}

// The whole guarded call by name, with a real caller, lane and trace, costs at most
// 5 µs and 12 allocations more than a plain one with a deadline to the same server.
// What that deadline costs over a call that may wait for ever is printed too. Time is
// the caller's on a processor, which others on the machine change less than that of
// the clock; rounds of all layers take turns. In small it is only printed.
func TestCostOfAGuardedCall(t *testing.T) {
	// In a process of its own: what it allocates is not the caller's.
	p := &serverPart{Service: "cost", Listen: freeAddr(t), RPC: freeAddr(t), Version: "v1", Bare: true}
	start(t, "server", part{Server: p})
	measureCost(t, "HTTP over http.Client", webCosts(t, p.Listen))
	measureCost(t, "gRPC over a bare call", rpcCosts(t, p.RPC))
}

// guardFor is a real caller with a lane of its own, and a guard around it.
func guardFor(t *testing.T, service, address string, off bool) (*caller.Caller, *guard.Guard) {
	source, err := discovery.Open(roster(t, instance(t, service, address, "v1")), discovery.Options{})
	must(t, err)
	t.Cleanup(source.Close)
	c := follow(t, caller.Options{Self: home("v1"), Registry: source, Services: []string{service}, Lane: route.Query{Env: home("").Env}})
	g, err := guard.New(c, guard.Options{Default: guard.Settings{Off: off}})
	must(t, err)
	return c, g
}

// contexts are those of a call, and of one within a trace; both can be cancelled, as
// those of requests that are served.
func contexts(t *testing.T) (free, traced context.Context) {
	free, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	return free, trace.In(free, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
}

// bounded is a context with the deadline that a guard would give, or as it is.
func bounded(ctx context.Context, own bool) (context.Context, context.CancelFunc) {
	if own {
		return context.WithTimeout(ctx, guard.DefaultDeadline)
	}
	return ctx, func() {}
}

func webCosts(t *testing.T, address string) []costed {
	free, traced := contexts(t)
	client := func(off bool) *http.Client {
		_, g := guardFor(t, "cost", address, off)
		c := &http.Client{Transport: httpcall.NewGuarded(g, nil)}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	once := func(c *http.Client, ctx context.Context, url string, own bool) func() {
		room := make([]byte, 64)
		return func() {
			ctx, cancel := bounded(ctx, own)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = resp.Body.Read(room)
			}
			if err != io.EOF {
				t.Fatal(err)
			}
			_ = resp.Body.Close() // it was read
		}
	}
	plain := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	t.Cleanup(plain.CloseIdleConnections)
	off, on := client(true), client(false)
	return []costed{
		{"for ever", once(plain, free, "http://"+address+"/", false)},
		{"deadline", once(plain, free, "http://"+address+"/", true)},
		{"pick, address and lane", once(off, free, "http://cost/", false)},
		{"breaker and budget", once(on, free, "http://cost/", false)},
		{"trace", once(on, traced, "http://cost/", false)},
	}
}

func rpcCosts(t *testing.T, address string) []costed {
	free, traced := contexts(t)
	dial := func(target string, opts ...grpc.DialOption) health.HealthClient {
		conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return health.NewHealthClient(conn)
	}
	client := func(off bool) health.HealthClient {
		c, g := guardFor(t, "cost"+rpcSuffix, address, off)
		return dial("dispatch:///cost"+rpcSuffix, grpccall.NewGuarded(c, g).DialOptions()...)
	}
	once := func(c health.HealthClient, ctx context.Context, own bool) func() {
		return func() {
			ctx, cancel := bounded(ctx, own)
			defer cancel()
			if _, err := c.Check(ctx, &health.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	off, on := client(true), client(false)
	bare := dial(address)
	return []costed{
		{"for ever", once(bare, free, false)},
		{"deadline", once(bare, free, true)},
		{"pick, connection and lane", once(off, free, false)},
		{"breaker and budget", once(on, free, false)},
		{"trace", once(on, traced, false)},
	}
}

// measureCost prints what each layer adds.
func measureCost(t *testing.T, kind string, layers []costed) {
	t.Helper()
	allocations := make([]float64, len(layers))
	for i, l := range layers {
		for range 200 { // connects, and fills pools
			l.once()
		}
		allocations[i] = math.Inf(1) // the least of many: the garbage collector empties pools, and the caller reads its file
		for range 20 {
			allocations[i] = min(allocations[i], testing.AllocsPerRun(200, l.once))
		}
	}
	rounds, calls := pick(5, 101), pick(100, 400)
	took, wall := make([][]time.Duration, len(layers)), make([][]time.Duration, len(layers)) // of a call, by layer and round
	var rows [][]string
	for round := range rounds {
		row := []string{kind, strconv.Itoa(round)}
		for i, l := range layers {
			begin, used := time.Now(), processor(t)
			for range calls {
				l.once()
			}
			took[i] = append(took[i], (processor(t)-used)/time.Duration(calls))
			wall[i] = append(wall[i], time.Since(begin)/time.Duration(calls))
			row = append(row, strconv.FormatInt(took[i][round].Nanoseconds(), 10), strconv.FormatInt(wall[i][round].Nanoseconds(), 10))
		}
		rows = append(rows, row)
	}
	header := []string{"kind", "round"}
	var items []string
	for i, l := range layers {
		name := strings.ReplaceAll(l.name, " ", "_")
		header = append(header, name+"_cpu_ns", name+"_wall_ns")
		if i > 0 {
			items = append(items, l.name+" "+short(added(took[i-1], took[i]))+" and "+strconv.FormatFloat(allocations[i]-allocations[i-1], 'f', 0, 64))
		}
	}
	keep(t, "cost-"+kind[:4], header, rows)
	last := len(layers) - 1
	whole, more := added(took[1], took[last]), allocations[last]-allocations[1]
	figure(t, "COST", "%s with a deadline: %s of a processor and %.0f allocations more (limit %s and %d); one by one %s; a call for ever takes %s and %.0f; to the clock all of it is %s more", kind, short(whole), more, limitCost, limitAllocations,
		strings.Join(items, ", "), short(quantile(took[0], 0.5)), allocations[0], short(added(wall[1], wall[last])))
	if more > limitAllocations {
		t.Errorf("%s: %.0f allocations more than a plain call", kind, more)
	}
	if *full && whole > limitCost {
		t.Errorf("%s: %s more than a plain call", kind, whole)
	}
}

// processor is the processor time that this process has used.
func processor(t *testing.T) time.Duration {
	var used syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// added is the median of what rounds took more than those they took turns with.
func added(before, after []time.Duration) time.Duration {
	more := make([]time.Duration, len(before))
	for i := range before {
		more[i] = after[i] - before[i]
	}
	slices.Sort(more)
	return more[len(more)/2]
}
