package actions

import (
	"context"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

const (
	// trafficSince is how far back Traffic looks unless asked otherwise.
	trafficSince = time.Hour
	// maxTrafficSteps bounds how many points of time one question has: a week by the
	// quarter of an hour, a day by the minute and a half.
	maxTrafficSteps = 1500
)

// Traffic is what replicas counted, the oldest first. Without a Since it is of the
// last hour. The newest minute still grows: replicas tell it every ten seconds.
func (a *Actions) Traffic(ctx context.Context, f ledger.CountFilter) ([]fleet.Count, error) {
	now := a.now()
	if f.Since.IsZero() {
		f.Since = now.Add(-trafficSince)
	}
	until := f.Until
	if until.IsZero() {
		until = now
	}
	if f.Every > 0 && until.Sub(f.Since)/f.Every > maxTrafficSteps {
		return nil, fault.New(fault.Invalid, "too_many_steps", "%s by %s is more than %d steps", until.Sub(f.Since).Round(time.Minute), f.Every, maxTrafficSteps).
			WithHint("ask for longer steps or a shorter time")
	}
	return a.Ledger.Counts(ctx, f)
}
