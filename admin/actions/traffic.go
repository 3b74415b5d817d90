package actions

import (
	"context"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
)

// Traffic is what replicas counted.
func (a *Actions) Traffic(ctx context.Context, f ledger.CountFilter) ([]fleet.Count, error) {
	return a.Ledger.Counts(ctx, f)
}
