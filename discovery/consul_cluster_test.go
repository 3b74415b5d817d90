package discovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/testenv"
)

// leaderOf is the position of the server that leads.
func leaderOf(t *testing.T, servers []*testenv.ConsulAgent) int {
	t.Helper()
	for i, s := range servers {
		client, err := api.NewClient(&api.Config{Address: s.Addr})
		if err != nil {
			t.Fatal(err)
		}
		self, err := client.Agent().Self()
		if err == nil && self["Stats"]["consul"].(map[string]any)["leader"] == "true" {
			return i
		}
	}
	t.Fatal("nobody leads")
	return 0
}

// within waits until something is so.
func within(t *testing.T, d time.Duration, what string, so func() bool) time.Duration {
	t.Helper()
	started, deadline := time.Now(), time.After(d)
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("after %s: %s", d, what)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return time.Since(started)
}

// C14, C15: of three real servers one may go, even the leader, and everything goes
// on. With two gone nobody can write: lists stay, and the metric says so within a
// minute, although our agent still takes every renewal.
func TestThreeConsulServers(t *testing.T) {
	t.Parallel()
	servers := testenv.ConsulCluster(t, 3)
	if leader := leaderOf(t, servers); leader != 2 { // ours is to stay, and to follow
		servers[leader], servers[2] = servers[2], servers[leader]
	}
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.Addr)
	}
	registry := prometheus.NewRegistry()
	opened, err := Open("consul://"+strings.Join(hosts, ","), Options{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	service := serviceOf(t)
	first := Instance{Service: service, Address: listener(t), Coordinates: home()}
	second := Instance{Service: service, Address: listener(t), Coordinates: home()}
	reg, end := running(t, opened, first)
	w, _ := watching(t, opened, service)
	await(t, w, soon, lists(first.Address.String()))
	if writable(t, registry) != 1 {
		t.Error("with three servers: not writable")
	}

	servers[2].Stop(t)
	other, leave := running(t, opened, second)
	// An election, and a back-off that is wide because everybody lost the same leader.
	after := await(t, w, time.Minute, lists(first.Address.String(), second.Address.String()))
	within(t, time.Minute, "not writable with two of three", func() bool { return writable(t, registry) == 1 && w.State().Problem == nil })
	if err := other.Problem(); err != nil {
		t.Error(err)
	}

	servers[1].Stop(t)
	took := within(t, time.Minute, "writable with one of three", func() bool { return writable(t, registry) == 0 })
	t.Logf("not writable after %s", took)
	client, err := api.NewClient(&api.Config{Address: servers[0].Addr})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.KV().Put(&api.KVPair{Key: "x"}, nil); err == nil {
		t.Error("the registry took a write")
	}
	within(t, 2*soon, "no problem is shown", func() bool { return w.State().Problem != nil })
	if s, _ := w.Current(); s.Version != after.Version {
		t.Errorf("version %d of %v, want the list unchanged", s.Version, addresses(s))
	}
	if err := reg.Problem(); err != nil { // nothing that its process could do better
		t.Errorf("the lease: %v", err)
	}

	servers[1].Start(t)
	within(t, time.Minute, "not writable although two are back", func() bool { return writable(t, registry) == 1 && w.State().Problem == nil })
	if s, _ := w.Current(); !slices.Equal(addresses(s), addresses(after)) {
		t.Errorf("in the end: %v", addresses(s))
	}
	for _, end := range []func() error{end, leave} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// A12: an instance that stops answering is not healthy, although its process renews.
func TestConsulChecksWhatAnswers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http&check-path=/healthz", "tcp"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := newStoppable(t)
			source := openFor(t, "consul://"+testenv.Consul(t)+"?check="+kind)
			reg, end := running(t, source, Instance{Service: serviceOf(t), Address: server.address, Coordinates: home()})
			w, _ := watching(t, source, reg.Instances()[0].Service)
			await(t, w, soon, lists(server.address.String()))
			server.stop()
			await(t, w, 2*checkEvery+soon, lists())
			if err := reg.Problem(); err != nil {
				t.Errorf("the lease: %v", err)
			}
			server.start(t)
			await(t, w, 2*checkEvery+soon, lists(server.address.String()))
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stoppable answers /healthz until it is stopped.
type stoppable struct {
	address Address
	server  *http.Server
}

func newStoppable(t *testing.T) *stoppable {
	s := &stoppable{address: Address{Host: "127.0.0.1"}}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *stoppable) start(t *testing.T) {
	t.Helper()
	l := listenAt(t, s.address)
	address, err := ParseAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s.address, s.server = address, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "ok")
	})}
	go func(server *http.Server) { _ = server.Serve(l) }(s.server) // ends with stop
}

func (s *stoppable) stop() { _ = s.server.Close() }

// BenchmarkConsulChange is the time from a write that a real agent took to the list
// of a Watcher: an instance comes or goes.
func BenchmarkConsulChange(b *testing.B) {
	source, err := Open("consul://"+testenv.Consul(b)+"?ttl=1h", Options{}) // nobody renews here
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	const service = "bench-change"
	w, err := NewWatcher(source, service, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { stop(); <-ended }()
	wait := func(want int) {
		for {
			s, changed := w.Current()
			if s.Version > 0 && len(s.Instances) == want {
				return
			}
			select {
			case <-changed:
			case <-time.After(soon):
				b.Fatalf("the list is %v, want %d", addresses(s), want)
			}
		}
	}
	// Another stays, so that no list is empty: those are asked for twice.
	stays, err := source.Register(b.Context(), instance(service, "10.0.0.2:80"))
	if err != nil {
		b.Fatal(err)
	}
	wait(1)
	var took []time.Duration
	for i := range max(b.N, 100) {
		in := instance(service, fmt.Sprintf("10.1.%d.%d:80", i/250, i%250+1)) // one that flaps would be held back
		lease, err := source.Register(b.Context(), in)
		if err != nil {
			b.Fatal(err)
		}
		written := time.Now()
		wait(2)
		took = append(took, time.Since(written))
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		written = time.Now()
		wait(1)
		took = append(took, time.Since(written))
	}
	if err := stays.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
