package grpccall

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverProcess) != "" {
		os.Exit(serveAlone())
	}
	os.Exit(testenv.Main(m))
}

// picks is a Caller over a list that a test sets. It knows environments and nothing
// else of a caller.Caller.
type picks struct {
	own    route.Query
	inTurn bool // not by chance: the first is first

	mu      sync.Mutex // guards the rest
	turn    int
	all     []discovery.Instance
	number  uint64
	changed chan struct{}
	count   int   // of picks for first attempts
	ended   []end // what was told of attempts
}

// end is how an attempt ended.
type end struct {
	at string
	o  caller.Outcome
}

func (p *picks) set(number uint64, all ...discovery.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number, p.all = number, all
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *picks) Lane(ctx context.Context) route.Query {
	lane := caller.LaneOf(ctx)
	if lane.Env == "" {
		lane.Env, lane.Base = p.own.Env, p.own.Base
	}
	return lane
}

func (p *picks) Pick(ctx context.Context, service string) (caller.Pick, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	return p.pick(ctx, service)
}

func (p *picks) PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 16 {
		if pick, err := p.pick(ctx, service); err != nil || pick.Instance.Address != not.Address {
			return pick, err
		}
	}
	return p.pick(ctx, service)
}

func (p *picks) Done(_ context.Context, pick *caller.Pick, o caller.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, end{pick.Instance.Address.String(), o})
}

func (p *picks) Refused(context.Context, string) string { return "abc-1" }

// told is how many outcomes outcomes has.
func (p *picks) told() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ended)
}

// outcomes are those that were told since the last time, as words.
func (p *picks) outcomes() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, e := range p.ended {
		all = append(all, e.o.String())
	}
	p.ended = nil
	return strings.Join(all, " ")
}

func (p *picks) pick(ctx context.Context, service string) (caller.Pick, error) {
	lane := p.Lane(ctx)
	for _, env := range []string{lane.Env, lane.Base} {
		match := slices.DeleteFunc(slices.Clone(p.all), func(in discovery.Instance) bool {
			return in.Service != service || env != "" && in.Env != env
		})
		if len(match) > 0 {
			at := rand.IntN(len(match))
			if p.inTurn {
				at = p.turn % len(match)
				p.turn++
			}
			in := match[at]
			return caller.Pick{Choice: route.Choice{Instance: &in, Reason: route.ByHome, Step: 1}, Number: p.number}, nil
		}
		if lane.Base == "" {
			break
		}
	}
	return caller.Pick{}, &route.NoMatch{Service: service, Lane: lane, Known: len(p.all)}
}

func (p *picks) Candidates(service string) (all []discovery.Instance, number uint64, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	for _, in := range p.all {
		if in.Service == service {
			all = append(all, in)
		}
	}
	return all, p.number, p.changed
}

// server is an instance that answers Check and Watch of the health service, and
// counts its connections.
type server struct {
	health.UnimplementedHealthServer
	discovery.Instance
	grpc     *grpc.Server
	check    func(context.Context) error // nil: serving
	opened   atomic.Int64                // connections so far
	open     atomic.Int64                // now
	inWork   atomic.Int64
	answered atomic.Int64
}

// serve starts a server of a service until the test ends.
func serve(t *testing.T, service, env string, check func(context.Context) error, opts ...grpc.ServerOption) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, &server{check: check, Instance: instance(t, service, env, l.Addr().String())}, opts...)
}

func serveOn(t *testing.T, l net.Listener, s *server, opts ...grpc.ServerOption) *server {
	s.grpc = grpc.NewServer(append(opts, ServerOptions(&s.inWork)...)...)
	health.RegisterHealthServer(s.grpc, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.grpc.Serve(counting{l, s}) // ends with Stop
	}()
	t.Cleanup(func() { s.grpc.Stop(); <-ended })
	return s
}

func (s *server) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	s.answered.Add(1)
	if s.check != nil {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

// Watch answers at once, and ends when check does.
func (s *server) Watch(_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	s.answered.Add(1)
	if err := stream.Send(&health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}); err != nil {
		return err
	}
	if s.check != nil {
		return s.check(stream.Context())
	}
	return nil
}

// counting counts the connections of a server.
type counting struct {
	net.Listener
	s *server
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.s.opened.Add(1)
	c.s.open.Add(1)
	return &counted{Conn: conn, s: c.s}, nil
}

type counted struct {
	net.Conn
	s    *server
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.s.open.Add(-1) })
	return c.Conn.Close()
}

func instance(t testing.TB, service, env, address string) discovery.Instance {
	t.Helper()
	a, err := discovery.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return discovery.Instance{ID: service + "-" + address, Service: service, Address: a,
		Coordinates: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: env, Version: "v1"}}
}

// dial is a client of a target until the test ends.
func dial(t *testing.T, c Caller, target string, more ...grpc.DialOption) health.HealthClient {
	t.Helper()
	return dialBy(t, New(c), target, more...)
}

// calling is a Dialer with these settings, and a client of order-core that picks from
// instances in turn.
func calling(t *testing.T, set guard.Settings, instances ...discovery.Instance) (*picks, *Dialer, health.HealthClient) {
	t.Helper()
	p := &picks{inTurn: true}
	p.set(1, instances...)
	g, err := guard.New(p, guard.Options{Default: set})
	if err != nil {
		t.Fatal(err)
	}
	d := NewGuarded(p, g)
	d.Degraded = map[string]Degraded{}
	return p, d, dialBy(t, d, "dispatch:///order-core")
}

func dialBy(t *testing.T, d *Dialer, target string, more ...grpc.DialOption) health.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(target, append(append(d.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials())), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return health.NewHealthClient(conn)
}

// check calls once, with a limit that only a hung test reaches.
func check(t *testing.T, c health.HealthClient, opts ...grpc.CallOption) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.Check(ctx, &health.HealthCheckRequest{}, opts...)
	return err
}

// until waits for something that happens by itself.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after 10 s still not: %s", what)
		}
	}
}
