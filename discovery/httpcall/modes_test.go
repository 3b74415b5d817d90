package httpcall

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/internal/testenv"
)

// modes are the ways in which an instance of order-core can be, on real sockets.
func modes(t *testing.T) map[string]discovery.Instance {
	return map[string]discovery.Instance{
		"ok":      serving(t, "order-core", "prod", says("ok", nil)),
		"refused": refused(t),
		"black":   instance(t, "order-core", "prod", testenv.BlackHole(t)),
		"hang":    raw(t, func(net.Conn) {}),
		"reset":   raw(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }),
		"stall":   raw(t, says200("Content-Length: 100\r\n\r\nhalf")),
		"cut":     raw(t, func(c net.Conn) { says200("Content-Length: 100\r\n\r\nhalf")(c); _ = c.Close() }),
		"500":     status(t, 500), "501": status(t, 501), "502": status(t, 502), "503": status(t, 503),
		"504": status(t, 504), "505": status(t, 505), "429": status(t, 429), "404": status(t, 404),
	}
}

// status is an instance that answers at once, with a status.
func status(t *testing.T, code int) discovery.Instance {
	return serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, http.StatusText(code))
	}))
}

func says200(rest string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+rest) }
}

// raw is an instance that reads the head of a request, does what it is told, and keeps
// the connection.
func raw(t *testing.T, then func(net.Conn)) discovery.Instance {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards conns
	var conns []net.Conn
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					then(c)
				}
			}()
		}
	}()
	return instance(t, "order-core", "prod", l.Addr().String())
}

// refused is an instance whose process is gone.
func refused(t *testing.T) discovery.Instance {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return instance(t, "order-core", "prod", l.Addr().String())
}

// calling is a client with these settings that picks from instances in turn.
func calling(t *testing.T, set guard.Settings, instances ...discovery.Instance) (*picks, *Transport, *http.Client) {
	t.Helper()
	p := &picks{inTurn: true}
	p.set(1, instances...)
	g, err := guard.New(p, guard.Options{Default: set})
	if err != nil {
		t.Fatal(err)
	}
	transport := NewGuarded(g, nil)
	return p, transport, clientOf(t, transport)
}
