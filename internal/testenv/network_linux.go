package testenv

import (
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Cuttable is a listener whose connections can be cut as a network is: nothing that
// arrives is even acknowledged.
type Cuttable struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// Accept implements net.Listener.
func (l *Cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

// Cut cuts all connections that there are.
func (l *Cuttable) Cut(tb testing.TB) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			tb.Fatal(err)
		}
		if e := raw.Control(func(fd uintptr) {
			keep := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // 0 bytes of each packet
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &keep})
		}); e != nil || err != nil {
			tb.Fatal(e, err)
		}
	}
}
