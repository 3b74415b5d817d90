package grpccall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

// A01, B12: two services by name, each call to the instance that was picked for it.
func TestCallByName(t *testing.T) {
	t.Parallel()
	one, two := serve(t, "order-core", "prod", nil), serve(t, "order-core", "prod", nil)
	other := serve(t, "passport_server.rpc_service", "prod", nil)
	p := &picks{}
	p.set(1, one.Instance, two.Instance, other.Instance)
	orders, passport := dial(t, p, "dispatch:///order-core"), dial(t, p, "dispatch:///passport_server.rpc_service")
	went := map[string]int64{}
	for range 100 {
		var pick caller.Pick
		if err := check(t, orders, PickTo(&pick)); err != nil {
			t.Fatal(err)
		}
		went[pick.Instance.Address.String()]++
	}
	if err := check(t, passport); err != nil {
		t.Error(err)
	}
	for _, s := range []*server{one, two} {
		if n := s.answered.Load(); n == 0 || n != went[s.Address.String()] {
			t.Errorf("%s answered %d calls, picked for %d", s.Address, n, went[s.Address.String()])
		}
	}
	if other.answered.Load() != 1 || p.count != 101 {
		t.Errorf("the other service answered %d; %d picks for 101 calls", other.answered.Load(), p.count)
	}
	if one.opened.Load() != 1 || two.opened.Load() != 1 {
		t.Errorf("%d and %d connections", one.opened.Load(), two.opened.Load())
	}
}

func TestNoMatch(t *testing.T) {
	t.Parallel()
	p := &picks{own: route.Query{Env: "test"}}
	p.set(1, instance(t, "order-core", "prod", "127.0.0.1:1"))
	for _, wait := range []bool{false, true} {
		err := check(t, dial(t, p, "dispatch:///order-core"), grpc.WaitForReady(wait))
		if none, ok := errors.AsType[*route.NoMatch](err); !ok || none.Service != "order-core" || status.Code(err) != codes.FailedPrecondition {
			t.Errorf("wait for ready %v: %v", wait, err)
		}
	}
	notLoaded := unmade{fault.New(fault.Unavailable, "not_loaded", "no list yet")}
	if status.Code(notLoaded) != codes.Unavailable || fault.CodeOf(notLoaded) != "not_loaded" {
		t.Errorf("%v is %s", notLoaded, status.Code(notLoaded))
	}
}

// An instance that is away fails its call soon, and does not hold one that would wait.
func TestDeadInstance(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there now
	p := &picks{}
	p.set(1, instance(t, "order-core", "prod", l.Addr().String()))
	client := dial(t, p, "dispatch:///order-core")
	for _, wait := range []bool{false, true} {
		started := time.Now()
		err := check(t, client, grpc.WaitForReady(wait))
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), l.Addr().String()) || time.Since(started) > 5*time.Second {
			t.Errorf("wait for ready %v: %v after %s", wait, err, time.Since(started))
		}
	}
	if p.count != 2 {
		t.Errorf("%d picks for 2 calls", p.count)
	}
}

// One that is silent costs the dial limit.
func TestSilentInstance(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := &picks{}
	p.set(1, instance(t, "order-core", "prod", l.Addr().String()))
	started := time.Now()
	err = check(t, dial(t, p, "dispatch:///order-core"))
	if took := time.Since(started); status.Code(err) != codes.Unavailable || took > connectTimeout+2*time.Second {
		t.Errorf("%v after %s", err, took)
	}
}

// T63: instances come and go; calls in work end where they began, and connections
// to the others stay.
func TestInstancesComeAndGo(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hold := func(context.Context) error { <-release; return nil }
	stays, leaves := serve(t, "order-core", "prod", nil), serve(t, "order-core", "prod", hold)
	p := &picks{}
	p.set(1, leaves.Instance)
	client := dial(t, p, "dispatch:///order-core")
	stream, err := client.Watch(t.Context(), &health.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	p.set(1, stays.Instance)
	for range 20 {
		if err := check(t, client); err != nil {
			t.Error(err)
		}
	}
	if leaves.answered.Load() != 1 || leaves.open.Load() != 1 {
		t.Errorf("the one that left answered %d, has %d connections", leaves.answered.Load(), leaves.open.Load())
	}
	close(release)
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the call in work: %v", err)
	}
	until(t, "its connection closed", func() bool { return leaves.open.Load() == 0 })
	p.set(1, stays.Instance, leaves.Instance)
	p.set(1, stays.Instance)
	if err := check(t, client); err != nil || stays.opened.Load() != 1 {
		t.Errorf("after churn: %v, %d connections", err, stays.opened.Load())
	}
}

