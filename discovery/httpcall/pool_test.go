package httpcall

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
)

// wires is a network of pipes for a bubble of synctest: servers by address, and how
// often they were connected to and left.
type wires struct {
	dials, closes atomic.Int64

	mu      sync.Mutex // guards the rest
	servers map[string]*pipeServer
}

type pipeServer struct {
	http.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (w *wires) serve(address string, h http.Handler) {
	s := &pipeServer{Server: http.Server{Handler: h}, conns: make(chan net.Conn), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.servers == nil {
		w.servers = map[string]*pipeServer{}
	}
	w.servers[address] = s
	go func() { _ = s.Serve(s) }() // ends with Close
}

func (w *wires) end() {
	for _, s := range w.servers {
		_ = s.Server.Close()
	}
	synctest.Wait()
}

func (w *wires) dial(_ context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	s := w.servers[address]
	w.mu.Unlock()
	if s == nil {
		return nil, syscall.ECONNREFUSED
	}
	w.dials.Add(1)
	here, there := net.Pipe()
	s.conns <- there
	return &wire{Conn: here, closes: &w.closes}, nil
}

type wire struct {
	net.Conn
	closes *atomic.Int64
	once   sync.Once
}

func (c *wire) Close() error {
	c.once.Do(func() { c.closes.Add(1) })
	return c.Conn.Close()
}

func (s *pipeServer) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *pipeServer) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }
func (s *pipeServer) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// pooled is a Transport over wires with instances at three addresses.
func pooled(t *testing.T, h http.Handler) (*wires, *picks, *Transport, []discovery.Instance) {
	w, p := &wires{}, &picks{}
	var all []discovery.Instance
	for _, address := range []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"} {
		w.serve(address, h)
		all = append(all, instance(t, "order-core", "prod", address))
	}
	p.set(7, all...)
	base := defaultBase()
	base.DialContext = w.dial
	return w, p, New(p, base), all
}

// each calls every instance once.
func each(t *testing.T, p *picks, transport *Transport, number uint64, instances ...discovery.Instance) {
	t.Helper()
	for _, in := range instances {
		p.set(number, in)
		if _, err := get(t, &http.Client{Transport: transport}, t.Context(), "http://order-core/"); err != nil {
			t.Fatal(err)
		}
	}
}

// A45, T63: newer rules replace all connections, once; nothing else does.
func TestPoolsAreRebuiltWhenRulesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, transport, all := pooled(t, says("ok", nil))
		defer w.end()
		defer transport.CloseIdleConnections()
		each(t, p, transport, 7, all...)
		each(t, p, transport, 7, all...)
		if d, c := w.dials.Load(), w.closes.Load(); d != 3 || c != 0 {
			t.Fatalf("before: %d dials, %d closes", d, c)
		}
		// Instances come and go under the same rules.
		each(t, p, transport, 7, all[0], all[2])
		each(t, p, transport, 7, all...)
		if d, c := w.dials.Load(), w.closes.Load(); d != 3 || c != 0 {
			t.Errorf("after churn: %d dials, %d closes", d, c)
		}
		// An hour without a change, a call a minute to each.
		for range 60 {
			time.Sleep(time.Minute)
			each(t, p, transport, 7, all...)
		}
		if d, c := w.dials.Load(), w.closes.Load(); d != 3 || c != 0 {
			t.Errorf("after an hour: %d dials, %d closes", d, c)
		}
		each(t, p, transport, 8, all[0])
		synctest.Wait()
		if d, c := w.dials.Load(), w.closes.Load(); d != 4 || c != 3 {
			t.Errorf("after new rules: %d dials, %d closes, want each of 3 closed", d, c)
		}
		each(t, p, transport, 8, all...)
		each(t, p, transport, 7, all...) // picks that were made before
		each(t, p, transport, 8, all...)
		if d, c := w.dials.Load(), w.closes.Load(); d != 6 || c != 3 {
			t.Errorf("in the end: %d dials, %d closes, want 3 of each number", d, c)
		}
		// Another service with newer rules leaves these alone, and has its own.
		other := instance(t, "stock", "prod", all[0].Address.String())
		p.set(9, other)
		if _, err := get(t, &http.Client{Transport: transport}, t.Context(), "http://stock/"); err != nil {
			t.Error(err)
		}
		each(t, p, transport, 8, all...)
		if d, c := w.dials.Load(), w.closes.Load(); d != 7 || c != 3 {
			t.Errorf("beside another service: %d dials, %d closes", d, c)
		}
	})
}

// T63: a call in work ends well when rules change, and its connection after it.
func TestCallInWorkSurvivesNewRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, transport, all := pooled(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			_, _ = w.Write([]byte("done"))
		}))
		defer w.end()
		defer transport.CloseIdleConnections()
		p.set(7, all[0])
		answers := make(chan string)
		go func() {
			text, err := get(t, &http.Client{Transport: transport}, t.Context(), "http://order-core/")
			if err != nil {
				text = err.Error()
			}
			answers <- text
		}()
		time.Sleep(time.Second)
		each(t, p, transport, 8, all[1]) // takes 2 s; the first ends meanwhile
		if text := <-answers; text != "done" {
			t.Errorf("the call in work: %s", text)
		}
		synctest.Wait()
		if c := w.closes.Load(); c != 1 {
			t.Errorf("%d closes, want that of the old connection", c)
		}
	})
}

// Many calls that see new rules at once make one new pool.
func TestRulesThatChangeUnderLoad(t *testing.T) {
	t.Parallel()
	p := &picks{}
	in := serving(t, "order-core", "prod", says("ok", nil))
	p.set(1, in)
	transport := New(p, nil)
	client := clientOf(t, transport)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for i := range 50 {
				if i == 25 {
					p.set(2, in)
				}
				if _, err := get(t, client, t.Context(), "http://order-core/"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if n := transport.poolsOf("order-core").now.Load().number; n != 2 {
		t.Errorf("the pool is of rules %d", n)
	}
}
