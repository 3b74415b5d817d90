package handler

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections bounds how many connections a server has at once. Over the bound,
// the connection that has waited longest for a request makes way for the new one,
// so that whoever opens thousands and sends nothing ends their own. Only when
// each of them has a request under way is the new one refused. Waiting, as
// netutil.LimitListener does, would let slow ones hold up everybody.
type Connections struct {
	most    int
	refused *prometheus.CounterVec

	mu      sync.Mutex // guards what follows
	open    map[net.Conn]*list.Element
	waiting list.List // of net.Conn without a request, the longest first
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
		ended := l.connections.admit(conn)
		if ended != nil {
			_ = ended.Close() // nobody reads it any more
		}
		if ended != conn {
			return conn, nil
		}
	}
}

// admit counts a connection in and returns the one that must end for it, which
// may be itself; nil if there is room.
func (c *Connections) admit(conn net.Conn) (ended net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.most {
		oldest := c.waiting.Front()
		if oldest == nil {
			c.refused.WithLabelValues("busy").Inc()
			return conn
		}
		c.refused.WithLabelValues("waiting").Inc()
		ended, _ = c.waiting.Remove(oldest).(net.Conn)
		delete(c.open, ended)
	}
	c.open[conn] = c.waiting.PushBack(conn)
	return ended
}

// changed is the server's ConnState. A connection becomes active when the header
// of a request has been read.
func (c *Connections) changed(conn net.Conn, state http.ConnState) {
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
		c.open[conn] = c.waiting.PushBack(conn)
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	case http.StateActive:
	}
}
