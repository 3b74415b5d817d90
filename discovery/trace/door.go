package trace

import (
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// MaxAsked is how many requests a second are recorded because somebody outside asked
// for it by a flag. Anybody can: without a limit, one sender could turn every request,
// in every service that it reaches, into one that is recorded and sent on.
const MaxAsked = 100

// Door is where requests come in whose senders are not ours. All that a process lets
// in by one door share its limit.
type Door struct{ asked *rate.Limiter }

// NewDoor is a door that lets MaxAsked flags a second in.
func NewDoor() *Door { return &Door{rate.NewLimiter(MaxAsked, MaxAsked)} }

// Pass is what goes on inside of the traceparent of a sender outside: its trace and
// span, which are only names, and the flag that it is recorded while the limit lasts.
// It is empty for what cannot be read, and the tracestate means nothing then.
func (d *Door) Pass(traceparent string) string {
	span := Parse(traceparent)
	if !span.IsValid() {
		return ""
	}
	if span.IsSampled() && !d.asked.Allow() {
		span = span.WithTraceFlags(span.TraceFlags() &^ trace.FlagsSampled)
	}
	var room [length]byte
	return string(Append(room[:0], span))
}
