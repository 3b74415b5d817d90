package grpccall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/internal/testenv"
)

const checkMethod = "/grpc.health.v1.Health/Check"

// says is a server that answers with a code.
func says(t *testing.T, code codes.Code) *server {
	t.Helper()
	return serve(t, "order-core", "prod", func(context.Context) error { return status.Error(code, "so") })
}

// hangs is a server that answers when the call is over.
func hangs(t *testing.T) *server {
	t.Helper()
	return serve(t, "order-core", "prod", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
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

// What an answer says of its instance, and who is asked again: a call whose method
// may be called twice, and nobody else.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	well := serve(t, "order-core", "prod", nil)
	for code, outcome := range map[codes.Code]string{
		codes.Unavailable: "failed", codes.Internal: "failed", codes.Unknown: "failed",
		codes.DataLoss: "failed", codes.DeadlineExceeded: "failed", codes.Canceled: "failed", codes.ResourceExhausted: "answered",
		codes.NotFound: "answered", codes.InvalidArgument: "answered", codes.PermissionDenied: "answered",
		codes.FailedPrecondition: "answered", codes.Aborted: "answered", codes.Unimplemented: "answered",
		codes.Unauthenticated: "answered", codes.AlreadyExists: "answered", codes.OutOfRange: "answered",
	} {
		ill := says(t, code)
		p, d, client := calling(t, guard.Settings{}, ill.Instance, well.Instance)
		err := check(t, client)
		failed, ok := errors.AsType[*Error](err)
		if status.Code(err) != code || p.outcomes() != outcome || ok != (outcome == "failed") {
			t.Errorf("%s: %v", code, err)
		}
		if ok && (failed.Pick.Instance.Address != ill.Address || failed.Attempts != 1 || failed.Stop != guard.NotIdempotent || status.Convert(err).Message() != "so") {
			t.Errorf("%s: %+v", code, failed)
		}
		p.set(1, ill.Instance, well.Instance)
		p.turn = 0
		err = check(t, client, Idempotent())
		want := map[string]string{"failed": "failed answered"}[outcome]
		if want == "" {
			want = outcome
		}
		if got := p.outcomes(); got != want || (err == nil) != (outcome == "failed") {
			t.Errorf("%s, idempotent: %s, %v", code, got, err)
		}
		if state := d.Guard().State()["order-core"]; state.Word != "closed" {
			t.Errorf("%s: %+v", code, state)
		}
	}
}

// Methods are idempotent by their names, or by that of their gRPC service.
func TestWhichMethodsAreIdempotent(t *testing.T) {
	t.Parallel()
	ill, well := says(t, codes.Internal), serve(t, "order-core", "prod", nil)
	for name, again := range map[string]bool{
		checkMethod: true, "/grpc.health.v1.Health/": true, "/grpc.health.v1.Health/Watch": false, "/grpc.health.v1.": false, "": false,
	} {
		p := &picks{inTurn: true}
		p.set(1, ill.Instance, well.Instance)
		d := New(p)
		d.Idempotent = []string{name}
		if err := check(t, dialBy(t, d, "dispatch:///order-core")); (err == nil) != again {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What was never sent is tried elsewhere, whatever the method; and soon.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	well := serve(t, "order-core", "prod", nil)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct {
		in    discovery.Instance
		after time.Duration
	}{
		"refused":    {refused(t), 0},
		"black hole": {instance(t, "order-core", "prod", testenv.BlackHole(t)), guard.DialLimit},
		"silent":     {instance(t, "order-core", "prod", silent.Addr().String()), connectTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			soonest := time.Hour // of three, as the machine may be busy
			for _, opts := range [][]grpc.CallOption{nil, {grpc.WaitForReady(true)}, {Idempotent()}} {
				p, _, client := calling(t, guard.Settings{}, c.in, well.Instance)
				var pick caller.Pick
				began := time.Now()
				err := check(t, client, append(opts, PickTo(&pick))...)
				took := time.Since(began)
				soonest = min(soonest, took)
				if err != nil || pick.Instance.Address != well.Address || p.outcomes() != "unreachable answered" || took < c.after {
					t.Errorf("%v after %s, at %s", err, took, pick.Instance.Address)
				}
			}
			if soonest > c.after+50*time.Millisecond {
				t.Errorf("elsewhere after %s", soonest)
			}
		})
	}
}

// Nobody else: the error says who was asked, and why not again.
func TestErrorText(t *testing.T) {
	t.Parallel()
	in := refused(t)
	p, _, client := calling(t, guard.Settings{}, in)
	err := check(t, client)
	for _, part := range []string{"call order-core at " + in.Address.String() + ": unreachable after ", "connection refused", "; not tried again: single instance"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if status.Code(err) != codes.Unavailable || p.outcomes() != "unreachable" {
		t.Errorf("%s", status.Code(err))
	}
	_, _, client = calling(t, guard.Settings{}, in, refused(t))
	if err := check(t, client); err == nil || !strings.Contains(err.Error(), "; attempt 2; not tried again: retries are used up") {
		t.Error(err)
	}
}

// A call ends by its own deadline, be that early or late, else by the service's.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const ofService = time.Second
	for own, want := range map[time.Duration]time.Duration{0: ofService, ofService / 5: ofService / 5, 2 * ofService: 2 * ofService} {
		t.Run(own.String(), func(t *testing.T) {
			t.Parallel()
			outcome := "silent"
			if own == ofService/5 { // too little to blame anybody
				outcome = "canceled"
			}
			p, _, client := calling(t, guard.Settings{Deadline: ofService}, hangs(t).Instance, serve(t, "order-core", "prod", nil).Instance)
			ctx, cancel := context.WithCancel(t.Context())
			if own > 0 {
				ctx, cancel = context.WithTimeout(ctx, own)
			}
			defer cancel()
			began := time.Now()
			_, err := client.Check(ctx, &health.HealthCheckRequest{}, Idempotent())
			took := time.Since(began)
			// An instance may be a little ahead with its timer, and the machine busy.
			if outcomes := p.outcomes(); status.Code(err) != codes.DeadlineExceeded || outcomes != outcome || took < want-early || took > want+700*time.Millisecond {
				t.Errorf("%v after %s, %s", err, took, outcomes)
			}
		})
	}
}

// Who gives up says nothing about the instance; who has given up already calls nobody.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	p, d, client := calling(t, guard.Settings{}, hangs(t).Instance)
	d.Degraded["order-core"] = func(context.Context, string, any, error) error { return nil }
	for range 25 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := client.Check(ctx, &health.HealthCheckRequest{}, Idempotent()); status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	}
	if got := strings.ReplaceAll(p.outcomes(), "canceled", ""); strings.TrimSpace(got) != "" || d.Guard().State()["order-core"].Word != "closed" {
		t.Errorf("%s, %+v", got, d.Guard().State())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := p.count
	if _, err := client.Check(ctx, &health.HealthCheckRequest{}); status.Code(err) != codes.Canceled || p.count != before {
		t.Error(err)
	}
}

// C02, C21, T89: what fails opens the breaker; then nobody is asked, the error says so
// with its type, and is Unavailable; a service with a degraded value answers with it.
func TestBreaker(t *testing.T) {
	t.Parallel()
	ill := says(t, codes.Internal)
	p, d, client := calling(t, guard.Settings{}, ill.Instance, ill.Instance)
	for range 20 {
		_ = check(t, client)
	}
	err := check(t, client)
	open, ok := errors.AsType[*guard.Open](err)
	if !ok || open.Service != "order-core" || open.Record != "abc-1" || status.Code(err) != codes.Unavailable || ill.answered.Load() != 20 || p.count != 20 {
		t.Errorf("%v after %d calls", err, ill.answered.Load())
	}
	stream, err := client.Watch(t.Context(), &health.HealthCheckRequest{})
	if _, ok := errors.AsType[*guard.Open](err); !ok || stream != nil {
		t.Errorf("a stream: %v", err)
	}
	d.Degraded["order-core"] = func(_ context.Context, method string, reply any, why error) error {
		reply.(*health.HealthCheckResponse).Status = health.HealthCheckResponse_NOT_SERVING
		if _, ok := errors.AsType[*guard.Open](why); !ok || method != checkMethod {
			return fmt.Errorf("%s: %w", method, why)
		}
		return nil
	}
	soonest := time.Hour
	for range 10 {
		var header metadata.MD
		began := time.Now()
		reply, err := client.Check(t.Context(), &health.HealthCheckRequest{}, grpc.Header(&header))
		soonest = min(soonest, time.Since(began))
		if err != nil || reply.Status != health.HealthCheckResponse_NOT_SERVING || DegradedOf(header) != "breaker" {
			t.Errorf("%v, %v, %v", reply, err, header)
		}
	}
	if soonest > time.Millisecond {
		t.Errorf("a degraded value takes %s", soonest)
	}
}

// A degraded value is for what the service cannot do, and of the method first.
func TestDegradedValues(t *testing.T) {
	t.Parallel()
	if DegradedKey != strings.ToLower(httpcall.DegradedHeader) || DegradedOf(nil) != "" {
		t.Error("HTTP and gRPC differ in the flag")
	}
	own := func(_ context.Context, _ string, reply any, _ error) error {
		reply.(*health.HealthCheckResponse).Status = health.HealthCheckResponse_SERVICE_UNKNOWN
		return nil
	}
	for name, c := range map[string]struct {
		in   []discovery.Instance
		flag string
	}{
		"failed":      {[]discovery.Instance{says(t, codes.Unknown).Instance}, "failed"},
		"silent":      {[]discovery.Instance{hangs(t).Instance}, "silent"},
		"unreachable": {[]discovery.Instance{refused(t)}, "unreachable"},
		"nobody":      {[]discovery.Instance{instance(t, "other", "prod", "127.0.0.1:1")}, "nobody"},
		"not found":   {[]discovery.Instance{says(t, codes.NotFound).Instance}, ""},
		"canceled":    {[]discovery.Instance{says(t, codes.Canceled).Instance}, "failed"},
	} {
		for _, key := range []string{checkMethod, "order-core"} {
			_, d, client := calling(t, guard.Settings{Deadline: 200 * time.Millisecond}, c.in...)
			d.Degraded["order-core"] = func(context.Context, string, any, error) error { return errors.New("there is none") }
			d.Degraded[key] = own
			var header metadata.MD
			reply, err := client.Check(t.Context(), &health.HealthCheckRequest{}, grpc.Header(&header))
			degraded := reply.GetStatus() == health.HealthCheckResponse_SERVICE_UNKNOWN
			if DegradedOf(header) != c.flag || degraded != (c.flag != "") || (err == nil) != degraded {
				t.Errorf("%s by %s: %v, %v, %v", name, key, reply, err, header)
			}
			delete(d.Degraded, checkMethod)
			d.Degraded["order-core"] = func(context.Context, string, any, error) error { return errors.New("there is none") }
			if _, err := client.Check(t.Context(), &health.HealthCheckRequest{}); err == nil || strings.Contains(err.Error(), "there is none") {
				t.Errorf("%s without a value: %v", name, err)
			}
		}
	}
}

// An instance that dies costs no call that comes after: what cannot be sent any more
// goes to another.
func TestInstanceThatDies(t *testing.T) {
	t.Parallel()
	dies, lives := serve(t, "order-core", "prod", nil), serve(t, "order-core", "prod", nil)
	p, _, client := calling(t, guard.Settings{}, dies.Instance, lives.Instance)
	for range 2 {
		if err := check(t, client); err != nil {
			t.Fatal(err)
		}
	}
	dies.grpc.Stop()
	until(t, "the end is noticed", func() bool { _ = check(t, client); return strings.Contains(p.outcomes(), "unreachable") })
	before := lives.answered.Load()
	for range 8 { // half of them are retries: more would be too many
		if err := check(t, client); err != nil {
			t.Error(err)
		}
	}
	if n := lives.answered.Load() - before; n != 8 {
		t.Errorf("the other answered %d of 8", n)
	}
}

// T93: the trace goes on over unary calls and streams, and begins where there is none.
// What the metadata says of another trace is replaced. A retry says that it is one.
func TestTraceTravels(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	var seen, sent, retry atomic.Value
	look := func(ctx context.Context) error {
		parent, state := trace.Out(ctx)
		seen.Store(parent + " " + state)
		sent.Store(strings.Join(metadata.ValueFromIncomingContext(ctx, "traceparent"), ";"))
		retry.Store(strings.Join(metadata.ValueFromIncomingContext(ctx, "dispatch-retry"), ";"))
		return nil
	}
	_, _, client := calling(t, guard.Settings{}, serve(t, "order-core", "prod", look).Instance, refused(t))
	ctx := trace.In(t.Context(), "00-"+id+"-00f067aa0ba902b7-01", "a=1")
	mine, _ := trace.Out(ctx)
	for name, ctx := range map[string]context.Context{
		"as it is":               ctx,
		"with another in it":     metadata.AppendToOutgoingContext(ctx, "traceparent", "00-11111111111111111111111111111111-2222222222222222-01", "tracestate", "b=2"),
		"with baggage of others": metadata.AppendToOutgoingContext(ctx, "baggage", "x=1", "traceparent", "nonsense"),
	} {
		for _, call := range []func() error{
			func() error { _, err := client.Check(ctx, &health.HealthCheckRequest{}); return err },
			func() error {
				stream, err := client.Watch(ctx, &health.HealthCheckRequest{})
				for err == nil {
					_, err = stream.Recv()
				}
				if err.Error() == "EOF" {
					return nil
				}
				return err
			},
		} {
			if err := call(); err != nil {
				t.Fatal(err)
			}
			got := seen.Load().(string)
			if !strings.HasPrefix(got, "00-"+id+"-") || !strings.HasSuffix(got, "-01 a=1") || strings.HasPrefix(got, mine) || sent.Load() != mine {
				t.Errorf("%s: the instance is in %s, it was sent %s", name, got, sent.Load())
			}
		}
	}
	if _, err := client.Check(t.Context(), &health.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := seen.Load().(string); len(got) < 55 || strings.Contains(got, id) || sent.Load() != "" {
		t.Errorf("without a trace the instance is in %s", got)
	}
}

// Retries do not multiply over hops: a server knows that a call is a retry, or is for
// one however many hops back, and what it calls for it is not tried again.
func TestRetriesDoNotMultiply(t *testing.T) {
	t.Parallel()
	_, _, toD := calling(t, guard.Settings{}, refused(t), refused(t))
	var last atomic.Value
	c := serve(t, "order-core", "prod", func(ctx context.Context) error {
		_, err := toD.Check(ctx, &health.HealthCheckRequest{})
		last.Store(fmt.Sprint(err))
		return nil
	})
	_, _, toC := calling(t, guard.Settings{}, c.Instance)
	b := serve(t, "order-core", "prod", func(ctx context.Context) error {
		_, err := toC.Check(ctx, &health.HealthCheckRequest{})
		if err != nil {
			return err
		}
		stream, err := toC.Watch(ctx, &health.HealthCheckRequest{}) // the same over a stream
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	_, _, toB := calling(t, guard.Settings{}, refused(t), b.Instance)
	if err := check(t, toB); err != nil {
		t.Fatal(err)
	}
	if got := last.Load().(string); !strings.Contains(got, string(guard.Nested)) {
		t.Errorf("two hops behind a retry: %s", got)
	}
}

// Each of four hops fails for good. Without retries that were four calls; one retry by
// the first hop that fails, the last, adds one for each hop above it at most.
func TestRetriesOverFourHops(t *testing.T) {
	t.Parallel()
	var ends []*server
	for range 2 {
		ends = append(ends, says(t, codes.Unavailable))
	}
	for hops := 1; hops <= 4; hops++ {
		if hops > 1 {
			_, d, onward := calling(t, guard.Settings{}, ends[len(ends)-2].Instance, ends[len(ends)-1].Instance)
			d.Idempotent = []string{checkMethod}
			for range 2 {
				ends = append(ends, serve(t, "order-core", "prod", func(ctx context.Context) error {
					_, err := onward.Check(ctx, &health.HealthCheckRequest{})
					return status.Convert(err).Err()
				}))
			}
		}
		for _, s := range ends {
			s.answered.Store(0)
		}
		_, _, client := calling(t, guard.Settings{}, ends[len(ends)-2].Instance, ends[len(ends)-1].Instance)
		if err := check(t, client, Idempotent()); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		if n := ends[0].answered.Load() + ends[1].answered.Load(); n != int64(hops+1) {
			t.Errorf("%d hops: the last was called %d times, want %d", hops, n, hops+1)
		}
	}
}

// A call that was not made has a status.
func TestStatusOfCallsThatWereNotMade(t *testing.T) {
	t.Parallel()
	none := &route.NoMatch{}
	if err := error(unmade{none}); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}
