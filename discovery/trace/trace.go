// Package trace carries W3C trace context from hop to hop and into log lines:
//
//	traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//
//	callee:  In(ctx, traceparent, tracestate) ──► ctx with a span of this hop
//	caller:  Out(ctx) ──► traceparent of the call
//	edge:    Door.Pass(traceparent) ──► the same trace, whose flag counts 100 times a second at most
//	log:     Handler(slog.Handler) adds traceId, spanId and parentSpanId to each line that has a ctx
//
// The span in a context is OpenTelemetry's, so whoever uses its libraries sees the
// same one. Without an exporter a hop has IDs and nothing is recorded, which costs
// some hundred nanoseconds. With one (package otlp), OpenTelemetry's own handlers
// stand around In, which keeps the span that they have begun.
//
// IDs from outside are copied as the bytes that were read, never as text. What
// cannot be read, or is all zero, is never passed on: a new trace begins. It owns no
// goroutine, and nothing here fails.
package trace

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The names of the headers in HTTP. In gRPC the metadata keys are the same in lower case.
const (
	Header      = "Traceparent"
	StateHeader = "Tracestate"
)

// In returns a context with a span of this hop for a request that came in with these
// headers: in the trace that they name, else in a new one. A span that the context
// has already stays, as OpenTelemetry's own handlers put one there; one that is only
// that of a caller elsewhere becomes the parent.
func In(ctx context.Context, traceparent, tracestate string) context.Context {
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case !parent.IsValid():
		parent = Parse(traceparent)
		if tracestate != "" && parent.IsValid() {
			parent = parent.WithTraceState(State(tracestate))
		}
	case !parent.IsRemote():
		return ctx
	}
	var h Hop
	h.Begin(parent)
	return h.In(ctx)
}

// Out is the traceparent and tracestate of a call; empty without a trace in ctx.
func Out(ctx context.Context) (traceparent, tracestate string) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return "", ""
	}
	var room [length]byte
	return string(Append(room[:0], span)), span.TraceState().String()
}

// Hop is the place of one request in its trace.
type Hop struct {
	Self   trace.SpanContext
	Parent trace.SpanContext // of the caller; not valid in the first hop
}

// Begin makes h, which is zero, a hop below parent, which Parse has read; below one
// that is not valid it is the first of a new trace. It does not allocate.
func (h *Hop) Begin(parent trace.SpanContext) {
	of := trace.SpanContextConfig{SpanID: newSpanID()}
	if parent.IsValid() {
		h.Parent = parent
		of.TraceID, of.TraceFlags, of.TraceState = parent.TraceID(), parent.TraceFlags(), parent.TraceState()
	} else {
		of.TraceID = newTraceID()
	}
	h.Self = trace.NewSpanContext(of)
}

// In returns a context in which the hop is the span.
func (h Hop) In(ctx context.Context) context.Context {
	return trace.ContextWithSpan(ctx, &unrecorded{hop: h})
}

// unrecorded is a span that is its place in the trace and nothing more.
type unrecorded struct {
	noop.Span
	hop Hop
}

// SpanContext implements trace.Span.
func (u *unrecorded) SpanContext() trace.SpanContext { return u.hop.Self }

// Parent is the span of the caller, as the spans have it that OpenTelemetry records.
func (u *unrecorded) Parent() trace.SpanContext { return u.hop.Parent }

// newTraceID is 128 random bits. They name something and keep nothing secret, so the
// fast source will do.
func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// newSpanID is 64 random bits.
func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
