package guard

import (
	"context"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
)

// Caller picks and learns how calls end. A *caller.Caller is one.
type Caller interface {
	Pick(ctx context.Context, service string) (caller.Pick, error)
	PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error)
	Done(ctx context.Context, p *caller.Pick, o caller.Outcome)
	Refused(ctx context.Context, service string) string
}

var _ Caller = (*caller.Caller)(nil)

// Settings are how calls to one service are guarded. New fills in what is zero.
type Settings struct {
	Deadline time.Duration // of a call that has none; default 3 s
	Retries  int           // after the first attempt, at other instances; default 1, negative: none
	Slow     time.Duration // from here a call counts as slow; default 800 ms
	// Off leaves out breaker and retries; deadlines stay, and outcomes are told.
	Off bool
}

// Call is one guarded call. It is a value: copy it nowhere.
type Call struct {
	pick caller.Pick
}

// Open says that a call was not made because the breaker of its service is open.
type Open struct {
	Service string
	Until   time.Time // when probes are let through
	Record  string    // ID of the record, for dispatchctl explain call
}

// Error names the service and the next step.
func (e *Open) Error() string { return "call " + e.Service + ": its breaker is open" }
