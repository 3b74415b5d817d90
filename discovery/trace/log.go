package trace

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// The fields of log lines, for people who search and for dispatchctl trace.
const (
	traceField  = "traceId"
	spanField   = "spanId"
	parentField = "parentSpanId"
)

// Handler adds traceId (32 hex digits), spanId (16), and parentSpanId where a caller
// is known, to each line whose context has a trace. They stand at the top level, also
// in a logger with groups.
func Handler(next slog.Handler) slog.Handler { return handler{top: next, next: next} }

// handler keeps what stood before the first group, to which IDs can still be added.
type handler struct {
	top, next slog.Handler
	nested    []func(slog.Handler) slog.Handler // from top to next; empty without groups
}

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, line slog.Record) error {
	ids := idsOf(trace.SpanFromContext(ctx))
	switch {
	case len(ids) == 0:
		return h.next.Handle(ctx, line)
	case len(h.nested) == 0:
		line = line.Clone()
		line.AddAttrs(ids...)
		return h.next.Handle(ctx, line)
	}
	next := h.top.WithAttrs(ids)
	for _, nest := range h.nested {
		next = nest(next)
	}
	return next.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(h.nested) == 0 {
		return Handler(h.next.WithAttrs(attrs))
	}
	return h.nest(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return h.nest(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h handler) nest(by func(slog.Handler) slog.Handler) slog.Handler {
	return handler{h.top, by(h.next), append(h.nested[:len(h.nested):len(h.nested)], by)}
}

// idsOf are the fields of a span, none of one that is no span.
func idsOf(span trace.Span) []slog.Attr {
	self := span.SpanContext()
	if !self.IsValid() {
		return nil
	}
	ids := []slog.Attr{slog.String(traceField, self.TraceID().String()), slog.String(spanField, self.SpanID().String())}
	if below, ok := span.(interface{ Parent() trace.SpanContext }); ok { // hop, and what the SDK records
		if parent := below.Parent().SpanID(); parent.IsValid() {
			ids = append(ids, slog.String(parentField, parent.String()))
		}
	}
	return ids
}
