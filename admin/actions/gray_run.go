package actions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

const (
	// GrayWindow is the mean time between two looks at the signals of running grays.
	GrayWindow = 30 * time.Second
	// grayLook bounds one look at all of them.
	grayLook = time.Minute
	// windowsNeeded is how many windows in a row must pass before a step, and how
	// many may go without before the gray pauses.
	windowsNeeded = 2
	// arriveWithin is how long replicas may take to serve a step before it pauses:
	// the canary, a poll of each, and a slow one.
	arriveWithin = 5 * time.Minute
)

// grayWatches is what this process saw of running grays. It is not written down: a
// node that takes over, or starts anew, sees two windows for itself before it does
// anything, and the audit trail keeps what was decided instead of what was seen.
type grayWatches struct {
	mu     sync.Mutex
	of     map[string]grayWatch
	states []GrayStatus
}

// grayWatch is what was seen of one gray since its plan was written last.
type grayWatch struct {
	rev      uint64
	at       time.Time // of the last window
	passed   int       // windows in a row in which every signal passed
	failed   int       // in a row in which one failed
	bad      int       // in a row in which one failed or said nothing
	readings []Reading
}

func newGrayWatches() *grayWatches { return &grayWatches{of: map[string]grayWatch{}} }

// seen is the watch of a plan as it is written now.
func (w *grayWatches) seen(g *grayFile) grayWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.of[g.paper.ID]; was.rev == g.paper.Rev {
		return was
	}
	return grayWatch{rev: g.paper.Rev}
}

