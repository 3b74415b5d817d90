package admin_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// rollout is how far the newest release has come.
func (c *control) rollout() ledger.Rollout {
	c.t.Helper()
	r, err := c.store.Rollout(c.t.Context(), release.StreamEdge)
	must(c.t, err)
	return r
}

// sameContent fails unless two releases say the same.
func (c *control) sameContent(a, b uint64) {
	c.t.Helper()
	changes, err := c.do.Diff(c.t.Context(), a, b)
	must(c.t, err)
	if len(changes) > 0 {
		c.t.Errorf("releases %d and %d differ: %v", a, b, changes)
	}
}

// P10: a canary that refuses stops the publication. Nobody else ever serves it, and
// within 10 s what everybody served is back under a new number.
func TestP10CanaryRefuses(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		start := time.Now()
		o, err := c.release(1, edit(t, "wapabst2.a.com.cn", "wapabst3.a.com.cn")) // which e1 does not allow
		must(t, err)
		if o.Release != 2 || o.Canary != "e1" || o.Acknowledged.Replicas != 0 || o.Acknowledged.Of != 1 ||
			len(o.Acknowledged.Lagging) != 1 || o.Acknowledged.Lagging[0].Why != "refused: host_outside_suffixes" {
			t.Errorf("the author hears %+v %+v", o, o.Acknowledged)
		}
		synctest.Wait()
		for c.rollout().Head == 2 && time.Since(start) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the content was back after %s, want 10 s at most", took)
		}
		if r := c.rollout(); r.Head != 3 || r.All != 3 || c.current() != 3 {
			t.Errorf("the rollout is %+v and this node serves %d, want 3", r, c.current())
		}
		w.serve(3, 1, 3)
		c.sameContent(1, 3)
		rows := c.trail("canary_stopped")
		if len(rows) != 1 || rows[0].Release != 3 || !strings.Contains(rows[0].Reason, "e1 refused it (host_outside_suffixes)") {
			t.Errorf("the trail says %+v", rows)
		}
		if !strings.Contains(c.log.String(), "a canary was stopped") {
			t.Error("it is not logged")
		}
	})
}

// trail is the audit rows of an action.
func (c *control) trail(action string) []ledger.AuditEntry {
	c.t.Helper()
	rows, err := c.store.Audit(c.t.Context(), ledger.AuditFilter{Action: action})
	must(c.t, err)
	return rows
}

// Whatever is wrong with a canary takes the change back, and the reason is told.
func TestACanaryIsStopped(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(w *crew, e *edge)
		within        time.Duration
		why           string
	}{
		"answers with errors": {after: func(w *crew, e *edge) { w.change(func() { e.errors += 3 }) }, within: time.Second, why: "e2 answered 3 requests with errors"},
		"starts anew":         {after: func(w *crew, e *edge) { w.change(func() { e.boot = "2" }) }, within: time.Second, why: "e2 was started anew"},
		"falls silent":        {after: func(w *crew, e *edge) { w.change(func() { e.gone = time.Now() }) }, within: 17 * time.Second, why: "e2 fell silent"},
		"never takes it": {before: func(w *crew, e *edge) { w.change(func() { e.gone = time.Now() }) }, within: 12 * time.Second,
			why: "e2 did not take it within 10s and serves release 1"},
		"is removed": {after: func(w *crew, e *edge) {
			w.change(func() { w.edges = slices.DeleteFunc(w.edges, func(x *edge) bool { return x == e }) })
		}, within: 12 * time.Second, why: "e2 has not asked for it within 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, c *control, w *crew) {
				w.change(func() { w.edges = slices.Delete(w.edges, 0, 1) })
				e := w.of("e2")
				if test.before != nil {
					test.before(w, e)
				}
				must2(c.release(1, edit(t, "capacity: 60", "capacity: 61")))(t)
				time.Sleep(time.Second)
				start := time.Now()
				if test.after != nil {
					test.after(w, e)
				}
				for c.rollout().Head == 2 && time.Since(start) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(start); took > test.within {
					t.Errorf("it was stopped after %s, want %s at most", took, test.within)
				}
				synctest.Wait()
				rows := c.trail("canary_stopped")
				if len(rows) != 1 || rows[0].Reason != test.why {
					t.Fatalf("the trail says %+v, want %q", rows, test.why)
				}
				c.sameContent(1, 3)
				w.change(func() { e.gone = time.Time{} })
				w.edges = slices.DeleteFunc(w.edges, func(x *edge) bool { return x == e })
				w.serve(3, 1, 3)
			})
		})
	}
}

