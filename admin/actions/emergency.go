package actions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// The emergency actions.
const (
	SwapEndpoints  = "swap"
	SetRegionState = "region_state"
)

// maxTargets of one emergency: a city has a few apps with a few regions each.
const maxTargets = 64

// emergencyTries bounds how often an emergency is tried again when another
// release comes first. Writers in one process queue, so only other control nodes can.
const emergencyTries = 10

// Emergency is one action on one or more targets: one release, one undo.
type Emergency struct {
	Action  string   `json:"action" enum:"swap,region_state"`
	Targets []Target `json:"targets" minItems:"1" maxItems:"64"`
}

// Target is what an emergency acts on and what its author saw there.
type Target struct {
	App    string             `json:"app"`
	Region string             `json:"region"`
	Expect string             `json:"expect" doc:"what the screen shows: for a swap the endpoint that serves, for a region its state"`
	From   string             `json:"from,omitempty" doc:"swap: the endpoint that shall stand by"`
	To     string             `json:"to,omitempty" doc:"swap: the endpoint that shall serve"`
	State  domain.RegionState `json:"state,omitempty" enum:"active,draining,off" doc:"region_state: the state to set"`
}

// Emergency does the action on whatever release is newest, provided that every
// target is still as its author saw it. All targets change, or none.
func (a *Actions) Emergency(ctx context.Context, w Write, e Emergency) (Outcome, error) {
	if err := e.check(); err != nil {
		return Outcome{}, err
	}
	return remembered(ctx, a, w, asked{e.Action, e}, func(w Write) (Outcome, error) {
		return a.onNewest(ctx, w, func(_ context.Context, from *release.Manifest) (draft, error) {
			ops, err := e.on(from)
			if err != nil {
				return draft{}, err
			}
			return draft{action: e.Action, target: e.target(), details: e.Targets, change: release.Change{Operational: &ops,
				// Moving a burning city's users is what this is for.
				Approve: release.Approval{BigMove: e.Action == SetRegionState}}}, nil
		})
	})
}

// onNewest commits what draw makes of the newest release, and tries again when
// another control node is faster.
func (a *Actions) onNewest(ctx context.Context, w Write, draw func(context.Context, *release.Manifest) (draft, error)) (out Outcome, err error) {
	for range emergencyTries {
		err = a.alone(ctx, func(ctx context.Context) error {
			parent, from, err := a.latest(ctx)
			if err != nil {
				return err
			}
			if from == nil {
				return noRelease()
			}
			d, err := draw(ctx, from)
			if err != nil {
				return err
			}
			d.parent, d.from = parent, from
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

func (e Emergency) check() error {
	var p fault.Problems
	if e.Action != SwapEndpoints && e.Action != SetRegionState {
		p.Addf("action", "must be %s or %s", SwapEndpoints, SetRegionState)
	}
	if len(e.Targets) == 0 || len(e.Targets) > maxTargets {
		p.Addf("targets", "must be 1 to %d", maxTargets)
	}
	for i, t := range e.Targets {
		at := func(field string) string { return fmt.Sprintf("targets[%d].%s", i, field) }
		if t.Expect == "" {
			p.Addf(at("expect"), "is missing: say what the screen shows")
		}
		if e.Action == SwapEndpoints && (t.From == "" || t.To == "") {
			p.Addf(at("to"), "a swap needs from and to")
		}
		if e.Action == SetRegionState && t.State == "" {
			p.Addf(at("state"), "is missing")
		}
	}
	return p.Err("bad_emergency", "the emergency is incomplete; nothing was changed")
}

// on is the operational state after the action. The error is the first refusal;
// its problems are those of all targets.
func (e Emergency) on(m *release.Manifest) (release.Operational, error) {
	ops := m.Operational
	var refused *fault.Error
	for i, t := range e.Targets {
		next, err := t.on(e.Action, &m.Document, ops)
		if err == nil {
			ops = next
			continue
		}
		why, ok := errors.AsType[*fault.Error](err)
		if !ok {
			return ops, fmt.Errorf("target %d: %w", i, err)
		}
		if refused == nil {
			refused = why
		}
		refused.Problems = append(refused.Problems, fault.Problem{Path: fmt.Sprintf("targets[%d]", i),
			Detail: fmt.Sprintf("%s/%s: %s", t.App, t.Region, why.Detail), Hint: why.Hint})
	}
	if refused != nil {
		return ops, refused
	}
	return ops, nil
}

func (t Target) on(action string, doc *release.Document, ops release.Operational) (release.Operational, error) {
	if action == SwapEndpoints {
		return release.Swap{App: t.App, Region: t.Region, From: t.From, To: t.To, Expect: t.Expect}.On(doc, ops)
	}
	return release.SetRegion{App: t.App, Region: t.Region, Expect: domain.RegionState(t.Expect), State: t.State}.On(doc, ops)
}

// target is what the audit trail shows: mobile/sh, corporate/sh.
func (e Emergency) target() string {
	var names []string
	for _, t := range e.Targets {
		names = append(names, t.App+"/"+t.Region)
	}
	if text := strings.Join(names, ", "); len(text) <= 250 {
		return text
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

func noRelease() error {
	return fault.New(fault.Conflict, "no_release", "nothing was published yet").WithHint("POST /api/v1/releases with If-Match: 0")
}

// Relive makes the document of an earlier release live again, with the ids that
// its lists had, under a new number. Operational state stays as it is now.
func (a *Actions) Relive(ctx context.Context, w Write, n uint64) (Outcome, error) {
	return remembered(ctx, a, w, asked{"relive", n}, func(w Write) (Outcome, error) {
		old, err := a.manifestOf(ctx, n)
		if err != nil {
			return Outcome{}, err
		}
		return a.onNewest(ctx, w, func(ctx context.Context, from *release.Manifest) (draft, error) {
			return a.revived(ctx, from, old)
		})
	})
}

// revived is the draft that brings old back under from's operational state.
func (a *Actions) revived(ctx context.Context, from, old *release.Manifest) (draft, error) {
	doc := old.Document
	if err := a.requireApproved(ctx, &doc, nil); err != nil {
		return draft{}, err
	}
	// Night work stays: what old's document says otherwise is not a wish of today.
	ops, _ := from.Operational.Carry(&from.Document, &doc, false)
	warnings, err := release.Check(&doc, release.CheckContext{Suffixes: a.Suffixes, Now: now(), Operational: &ops, Geo: a.Geo, AllowExpired: true})
	if err != nil {
		return draft{}, err
	}
	return draft{action: "relive", target: fmt.Sprintf("release %d", old.Number), details: map[string]any{"of": old.Number}, warnings: append(warnings, replaced(from, &doc, old.Lists)...),
		change: release.Change{Document: &doc, Operational: &ops, Lists: old.Lists, Tables: old.Tables,
			Approve: release.Approval{BigMove: true, RegionRemoved: true}}}, nil
}
