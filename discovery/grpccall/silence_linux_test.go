package grpccall

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/internal/testenv"
)

// R3: a peer that falls silent on a kept connection is found in three seconds, although
// the caller would wait a minute, and the call goes to another instance. A stream on the
// connection ends too.
func TestSilentPeerOnAKeptConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &testenv.Cuttable{Listener: listener}
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
	l.Cut(t)
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
