package grpccall

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
)

// quiet is a server whose streams send nothing until they are told, or the call ends.
type quiet struct {
	*server
	header bool
	tell   chan error // what Watch returns
}

func serveQuiet(t *testing.T, header bool) *quiet {
	t.Helper()
	q := &quiet{header: header, tell: make(chan error)}
	q.server = serve(t, "order-core", "prod", nil, grpc.StreamInterceptor(func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		if q.header {
			if err := stream.SendHeader(nil); err != nil {
				return err
			}
		}
		select {
		case err := <-q.tell:
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}))
	return q
}

func watching(t *testing.T, client health.HealthClient, ctx context.Context, opts ...grpc.CallOption) grpc.ServerStreamingClient[health.HealthCheckResponse] {
	t.Helper()
	stream, err := client.Watch(ctx, &health.HealthCheckRequest{}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A stream counts once it is answered, and then may last longer than any call. That it
// ends well says nothing more; that it breaks is told of its instance, and not tried
// again.
func TestStreamOutcomes(t *testing.T) {
	t.Parallel()
	for end, want := range map[error]string{
		nil:                                                "answered",
		status.Error(codes.NotFound, "so"):                 "answered",
		status.Error(codes.Internal, "so"):                 "answered failed",
		status.Error(codes.Canceled, "so"):                 "answered failed",
		status.Error(codes.Aborted, "so"):                  "answered",
		status.Error(codes.DataLoss, "so"):                 "answered failed",
		status.Error(codes.DeadlineExceeded, "of another"): "answered failed",
	} {
		release := make(chan struct{})
		s := serve(t, "order-core", "prod", func(context.Context) error { <-release; return end })
		p, d, client := calling(t, guard.Settings{Deadline: 50 * time.Millisecond}, s.Instance, s.Instance)
		var pick caller.Pick
		stream := watching(t, client, t.Context(), Idempotent(), PickTo(&pick))
		if _, err := stream.Recv(); err != nil || p.told() != 1 || pick.Instance.Address != s.Address {
			t.Fatalf("%v, %d told", err, p.told())
		}
		time.AfterFunc(100*time.Millisecond, func() { close(release) })
		_, err := stream.Recv()
		if _, again := stream.Recv(); again == nil {
			t.Error("a stream that ended goes on")
		}
		failed, ok := errors.AsType[*Error](err)
		if got := p.outcomes(); got != want || ok != strings.Contains(want, "failed") || end == nil && err != io.EOF || status.Code(end) != status.Code(err) && end != nil {
			t.Errorf("%v: %s, %v", end, got, err)
		}
		if ok && (failed.Stop != nil || !strings.Contains(err.Error(), s.Address.String())) {
			t.Errorf("%v: %+v", end, failed)
		}
		if s.answered.Load() != 1 || d.Guard().State()["order-core"].Word != "closed" {
			t.Errorf("%v: %d calls, %+v", end, s.answered.Load(), d.Guard().State())
		}
	}
}

// One that fails before its first answer fails as a call does, and opens the breaker.
func TestStreamsOpenTheBreaker(t *testing.T) {
	t.Parallel()
	q := serveQuiet(t, false)
	p, _, client := calling(t, guard.Settings{}, q.Instance)
	for range 20 {
		stream := watching(t, client, t.Context())
		q.tell <- status.Error(codes.Unavailable, "so")
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	if got := p.outcomes(); strings.ReplaceAll(got, "failed", "") != strings.Repeat(" ", 19) {
		t.Error(got)
	}
	if _, err := client.Watch(t.Context(), &health.HealthCheckRequest{}); !strings.Contains(err.Error(), "its breaker is open") {
		t.Error(err)
	}
}

// A stream on which nothing comes was opened well after a second, so a service that
// restarts with a thousand of them does not open its breaker. Its header is an answer.
func TestQuietStreams(t *testing.T) {
	t.Parallel()
	q := serveQuiet(t, false)
	p, d, client := calling(t, guard.Settings{}, q.Instance)
	began := time.Now()
	for range 25 {
		watching(t, client, t.Context())
	}
	until(t, "all count", func() bool { return p.told() == 25 })
	if took := time.Since(began); took < openFor {
		t.Errorf("after %s", took)
	}
	if got := p.outcomes(); strings.Contains(got, "failed") || d.Guard().State()["order-core"].Word != "closed" {
		t.Errorf("%s, %+v", got, d.Guard().State())
	}
	h := serveQuiet(t, true)
	p, _, client = calling(t, guard.Settings{}, h.Instance)
	stream := watching(t, client, t.Context())
	if md, err := stream.Header(); err != nil || md == nil || p.outcomes() != "answered" {
		t.Errorf("%v, %v", md, err)
	}
}

// The deadline of a stream is its own, and its end is silence only where nothing came.
func TestDeadlinesOfStreams(t *testing.T) {
	t.Parallel()
	q := serveQuiet(t, false)
	p, _, client := calling(t, guard.Settings{Deadline: 20 * time.Millisecond}, q.Instance)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := watching(t, client, ctx).Recv()
	if _, ok := errors.AsType[*Error](err); !ok || status.Code(err) != codes.DeadlineExceeded || p.outcomes() != "silent" || time.Since(began) < 150*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	answers := serve(t, "order-core", "prod", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	p, _, client = calling(t, guard.Settings{}, answers.Instance)
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	stream := watching(t, client, ctx)
	if _, err = stream.Recv(); err == nil {
		_, err = stream.Recv()
	}
	if _, ok := errors.AsType[*Error](err); ok || status.Code(err) != codes.DeadlineExceeded || p.outcomes() != "answered" {
		t.Errorf("after an answer: %v", err)
	}
}

// Who opens a stream where nobody is gets one elsewhere; what cannot be sent at all
// says nothing about anybody.
func TestOpeningIsTriedAgain(t *testing.T) {
	t.Parallel()
	well := serve(t, "order-core", "prod", nil)
	p, _, client := calling(t, guard.Settings{}, refused(t), well.Instance)
	if _, err := watching(t, client, t.Context()).Recv(); err != nil || p.outcomes() != "unreachable answered" {
		t.Error(err)
	}
	p, _, client = calling(t, guard.Settings{}, refused(t))
	_, err := client.Watch(t.Context(), &health.HealthCheckRequest{})
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Outcome != caller.Unreachable || failed.Stop != guard.Single || p.outcomes() != "unreachable" {
		t.Error(err)
	}
	p, _, client = calling(t, guard.Settings{}, well.Instance)
	ctx, cancel := context.WithCancel(t.Context())
	stream := watching(t, client, ctx)
	if err := stream.SendMsg("no message"); status.Code(err) != codes.Internal || p.outcomes() != "canceled" {
		t.Error(err)
	}
	cancel()
	if _, err := client.Watch(ctx, &health.HealthCheckRequest{}); status.Code(err) != codes.Canceled || p.told() != 0 {
		t.Error(err)
	}
	p.set(1)
	if _, err := client.Watch(t.Context(), &health.HealthCheckRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if _, err := client.Watch(metadata.AppendToOutgoingContext(t.Context(), "bad key", "x"), &health.HealthCheckRequest{}); err == nil {
		t.Error("a key that no header may have")
	}
}