// What comes under the canary's number from somebody else is not the canary's fault.
func TestAForgeryDoesNotEndACanary(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		w.change(func() { w.edges = slices.Delete(w.edges, 0, 1); w.of("e2").gone = time.Now() })
		must2(c.release(1, edit(t, "capacity: 60", "capacity: 61")))(t)
		forged, err := c.store.Release(t.Context(), release.StreamEdge, 2)
		must(t, err)
		forged.Signature = forged.Records.Signature
		if err := w.of("e2").keeper.Accept(t.Context(), forged, c.store, "redis"); err == nil {
			t.Fatal("a forgery was accepted")
		}
		w.change(func() { w.of("e2").gone = time.Time{} })
		w.change(func() { w.of("e2").gone = time.Now() }) // it has told of its refusal
		time.Sleep(2 * time.Second)
		if r := c.rollout(); r.Head != 2 {
			t.Errorf("the rollout is %+v, want that of 2 to go on", r)
		}
	})
}

// A canary that serves for its time without an error is followed by all; until then
// a normal change waits.
func TestACanaryIsPromoted(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		w.change(func() { w.edges = slices.Delete(w.edges, 0, 1); w.of("e2").errors = 7 }) // from before
		document := edit(t, "capacity: 60", "capacity: 61")
		keyed := engineer
		keyed.Key = "k"
		publish := func() actions.Outcome {
			o, err := c.do.Publish(t.Context(), keyed, actions.Publication{Document: []byte(document), Base: 1})
			must(t, err)
			return o
		}
		start := time.Now()
		if o := publish(); o.Release != 2 || o.Canary != "e2" || o.Acknowledged.Replicas != 1 || o.Acknowledged.Of != 1 || c.current() != 2 {
			t.Errorf("the author hears %+v %+v, and this node serves %d", o, o.Acknowledged, c.current())
		}
		for _, err := range []error{
			errorOf(c.release(2, edit(t, "capacity: 60", "capacity: 62"))),
			errorOf(c.do.PatchList(t.Context(), engineer, actions.ListPatch{List: "staff", Add: []string{"d-9"}})),
			errorOf(c.do.ImportList(t.Context(), engineer, actions.Import{List: "staff", Body: strings.NewReader("d-9\n")})),
			errorOf(c.do.Rehash(t.Context(), engineer)),
		} {
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != "canary_running" || e.Kind != fault.Conflict || e.Hint == "" {
				t.Errorf("a normal change meanwhile: %v", err)
			}
		}
		if err := errorOf(c.release(1, document)); fault.CodeOf(err) != "stale_base" { // the difference says more
			t.Errorf("a document from before: %v", err)
		}
		time.Sleep(9*time.Second - time.Since(start))
		if n := w.of("e3").keeper.Status().Number; n != 1 {
			t.Errorf("e3 serves release %d before the canary's time is over", n)
		}
		for c.rollout().Canary != "" && time.Since(start) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("everybody may serve it after %s, want 10 s and a look", took)
		}
		w.serve(2, 1, 2)
		rows := c.trail("promote")
		if len(rows) != 1 || rows[0].Target != "release 2" || rows[0].Actor != "dispatch" {
			t.Errorf("the trail says %+v", rows)
		}
		// The same request again hears how it is now.
		if o := publish(); o.Release != 2 || o.Canary != "" || o.Acknowledged.Replicas != 2 || o.Acknowledged.Of != 2 {
			t.Errorf("the author hears then %+v %+v", o, o.Acknowledged)
		}
		must2(c.release(2, edit(t, "capacity: 60", "capacity: 62")))(t)
	})
}

func errorOf[T any](_ T, err error) error { return err }

// An emergency goes past a canary: it is what everybody serves plus the action, and
// ends the canary. What the canary brought, its author brings again.
func TestAnEmergencySupersedesACanary(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		w.change(func() { w.edges = slices.Delete(w.edges, 0, 1) })
		// A move of half the users, and a region more: for the canary the way back is as far.
		document := edit(t, "of: 6000", "of: 1000", "of: 4000", "of: 9000", "    policies:\n",
			"      - {key: nj, endpoints: [{key: nj-main, domain: wapabst3.a.com.cn}]}\n    policies:\n")
		must2(c.release(1, document))(t)
		if n := w.of("e2").keeper.Status().Number; n != 2 {
			t.Fatalf("the canary serves %d", n)
		}
		start := time.Now()
		o, err := c.swap()
		must(t, err)
		if o.Release != 3 || o.Canary != "" || o.Acknowledged.Replicas != 2 || o.Acknowledged.Of != 2 || time.Since(start) > 2*time.Second {
			t.Errorf("the author hears %+v %+v after %s", o, o.Acknowledged, time.Since(start))
		}
		if len(o.Warnings) != 2 || !strings.Contains(o.Warnings[1].Detail, "release 2, which only e2 served, is superseded") {
			t.Errorf("the warnings are %+v", o.Warnings)
		}
		time.Sleep(20 * time.Second)
		w.serve(3, 1, 2, 3)
		if took := w.of("e3").took; slices.Contains(took, 2) {
			t.Errorf("e3 served %v", took)
		}
		changes, err := c.do.Diff(t.Context(), 1, 3)
		must(t, err)
		for _, d := range changes {
			if !strings.HasPrefix(d.Path, "operational.apps.mobile.endpoints") {
				t.Errorf("release 3 differs from what everybody served in %s", d)
			}
		}
		err = errorOf(c.release(2, document))
		e, _ := errors.AsType[*fault.Error](err)
		if fault.CodeOf(err) != "stale_base" || !strings.Contains(string(must2(json.Marshal(e.Data))(t)), "theirs") {
			t.Errorf("the canary's author publishes again: %v", err)
		}
		if rows := c.trail("promote"); len(rows) != 0 {
			t.Errorf("it was promoted: %+v", rows)
		}
		c.everywhere(4, document)
	})
}

