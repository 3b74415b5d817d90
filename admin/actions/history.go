package actions

import (
	"context"

	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Releases are releases below number before (0: all), newest first, and the
// number that this process serves, 0 for none.
func (a *Actions) Releases(ctx context.Context, before uint64, limit int) (current uint64, list []ledger.Summary, err error) {
	if cur := a.Keeper.Current(); cur != nil {
		current = cur.Number
	}
	list, err = a.Ledger.Releases(ctx, release.StreamEdge, before, limit)
	return current, list, err
}

// Release is one release as it was signed.
func (a *Actions) Release(ctx context.Context, n uint64) (release.Signed, error) {
	return a.Ledger.Release(ctx, release.StreamEdge, n)
}

// Diff is what release to has changed since release from. Release 0 is empty.
func (a *Actions) Diff(ctx context.Context, from, to uint64) ([]release.Difference, error) {
	var sides [2]release.Configuration
	for i, n := range []uint64{from, to} {
		if n == 0 {
			continue
		}
		m, err := a.manifestOf(ctx, n)
		if err != nil {
			return nil, err
		}
		sides[i] = release.Configuration{Document: &m.Document, Operational: m.Operational}
	}
	return difference(sides[0], sides[1])
}

// difference is release.Diff, as an empty list where nothing differs.
func difference(from, to release.Configuration) ([]release.Difference, error) {
	changes, err := release.Diff(from, to)
	if changes == nil {
		changes = []release.Difference{}
	}
	return changes, err
}
