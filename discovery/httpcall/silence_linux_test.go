package httpcall

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dispatch.example/dispatch/discovery/guard"
)

// cuttable is a listener whose connections can be cut as a network is: nothing that
// arrives is even acknowledged.
type cuttable struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func (l *cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *cuttable) cut(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if e := raw.Control(func(fd uintptr) {
			keep := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // 0 bytes of each packet
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &keep})
		}); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
}

// R3: a peer that falls silent on a kept connection is found in three seconds, although
// the caller would wait a minute, and the call goes to another instance.
func TestSilentPeerOnAKeptConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(says("one", nil))
	l := &cuttable{Listener: server.Listener}
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	one := instance(t, "order-core", "prod", server.Listener.Addr().String())
	p, _, client := calling(t, guard.Settings{Deadline: time.Minute}, one, one, serving(t, "order-core", "prod", says("two", nil)))
	if text := textOf(client.Get("http://order-core/")); text != "one" {
		t.Fatal(text)
	}
	l.cut(t)
	_ = l.Close() // net/http connects anew for what is idempotent: to nobody
	began := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://order-core/", nil)
	if err != nil {
		t.Fatal(err)
	}
	text := textOf(client.Do(req))
	took := time.Since(began)
	t.Logf("found in %s", took)
	if text != "two" || p.outcomes() != "answered unreachable answered" || took < 2*time.Second || took > 5*time.Second {
		t.Errorf("%q after %s, outcomes %s", text, took, p.outcomes())
	}
}
