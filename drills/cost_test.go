package drills

import (
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
// 5 µs and 12 allocations more than a plain one to the same server. Calls of all layers
// take turns, and medians are compared within a round; in small time is only printed.
func TestCostOfAGuardedCall(t *testing.T) {
	p := &serverPart{Service: "cost", Listen: freeAddr(t), RPC: freeAddr(t), Version: "v1"}
	start(t, "server", part{Server: p}) // in a process of its own: what it allocates is not the caller's
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

// contexts are those of a call that brings a deadline, of one that does not, and of
// one within a trace; all can be cancelled, as those of requests that are served.
func contexts(t *testing.T) (limited, free, traced context.Context) {
	free, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	limited, stopLimited := context.WithTimeout(free, time.Hour)
	t.Cleanup(stopLimited)
	return limited, free, trace.In(free, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
}

func webCosts(t *testing.T, address string) []costed {
	limited, free, traced := contexts(t)
	client := func(off bool) *http.Client {
		_, g := guardFor(t, "cost", address, off)
		c := &http.Client{Transport: httpcall.NewGuarded(g, nil)}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	once := func(c *http.Client, ctx context.Context, url string) func() {
		room := make([]byte, 64)
		return func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			must(t, err)
			resp, err := c.Do(req)
			must(t, err)
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
		{"plain", once(plain, free, "http://"+address+"/")},
		{"pick, address and lane", once(off, limited, "http://cost/")},
		{"deadline", once(off, free, "http://cost/")},
		{"breaker and budget", once(on, free, "http://cost/")},
		{"trace", once(on, traced, "http://cost/")},
	}
}

func rpcCosts(t *testing.T, address string) []costed {
	limited, free, traced := contexts(t)
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
	once := func(c health.HealthClient, ctx context.Context) func() {
		return func() {
			_, err := c.Check(ctx, &health.HealthCheckRequest{})
			must(t, err)
		}
	}
	off, on := client(true), client(false)
	return []costed{
		{"bare", once(dial(address), free)},
		{"pick, connection and lane", once(off, limited)},
		{"deadline", once(off, free)},
		{"breaker and budget", once(on, free)},
		{"trace", once(on, traced)},
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
	took := make([][]time.Duration, len(layers)) // the median of a round's calls, by layer
	var rows [][]string
	for round := range rounds {
		row := []string{kind, strconv.Itoa(round)}
		one := make([][]time.Duration, len(layers))
		for range calls {
			for i, l := range layers {
				begin := time.Now()
				l.once()
				one[i] = append(one[i], time.Since(begin))
			}
		}
		for i := range layers {
			took[i] = append(took[i], quantile(one[i], 0.5))
			row = append(row, strconv.FormatInt(took[i][round].Nanoseconds(), 10))
		}
		rows = append(rows, row)
	}
	header := []string{"kind", "round"}
	var items []string
	for i, l := range layers {
		header = append(header, strings.ReplaceAll(l.name, " ", "_")+"_ns")
		if i > 0 {
			items = append(items, l.name+" "+short(added(took[i-1], took[i]))+" and "+strconv.FormatFloat(allocations[i]-allocations[i-1], 'f', 0, 64))
		}
	}
	keep(t, "cost-"+kind[:4], header, rows)
	last := len(layers) - 1
	whole, more := added(took[0], took[last]), allocations[last]-allocations[0]
	figure(t, "COST", "%s: %s and %.0f allocations more (limit %s and %d): %s; the plain call takes %s and %.0f", kind, short(whole), more, limitCost, limitAllocations,
		strings.Join(items, ", "), short(quantile(took[0], 0.5)), allocations[0])
	if more > limitAllocations {
		t.Errorf("%s: %.0f allocations more than a plain call", kind, more)
	}
	if *full && whole > limitCost {
		t.Errorf("%s: %s more than a plain call", kind, whole)
	}
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
