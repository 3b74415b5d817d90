package httpcall

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
)

// modes are the ways in which an instance of order-core can be, on real sockets.
func modes(t *testing.T) map[string]discovery.Instance {
	return map[string]discovery.Instance{
		"ok":      serving(t, "order-core", "prod", says("ok", nil)),
		"refused": refused(t),
		"black":   blackHole(t),
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

// blackHole is an instance that answers no attempt to connect: its backlog is full.
func blackHole(t *testing.T) discovery.Instance {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := instance(t, "order-core", "prod", (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*syscall.SockaddrInet4).Port}).String())
	for range 16 {
		c, err := net.DialTimeout("tcp", in.Address.String(), 100*time.Millisecond)
		if err != nil {
			return in // it is full
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the backlog takes 16 connections")
	return in
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
