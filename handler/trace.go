package handler

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"dispatch.example/dispatch/discovery/trace"
)

// maxAsked is how many spans a second are recorded because somebody outside asked for
// it by a flag: without a limit the flag would turn each request into one that
// allocates and is sent on.
const maxAsked = trace.MaxAsked

// responseHeader tells the sender of a recorded request its trace, so that the app can
// go on in it. It is the W3C draft's; others do not get it, since it costs an allocation.
const responseHeader = "Traceresponse"

// tracing gives each request its place in a trace, and records a few as spans.
type tracing struct {
	tracer otel.Tracer // nil: none is recorded
	share  float64     // of the traces that begin here
	asked  *rate.Limiter
}

func newTracing(opt *Options) tracing {
	return tracing{tracer: opt.Tracer, share: opt.TraceShare, asked: rate.NewLimiter(maxAsked, maxAsked)}
}

// traced is the place of one request in its trace.
type traced struct {
	trace.Hop
	span otel.Span // nil: nobody records it
}

// begin reads the trace that a request came with into at, or begins one there. It
// allocates for requests that are recorded alone.
func (t *tracing) begin(at *traced, r *http.Request, start time.Time) {
	var parent otel.SpanContext
	if v := r.Header[trace.Header]; len(v) == 1 { // two name two traces, and so none
		parent = trace.Parse(v[0])
	}
	if !t.wants(parent) {
		at.Begin(parent)
		return
	}
	ctx := r.Context()
	if parent.IsValid() {
		if v := r.Header[trace.StateHeader]; len(v) == 1 {
			parent = parent.WithTraceState(trace.State(v[0]))
		}
		ctx = otel.ContextWithRemoteSpanContext(ctx, parent)
	}
	_, span := t.tracer.Start(ctx, "/route", otel.WithTimestamp(start), otel.WithSpanKind(otel.SpanKindServer),
		otel.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", "/route")))
	at.Self, at.Parent, at.span = span.SpanContext(), parent, span
}

// wants says whether a request is to be recorded: a share of the traces that begin
// here, and of the others those whose beginning was.
func (t *tracing) wants(parent otel.SpanContext) bool {
	switch {
	case t.tracer == nil:
		return false
	case parent.IsValid():
		return parent.IsSampled() && t.asked.Allow()
	}
	return rand.Float64() < t.share
}

// in returns a context whose log lines name the trace.
func (t *traced) in(ctx context.Context) context.Context {
	if t.span != nil {
		return otel.ContextWithSpan(ctx, t.span)
	}
	return t.In(ctx)
}

// answered puts onto the span what was decided, and what a record says of the place
// where that was. It names no person: not even hashes of ids are in it.
func (t *traced) answered(d *decision, header http.Header) {
	if t.span == nil {
		return
	}
	attrs := []attribute.KeyValue{attribute.String("dispatch.app", d.app.App.Key), attribute.Int64("dispatch.release", int64(d.snap.Number)),
		attribute.String("dispatch.reason", d.out.Reason.String())}
	if d.out.Policy >= 0 {
		attrs = append(attrs, attribute.String("dispatch.policy", d.app.Table.PolicyKey(d.out.Policy)))
	}
	if d.out.Region >= 0 {
		region := &d.app.Table.Regions()[d.out.Region]
		attrs = append(attrs, attribute.String("dispatch.region", region.Key), attribute.String("dispatch.endpoint", region.Endpoints[d.out.Endpoint].Key))
	}
	t.span.SetAttributes(attrs...)
	header[responseHeader] = []string{string(trace.Append(nil, t.Self))}
	expose(header, exposedTrace)
}

// end ends the span of a request.
func (t *traced) end(err error, now func() time.Time) {
	if t.span == nil {
		return
	}
	status := http.StatusOK
	if err != nil {
		body := problemOf(err)
		status = body.Status
		t.span.SetAttributes(attribute.String("error.type", body.Code))
		if status >= http.StatusInternalServerError {
			t.span.SetStatus(codes.Error, body.Code)
		}
	}
	t.span.SetAttributes(attribute.Int("http.response.status_code", status))
	t.span.End(otel.WithTimestamp(now()))
}

// appendTrace renders where the request stands in its trace.
func appendTrace(b []byte, at *trace.Hop) []byte {
	id, self, parent := at.Self.TraceID(), at.Self.SpanID(), at.Parent.SpanID()
	b = appendQuotedHex(append(b, `,"traceId":"`...), id[:])
	b = appendQuotedHex(append(b, `,"spanId":"`...), self[:])
	if parent.IsValid() {
		b = appendQuotedHex(append(b, `,"parentSpanId":"`...), parent[:])
	}
	return b
}

func appendQuotedHex(b, raw []byte) []byte { return append(hex.AppendEncode(b, raw), '"') }
