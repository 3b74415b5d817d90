package actions

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

const (
	// renewAfter is the age at which records are signed again: they live seven
	// days, so six renewals may fail before an app refuses one.
	renewAfter = 24 * time.Hour
	// renewLook is how often their age is looked at, and a failed renewal tried again.
	renewLook = 15 * time.Minute
)

// KeepRecordsFresh signs the domain records again when they are a day old, until
// ctx ends. A failure is logged and tried again; the old records go on serving.
func (a *Actions) KeepRecordsFresh(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(renewLook)
	defer tick.Stop()
	for {
		if cur := a.Keeper.Current(); cur != nil && a.now().Sub(cur.Issued) >= renewAfter {
			if err := a.renew(ctx); err != nil && ctx.Err() == nil {
				log.ErrorContext(ctx, "domain records were not renewed", "release", cur.Number, "issued", cur.Issued, "err", err,
					"try", "nothing yet: it is tried again every 15 minutes, and the records are good for 7 days")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// renew makes a set of records for the newest release with a higher seq.
func (a *Actions) renew(ctx context.Context) error {
	return a.alone(ctx, func(ctx context.Context) error {
		h, err := a.head(ctx)
		if err == nil {
			err = h.known()
		}
		if err != nil || h.from == nil || h.rollout.Canary != "" { // a canary lasts for seconds
			return err
		}
		s := h.newest
		set, err := release.Renew(s, a.Keys.Trust(), a.Keys.Record, a.now())
		if err != nil {
			return err
		}
		c := ledger.Change{By: "dispatch", Action: "renew", Target: fmt.Sprintf("release %d", s.Number), Reason: "records are a day old"}
		err = a.Ledger.SaveRecords(ctx, s.Stream, set, c)
		if fault.CodeOf(err) == "stale_seq" {
			return nil // another node was faster
		}
		if err != nil {
			return fmt.Errorf("keep renewed records: %w", err)
		}
		s.Records = set
		if err := a.Keeper.Accept(ctx, s, a.Ledger, publisher); err != nil {
			return err
		}
		a.desk.put(fleet.Offer{All: s})
		return nil
	})
}
