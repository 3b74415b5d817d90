package trace_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	otel "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/trace"
)

const fromOutside = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// inside counts what comes in behind a door.
type inside struct{ all, marked, early, lost atomic.Int64 }

// see looks at the span that a service behind the door would pass on.
func (i *inside) see(ctx context.Context) {
	span := otel.SpanContextFromContext(ctx)
	i.all.Add(1)
	if span.IsSampled() {
		i.marked.Add(1)
	}
	if span.TraceID() != trace.Parse(fromOutside).TraceID() || span.SpanID() == trace.Parse(fromOutside).SpanID() {
		i.lost.Add(1)
	}
}

// passes sends marked requests, and checks that few of them were marked inside.
func (i *inside) passes(t *testing.T, send func() error) {
	t.Helper()
	const sent = 3 * trace.MaxAsked
	began := time.Now()
	for range sent {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	most := trace.MaxAsked + int64(time.Since(began).Seconds()*trace.MaxAsked) + 1
	if i.all.Load() != sent || i.lost.Load() != 0 {
		t.Errorf("%d of %d came in, %d left their trace or have no span of their own", i.all.Load(), sent, i.lost.Load())
	}
	if n := i.marked.Load(); n < trace.MaxAsked || n > most {
		t.Errorf("%d of %d are recorded by all inside, at most %d may be", n, sent, most)
	}
}

// Nobody outside has everything inside recorded, behind a gateway over HTTP.
func TestTheFlagOfOutsidersIsBoundedOverHTTP(t *testing.T) {
	t.Parallel()
	var in inside
	edge := httpcall.StripBaggage(httpcall.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { in.see(r.Context()) })))
	in.passes(t, func() error {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(trace.Header, fromOutside)
		edge.ServeHTTP(httptest.NewRecorder(), r)
		if r.Header.Get(trace.Header) != fromOutside {
			t.Error("the request that came in was changed")
		}
		return nil
	})
	edge = httpcall.StripBaggage(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get(trace.Header) != "" || r.Header.Get(trace.StateHeader) != "" {
			t.Errorf("what cannot be read goes on: %v", r.Header)
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{trace.Header: {fromOutside, fromOutside}, trace.StateHeader: {"a=1"}}
	edge.ServeHTTP(httptest.NewRecorder(), r)
}

// reader reads the trace where OpenTelemetry's handler for gRPC does: before
// interceptors run.
type reader struct{ in *inside }

func (r reader) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	for _, header := range metadata.ValueFromIncomingContext(ctx, "traceparent") {
		if trace.Parse(header).IsSampled() {
			r.in.early.Add(1)
		}
	}
	return ctx
}

func (reader) HandleRPC(context.Context, stats.RPCStats)                         {}
func (reader) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (reader) HandleConn(context.Context, stats.ConnStats)                       {}

// seen is a service behind the door.
type seen struct {
	health.UnimplementedHealthServer
	in *inside
}

func (s seen) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	s.in.see(ctx)
	return &health.HealthCheckResponse{}, nil
}

// The same over gRPC, also for whoever reads metadata before interceptors do.
func TestTheFlagOfOutsidersIsBoundedOverGRPC(t *testing.T) {
	t.Parallel()
	var in inside
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(append(grpccall.StripBaggage(), grpc.StatsHandler(reader{in: &in})), grpccall.ServerOptions(nil)...)...)
	health.RegisterHealthServer(server, seen{in: &in})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := health.NewHealthClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", fromOutside)
	in.passes(t, func() error {
		_, err := client.Check(ctx, &health.HealthCheckRequest{})
		return err
	})
	if in.early.Load() != in.marked.Load() {
		t.Errorf("%d are marked before interceptors, %d behind them", in.early.Load(), in.marked.Load())
	}
}
