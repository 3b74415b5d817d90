package actions

import (
	"context"
	"fmt"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// The emergency actions. With Relive they are all there are: everything else waits
// for its canary.
const (
	SwapEndpoints   = "swap"
	SetRegionState  = "region_state"
	SetClusterState = "cluster_state"
	AbortGray       = "abort_gray"
	Freeze          = "freeze"

	relive = "relive"
)

// maxTargets of one emergency: a city has a few apps with a few regions each.
const maxTargets = 64

// emergencyTries bounds how often an emergency is tried again when another
// release comes first. Writers in one process queue, so only other control nodes can.
const emergencyTries = 10

// Emergency does the action on whatever release is newest, provided that every
// target is still as its author saw it and that no safety rule stands in its way.
// All targets change, or none.
func (a *Actions) Emergency(ctx context.Context, w Write, e Emergency) (Outcome, error) {
	if err := e.check(); err != nil {
		return Outcome{}, err
	}
	if err := w.confirmed(a.Confirmation(e)); err != nil {
		return Outcome{}, err
	}
	out, err := remembered(ctx, a, w, asked{e.Action, e}, func(w Write) (Outcome, error) {
		return a.onNewest(ctx, w, func(ctx context.Context, from *release.Manifest) (draft, error) {
			ops, err := e.on(from)
			if err != nil {
				return draft{}, err
			}
			rules, err := a.rules(ctx, w.Actor, e, change{from, ops})
			if err != nil {
				return draft{}, err
			}
			d := e.draft(ops)
			d.details, d.warnings, err = a.settle(ctx, w, e, rules)
			d.undo = e.undo(change{from, ops})
			return d, err
		})
	})
	if err == nil {
		a.acknowledge(ctx, &out, emergencyWait)
	}
	return out, err
}

// draft is the emergency on its way to a release.
func (e Emergency) draft(ops release.Operational) draft {
	return draft{action: e.Action, target: e.target(), details: details{Targets: e.Targets}, change: release.Change{Operational: &ops,
		// Moving people is what these two are for.
		Approve: release.Approval{BigMove: e.Action == SetRegionState || e.Action == AbortGray}}}
}

// onNewest commits what draw makes of what everybody may serve, for all at once,
// and tries again when another control node is faster. A canary that runs ends with
// it, and a ledger that is behind is no obstacle.
func (a *Actions) onNewest(ctx context.Context, w Write, draw func(context.Context, *release.Manifest) (draft, error)) (out Outcome, err error) {
	for range emergencyTries {
		err = a.alone(ctx, func(ctx context.Context) error {
			h, err := a.head(ctx)
			if err != nil {
				return err
			}
			if h.from == nil {
				return noRelease()
			}
			d, err := draw(ctx, h.from)
			if err != nil {
				return err
			}
			d.head, d.emergency = h, true
			d.change.Cause = release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}
			out, err = a.commit(ctx, w, d)
			return err
		})
		if fault.CodeOf(err) != "stale_base" {
			break
		}
	}
	return out, err
}

func noRelease() error {
	return fault.New(fault.Conflict, "no_release", "nothing was published yet").WithHint("POST /api/v1/releases with If-Match: 0")
}

// Relive makes the document of an earlier release live again, with the ids that
// its lists had, under a new number. Operational state stays as it is now.
func (a *Actions) Relive(ctx context.Context, w Write, n uint64) (Outcome, error) {
	if err := w.confirmed(a.ConfirmRelive(n)); err != nil {
		return Outcome{}, err
	}
	out, err := remembered(ctx, a, w, asked{relive, n}, func(w Write) (Outcome, error) {
		old, err := a.manifestOf(ctx, n)
		if err != nil {
			return Outcome{}, err
		}
		return a.onNewest(ctx, w, func(ctx context.Context, from *release.Manifest) (draft, error) {
			d, err := a.revived(ctx, from, old)
			if err != nil {
				return draft{}, err
			}
			rules, err := a.reliveRules(ctx, w.Actor)
			if err != nil {
				return draft{}, err
			}
			said, warned, err := a.settle(ctx, w, Emergency{Action: relive}, rules)
			said.Of = n
			d.details, d.warnings = said, append(d.warnings, warned...)
			return d, err
		})
	})
	if err == nil {
		a.acknowledge(ctx, &out, emergencyWait)
	}
	return out, err
}

// revived is the draft that brings old back under from's operational state.
func (a *Actions) revived(ctx context.Context, from, old *release.Manifest) (draft, error) {
	doc := old.Document
	if err := a.requireApproved(ctx, &doc, nil); err != nil {
		return draft{}, err
	}
	if err := a.requireNames(ctx, &doc, nil); err != nil {
		return draft{}, err
	}
	// Night work stays: what old's document says otherwise is not a wish of today.
	ops, _ := from.Operational.Carry(&from.Document, &doc, false)
	warnings, err := release.Check(&doc, release.CheckContext{Suffixes: a.Suffixes, Now: a.now(), Operational: &ops, Geo: a.Geo, AllowExpired: true})
	if err != nil {
		return draft{}, err
	}
	return draft{action: relive, target: fmt.Sprintf("release %d", old.Number),
		warnings: append(warnings, replaced(from, &doc, old.Lists)...),
		change: release.Change{Document: &doc, Operational: &ops, Lists: old.Lists, Tables: old.Tables,
			Approve: release.Approval{BigMove: true, RegionRemoved: true}}}, nil
}
