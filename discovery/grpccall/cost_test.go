package grpccall

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/trace"
)

// maxAdded allocations of a guarded call over a bare one.
const maxAdded = 12

// serverProcess makes this binary a server: what it allocates is not the caller's.
const serverProcess = "GRPCCALL_SERVER_PROCESS"

// serveAlone answers until its input is closed.
func serveAlone() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := grpc.NewServer()
	health.RegisterHealthServer(s, &server{})
	fmt.Println(l.Addr())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); s.Stop() }()
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// apart is an instance in a process of its own.
func apart(tb testing.TB) discovery.Instance {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverProcess+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return instance(tb, "order-core", "prod", strings.TrimSpace(address))
}

// fixed is a Caller that costs nothing.
type fixed struct {
	pick caller.Pick
	lane route.Query
}

func (f *fixed) Pick(context.Context, string) (caller.Pick, error) { return f.pick, nil }
func (f *fixed) PickOther(context.Context, string, *discovery.Instance) (caller.Pick, error) {
	return f.pick, nil
}
func (f *fixed) Done(context.Context, *caller.Pick, caller.Outcome) {}
func (f *fixed) Refused(context.Context, string) string             { return "" }
func (f *fixed) Lane(context.Context) route.Query                   { return f.lane }
func (f *fixed) Candidates(string) ([]discovery.Instance, uint64, <-chan struct{}) {
	return []discovery.Instance{*f.pick.Instance}, 1, nil
}

// layer is a part of the path of a call, on top of those before it.
type layer struct {
	name   string
	client health.HealthClient
	ctx    context.Context
	limit  bool // the call makes its own deadline
}

// layers are a bare call and what comes on top, one by one.
func layers(tb testing.TB) []layer {
	in := apart(tb)
	ctx, cancel := context.WithCancel(context.Background()) // as that of a call that is served
	tb.Cleanup(cancel)
	traced := trace.In(ctx, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
	bare := func(options ...grpc.DialOption) health.HealthClient {
		target := "dispatch:///order-core"
		if len(options) == 0 {
			target = in.Address.String()
		}
		conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = conn.Close() })
		return health.NewHealthClient(conn)
	}
	through := func(off bool, lane route.Query) health.HealthClient {
		c := &fixed{caller.Pick{Choice: route.Choice{Instance: &in}, Number: 1}, lane}
		g, err := guard.New(c, guard.Options{Default: guard.Settings{Off: off}})
		if err != nil {
			tb.Fatal(err)
		}
		return bare(NewGuarded(c, g).DialOptions()...)
	}
	lane := route.Query{Env: "t2", Base: "t0"}
	return []layer{
		{"for ever", bare(), ctx, false},
		{"bare", bare(), ctx, true},
		{"pick and connection", through(true, route.Query{}), ctx, false},
		{"lane", through(true, lane), ctx, false},
		{"guard", through(false, lane), ctx, false},
		{"trace", through(false, lane), traced, false},
	}
}

func (l layer) once(tb testing.TB) {
	ctx := l.ctx
	if l.limit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
	}
	if _, err := l.client.Check(ctx, &health.HealthCheckRequest{}); err != nil {
		tb.Fatal(err)
	}
}

// The whole guarded call has at most 12 allocations more than a bare one that makes a
// deadline of its own. One that would wait for ever has 9 fewer than that.
func TestAllocationsOfAGuardedCall(t *testing.T) {
	if raceDetector {
		return // the detector allocates
	}
	got := map[string]float64{}
	before := 0.0
	for _, l := range layers(t) {
		for range 100 { // connects, and fills the pools of gRPC
			l.once(t)
		}
		n := math.Inf(1) // the least of five: the garbage collector empties pools
		for range 5 {
			n = min(n, testing.AllocsPerRun(500, func() { l.once(t) }))
		}
		t.Logf("%-20s %+3.0f", l.name, n-before)
		got[l.name], before = n, n
	}
	if added := got["trace"] - got["bare"]; added > maxAdded {
		t.Errorf("%.0f allocations more than a bare call's %.0f, at most %d", added, got["bare"], maxAdded)
	}
}

// spent is the processor time of this process so far.
func spent(tb testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// What a call costs with each layer, in processor time of the caller: the server is
// another process. Layers take turns, so that whatever else the machine does meets
// all; the figures are medians. At most 5 µs of trace are not in bare.
func BenchmarkCall(b *testing.B) {
	const turn = 50
	all := layers(b)
	times := make([][]float64, len(all))
	for _, l := range all {
		l.once(b)
	}
	for b.Loop() {
		for i, l := range all {
			begin := spent(b)
			for range turn {
				l.once(b)
			}
			times[i] = append(times[i], float64(spent(b)-begin)/turn)
		}
	}
	for i, l := range all {
		slices.Sort(times[i])
		b.ReportMetric(times[i][len(times[i])/2], strings.ReplaceAll(l.name, " ", "-")+"-ns")
	}
	b.ReportMetric(0, "ns/op") // a round of turns is no figure
}

// What is ours of it: everything but what gRPC does.
func BenchmarkUnary(b *testing.B) {
	in := instance(b, "order-core", "prod", "127.0.0.1:1")
	c := &fixed{caller.Pick{Choice: route.Choice{Instance: &in}, Number: 1}, route.Query{Env: "t2", Base: "t0"}}
	d := New(c)
	conn, err := grpc.NewClient("dispatch:///order-core", append(d.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	kept := &connections{all: map[discovery.Address]*connection{in.Address: {state: connectivity.Ready}}}
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		_, err := kept.Pick(balancer.PickInfo{Ctx: ctx})
		return err
	}
	unary := d.unary()
	ctx := trace.In(context.Background(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
	b.ReportAllocs()
	begin := spent(b)
	for b.Loop() {
		if err := unary(ctx, "/grpc.health.v1.Health/Check", nil, nil, conn, invoke); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spent(b)-begin)/float64(b.N), "cpu-ns/op")
}
