package actions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

const (
	// canaryLook is the mean time between two looks while a canary runs; without one
	// it is fleet.PollEvery.
	canaryLook = time.Second
	// lookTime bounds one look into the ledger.
	lookTime = 10 * time.Second
	// canaryTakes is how long a canary may take to serve its release: one poll, and
	// time to fetch the parts.
	canaryTakes = 10 * time.Second
	// offerAgain is how soon an offer is repeated that changes nothing, for outlets
	// that lost it, such as a Redis that was emptied.
	offerAgain = time.Minute
	// refusedAgain is how soon a release that is refused here is tried again: it is
	// compiled whole.
	refusedAgain = time.Minute
)

// dispatcher is who acts where no person does.
var dispatcher = Actor{Name: "dispatch", Roles: []string{Administrator}}

// RunRollouts takes the releases of the ledger to the fleet until ctx ends: it
// serves what everybody may, offers it, and ends canaries. Several control nodes do
// so at once; the ledger lets the first one decide.
func (a *Actions) RunRollouts(ctx context.Context, log *slog.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.offerRollouts(ctx, log); return nil })
	g.Go(func() error { (&watcher{Actions: a, log: log}).run(ctx); return nil })
	return g.Wait()
}

// wake lets watchRollouts look now.
func (a *Actions) wake() {
	select {
	case a.woke <- struct{}{}:
	default: // it will
	}
}

// offerRollouts puts what lies on the desk before the fleet. A newer offer ends one
// under way: an emergency waits for no slow outlet.
func (a *Actions) offerRollouts(ctx context.Context, log *slog.Logger) {
	failing := false
	for ctx.Err() == nil {
		o, newer := a.desk.look()
		err := a.offerUntil(ctx, o, newer)
		again := offerAgain
		switch {
		case err != nil && ctx.Err() == nil:
			again = fleet.PollEvery
			if !failing {
				log.WarnContext(ctx, "a release was not offered everywhere", "release", o.All.Number, "err", err,
					"try", "nothing yet: it is offered again every few seconds, and replicas have other sources")
			}
			failing = true
		case failing && err == nil:
			failing = false
			log.InfoContext(ctx, "releases are offered everywhere again", "release", o.All.Number)
		}
		pause(ctx, again, newer, nil)
	}
}

// offerUntil offers, until that is done or there is a newer offer.
func (a *Actions) offerUntil(ctx context.Context, o fleet.Offer, newer <-chan struct{}) error {
	if o.All.Number == 0 {
		return nil
	}
	offering, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- a.Fleet.Offer(offering, o) }()
	select {
	case err := <-done:
		return err
	case <-newer:
		end()
		<-done
		return nil
	}
}

// watcher looks into the ledger after a change here, a change of a member, and now
// and then.
type watcher struct {
	*Actions
	log    *slog.Logger
	canary canary
	told   string    // the last failure that was logged
	tried  time.Time // when a release that is refused here was tried last
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := w.Fleet.Changed()
		wait, err := w.look(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != w.told && text != "" && ctx.Err() == nil {
			w.log.ErrorContext(ctx, "releases do not reach the fleet from here", "err", err,
				"try", "nothing yet: it is tried again every few seconds; other control nodes and Redis go on")
		}
		w.told = text
		pause(ctx, wait, changed, w.woke)
	}
}

// pause waits for d ± 30 %, or until something happens.
func pause(ctx context.Context, d time.Duration, changed, woken <-chan struct{}) {
	timer := time.NewTimer(time.Duration(float64(d) * (0.7 + 0.6*rand.Float64())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-woken:
	case <-ctx.Done():
	}
}

// look does what the ledger and the members call for, and says when to look again.
func (w *watcher) look(ctx context.Context) (again time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h, err := w.head(limited)
	if err != nil || h.from == nil {
		return fleet.PollEvery, err
	}
	w.desk.put(h.offer())
	unserved := w.catchUp(limited, h.all)
	if h.lost > 0 || h.rollout.Canary == "" {
		return fleet.PollEvery, unserved
	}
	switch verdict, why := w.canary.judge(h.rollout, w.Fleet.Members(), w.CanaryTime); verdict {
	case promote:
		err = w.promoteCanary(limited, h.rollout, why)
	case stop:
		w.log.ErrorContext(ctx, "a canary was stopped", "release", h.rollout.Head, "canary", h.rollout.Canary, "why", why,
			"try", "look at the replica, mend the document, and publish it again")
		err = w.stopCanary(ctx, h.rollout, why)
	default:
		return canaryLook, unserved
	}
	if err == nil {
		w.wake() // to see what became of it
	}
	return canaryLook, errors.Join(unserved, err)
}

// catchUp serves here what everybody may. A canary's release is none of it: only
// the node that made that serves it too.
func (w *watcher) catchUp(ctx context.Context, all release.Signed) error {
	cur := w.Keeper.Current()
	if cur != nil && (cur.Number > all.Number || cur.Number == all.Number && cur.Seq >= all.Records.Seq) {
		return nil
	}
	if r := w.Keeper.Status().Refusal; r != nil && r.Number == all.Number && r.Seq == all.Records.Seq && time.Since(w.tried) < refusedAgain {
		return fmt.Errorf("serve release %d: it was refused (%s): %s", r.Number, r.Code, r.Reason)
	}
	w.tried = time.Now()
	if err := w.Keeper.Accept(ctx, all, w.Ledger, "database"); err != nil {
		return fmt.Errorf("serve release %d: %w", all.Number, err)
	}
	return nil
}

// promoteCanary lets everybody serve what the canary has served.
func (a *Actions) promoteCanary(ctx context.Context, r ledger.Rollout, why string) error {
	err := a.Ledger.Promote(ctx, release.StreamEdge, r.Head, ledger.Change{By: dispatcher.Name, Action: "promote",
		Target: fmt.Sprintf("release %d", r.Head), Reason: why})
	if err != nil && fault.CodeOf(err) != "canary_over" { // else another node was faster
		return fmt.Errorf("promote release %d: %w", r.Head, err)
	}
	return nil
}

// stopCanary ends a canary with a new release of what everybody else serves.
func (a *Actions) stopCanary(ctx context.Context, r ledger.Rollout, why string) error {
	w := Write{Actor: dispatcher, Reason: why}
	err := a.alone(ctx, func(ctx context.Context) error {
		h, err := a.head(ctx)
		if err != nil || h.rollout.Head != r.Head || h.rollout.Canary == "" || h.lost > 0 {
			return err // it is over
		}
		d := draft{action: "canary_stopped", target: fmt.Sprintf("release %d", r.Head), head: h, emergency: true,
			details: map[string]any{"canary": r.Canary, "of": r.All}}
		d.change.Cause = release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}
		_, err = a.commit(ctx, w, d)
		return err
	})
	if fault.CodeOf(err) == "stale_base" {
		return nil // another node was faster
	}
	if err != nil {
		return fmt.Errorf("stop the canary of release %d: %w", r.Head, err)
	}
	return nil
}