// note adds a window to the watch.
func (w *grayWatches) note(g *grayFile, readings []Reading, at time.Time) grayWatch {
	was := w.seen(g)
	next := grayWatch{rev: g.paper.Rev, at: at, readings: readings, passed: was.passed + 1}
	for _, r := range readings {
		if r.State != Pass {
			next.passed, next.bad = 0, was.bad+1
		}
	}
	for _, r := range readings {
		if r.State == Fail {
			next.failed = was.failed + 1
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[g.paper.ID] = next
	return next
}

// keep drops the watches of grays that run no longer.
func (w *grayWatches) keep(running map[string]bool, states []GrayStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.of {
		if !running[id] {
			delete(w.of, id)
		}
	}
	w.states = states
}

// GrayStates are the grays as this process saw them last, for metrics.
func (a *Actions) GrayStates() []GrayStatus {
	a.grayWatch.mu.Lock()
	defer a.grayWatch.mu.Unlock()
	return a.grayWatch.states
}

// RunGrays looks at running grays until ctx ends.
func (a *Actions) RunGrays(ctx context.Context, log *slog.Logger) error {
	told := ""
	for ctx.Err() == nil {
		text := ""
		if err := a.LookAtGrays(ctx, log); err != nil && ctx.Err() == nil {
			if text = err.Error(); text != told {
				log.ErrorContext(ctx, "grays are not looked at from here", "err", err,
					"try", "nothing yet: it is tried again every half minute, and no gray grows meanwhile")
			}
		}
		told = text
		pause(ctx, GrayWindow, nil, nil)
	}
	return nil
}

// LookAtGrays is one window: the signals of every running gray are asked, and what
// follows is done. Several control nodes do so; the paper lets the first one decide.
func (a *Actions) LookAtGrays(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, grayLook)
	defer cancel()
	papers, err := a.Ledger.Papers(ctx, ledger.Gray, ledger.PaperFilter{States: []string{GrayRunning, GrayPaused}, Limit: maxGrays})
	if err != nil {
		return fmt.Errorf("read grays: %w", err)
	}
	running := map[string]bool{}
	var failed error
	for _, p := range papers {
		running[p.ID] = p.State == GrayRunning
		g, err := grayOf(p)
		if err == nil {
			err = (&grayJudge{Actions: a, log: log, g: g}).look(ctx)
		}
		if err != nil && fault.CodeOf(err) != "stale_paper" { // then another node was faster
			failed = errors.Join(failed, fmt.Errorf("gray %s: %w", p.ID, err))
		}
	}
	states, err := a.Grays(ctx)
	a.grayWatch.keep(running, states)
	return errors.Join(failed, err)
}

// grayJudge decides over one gray in one window.
type grayJudge struct {
	*Actions
	log *slog.Logger
	g   *grayFile
	ref GrayRef
	s   sharing
	h   head
}

func (j *grayJudge) look(ctx context.Context) error {
	j.ref = refOf(j.g.paper.ID)
	var err error
	if j.h, err = j.head(ctx); err != nil {
		return err
	}
	if j.h.lost > 0 || j.h.written == nil {
		return nil // a database that was restored knows nothing of what serves
	}
	if j.s, err = shareIn(j.h.written, j.ref.App, j.ref.Policy); err != nil {
		if j.g.paper.State == GrayPaused {
			return nil // it stands anyway
		}
		return j.stop(ctx, GrayPaused, "the share is gone: "+fault.BodyOf(err).Detail, nil)
	}
	if j.g.paper.State == GrayPaused {
		if j.s.position() == "0" && j.g.share() != 0 {
			return j.stop(ctx, GrayAborted, "the share was set to 0", nil)
		}
		return nil
	}
	if over, err := j.astray(ctx); over || err != nil {
		return err
	}
	if j.g.Since.IsZero() {
		return j.arrive(ctx)
	}
	return j.judge(ctx)
}

// astray deals with a release that is not what the plan says. It is true when there
// is nothing more to judge.
func (j *grayJudge) astray(ctx context.Context) (bool, error) {
	g, now := j.g, j.s.position()
	switch {
	case j.s.salt != g.Salt:
		return true, j.stop(ctx, GrayPaused, fmt.Sprintf("the salt was changed from %q to %q: other people are inside", g.Salt, j.s.salt), nil)
	case j.s.share.Region != g.Plan.Region:
		return true, j.stop(ctx, GrayPaused, fmt.Sprintf("the share goes to %s now", j.s.share.Region), nil)
	case now == strconv.Itoa(g.share()):
		return false, nil
	case g.Step > 0 && g.Since.IsZero() && now == strconv.Itoa(g.before()) && j.h.rollout.Head > g.Release && j.h.written.Cause.Action != AbortGray:
		g.Step--
		return true, j.stop(ctx, GrayPaused, fmt.Sprintf("release %d, which carried the step, was stopped or superseded", g.Release), nil)
	case now == "0":
		return true, j.stop(ctx, GrayAborted, "the share was set to 0", nil)
	case g.next() != 0 && now == strconv.Itoa(g.next()) && j.h.written.Cause.Action == "gray_step":
		g.Step++ // the step was published, and whoever did so could not write it here
		g.Release, g.Began, g.Since = j.h.rollout.Head, j.now(), time.Time{}
		return true, j.save(ctx, "gray_note")
	}
	return true, j.stop(ctx, GrayPaused, fmt.Sprintf("the share was changed to %s, and the plan stands at %d", now, g.share()), nil)
}

// before is the share of the step before.
func (b *grayBody) before() int {
	if b.Step <= 1 {
		return b.Begin
	}
	return b.Plan.Steps[b.Step-2]
}

// arrive waits until every replica serves the step. Only then its time begins.
func (j *grayJudge) arrive(ctx context.Context) error {
	if j.h.rollout.Canary == "" && j.h.rollout.Head >= j.g.Release {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		ack := j.Fleet.Await(limited, j.g.Release, "")
		cancel()
		if len(ack.Lagging) == 0 && ack.Of > 0 && ack.Replicas >= ack.Of {
			j.g.Since, j.g.Why = j.now(), ""
			return j.save(ctx, "gray_arrived")
		}
	}
	if j.now().Sub(j.g.Began) > arriveWithin {
		return j.stop(ctx, GrayPaused, "not every replica serves the step after "+arriveWithin.String()+": GET /api/v1/fleet says who lags behind", nil)
	}
	return nil
}

// judge asks the signals and does what follows.
func (j *grayJudge) judge(ctx context.Context) error {
	if was := j.grayWatch.seen(j.g); j.now().Sub(was.at) < GrayWindow/2 {
		return nil // this window was judged
	}
	watch := j.grayWatch.note(j.g, j.readSignals(ctx, j.g, j.s), j.now())
	switch {
	case watch.bad >= windowsNeeded && watch.failed >= windowsNeeded:
		return j.fail(ctx, watch)
	case watch.bad >= windowsNeeded:
		return j.stop(ctx, GrayPaused, "no data: "+worst(watch.readings), watch.readings)
	case !j.g.Plan.Auto || watch.passed < windowsNeeded:
		return nil
	}
	return j.promote(ctx)
}

// worst is the first reading that did not pass, in words.
func worst(readings []Reading) string {
	for _, state := range []string{Fail, NoData} {
		for _, r := range readings {
			if r.State == state {
				return fmt.Sprintf("%s: %s %s", r.Signal, r.Value, r.Detail)
			}
		}
	}
	return "every signal passes"
}

// fail does what the plan says of signals that fail. It pauses first, so that nothing
// grows even if the rest cannot be done. While changes are frozen it does no more.
func (j *grayJudge) fail(ctx context.Context, watch grayWatch) error {
	why := worst(watch.readings)
	if err := j.stop(ctx, GrayPaused, "a signal fails: "+why, watch.readings); err != nil || j.frozen() {
		return err
	}
	w := Write{Actor: dispatcher, Reason: firstLine("a signal fails: " + why)}
	var err error
	switch {
	case j.g.Plan.OnFail == OnFailZero:
		_, err = j.abortGray(ctx, w, j.ref, false)
	case j.g.Plan.OnFail == OnFailBack && j.g.Step > 0:
		_, err = j.takeStep(ctx, w, j.g, j.g.Step-1)
	}
	if err != nil {
		return fmt.Errorf("take it back after a signal failed: %w", err)
	}
	return nil
}

func (j *grayJudge) frozen() bool { return j.h.from != nil && j.h.from.Operational.Frozen }

// promote takes the next step by itself, where the plan wants that and nothing
// speaks against it. The last half of the people is a person's decision.
func (j *grayJudge) promote(ctx context.Context) error {
	next := j.g.next()
	if next == 0 || next > autoMost || j.frozen() {
		return nil
	}
	if waits, err := j.waits(ctx, j.g, j.s); err != nil || len(waits) > 0 {
		return err
	}
	if open, err := j.Unreviewed(ctx); err != nil || len(open) > 0 {
		return err
	}
	_, err := j.takeStep(ctx, Write{Actor: dispatcher, Reason: "bake and sample are reached and every signal passes"}, j.g, j.g.Step+1)
	switch {
	case fault.KindOf(err) == fault.Conflict: // a canary, a freeze, another node: the next window sees what became of it
		return nil
	case err == nil:
		j.log.InfoContext(ctx, "a gray took its next step", "app", j.ref.App, "policy", j.ref.Policy, "share", j.g.share())
	}
	return err
}

// stop ends the running of a gray. People are told by the log and the metric.
func (j *grayJudge) stop(ctx context.Context, state, why string, readings []Reading) error {
	j.g.paper.State, j.g.Why = state, firstLine(why)
	if readings != nil {
		j.g.Readings = readings
	}
	if err := j.save(ctx, "gray_"+state); err != nil {
		return err
	}
	j.log.WarnContext(ctx, "a gray stands", "app", j.ref.App, "policy", j.ref.Policy, "state", state, "share", j.g.share(), "why", why,
		"try", "look at /gray/"+j.ref.String()+": resume it, or abort it")
	return nil
}

func (j *grayJudge) save(ctx context.Context, action string) error {
	reason := j.g.Why
	if reason == "" {
		reason = fmt.Sprintf("step %d of %d", j.g.Step, len(j.g.Plan.Steps))
	}
	return j.saveGray(ctx, Write{Actor: dispatcher, Reason: reason}, j.g, action)
}

// refOf is the gray that a paper is about.
func refOf(id string) GrayRef {
	for i := range id {
		if id[i] == '/' {
			return GrayRef{App: id[:i], Policy: id[i+1:]}
		}
	}
	return GrayRef{App: id}
}