// A45, T63: new rules replace every connection once, and cost no call.
func TestRulesThatChange(t *testing.T) {
	t.Parallel()
	servers := []*server{serve(t, "order-core", "prod", nil), serve(t, "order-core", "prod", nil)}
	p := &picks{}
	client := dial(t, p, "dispatch:///order-core")
	each := func(number uint64) {
		t.Helper()
		for _, s := range servers {
			p.set(number, servers[0].Instance, servers[1].Instance)
			before := s.answered.Load()
			until(t, "a call to each", func() bool {
				if err := check(t, client); err != nil {
					t.Fatal(err)
				}
				return s.answered.Load() > before
			})
		}
	}
	each(7)
	each(7)
	each(8)
	until(t, "both are connected anew", func() bool {
		_ = check(t, client)
		return servers[0].opened.Load() == 2 && servers[1].opened.Load() == 2
	})
	until(t, "the old ones are closed", func() bool { return servers[0].open.Load() == 1 && servers[1].open.Load() == 1 })
	each(8)
	each(7) // a list that is older
	if servers[0].opened.Load() != 2 || servers[1].opened.Load() != 2 {
		t.Errorf("%d and %d connections in all, want 2 each", servers[0].opened.Load(), servers[1].opened.Load())
	}
}

// A server that restarts is connected to again by the next call that wants it.
func TestRestartedInstance(t *testing.T) {
	t.Parallel()
	first := serve(t, "order-core", "prod", nil)
	_, _, client := calling(t, guard.Settings{Off: true}, first.Instance) // a breaker would open
	if err := check(t, client); err != nil {
		t.Fatal(err)
	}
	first.grpc.Stop()
	until(t, "the end is noticed", func() bool { return status.Code(check(t, client)) == codes.Unavailable })
	l, err := net.Listen("tcp", first.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, &server{Instance: first.Instance})
	until(t, "calls succeed again", func() bool { return check(t, client) == nil })
}

// B02, B04: three hops, unary and by stream. The third sees what the entry stamped,
// although the one between belongs to the base.
func TestLaneOverThreeHops(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	note := func(hop string, next func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			lane := caller.LaneOf(ctx)
			mu.Lock()
			seen = append(seen, fmt.Sprintf("%s:%s/%s/%s%v", hop, lane.Env, lane.Base, lane.Person, metadata.ValueFromIncomingContext(ctx, "baggage")))
			mu.Unlock()
			if next != nil {
				return next(ctx)
			}
			return nil
		}
	}
	b, c := &picks{own: route.Query{Env: "t0"}}, &picks{own: route.Query{Env: "t2", Base: "t0"}}
	b.set(1, serve(t, "c", "t0", note("c-t0", nil)).Instance, serve(t, "c", "t2", note("c-t2", nil)).Instance)
	toC := dial(t, b, "dispatch:///c")
	c.set(1, serve(t, "b", "t0", note("b-t0", func(ctx context.Context) error {
		_, err := toC.Check(ctx, &health.HealthCheckRequest{})
		return err
	})).Instance)
	toB := dial(t, c, "dispatch:///b")
	expect := func(want string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(seen, " "); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		seen = nil
	}
	if _, err := toB.Check(t.Context(), &health.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	expect("b-t0:t2/t0/[env_id=t2,base_env=t0] c-t2:t2/t0/[env_id=t2,base_env=t0]") // T60

	ctx := metadata.AppendToOutgoingContext(caller.WithLane(t.Context(), route.Query{Env: "t0", Person: "li"}), "baggage", "other=1,env_id=forged")
	stream, err := toB.Watch(ctx, &health.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF {
		t.Error(err)
	}
	expect("b-t0:t0//li[env_id=t0,dispatch_person=li,other=1] c-t0:t0//li[env_id=t0,dispatch_person=li,other=1]")

	// D09: by hand at the first hop.
	ctx = metadata.AppendToOutgoingContext(t.Context(), "x-dispatch-version", "zlt2")
	if _, err := toB.Check(ctx, &health.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	expect("b-t0:t2/t0/zlt2[env_id=t2,base_env=t0] c-t2:t2/t0/zlt2[env_id=t2,base_env=t0,dispatch_person=zlt2]")

	if err := func() error {
		_, err := toB.Check(caller.WithLane(t.Context(), route.Query{Env: "t0", Person: strings.Repeat("a", 200)}), &health.HealthCheckRequest{})
		return err
	}(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a lane that cannot be read: %v", err)
	}
}

// B02: HTTP and gRPC pass on the same lane: a page's request enters by HTTP, B is
// called by gRPC, C by HTTP again.
func TestLaneOverBothTransports(t *testing.T) {
	t.Parallel()
	p := &picks{}
	c := httptest.NewServer(httpcall.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lane := caller.LaneOf(r.Context())
		_, _ = fmt.Fprint(w, lane.Env, "/", lane.Base, "/", lane.Person)
	})))
	defer c.Close()
	toC := httpcall.New(p, nil)
	defer toC.CloseIdleConnections()
	arrived := make(chan string, 1)
	b := serve(t, "b", "t0", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://c/", nil)
		if err != nil {
			return err
		}
		resp, err := toC.RoundTrip(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		arrived <- string(text)
		return err
	})
	p.set(1, b.Instance, instance(t, "c", "t0", c.Listener.Addr().String()))
	toB := dial(t, p, "dispatch:///b")
	entry := httpcall.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := toB.Check(r.Context(), &health.HealthCheckRequest{}); err != nil {
			t.Error(err)
			arrived <- "nothing"
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Baggage", "env_id=t2,base_env=t0,dispatch_person=li")
	entry.ServeHTTP(httptest.NewRecorder(), r)
	if got := <-arrived; got != "t2/t0/li" {
		t.Errorf("C sees %s", got)
	}
}

