// Package trace carries W3C trace context from hop to hop and into log lines:
//
//	traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//
//	callee:  In(ctx, traceparent, tracestate) ──► ctx with a span of this hop
//	caller:  Out(ctx) ──► traceparent of the call
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
	if parent.IsValid() && !parent.IsRemote() {
		return ctx
	}
	if !parent.IsValid() {
		parent = Parse(traceparent)
		if tracestate != "" && parent.IsValid() {
			parent = parent.WithTraceState(State(tracestate))
		}
	}
	return trace.ContextWithSpan(ctx, begin(parent))
}

// Out is the traceparent and tracestate of a call; empty without a trace in ctx.
func Out(ctx context.Context) (traceparent, tracestate string) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return "", ""
	}
	var room [length]byte
	return string(Append(room[:0], span.TraceID(), span.SpanID(), span.TraceFlags())), span.TraceState().String()
}

// hop is a span that nobody records: its place in the trace and nothing more.
type hop struct {
	noop.Span
	self, parent trace.SpanContext
}

// begin is a hop below parent, or the first of a new trace.
func begin(parent trace.SpanContext) *hop {
	id := parent.TraceID()
	if !parent.IsValid() {
		id = NewTraceID()
	}
	return &hop{parent: parent, self: trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: NewSpanID(), TraceFlags: parent.TraceFlags(), TraceState: parent.TraceState()})}
}

// SpanContext implements trace.Span.
func (h *hop) SpanContext() trace.SpanContext { return h.self }

// Parent is the span of the caller, as OpenTelemetry's recorded spans have it.
func (h *hop) Parent() trace.SpanContext { return h.parent }

// NewTraceID is 128 random bits. They name something and keep nothing secret, so the
// fast source will do.
func NewTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// NewSpanID is 64 random bits.
func NewSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
