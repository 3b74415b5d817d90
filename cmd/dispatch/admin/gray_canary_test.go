package admin_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// steadily has a gray planned on a fleet with a canary, and everybody serving it at 0.
func steadily(t *testing.T, c *control, w *crew) actions.GrayRef {
	t.Helper()
	must2(c.release(1, grayDocument(t)))(t)
	time.Sleep(time.Minute)
	synctest.Wait()
	if r := c.rollout(); r.All != 2 || r.Canary != "" {
		t.Fatalf("the document is not everywhere: %+v", r)
	}
	to := actions.GrayRef{App: "mobile", Policy: "gray"}
	must2(c.do.PlanGray(t.Context(), engineer, to, actions.GrayPlan{Region: "hf", Steps: []int{5000}, Signals: []actions.Signal{{Kind: actions.SignalProbe}}}))(t)
	return to
}

func (c *control) looked(to actions.GrayRef) actions.Gray {
	c.t.Helper()
	must(c.t, c.do.LookAtGrays(c.t.Context(), slog.New(slog.NewJSONHandler(c.log, nil))))
	return must2(c.do.GrayOf(c.t.Context(), to.App, to.Policy))(c.t)
}

// An abort while a canary tries the step ends the canary, though the share is 0 for
// everybody else.
func TestAbortEndsTheCanaryOfAStep(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		to := steadily(t, c, w)
		out := must2(c.do.StartGray(t.Context(), engineer, to, "0"))(t)
		if out.Canary != "e1" || w.of("e1").keeper.Status().Number != 3 {
			t.Fatalf("no canary has the step: %+v", out)
		}
		if g := c.looked(to); g.State != actions.GrayRunning || !g.Since.IsZero() {
			t.Errorf("while the canary runs: %s, since %s", g.State, g.Since)
		}
		night := actions.Write{Actor: actions.Actor{Name: "night", Roles: []string{actions.OnCall}}, Reason: "it burns", Confirm: "gray"}
		must2(c.do.AbortGray(t.Context(), night, to, false))(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.serve(4, 1, 2, 3, 4)
		c.sameContent(2, 4)
		if g := c.looked(to); g.State != actions.GrayAborted || g.Share != "0" {
			t.Errorf("the gray is %s at %s", g.State, g.Share)
		}
	})
}

// A canary that does not bear the step takes it back, and the gray pauses there.
func TestAStepWhoseCanaryIsStoppedPauses(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		to := steadily(t, c, w)
		must2(c.do.StartGray(t.Context(), engineer, to, "0"))(t)
		time.Sleep(2 * time.Second) // the canary was looked at
		w.change(func() { w.of("e1").errors += 3 })
		time.Sleep(time.Minute)
		synctest.Wait()
		g := c.looked(to)
		if g.State != actions.GrayPaused || g.Share != "0" || g.Step != 0 || !strings.Contains(g.Why, "release 3, which carried the step, was stopped") {
			t.Errorf("the gray is %s at %s, step %d: %s", g.State, g.Share, g.Step, g.Why)
		}
		c.sameContent(2, 4)
	})
}

// A step counts from when the last replica serves it.
func TestAStepBeginsWhenEverybodyServesIt(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		to := steadily(t, c, w)
		must2(c.do.StartGray(t.Context(), engineer, to, "0"))(t)
		time.Sleep(5 * time.Second)
		if g := c.looked(to); !g.Since.IsZero() || len(g.Waits) != 0 && !strings.Contains(g.Waits[0], "not every replica") {
			t.Errorf("it began with its canary: %+v", g)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if g := c.looked(to); g.Since.IsZero() || g.Share != "5000" {
			t.Errorf("it did not begin: %+v", g)
		}
	})
}

// Two control nodes see that a step is ready, and one takes it.
func TestTwoNodesTakeOneStep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *control) {
		g := grays(t, c)
		g.planned(`,"auto":true`)
		g.turn(actions.ReleaseEngineer, "start").ok()
		other := g.second()
		other.do.Now, other.do.FourEyes, other.do.Signals = g.do.Now, true, g.do.Signals
		g.look()
		g.clock.ahead.Add(int64(time.Hour))
		g.answered(1000)
		log := slog.New(slog.NewJSONHandler(g.log, nil))
		for range 3 {
			g.clock.ahead.Add(int64(actions.GrayWindow))
			var both sync.WaitGroup
			for _, node := range []*control{g.control, other} {
				both.Go(func() {
					if err := node.do.LookAtGrays(t.Context(), log); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
		}
		if steps := g.trail("gray_step"); len(steps) != 2 {
			t.Errorf("%d steps were taken, want the start and one more: %+v", len(steps), steps)
		}
		plan := must2(other.do.GrayOf(t.Context(), "mobile", "gray"))(t)
		if plan.Step != 2 || plan.State != actions.GrayRunning {
			t.Errorf("the plan is %s at step %d (%s)", plan.State, plan.Step, plan.Why)
		}
	})
}
