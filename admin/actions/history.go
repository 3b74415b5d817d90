package actions

import (
	"context"
	"fmt"

	"dispatch.example/dispatch/internal/fault"
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

// Audit is the audit trail, newest first.
func (a *Actions) Audit(ctx context.Context, f ledger.AuditFilter) ([]ledger.AuditEntry, error) {
	return a.Ledger.Audit(ctx, f)
}

// VerifyAudit walks the whole chain, and compares it with heads that were kept
// outside. A broken one is the conflict audit_broken, which names the first bad row.
func (a *Actions) VerifyAudit(ctx context.Context, known ...ledger.AuditHead) (ledger.AuditHead, error) {
	check, err := a.Ledger.VerifyAudit(ctx, known...)
	if err != nil {
		return ledger.AuditHead{}, fmt.Errorf("verify audit trail: %w", err)
	}
	if check.Bad != 0 {
		return check.Head, fault.New(fault.Conflict, "audit_broken", "row %d of the audit trail: %s", check.Bad, check.Problem).
			WithHint("somebody changed the database by hand; compare with a backup before trusting anything after row " + fmt.Sprint(check.Head.Seq))
	}
	return check.Head, nil
}
