package actions

import (
	"context"
	"errors"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// errNothingToAbort says that the share is 0 already and nothing is on its way.
var errNothingToAbort = errors.New("the share is 0 already")

// AbortGray takes a share back to 0 for everybody at once: whatever the plan says,
// whoever changes it, and whatever a canary tries. Hard also voids the sessions that
// the policy gave. Aborting twice is aborting once.
func (a *Actions) AbortGray(ctx context.Context, w Write, to GrayRef, hard bool) (GrayOutcome, error) {
	if err := w.Actor.May("abort-gray"); err != nil {
		return GrayOutcome{}, err
	}
	if err := w.confirmed(a.typed(to.Policy)); err != nil {
		return GrayOutcome{}, err
	}
	return a.abortGray(ctx, w, to, hard)
}

func (a *Actions) abortGray(ctx context.Context, w Write, to GrayRef, hard bool) (GrayOutcome, error) {
	out, err := remembered(ctx, a, w, asked{"gray_abort", []any{to, hard}}, func(w Write) (GrayOutcome, error) {
		out := GrayOutcome{State: GrayAborted, Share: "0"}
		committed, err := a.onNewest(ctx, w, func(ctx context.Context, from *release.Manifest) (draft, error) {
			ops, err := a.aborted(ctx, from, to, hard)
			return draft{action: AbortGray, target: to.String(), details: map[string]any{"hard": hard},
				answer: func(o Outcome) any { out.Outcome = o; return out },
				change: release.Change{Operational: &ops, Approve: release.Approval{BigMove: true}}}, err
		})
		if errors.Is(err, errNothingToAbort) {
			out.Warnings = []fault.Problem{{Detail: "the share was 0 already"}}
		} else if err != nil {
			return GrayOutcome{}, err
		}
		if err == nil {
			out.Outcome = committed
		}
		out.Warnings = append(out.Warnings, a.noteAbort(context.WithoutCancel(ctx), w, to)...)
		return out, nil
	})
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, emergencyWait)
	}
	return out, err
}

// aborted is the state with the share at 0. Where it is that for everybody, a canary
// that would grow it is ended by the same content under a new number.
func (a *Actions) aborted(ctx context.Context, from *release.Manifest, to GrayRef, hard bool) (release.Operational, error) {
	s, err := shareIn(from, to.App, to.Policy)
	if err != nil {
		return from.Operational, err
	}
	ops, err := release.AbortGray{App: to.App, Policy: to.Policy, Expect: s.position(), Hard: hard}.On(&from.Document, from.Operational)
	if fault.CodeOf(err) != "no_change" {
		return ops, err
	}
	h, err := a.head(ctx)
	if err != nil {
		return from.Operational, err
	}
	if h.rollout.Canary == "" {
		return from.Operational, errNothingToAbort
	}
	return from.Operational, nil
}

// noteAbort writes into the plan that it was aborted. What serves does not depend on it.
func (a *Actions) noteAbort(ctx context.Context, w Write, to GrayRef) []fault.Problem {
	w.once = nil
	var err error
	for range paperTries {
		var g *grayFile
		g, err = a.grayFile(ctx, to.App, to.Policy)
		if err == nil && (g.paper.Rev == 0 || g.paper.State == GrayAborted) {
			return nil
		}
		if err == nil {
			g.paper.State, g.Why = GrayAborted, "by "+w.Actor.Name+": "+w.Reason
			err = a.saveGray(ctx, w, g, "gray_aborted")
		}
		if fault.CodeOf(err) != "stale_paper" {
			break
		}
	}
	if err == nil {
		return nil
	}
	return []fault.Problem{{Detail: "the share is 0, and the plan could not be closed: " + fault.BodyOf(err).Detail, Hint: "nothing: it is closed within a minute"}}
}
