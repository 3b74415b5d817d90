package actions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

const (
	// scheduleLook is how often schedules are looked at, beside when one is due and
	// when this node changed a draft: others may have, and clocks are set.
	scheduleLook = 5 * time.Second
	// lateAfter is how much later than due a schedule is called late.
	lateAfter = time.Minute
	// clockSet is how far the clock must jump forward before schedules do not trust it.
	clockSet = 30 * time.Second
	// clockHold is how long they then wait: time for a wrong clock to be set right, or
	// for a person to publish by hand.
	clockHold = 10 * time.Minute
)

// ring wakes RunSchedules.
func (a *Actions) ring() {
	select {
	case a.rung <- struct{}{}:
	default:
	}
}

// RunSchedules publishes what is due and reminds of emergencies that nobody
// reviewed, until ctx ends. When the clock jumps forward nothing is published for a
// while, unless it jumps back: what would be due then is probably early.
func (a *Actions) RunSchedules(ctx context.Context, log *slog.Logger) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	watch := clockTrust{now: a.Now, steady: time.Now()}
	watch.shown = watch.now().Round(0)
	reminder := reminder{actions: a, log: log}
	for {
		select {
		case <-timer.C:
		case <-a.rung:
		case <-ctx.Done():
			return nil
		}
		wait := scheduleLook
		if held := watch.look(ctx, log); !held {
			next, err := a.PublishDue(ctx, log)
			if err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "schedules cannot be read", "err", err, "try", "look after the database; they are read again")
			}
			if !next.IsZero() {
				wait = min(wait, max(next.Sub(a.now()), 10*time.Millisecond))
			}
		}
		reminder.look(ctx)
		timer.Reset(wait)
	}
}

// clockTrust compares the clock with the monotonic one.
type clockTrust struct {
	now    func() time.Time
	steady time.Time
	shown  time.Time
	ahead  time.Duration // of where it was, by jumps of the last clockHold
	jumped time.Time     // the last one, monotonic
}

// look says whether schedules wait because the clock was set.
func (c *clockTrust) look(ctx context.Context, log *slog.Logger) (held bool) {
	steady, shown := time.Now(), c.now().Round(0)
	jump := shown.Sub(c.shown) - steady.Sub(c.steady)
	c.steady, c.shown = steady, shown
	if steady.Sub(c.jumped) > clockHold {
		c.ahead = 0
	}
	if jump.Abs() > clockSet {
		c.ahead, c.jumped = c.ahead+jump, steady
		if c.ahead > clockSet {
			log.WarnContext(ctx, "the clock jumped forward: schedules wait", "by", jump.Round(time.Second).String(), "for", clockHold.String(),
				"try", "look after the time synchronisation; publish by hand what cannot wait")
		}
	}
	return c.ahead > clockSet
}

// dueDraft is a scheduled draft.
type dueDraft struct {
	paper  ledger.Paper
	body   draftBody
	writes []release.Difference
}

// PublishDue publishes what is due now, in the order in which it is due, and says
// when the next one is. Of several late ones that write the same parts only the one
// that was due last is published. What can no longer be published is suspended.
func (a *Actions) PublishDue(ctx context.Context, log *slog.Logger) (next time.Time, err error) {
	all, err := a.Ledger.Papers(ctx, ledger.Draft, ledger.PaperFilter{States: []string{Scheduled}, Limit: 1000})
	if err != nil {
		return next, fmt.Errorf("read scheduled drafts: %w", err)
	}
	now := a.now()
	var due []dueDraft
	for _, p := range all {
		b, err := bodyOf(p)
		if err != nil {
			return next, err
		}
		if b.Due.After(now) {
			if next.IsZero() || b.Due.Before(next) {
				next = b.Due
			}
			continue
		}
		d := dueDraft{paper: p, body: b}
		if _, d.writes, err = a.writes(ctx, b); err != nil {
			return next, err
		}
		due = append(due, d)
	}
	slices.SortFunc(due, func(x, y dueDraft) int {
		return cmp.Or(x.body.Due.Compare(y.body.Due), cmp.Compare(x.paper.ID, y.paper.ID))
	})
	for i, d := range due {
		d.body.Late = now.Sub(d.body.Due) > lateAfter
		if d.body.Late {
			log.WarnContext(ctx, "a schedule is late", "draft", d.paper.ID, "title", d.body.Title, "due", d.body.Due, "by", now.Sub(d.body.Due).Round(time.Second).String())
		}
		later := slices.IndexFunc(due[i+1:], func(o dueDraft) bool { return overlaps(d.writes, o.writes) })
		if d.body.Late && later >= 0 {
			a.supersede(ctx, log, d, due[i+1+later])
			continue
		}
		a.publishDue(ctx, log, d)
	}
	return next, nil
}

// scheduler acts for the author of a draft.
func (b draftBody) scheduler() Write {
	return Write{Actor: Actor{Name: "scheduler for " + b.Authors[0]}, Reason: b.Reason}
}

func (a *Actions) supersede(ctx context.Context, log *slog.Logger, d, by dueDraft) {
	d.paper.State = Superseded
	d.body.Why = fmt.Sprintf("late; draft %s (%s), due %s, changes the same", by.paper.ID, by.body.Title, by.body.Due.Format(time.RFC3339))
	a.noteDraft(ctx, log, "draft_supersede", d)
	log.WarnContext(ctx, "a late schedule gave way to a newer one", "draft", d.paper.ID, "title", d.body.Title, "to", by.paper.ID)
}

