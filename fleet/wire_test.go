package fleet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// wire is a network between replicas and one control node that can be cut, for
// tests on virtual time. What is sent while it is cut is lost, and connections of
// that time stay dead, as behind a firewall that forgot them.
type wire struct {
	mu    sync.Mutex
	down  bool
	conns chan net.Conn
	all   []*wireConn
}

// wireConn is one end.
type wireConn struct {
	net.Conn
	mu   sync.Mutex
	dead bool
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// serve lets h answer on the wire until the test ends.
func serve(tb testing.TB, h http.Handler) *wire {
	tb.Helper()
	w := &wire{conns: make(chan net.Conn)}
	server := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- server.Serve(w) }()
	tb.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return w
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.all {
		c.mu.Lock()
		c.dead = true
		c.mu.Unlock()
	}
	w.all = nil
}

func (w *wire) isDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// dial into a cut wire gets through if the wire is whole a second later, when TCP
// knocks again, and else times out.
func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if w.isDown() {
		if pause(ctx, time.Second); w.isDown() {
			pause(ctx, dialTimeout-time.Second)
			return nil, errors.New("dial: i/o timeout")
		}
	}
	near, far := net.Pipe()
	ends := [2]*wireConn{{Conn: near}, {Conn: far}}
	w.mu.Lock()
	w.all = append(w.all, ends[:]...)
	w.mu.Unlock()
	select {
	case w.conns <- ends[1]:
		return ends[0], nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(dialTimeout):
		return nil, errors.New("dial: connection refused")
	}
}

// source asks over the wire.
func (w *wire) source(name string) *HTTP {
	h := must(NewHTTP(HTTPOptions{URL: "http://localhost:8083", Name: name, Token: testToken}))
	h.client.Transport.(*http.Transport).DialContext = w.dial
	return h
}

// Accept, Close and Addr make the wire a net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	c, ok := <-w.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (w *wire) Close() error { close(w.conns); return nil }

func (w *wire) Addr() net.Addr { return &net.UnixAddr{Name: "wire"} }
