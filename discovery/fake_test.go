package discovery

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"
)

// fakeNet is the network of a bubble of synctest: registries at a port, which may
// crash, and instances that accept connections or do not. Its connections are pipes.
type fakeNet struct {
	port     string // of registries
	handler  http.Handler
	listener pipeListener
	server   *http.Server
	started  time.Time
	registry *prometheus.Registry // of all sources

	mu    sync.Mutex      // guards the rest
	alive map[string]bool // instances that accept connections
	dials []time.Duration // to registries
	down  bool            // registries refuse connections
}

// start makes the network work until close.
func (f *fakeNet) start(port string, handler http.Handler) {
	f.port, f.handler, f.started = port, handler, time.Now()
	f.alive, f.registry = map[string]bool{}, prometheus.NewRegistry()
	f.listen()
}

// fakeConsul answers over HTTP what a test scripts: headers, indexes, delays and
// faults that no real agent can be brought to show.
type fakeConsul struct {
	fakeNet
	asked []question                   // guarded as all is
	says  func(question) reply         // about a service, and about their names
	agent func(question) (int, string) // about registrations; nil: all is well
}

// question is a request as it came.
type question struct {
	at         time.Duration
	host       string
	method     string
	path       string
	index      string // "" if none was sent
	wait       string
	consistent bool
	body       string
}

// reply is what to answer about a service. Status 0 is 200; no headers beside
// those given.
type reply struct {
	status    int
	index     string
	instances []Instance
	body      string // instead of instances
	headers   map[string]string
	delay     time.Duration
}

// asking is a test for a bubble of synctest, with a fake Consul and a source that
// asks it.
func asking(hosts string, test func(t *testing.T, f *fakeConsul, c *consul)) func(*testing.T) {
	return func(t *testing.T) {
		f := newFakeConsul()
		defer f.close()
		c := f.source(t, hosts)
		defer c.Close()
		test(t, f, c)
	}
}

func newFakeConsul() *fakeConsul {
	f := &fakeConsul{}
	f.start(":8500", http.HandlerFunc(f.answer))
	return f
}

func (f *fakeNet) listen() {
	f.listener = pipeListener{make(chan net.Conn), make(chan struct{}), &sync.Once{}}
	f.server = &http.Server{Handler: f.handler}
	go func(s *http.Server, l net.Listener) { _ = s.Serve(l) }(f.server, f.listener) // ends with Close
}

func (f *fakeNet) close() {
	_ = f.server.Close()
	synctest.Wait()
}

func (f *fakeConsul) source(t *testing.T, hosts string) *consul {
	t.Helper()
	options, err := parseConsul(hosts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConsul(options, Options{Registry: f.registry}, f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// DialContext connects to a registry at its port and to instances anywhere else.
func (f *fakeNet) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	registry := strings.HasSuffix(address, f.port)
	up := registry && !f.down || f.alive[address]
	if registry {
		f.dials = append(f.dials, time.Since(f.started))
	}
	l := f.listener
	f.mu.Unlock()
	if !up {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	if !registry {
		return here, there.Close()
	}
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeConsul) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	q := question{at: time.Since(f.started), host: r.Host, method: r.Method, path: r.URL.Path, index: r.URL.Query().Get("index"),
		wait: r.URL.Query().Get("wait"), consistent: r.URL.Query().Has("consistent"), body: string(body)}
	f.mu.Lock()
	f.asked = append(f.asked, q)
	says, agent := f.says, f.agent
	f.mu.Unlock()
	if !strings.HasPrefix(q.path, "/v1/health/service/") && q.path != "/v1/catalog/services" {
		status, text := http.StatusOK, ""
		switch {
		case agent != nil:
			status, text = agent(q)
		case q.method == http.MethodGet:
			status, text = http.StatusNotFound, "unknown service ID"
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // a caller that is gone needs no answer
		return
	}
	a := says(q)
	select {
	case <-time.After(a.delay):
	case <-r.Context().Done():
		return
	}
	for name, value := range a.headers {
		w.Header().Set(name, value)
	}
	if a.index != "" {
		w.Header().Set("X-Consul-Index", a.index)
	}
	w.WriteHeader(max(a.status, http.StatusOK))
	_, _ = io.WriteString(w, a.text())
}

func (a reply) text() string {
	if a.body != "" {
		return a.body
	}
	entries := []*api.ServiceEntry{}
	for _, in := range a.instances {
		entries = append(entries, &api.ServiceEntry{Node: &api.Node{Address: "10.9.9.9"},
			Service: &api.AgentService{ID: in.ID, Service: in.Service, Address: in.Address.Host, Port: int(in.Address.Port), Meta: in.meta()}})
	}
	text, err := json.Marshal(entries)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// script answers one question after the other; the last answer stays, and comes
// when a question has waited as long as it wanted to.
func (f *fakeConsul) script(replies ...reply) {
	n := 0
	f.set(func(q question) reply {
		r := replies[min(n, len(replies)-1)]
		if n++; n > len(replies) && r.delay == 0 && q.index != "" {
			r.delay = blockFor
		}
		return r
	})
}

func (f *fakeConsul) set(says func(question) reply) {
	var mu sync.Mutex
	f.mu.Lock()
	defer f.mu.Unlock()
	f.says = func(q question) reply {
		mu.Lock()
		defer mu.Unlock()
		return says(q)
	}
}

// live says which instances accept connections.
func (f *fakeNet) live(instances ...Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive = map[string]bool{}
	for _, in := range instances {
		f.alive[in.Address.String()] = true
	}
}

// questions are those about services; since cuts off what came before.
func (f *fakeConsul) questions(since time.Duration) (all []question) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.asked {
		if q.at >= since && strings.HasPrefix(q.path, "/v1/health/service/") {
			all = append(all, q)
		}
	}
	return all
}

// crash cuts all connections and refuses new ones until listen.
func (f *fakeNet) crash() {
	f.mu.Lock()
	f.down = true
	server := f.server
	f.mu.Unlock()
	_ = server.Close()
}

func (f *fakeNet) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
	f.listen()
}

// count is how many problems of a kind the sources have counted.
func (f *fakeNet) count(t *testing.T, kind problemKind) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "dispatch_discovery_problems_total" && label.GetValue() == string(kind) {
					return metric.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// pipeListener is a listener whose connections are handed to it.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// five are instances 10.0.0.1 to 10.0.0.5 of orders.
func five() []Instance {
	var all []Instance
	for i := range 5 {
		all = append(all, instance("orders", "10.0.0."+strconv.Itoa(i+1)+":80"))
	}
	return all
}

// noNetwork reaches a registry, but no instance, for reasons of its own.
type noNetwork struct{ *fakeConsul }

func (noNetwork) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EMFILE}
}
