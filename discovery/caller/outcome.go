package caller

import (
	"context"

	"dispatch.example/dispatch/discovery"
)

// Outcome is how a call to a picked instance ended, as far as it says something
// about the instance.
type Outcome int

const (
	// Answered is any answer that shows a working instance, also "not found".
	Answered Outcome = iota
	// Failed is an answer that it cannot (HTTP 5xx, gRPC Internal, Unavailable, …), or
	// a connection that broke.
	Failed
	// Unreachable is that no connection was made within the dial limit, or was refused.
	Unreachable
	// Silent is that no answer came before the deadline.
	Silent
	// Canceled is that the caller gave up. It says nothing.
	Canceled
)

// Done says how the call to a picked instance ended; whoever makes calls says so of
// each. Instances that fail are put out for a while (package outlier). A call that
// did not go well is recorded, if its pick was not, so p.ID names it afterwards.
func (c *Caller) Done(ctx context.Context, p *Pick, o Outcome) {}

// Refused records that a call was not made because the breaker of the service is
// open, and returns the ID of the record.
func (c *Caller) Refused(ctx context.Context, service string) string { return "" }

// PickOther is Pick, but not the instance where the call failed before, unless no
// pick of this lane can give another. It draws again, at most 16 times.
func (c *Caller) PickOther(ctx context.Context, service string, not *discovery.Instance) (Pick, error) {
	return c.Pick(ctx, service)
}
