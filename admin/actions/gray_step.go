package actions

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// GrayOutcome is what a change of a gray did. Release is 0 where only the plan changed.
type GrayOutcome struct {
	Outcome
	State  string `json:"state"`
	Share  string `json:"share" doc:"of 10,000, when the release is everywhere"`
	Prompt string `json:"prompt,omitempty" doc:"what is left to do by hand"`
	Draft  string `json:"draft,omitempty" doc:"that default opened"`
}

// paperTries bounds how often a plan is read again when somebody else writes it.
const paperTries = 10

// GrayTurn is what shall happen to a gray.
type GrayTurn struct {
	Action string // start, next, pause, resume, abort, finish, default
	Expect string // start and next: the share on the screen
	Hard   bool   // abort: void the sessions that the policy gave, too
}

// TurnGray does what is said to a gray.
func (a *Actions) TurnGray(ctx context.Context, w Write, to GrayRef, t GrayTurn) (GrayOutcome, error) {
	switch t.Action {
	case "start":
		return a.StartGray(ctx, w, to, t.Expect)
	case "next":
		return a.NextGray(ctx, w, to, t.Expect)
	case "pause":
		return a.PauseGray(ctx, w, to)
	case "resume":
		return a.ResumeGray(ctx, w, to)
	case "finish":
		return a.FinishGray(ctx, w, to)
	case "default":
		return a.DefaultGray(ctx, w, to)
	case "abort":
		return a.AbortGray(ctx, w, to, t.Hard)
	}
	return GrayOutcome{}, fault.New(fault.Invalid, "bad_action", "%q is nothing that a gray can do", t.Action).
		WithHint("choose start, next, pause, resume, finish, default or abort")
}

// StartGray takes the first step of a plan that is signed, or needs no signature,
// or goes on with one that was aborted and planned anew. Expect is the share on the
// screen. A signal that fails already refuses.
func (a *Actions) StartGray(ctx context.Context, w Write, to GrayRef, expect string) (GrayOutcome, error) {
	return a.advance(ctx, w, to, expect, func(ctx context.Context, g *grayFile, s sharing) error {
		switch g.paper.State {
		case GraySubmitted:
			return fault.New(fault.Denied, "not_approved", "the plan of %s moves more people at a step than one person may", to).
				Hintf("somebody else with the role approver signs it: POST /api/v1/grays/%s/approve", to)
		case GrayPlanned:
		default:
			return fault.New(fault.Conflict, "gray_state", "the gray %s is %s and cannot be started", to, fault.Word(g.paper.State)).
				WithHint("a paused one is resumed; for another one write a new plan")
		}
		g.Readings = a.readSignals(ctx, g, s)
		var failing fault.Problems
		for _, r := range g.Readings {
			if r.State == Fail {
				failing.Addf(r.Signal, "fails already: %s", strings.TrimSpace(r.Value+" "+r.Detail))
			}
		}
		return failing.Err("signal_fails", "the gray was not started: a signal fails before anybody is moved")
	})
}

// NextGray takes the next step, once that is ready.
func (a *Actions) NextGray(ctx context.Context, w Write, to GrayRef, expect string) (GrayOutcome, error) {
	return a.advance(ctx, w, to, expect, func(ctx context.Context, g *grayFile, s sharing) error {
		if g.paper.State != GrayRunning {
			return fault.New(fault.Conflict, "gray_state", "the gray %s is %s", to, fault.Word(g.paper.State)).WithHint("start or resume it first")
		}
		waits, err := a.waits(ctx, g, s)
		if err != nil {
			return err
		}
		if len(waits) == 0 {
			return nil
		}
		e := fault.New(fault.Conflict, "not_ready", "the next step of %s has to wait; nothing was changed", to).
			WithHint("a step that went badly is aborted; a slow one gets a smaller sample in a new plan")
		for _, wait := range waits {
			e.Problems = append(e.Problems, fault.ProblemOf("", wait, fault.Text{}))
		}
		return e
	})
}

