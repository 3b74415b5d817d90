package handler

import (
	"container/list"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections bounds how many connections a server has at once. Over the bound,
// the connection that has waited longest for a request makes way for the new one:
// whoever opens thousands and sends nothing ends their own. When all others have a
// request under way, or have not been read yet, as in a herd, the new one is
// refused. Whoever has asked and must go hears 503 with Retry-After.
// Waiting, as netutil.LimitListener does, would let slow ones hold up everybody.
type Connections struct {
	most    int
	refused *prometheus.CounterVec

	mu      sync.Mutex // guards what follows
	open    map[net.Conn]*list.Element
	waiting list.List // of *boundConn without a request, the longest first
}

// NewConnections checks the bound.
func NewConnections(most int, registry prometheus.Registerer) (*Connections, error) {
	if most < 1 {
		return nil, errors.New("bound connections: at least one must be allowed")
	}
	c := &Connections{most: most, open: map[net.Conn]*list.Element{}}
	c.refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_connections_refused_total",
		Help: "Public connections ended because --max-connections were open: waiting (without a request, for a new one) or busy (a new one, since all others had a request). When it rises, somebody opens them in thousands, or the bound is too low."}, []string{"why"})
	for _, why := range []string{"waiting", "busy"} {
		c.refused.WithLabelValues(why)
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_open_connections",
		Help: "Public connections open now. Near --max-connections those that wait for a request are ended."}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.open))
	})
	return c, errors.Join(registry.Register(c.refused), registry.Register(open))
}

// Bound makes s tell when its connections have requests, and returns the listener
// that s must serve. s must not speak TLS, which would hide the connections.
func (c *Connections) Bound(s *http.Server, l net.Listener) net.Listener {
	s.ConnState = c.changed
	return &boundListener{l, c}
}

type boundListener struct {
	net.Listener
	connections *Connections
}

// Accept ends connections that are too many and returns the next one that may stay.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		bound := &boundConn{Conn: conn}
		ended := l.connections.admit(bound)
		if ended != nil {
			ended.end()
		}
		if ended != bound {
			return bound, nil
		}
		go func() { // as net/http would, had it been admitted
			_, _ = bound.Read(make([]byte, 1024))
			_ = bound.Close()
		}()
	}
}

// boundConn is a connection that can be told to go.
type boundConn struct {
	net.Conn
	ended atomic.Bool
	read  atomic.Bool // since it began to wait: what it had sent was not a whole request
}

// end wakes whoever reads, to say goodbye.
func (c *boundConn) end() {
	c.ended.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

// CloseWrite lets net/http end an answer before it closes, so that an answer to
// what was too large is not lost in a reset.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

const (
	goodbye = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nCache-Control: private, no-store\r\n" +
		"Retry-After: 1\r\nConnection: close\r\nContent-Length: 89\r\n\r\n" +
		`{"status":503,"code":"too_busy","detail":"more connections than this node can serve now"}`
	// goodbyeTime is how long a connection that must go may take to send what it
	// has begun and to hear so.
	goodbyeTime = time.Second
)

// Read reads, or says goodbye if the connection has been told to go. It is called
// by the one goroutine that also writes, so the two never mix.
func (c *boundConn) Read(p []byte) (int, error) {
	if !c.ended.Load() {
		c.read.Store(true)
		n, err := c.Conn.Read(p)
		if err == nil || !c.ended.Load() {
			return n, err
		}
	}
	_ = c.SetDeadline(time.Now().Add(goodbyeTime))
	// What lies unread would reset the connection before the answer is read. Who
	// has asked nothing gets no answer: on a kept connection it would be taken for
	// that of the next request.
	if n, _ := c.Conn.Read(p); n > 0 {
		_, _ = io.WriteString(c.Conn, goodbye)
	}
	return 0, io.EOF
}

// admit counts a connection in and returns the one that must end for it, which
// may be itself; nil if there is room.
func (c *Connections) admit(conn *boundConn) (ended *boundConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.most {
		oldest := c.waiting.Front()
		if oldest == nil || !oldest.Value.(*boundConn).read.Load() {
			c.refused.WithLabelValues("busy").Inc()
			return conn
		}
		c.refused.WithLabelValues("waiting").Inc()
		ended, _ = c.waiting.Remove(oldest).(*boundConn)
		delete(c.open, ended)
	}
	c.open[conn] = c.wait(conn)
	return ended
}

func (c *Connections) wait(conn *boundConn) *list.Element {
	conn.read.Store(false)
	return c.waiting.PushBack(conn)
}

// changed is the server's ConnState. A connection becomes active when the header
// of a request has been read.
func (c *Connections) changed(conn net.Conn, state http.ConnState) {
	bound, _ := conn.(*boundConn) // Accept returns no other
	c.mu.Lock()
	defer c.mu.Unlock()
	waits, ok := c.open[conn]
	if !ok { // it made way
		return
	}
	if waits != nil {
		c.waiting.Remove(waits)
		c.open[conn] = nil
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.open[conn] = c.wait(bound)
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	case http.StateActive:
	}
}
