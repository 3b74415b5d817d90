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
// 5 µs and 12 allocations more than a plain one with a deadline. Allocations are those
// of calls to a server. So is the time of the clock, which is printed: what waking
// threads costs there changes by more than the limit from one moment to the next. The
// limit is held by calls that end before the network, in rounds that take turns; in
// small that is printed, too.
func TestCostOfAGuardedCall(t *testing.T) {
	// In a process of its own: what it allocates is not the caller's.
	p := &serverPart{Service: "cost", Listen: freeAddr(t), RPC: freeAddr(t), Version: "v1", Bare: true}
	start(t, "server", part{Server: p})
	measureCost(t, "HTTP over http.Client", webCosts(t, p.Listen, &http.Transport{MaxIdleConnsPerHost: 1}), webCosts(t, p.Listen, nowhere()))
	measureCost(t, "gRPC over a bare call", rpcCosts(t, p.RPC), rpcCosts(t, p.RPC, grpc.WithChainUnaryInterceptor(
		func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return nil
		})))
}

// nowhere answers requests without a network.
func nowhere() http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok")), Request: req}, nil
	})
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

func webCosts(t *testing.T, address string, network http.RoundTripper) []costed {
	free, traced := contexts(t)
	client := func(off bool) *http.Client {
		_, g := guardFor(t, "cost", address, off)
		c := &http.Client{Transport: httpcall.NewGuarded(g, network)}
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
	plain := &http.Client{Transport: network}
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

func rpcCosts(t *testing.T, address string, last ...grpc.DialOption) []costed {
	free, traced := contexts(t)
	dial := func(target string, opts ...grpc.DialOption) health.HealthClient {
		opts = append(slices.Concat(opts, last), grpc.WithTransportCredentials(insecure.NewCredentials()))
		conn, err := grpc.NewClient(target, opts...)
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

// measureCost prints what each layer adds: to real calls allocations and time, to
// those that end before the network time alone.
func measureCost(t *testing.T, kind string, real, dry []costed) {
	t.Helper()
	allocations := make([]float64, len(real))
	for i, l := range real {
		for range 200 { // connects, and fills pools
			l.once()
		}
		allocations[i] = math.Inf(1) // the least of many: the garbage collector empties pools, and the caller reads its file
		for range 20 {
			allocations[i] = min(allocations[i], testing.AllocsPerRun(200, l.once))
		}
	}
	took, clock := rounds(dry, pick(21, 201), pick(200, 1_000)), rounds(real, pick(5, 51), pick(100, 400))
	header := []string{"round"}
	var items []string
	for i, l := range dry {
		header = append(header, strings.ReplaceAll(l.name, " ", "_")+"_ns")
		if i > 0 {
			items = append(items, l.name+" "+short(added(took[i-1], took[i]))+" and "+strconv.FormatFloat(allocations[i]-allocations[i-1], 'f', 0, 64))
		}
	}
	keepRounds(t, "cost-"+kind[:4], header, took)
	keepRounds(t, "cost-"+kind[:4]+"-network", header, clock)
	last := len(real) - 1
	whole, more := added(took[1], took[last]), allocations[last]-allocations[1]
	figure(t, "COST", "%s with a deadline: %s and %.0f allocations more (limit %s and %d); one by one %s; over the network a call for ever takes %s and %.0f, all of it %s more",
		kind, short(whole), more, limitCost, limitAllocations, strings.Join(items, ", "), short(quantile(clock[0], 0.5)), allocations[0], short(added(clock[1], clock[last])))
	if more > limitAllocations {
		t.Errorf("%s: %.0f allocations more than a plain call", kind, more)
	}
	if *full && whole > limitCost {
		t.Errorf("%s: %s more than a plain call", kind, whole)
	}
}

// rounds are the times of a call, by layer and round.
func rounds(layers []costed, n, calls int) [][]time.Duration {
	took := make([][]time.Duration, len(layers))
	for range n {
		for i, l := range layers {
			begin := time.Now()
			for range calls {
				l.once()
			}
			took[i] = append(took[i], time.Since(begin)/time.Duration(calls))
		}
	}
	return took
}

// keepRounds keeps a line for each round.
func keepRounds(t *testing.T, row string, header []string, took [][]time.Duration) {
	t.Helper()
	var lines [][]string
	for round := range took[0] {
		line := []string{strconv.Itoa(round)}
		for i := range took {
			line = append(line, strconv.FormatInt(took[i][round].Nanoseconds(), 10))
		}
		lines = append(lines, line)
	}
	keep(t, row, header, lines)
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