// The edge believes nobody outside about lanes.
func TestStripBaggage(t *testing.T) {
	t.Parallel()
	var lanes atomic.Int64
	look := func(ctx context.Context) error {
		if caller.LaneOf(ctx) != (route.Query{}) || strings.Join(metadata.ValueFromIncomingContext(ctx, "baggage"), ";") != "a=1" {
			lanes.Add(1)
		}
		return nil
	}
	edge := serve(t, "edge", "prod", look, StripBaggage()...)
	conn, err := grpc.NewClient(edge.Address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "baggage", "env_id=t2,a=1", "x-dispatch-version", "li")
	client := health.NewHealthClient(conn)
	if _, err := client.Check(ctx, &health.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	stream, err := client.Watch(ctx, &health.HealthCheckRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF || lanes.Load() != 0 || edge.answered.Load() != 2 {
		t.Errorf("%v; %d of %d calls had a lane", err, lanes.Load(), edge.answered.Load())
	}
}

func TestInWork(t *testing.T) {
	t.Parallel()
	var s *server
	ready := make(chan struct{})
	var counted atomic.Int64
	s = serve(t, "order-core", "prod", func(context.Context) error { <-ready; counted.Store(s.inWork.Load()); return nil })
	close(ready)
	p := &picks{}
	p.set(1, s.Instance)
	client := dial(t, p, "dispatch:///order-core")
	if err := check(t, client); err != nil || counted.Load() != 1 {
		t.Errorf("%v; %d in work", err, counted.Load())
	}
	until(t, "none in work", func() bool { return s.inWork.Load() == 0 })
}

// What would choose instances past the rules is refused.
func TestNothingElseChooses(t *testing.T) {
	t.Parallel()
	s := serve(t, "order-core", "prod", nil)
	p := &picks{}
	p.set(1, s.Instance)
	for says, client := range map[string]health.HealthClient{
		"is not dispatch:///SERVICE": dial(t, p, s.Address.String()),
		"dispatch://x/order-core is": dial(t, p, "dispatch://x/order-core"),
		"no instance of":             dial(t, p, "dispatch:///"),
		"WithDisableServiceConfig":   dial(t, p, "dispatch:///order-core", grpc.WithDisableServiceConfig()),
	} {
		if err := check(t, client); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if n := s.answered.Load(); n != 0 {
		t.Errorf("%d calls arrived", n)
	}
	// A default of the client's own loses against ours.
	if err := check(t, dial(t, p, "dispatch:///order-core", grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))); err != nil || p.count == 0 {
		t.Errorf("%v after %d picks", err, p.count)
	}
}

// A09: 1,000 clients that call and close leave nothing behind.
func TestClientsLeaveNothing(t *testing.T) {
	s := serve(t, "order-core", "prod", nil)
	p := &picks{}
	p.set(1, s.Instance)
	cycle := func() {
		conn, err := grpc.NewClient("dispatch:///order-core", append(DialOptions(p), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(t, health.NewHealthClient(conn)); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 50 {
		cycle()
	}
	until(t, "connections closed", func() bool { return s.open.Load() == 0 })
	goroutines, before := runtime.NumGoroutine(), heap()
	for range 1000 {
		cycle()
	}
	until(t, "connections closed", func() bool { return s.open.Load() == 0 })
	until(t, "goroutines ended", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	if after := heap(); after > before+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// Many calls while instances and rules change: each is served by one that is there.
func TestCallsWhileEverythingChanges(t *testing.T) {
	t.Parallel()
	var all []*server
	for range 4 {
		all = append(all, serve(t, "order-core", "prod", nil))
	}
	p := &picks{}
	p.set(1, all[0].Instance)
	client := dial(t, p, "dispatch:///order-core")
	ctx, stop := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	changes.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for n := uint64(8); ctx.Err() == nil; n++ {
			p.set(n/8, all[n%4].Instance, all[(n+1)%4].Instance)
			<-tick.C
		}
	})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for range 200 {
				if err := check(t, client); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
	stop()
	changes.Wait()
}
