package grpccall

import (
	"context"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	health "google.golang.org/grpc/health/grpc_health_v1"

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
			//lint:ignore SA1019 x/net/bpf assembles filters, and leaves attaching them to others
			err = syscall.AttachLsf(int(fd), []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}) // keep 0 bytes
		}); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
}

// R3: a peer that falls silent on a kept connection is found in three seconds, although
// the caller would wait a minute, and the call goes to another instance. A stream on the
// connection ends too.
func TestSilentPeerOnAKeptConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &cuttable{Listener: listener}
	one := serveOn(t, l, &server{Instance: instance(t, "order-core", "prod", listener.Addr().String()),
		check: func(ctx context.Context) error {
			if _, wait := ctx.Deadline(); !wait { // a stream
				<-ctx.Done()
			}
			return nil
		}})
	two := serve(t, "order-core", "prod", nil)
	p, _, client := calling(t, guard.Settings{Deadline: time.Minute}, one.Instance, one.Instance, two.Instance)
	stream := watching(t, client, t.Context())
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	l.cut(t)
	p.outcomes()
	began := time.Now()
	if _, err := client.Check(t.Context(), &health.HealthCheckRequest{}, Idempotent()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("found in %s", took)
	if took < 2*time.Second || took > 5*time.Second {
		t.Errorf("after %s", took)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on")
	}
	if got := strings.Count(p.outcomes(), "failed"); got != 2 {
		t.Errorf("%d failures told, want those of the call and the stream", got)
	}
}