// advance takes the next step of the plan if may says so.
func (a *Actions) advance(ctx context.Context, w Write, to GrayRef, expect string, may func(context.Context, *grayFile, sharing) error) (GrayOutcome, error) {
	if err := w.Actor.May("gray"); err != nil {
		return GrayOutcome{}, err
	}
	out, err := remembered(ctx, a, w, asked{"gray_advance", []any{to, expect}}, func(w Write) (GrayOutcome, error) {
		g, err := a.plannedGray(ctx, to.App, to.Policy)
		if err != nil {
			return GrayOutcome{}, err
		}
		h, err := a.editable(ctx)
		if err != nil {
			return GrayOutcome{}, err
		}
		s, err := shareIn(h.from, to.App, to.Policy)
		if err != nil {
			return GrayOutcome{}, err
		}
		if now := s.position(); now != expect || now != strconv.Itoa(g.share()) {
			e := fault.New(fault.Conflict, "expect_mismatch", "the share of %s is now %s; the screen showed %q and the plan stands at %d", to, now, expect, g.share()).
				WithHint("look again; a share that was changed by hand needs a new plan")
			e.Data = map[string]string{"current": now}
			return GrayOutcome{}, e
		}
		switch {
		case s.salt != g.Salt:
			return GrayOutcome{}, fault.New(fault.Conflict, "salt_changed", "the salt of %s is %q and was %q when the gray was planned", to, s.salt, g.Salt).
				WithHint("other people would be inside: give the policy its salt back, or write a new plan")
		case s.share.Region != g.Plan.Region:
			return GrayOutcome{}, fault.New(fault.Conflict, "target_changed", "the share of %s goes to %s and the plan is for %s", to, s.share.Region, g.Plan.Region).
				WithHint("write a new plan")
		case g.next() == 0:
			return GrayOutcome{}, fault.New(fault.Conflict, "no_step", "the last step of %s was taken", to).WithHint("finish it")
		}
		if err := may(ctx, g, s); err != nil {
			return GrayOutcome{}, err
		}
		return a.takeStep(ctx, w, g, g.Step+1)
	})
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

// takeStep publishes the share of the step and notes it in the plan. The release
// comes first: what it expects lets only one of two steps happen, and a plan that
// does not hear of it finds it in the release.
func (a *Actions) takeStep(ctx context.Context, w Write, g *grayFile, step int) (GrayOutcome, error) {
	before := g.share()
	signed, err := a.grayApprover(ctx, g)
	if err != nil {
		return GrayOutcome{}, err
	}
	app, key, _ := strings.Cut(g.paper.ID, "/")
	next := *g
	next.Step, next.paper.State, next.Why = step, GrayRunning, ""
	if step < g.Step {
		next.paper.State, next.Why = g.paper.State, g.Why
	}
	out := GrayOutcome{State: next.paper.State, Share: strconv.Itoa(next.share())}
	err = a.alone(ctx, func(ctx context.Context) error {
		h, err := a.editable(ctx)
		if err != nil {
			return err
		}
		ops, err := release.SetShare{App: app, Policy: key, Expect: strconv.Itoa(before), To: next.share()}.On(&h.from.Document, h.from.Operational)
		if err != nil {
			return err
		}
		d := draft{action: "gray_step", target: g.paper.ID, head: h, details: map[string]any{"step": step, "from": before, "to": next.share()},
			answer: func(o Outcome) any { out.Outcome = o; return out }}
		d.change = release.Change{Operational: &ops, Cause: release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason},
			Approve: release.Approval{BigMove: signed != "" || !a.FourEyes || step < g.Step}}
		out.Outcome, err = a.commit(ctx, w, d)
		return err
	})
	if err != nil {
		return GrayOutcome{}, err
	}
	if !a.FourEyes && signed == "" {
		if two, err := a.needsTwo(ctx, g); err == nil && two {
			out.Warnings = append(out.Warnings, fault.Problem{Detail: "the plan moves more people at a step than one person may, and four eyes are off",
				Hint: "the audit trail says that one person did it"})
		}
	}
	next.Release, next.Began, next.Since = out.Release, a.now(), time.Time{}
	w.once = nil
	if err := a.saveGray(context.WithoutCancel(ctx), w, &next, "gray_note"); err != nil {
		out.Warnings = append(out.Warnings, fault.Problem{Detail: fmt.Sprintf("release %d carries the step, and the plan does not say so yet", out.Release),
			Hint: "nothing: it is looked at again within a minute"})
	}
	*g = next
	return out, nil
}

// PauseGray stops a gray where it stands, whatever else happens to its plan.
func (a *Actions) PauseGray(ctx context.Context, w Write, to GrayRef) (GrayOutcome, error) {
	if err := w.Actor.May("abort-gray"); err != nil {
		return GrayOutcome{}, err
	}
	return a.turnGray(ctx, w, to, "gray_pause", func(g *grayFile) error {
		switch g.paper.State {
		case GrayRunning:
			g.paper.State, g.Why = GrayPaused, "by "+w.Actor.Name+": "+w.Reason
		case GrayPaused:
		default:
			return fault.New(fault.Conflict, "gray_state", "the gray %s is %s", to, fault.Word(g.paper.State)).WithHint("only one that runs can be paused")
		}
		return nil
	})
}

