package grpccall

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery/guard"
)

// broken is a codec that writes nothing.
type broken struct{ encoding.Codec }

func (broken) Marshal(any) ([]byte, error) { return nil, errors.New("it cannot") }
func (broken) Name() string                { return "proto" }

// What a caller asks for in a way that nobody can answer, or that gRPC does not even
// send, is no fault of instances: it is not tried again, and calls that are well go on.
func TestFaultsOfTheCaller(t *testing.T) {
	t.Parallel()
	text := func(s string) *health.HealthCheckRequest { return &health.HealthCheckRequest{Service: s} }
	for name, c := range map[string]struct {
		ctx     context.Context
		request *health.HealthCheckRequest
		opts    []grpc.CallOption
		code    codes.Code
		outcome string
	}{
		"more than the instance reads":  {t.Context(), text(strings.Repeat("x", 5<<20)), nil, codes.ResourceExhausted, "answered"},
		"more than the caller may send": {t.Context(), text("1234567890"), []grpc.CallOption{grpc.MaxCallSendMsgSize(5)}, codes.ResourceExhausted, "canceled"},
		"no UTF-8":                      {t.Context(), text("\xff"), nil, codes.Internal, "canceled"},
		"a codec that fails":            {t.Context(), text(""), []grpc.CallOption{grpc.ForceCodec(broken{})}, codes.Internal, "canceled"},
		"a codec that nobody has":       {t.Context(), text(""), []grpc.CallOption{grpc.CallContentSubtype("none")}, codes.Internal, "canceled"},
		"a key that no header may have": {metadata.AppendToOutgoingContext(t.Context(), "bad key", "x"), text(""), nil, codes.Internal, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			well, other := serve(t, "order-core", "prod", nil), serve(t, "order-core", "prod", nil)
			p, d, client := calling(t, guard.Settings{}, well.Instance, other.Instance)
			for range 22 {
				if _, err := client.Check(c.ctx, c.request, append(c.opts, Idempotent())...); status.Code(err) != c.code {
					t.Fatal(err)
				}
			}
			if got, want := p.outcomes(), strings.TrimSpace(strings.Repeat(c.outcome+" ", 22)); got != want {
				t.Errorf("%s, want 22 times %s", got, c.outcome)
			}
			if state := d.Guard().State()["order-core"]; state.Word != "closed" || state.Retries != 10 {
				t.Errorf("%+v", state)
			}
			if err := check(t, client); err != nil {
				t.Error(err)
			}
		})
	}
}

// What can be sent was sent, whoever writes it.
func TestWhatCanBeSent(t *testing.T) {
	t.Parallel()
	proto := encoding.GetCodecV2("proto")
	for name, opts := range map[string][]grpc.CallOption{
		"nothing":      nil,
		"a codec":      {grpc.ForceCodecV2(proto)},
		"one by name":  {grpc.CallContentSubtype("proto")},
		"a large size": {grpc.MaxCallSendMsgSize(100)},
		"two codecs":   {grpc.ForceCodec(broken{}), grpc.ForceCodecV2(proto)},
	} {
		if unsendable(&health.HealthCheckRequest{Service: "x"}, opts) || unsendable(&grpc.PreparedMsg{}, opts) || unsendable(nil, opts) {
			t.Errorf("%s: it could not be sent", name)
		}
	}
}

// An instance that cancels calls nobody gave up fails, and opens the breaker. One call
// that was given up says nothing.
func TestCanceledByTheInstance(t *testing.T) {
	t.Parallel()
	ill := says(t, codes.Canceled)
	p, _, client := calling(t, guard.Settings{}, ill.Instance)
	for range 20 {
		if err := check(t, client); status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	}
	if n := strings.Count(p.outcomes(), "failed"); n != 20 {
		t.Errorf("%d failed", n)
	}
	if _, open := errors.AsType[*guard.Open](check(t, client)); !open {
		t.Error("the breaker is closed")
	}
}

// A client that is closed says nothing about those it called.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	hung := hangs(t)
	p := &picks{}
	p.set(1, hung.Instance)
	conn, err := grpc.NewClient("dispatch:///order-core", append(New(p).DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	client := health.NewHealthClient(conn)
	ended := make(chan error)
	go func() {
		_, err := client.Check(t.Context(), &health.HealthCheckRequest{}, Idempotent())
		ended <- err
	}()
	stream := watching(t, client, t.Context())
	until(t, "both came", func() bool { return hung.answered.Load() == 2 })
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := <-ended; err == nil {
		t.Error("the call went well")
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on")
	}
	if got := p.outcomes(); got != "canceled answered" && got != "answered canceled" {
		t.Error(got)
	}
}

// A process that has no file descriptors, ports or memory for a connection blames
// nobody for it, and asks nobody else.
func TestOwnFaultsOfDials(t *testing.T) {
	t.Parallel()
	well, other := serve(t, "order-core", "prod", nil), serve(t, "order-core", "prod", nil)
	p, d, _ := calling(t, guard.Settings{}, well.Instance, other.Instance)
	client := dialBy(t, d, "dispatch:///order-core", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}))
	for range 25 {
		if err := check(t, client, Idempotent()); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "too many open files") {
			t.Fatal(err)
		}
	}
	if got := p.outcomes(); strings.TrimSpace(strings.ReplaceAll(got, "canceled", "")) != "" {
		t.Error(got)
	}
	if state := d.Guard().State()["order-core"]; state.Word != "closed" || state.Retries != 10 {
		t.Errorf("%+v", state)
	}
}

// Who comes with too little time, of its own or over grpc-timeout, blames nobody when
// it is over: those with enough go on.
func TestTooLittleTime(t *testing.T) {
	t.Parallel()
	slow := serve(t, "order-core", "prod", func(ctx context.Context) error {
		select {
		case <-time.After(10 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	p, d, client := calling(t, guard.Settings{}, slow.Instance)
	onward := serve(t, "order-core", "prod", func(ctx context.Context) error {
		_, err := client.Check(ctx, &health.HealthCheckRequest{})
		return status.Convert(err).Err()
	})
	_, _, through := calling(t, guard.Settings{}, onward.Instance)
	for name, c := range map[string]health.HealthClient{"its own": client, "of the peer": through} {
		if err := check(t, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p.outcomes()
		for range 25 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			if _, err := c.Check(ctx, &health.HealthCheckRequest{}); err == nil {
				t.Errorf("%s: 10 ms took less than 3", name)
			}
			cancel()
		}
		if err := check(t, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := p.outcomes(); strings.Contains(got, "silent") || strings.Contains(got, "failed") || d.Guard().State()["order-core"].Word != "closed" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
