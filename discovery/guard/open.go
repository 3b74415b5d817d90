package guard

import (
	"context"
	"time"

	"dispatch.example/dispatch/discovery/breaker"
)

// Open says that a call was not made because the breaker of its service is open. It
// is not retried: not here, and not by whoever gets it.
type Open struct {
	Service string
	Since   time.Time // zero while probes are under way
	Until   time.Time // when probes are let through; zero while they are under way
	Record  string    // ID of the record, for dispatchctl explain call
}

// Error names the service and the next step.
func (e *Open) Error() string {
	text := "call " + e.Service + ": not made, its breaker lets three probes through now and waits for how they end"
	if !e.Until.IsZero() {
		text = "call " + e.Service + ": not made, its breaker is open since " + e.Since.Format(time.TimeOnly) + " until " + e.Until.Format(time.TimeOnly)
	}
	if e.Record != "" {
		text += " (record " + e.Record + ")"
	}
	return text + "\ntry: see in the log why calls to " + e.Service + " failed or were slow before, and its instances with dispatchctl services"
}

// openFor is how long a breaker stays open.
const openFor = 30 * time.Second

// refuse is the error of a call that was not made.
func (g *Guard) refuse(ctx context.Context, s *service, now time.Time) error {
	e := &Open{Service: s.name, Record: g.caller.Refused(ctx, s.name)}
	if state, until := g.watch(s, now); state == breaker.Open {
		e.Since, e.Until = until.Add(-openFor), until
	}
	s.count.refused.Inc()
	return e
}