// ResumeGray goes on with a paused gray. Its signals have to pass anew.
func (a *Actions) ResumeGray(ctx context.Context, w Write, to GrayRef) (GrayOutcome, error) {
	if err := w.Actor.May("gray"); err != nil {
		return GrayOutcome{}, err
	}
	cur := a.Keeper.Current()
	if cur == nil {
		return GrayOutcome{}, noRelease()
	}
	return a.turnGray(ctx, w, to, "gray_resume", func(g *grayFile) error {
		if g.paper.State != GrayPaused {
			return fault.New(fault.Conflict, "gray_state", "the gray %s is %s", to, fault.Word(g.paper.State)).WithHint("only a paused one can be resumed")
		}
		s, err := shareIn(cur.Manifest, to.App, to.Policy)
		if err != nil {
			return err
		}
		if s.position() != strconv.Itoa(g.share()) || s.salt != g.Salt || s.share.Region != g.Plan.Region {
			return fault.New(fault.Conflict, "gray_changed", "the share of %s is %s and goes to %s under the salt %q; the plan stands at %d to %s under %q",
				to, s.position(), s.share.Region, s.salt, g.share(), g.Plan.Region, g.Salt).WithHint("write a new plan from where it stands")
		}
		g.paper.State, g.Why = GrayRunning, ""
		return nil
	})
}

// FinishGray closes a plan whose last step serves. What is left is to say in the
// document what serves by hand, which DefaultGray drafts where it can.
func (a *Actions) FinishGray(ctx context.Context, w Write, to GrayRef) (GrayOutcome, error) {
	if err := w.Actor.May("gray"); err != nil {
		return GrayOutcome{}, err
	}
	out, err := a.turnGray(ctx, w, to, "gray_finish", func(g *grayFile) error {
		switch {
		case g.paper.State != GrayRunning && g.paper.State != GrayPaused:
			return fault.New(fault.Conflict, "gray_state", "the gray %s is %s", to, fault.Word(g.paper.State)).WithHint("only one that runs can be finished")
		case g.next() != 0:
			return fault.New(fault.Conflict, "steps_left", "the gray %s stands at %d, and its plan ends at %d", to, g.share(), g.Plan.Steps[len(g.Plan.Steps)-1]).
				WithHint("take the steps that are left, or abort it")
		case g.Since.IsZero():
			return fault.New(fault.Conflict, "not_everywhere", "not every replica serves the last step of %s yet", to).
				WithHint("GET /api/v1/fleet says who lags behind, and why")
		}
		g.paper.State, g.Why = GrayFinished, "by "+w.Actor.Name+": "+w.Reason
		return nil
	})
	if err != nil {
		return out, err
	}
	cur := a.Keeper.Current()
	if cur == nil {
		return out, noRelease()
	}
	s, err := shareIn(cur.Manifest, to.App, to.Policy)
	if err != nil {
		return out, nil // the policy went meanwhile: nothing is left to do
	}
	out.Prompt = s.insteadOf(to).String()
	if s.byDefault().Ready {
		out.Prompt = fmt.Sprintf("make %s the default of %s: dispatchctl gray default %s, or the action default, opens a draft of it", s.share.Region, to.App, to)
	}
	return out, nil
}

// turnGray changes the state of a plan, as often as others write it meanwhile.
func (a *Actions) turnGray(ctx context.Context, w Write, to GrayRef, action string, turn func(*grayFile) error) (GrayOutcome, error) {
	return remembered(ctx, a, w, asked{action, to}, func(w Write) (out GrayOutcome, err error) {
		for range paperTries {
			var g *grayFile
			if g, err = a.plannedGray(ctx, to.App, to.Policy); err != nil {
				return GrayOutcome{}, err
			}
			if err = turn(g); err != nil {
				return GrayOutcome{}, err
			}
			out = GrayOutcome{State: g.paper.State, Share: strconv.Itoa(g.share())}
			if err = w.remember(out); err != nil {
				return GrayOutcome{}, err
			}
			if err = a.saveGray(ctx, w, g, action); fault.CodeOf(err) != "stale_paper" {
				return out, err
			}
		}
		return out, err
	})
}