// noteDraft saves the draft for the scheduler. Another control node may have been faster.
func (a *Actions) noteDraft(ctx context.Context, log *slog.Logger, action string, d dueDraft) {
	err := a.saveDraft(ctx, d.body.scheduler(), action, d.paper, d.body)
	if err != nil && fault.CodeOf(err) != "stale_paper" && ctx.Err() == nil {
		log.WarnContext(ctx, "a draft could not be noted", "draft", d.paper.ID, "state", d.paper.State, "err", err)
	}
}

// publishDue publishes a draft that is due. What passes by itself is tried again at the
// next look; any other refusal suspends the draft, for a person to look at.
func (a *Actions) publishDue(ctx context.Context, log *slog.Logger, d dueDraft) {
	number, err := a.releaseDue(ctx, d)
	switch {
	case err == nil && number == 0:
		d.paper.State, d.body.Why = Superseded, "what it changes is in use already"
		a.noteDraft(ctx, log, "draft_supersede", d)
		log.InfoContext(ctx, "a schedule had nothing left to change", "draft", d.paper.ID, "title", d.body.Title)
	case err == nil:
		d.paper.State, d.body.Release, d.body.Why = Published, number, ""
		a.noteDraft(ctx, log, "draft_published", d)
		log.InfoContext(ctx, "a schedule was published", "draft", d.paper.ID, "title", d.body.Title, "release", number)
	case ctx.Err() != nil:
	case passes(err):
		if fault.CodeOf(err) != "canary_running" {
			log.WarnContext(ctx, "a schedule waits", "draft", d.paper.ID, "title", d.body.Title, "err", err)
		}
	default:
		d.paper.State, d.body.Why = Suspended, reasonOf(err)
		a.noteDraft(ctx, log, "draft_suspend", d)
		log.WarnContext(ctx, "a schedule was suspended", "draft", d.paper.ID, "title", d.body.Title, "err", err,
			"try", "look at the draft: bring it onto the newest release, or withdraw it")
	}
}

// passes says whether a refusal goes away without anybody's doing.
func passes(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Internal || kind == fault.Unavailable ||
		slices.Contains([]string{"canary_running", "stale_base", "store_behind", "fork", "fleet_too_old"}, fault.CodeOf(err))
}

// reasonOf is a refusal on a few lines, for the paper.
func reasonOf(err error) string {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err.Error()
	}
	lines := []string{fault.CodeOf(err) + ": " + e.Detail}
	for i, p := range e.Problems {
		if i == 10 {
			lines = append(lines, fmt.Sprintf("and %d more", len(e.Problems)-i))
			break
		}
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// releaseDue makes a release of a draft that is due, once among all control nodes. It is
// 0 when nothing is left to change.
func (a *Actions) releaseDue(ctx context.Context, d dueDraft) (number uint64, err error) {
	err = a.alone(ctx, func(ctx context.Context) error {
		h, err := a.head(ctx)
		if err == nil {
			err = h.known()
		}
		if err != nil {
			return err
		}
		if number, err = a.publishedAs(ctx, d.paper.ID); err != nil || number > 0 {
			return err
		}
		if err := a.open(ctx, h); err != nil {
			return err
		}
		moved, err := a.onHead(ctx, h, d.body)
		if err != nil {
			return err
		}
		if moved.Base != d.body.Base {
			_, left, err := a.writes(ctx, moved)
			if err != nil || len(left) == 0 {
				return err
			}
			if err := a.sameNeeds(ctx, h, d.body, moved); err != nil {
				return err
			}
		}
		out, err := a.releaseDraft(ctx, d.body.scheduler(), h, d.paper, moved)
		number = out.Release
		return err
	})
	return number, err
}

// sameNeeds refuses a draft that on the head takes a second person's agreement to
// more than it did on its base.
func (a *Actions) sameNeeds(ctx context.Context, h head, was, now draftBody) error {
	at, err := a.headAt(ctx, h, was.Base)
	if err != nil {
		return err
	}
	before, err := a.needsOf(ctx, at, was)
	if err != nil {
		return err
	}
	after, err := a.needsOf(ctx, h, now)
	if err != nil {
		return err
	}
	more := slices.DeleteFunc(after, func(n Need) bool {
		return slices.ContainsFunc(before, func(m Need) bool {
			return m.Code == n.Code && m.Path == n.Path && (n.Code == bigMove || m.Detail == n.Detail)
		})
	})
	if len(more) == 0 {
		return nil
	}
	return needsApproval(more)
}

func (a *Actions) needsOf(ctx context.Context, h head, b draftBody) ([]Need, error) {
	p := b.publication()
	doc, source, err := release.ParseSource(p.File, p.Document)
	if err != nil {
		return nil, err
	}
	d := draft{action: "publish", head: h}
	if err := a.fill(ctx, &d, doc, source, p); err != nil {
		return nil, err
	}
	d.change.Cause = release.Cause{Action: d.action, By: b.Authors[0], Reason: b.Reason}
	weighed, err := a.weigh(ctx, d)
	if err != nil {
		return nil, err
	}
	return weighed.Needs, nil
}