// everywhere publishes on the newest release and waits until everybody serves it.
func (c *control) everywhere(number uint64, document string) {
	c.t.Helper()
	o, err := c.release(number-1, document)
	must(c.t, err)
	for c.rollout().All != number && c.rollout().Head == number {
		time.Sleep(time.Second)
	}
	if o.Release != number || c.rollout().All != number {
		c.t.Errorf("release %d came as %+v: %+v", number, o, c.rollout())
	}
}

// A control node that dies leaves its canary to the others, whatever becomes of it.
func TestAnotherNodeFinishesACanary(t *testing.T) {
	for name, document := range map[string]string{"promotes": edit(t, "capacity: 60", "capacity: 61"), "stops": edit(t, "wapabst2.a.com.cn", "wapabst3.a.com.cn")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &control{t: t, kind: "sqlite", dir: t.TempDir(), log: new(printed), clock: new(clock)}
				c.dsn = "sqlite:" + c.dir + "/dispatch.db"
				c.build(nil)
				c.approveAll()
				c.approve("wapabst3.a.com.cn")
				w := newCrew(c, map[string][]string{"e1": {"wapabst.a.com.cn", "wapabst2.a.com.cn", "b.com.cn", "bank.example"}, "e2": everything})
				die := c.rollouts()
				must2(c.release(0, bank))(t)
				other := c.twin()
				other.rollouts()
				synctest.Wait()
				if other.current() != 1 {
					t.Fatalf("the other node serves %d", other.current())
				}
				die() // its release is written, and it tells nobody
				must2(c.release(1, document))(t)
				if r := c.rollout(); r.Head != 2 || r.Canary != "e1" {
					t.Fatalf("the rollout is %+v", r)
				}
				start := time.Now()
				for c.rollout().Canary != "" && time.Since(start) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait()
				want := uint64(2)
				if name == "stops" {
					want = 3
					c.sameContent(1, 3)
				}
				if took := time.Since(start); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				w.serve(want, 1, want)
				if other.current() != want || len(c.trail("promote"))+len(c.trail("canary_stopped")) != 1 {
					t.Errorf("the other node serves %d, %d rows", other.current(), len(c.trail("promote"))+len(c.trail("canary_stopped")))
				}
			})
		})
	}
}

// Of several control nodes one decides over a canary.
func TestOneNodeDecidesOverACanary(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		for range 2 {
			c.twin().rollouts()
		}
		must2(c.release(1, edit(t, "wapabst2.a.com.cn", "wapabst3.a.com.cn")))(t)
		time.Sleep(15 * time.Second)
		if r := c.rollout(); r.Head != 3 || r.All != 3 || len(c.trail("canary_stopped")) != 1 {
			t.Errorf("the rollout is %+v with %d rows", r, len(c.trail("canary_stopped")))
		}
		w.change(func() { w.edges = slices.Delete(w.edges, 0, 1) })
		must2(c.release(3, edit(t, "capacity: 60", "capacity: 61")))(t)
		time.Sleep(15 * time.Second)
		if r := c.rollout(); r.Head != 4 || r.All != 4 || len(c.trail("promote")) != 1 {
			t.Errorf("the rollout is %+v with %d rows", r, len(c.trail("promote")))
		}
		w.serve(4, 1, 3, 4)
	})
}

// A fleet in which a replica reads no format that this program writes gets nothing new.
func TestAFleetTooOld(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		w.lowest = -1
		err := errorOf(c.release(1, edit(t, "capacity: 60", "capacity: 61")))
		if fault.CodeOf(err) != "fleet_too_old" {
			t.Errorf("publish: %v", err)
		}
	})
}
