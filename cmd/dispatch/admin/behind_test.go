package admin_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/release"
)

// restored is a control node on a backup of c's database from before f, that serves
// what c served after it.
func (c *control) restored(f func()) *control {
	c.t.Helper()
	other := *c
	other.dir = c.t.TempDir()
	other.dsn = "sqlite:" + filepath.Join(other.dir, "dispatch.db")
	must2(c.raw().ExecContext(c.t.Context(), "VACUUM INTO ?", filepath.Join(other.dir, "dispatch.db")))(c.t)
	f()
	keys := other.keys
	other.dir = c.dir // the keys and the copy on disk are as they were
	other.start(nil)
	if other.keys.List.Current().ID() != keys.List.Current().ID() {
		c.t.Fatal("the restored node has other keys")
	}
	must(c.t, other.keeper.Restore(c.t.Context()))
	copies, err := release.OpenDisk(filepath.Join(c.dir, "releases"))
	must(c.t, err)
	other.do.Copies = copies
	return &other
}

// lost is a node whose database lacks three releases: another list, a host that was
// approved meanwhile, and a swap.
func lost(t *testing.T) *control {
	t.Helper()
	c := published(t, "sqlite")
	return c.restored(func() {
		c.bring("d-1\nd-2\nd-3\n", "").ok()
		c.approve("wapabst3.a.com.cn")
		c.publish(2, edit(t, "wapcdst.b.com.cn", "wapabst3.a.com.cn"), "").ok()
		c.set("mobile/hf:active:draining").ok()
	})
}

// wholeIn fails unless the ledger has every part of what is served.
func (c *control) wholeIn() {
	c.t.Helper()
	missing, err := c.store.MissingBlobs(c.t.Context(), c.keeper.Current().Blobs())
	must(c.t, err)
	if len(missing) > 0 {
		c.t.Errorf("the database lacks %d parts of what is served", len(missing))
	}
}

// A26: what the fleet serves comes back into a database that was restored from a
// backup, and changes go on from there.
func TestAdoptBringsBackWhatIsServed(t *testing.T) {
	t.Parallel()
	c := lost(t)
	var view actions.FleetView
	c.get(actions.Viewer, "/fleet").ok().into(&view)
	if view.Lost != 3 || view.Served != 4 || view.Rollout.Head != 1 {
		t.Errorf("the fleet is shown as %+v", view)
	}
	c.publish(1, kept, "").refused(http.StatusConflict, "store_behind")
	// An emergency needs the approval of a host that the backup lacks.
	c.emergency(swapOut).refused(http.StatusForbidden, "unapproved_host")

	adopt := request{actions.OnCall, "POST", "/releases/adopt", `{"reason":"backup of last night"}`, []string{"Idempotency-Key", "k"}}
	for range 2 {
		o := c.call(adopt).outcome()
		if o.Release != 4 || len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0].Detail, "without raw ids") {
			t.Errorf("adopt answers %+v", o)
		}
	}
	c.wholeIn()
	if o := c.post(actions.OnCall, "/releases/adopt", `{"reason":"once more"}`).outcome(); o.Release != 4 || !strings.Contains(o.Warnings[0].Detail, "has release 4 already") {
		t.Errorf("adopt again answers %+v", o)
	}
	rows := c.auditRows("action=adopt")
	if len(rows) != 1 || rows[0].Actor != actions.OnCall || rows[0].Release != 4 || !strings.Contains(string(rows[0].Details), "wapabst3.a.com.cn") {
		t.Errorf("the trail says %+v", rows)
	}
	if !c.contains("staff", "d-3") || c.contains("staff", "d-1001") {
		t.Error("the list is not the one that was served")
	}
	c.emergency(swapOut).ok()
	c.publish(5, edit(t, "wapcdst.b.com.cn", "wapabst3.a.com.cn", "capacity: 60", "capacity: 61"), "").ok()
	if p := c.patch(`{"add":["d-8"],"reason":"test"}`).refused(http.StatusConflict, "no_raw_ids"); !strings.Contains(p.Hint, "import") {
		t.Errorf("the hint is %q", p.Hint)
	}
	c.bring("d-7\n", "").ok() // raw ids come back with an import
	c.patch(`{"add":["d-8"],"reason":"test"}`).ok()
	c.get(actions.Viewer, "/audit/verify").ok()
}

// An emergency does not wait for the database to be whole: it is made of what is
// served, above its number, and the rest can be brought later.
func TestAnEmergencyGoesOnWhileTheDatabaseIsBehind(t *testing.T) {
	t.Parallel()
	first := published(t, "sqlite")
	c := first.restored(func() {
		first.bring("d-1\nd-2\nd-3\n", "").ok()
		first.set("mobile/hf:active:draining").ok()
	})
	o := c.emergency(swapOut).outcome()
	if o.Release != 4 || len(o.Warnings) != 2 || !strings.Contains(o.Warnings[1].Detail, "lacks the last 2 releases") {
		t.Errorf("the swap answers %+v", o)
	}
	if c.current() != 4 || c.serves("mobile", "sh") != "wapabst2.a.com.cn" || c.state("mobile", "hf") != "draining" || !c.contains("staff", "d-3") {
		t.Errorf("release %d is not what was served and the swap", c.current())
	}
	if head := must2(c.store.Head(t.Context(), release.StreamEdge))(t); head != 4 {
		t.Errorf("the database ends at %d", head)
	}
	c.post(actions.OnCall, "/releases/adopt", `{"reason":"the rest"}`).ok()
	c.wholeIn()
	if o := c.post(actions.OnCall, "/releases/1/relive", `{"reason":"back"}`).outcome(); o.Release != 5 {
		t.Errorf("relive made release %d", o.Release)
	}
	if o := c.publish(5, edit(t, "capacity: 60", "capacity: 61"), "").outcome(); o.Release != 6 {
		t.Errorf("then release %d is published", o.Release)
	}
}

// What this node has no copy of cannot be adopted in part.
func TestAdoptNeedsEveryPart(t *testing.T) {
	t.Parallel()
	c := lost(t)
	c.do.Copies = release.MemoryBlobs{}
	rows := c.rows()
	for _, copies := range []release.Blobs{release.MemoryBlobs{}, nil} {
		c.do.Copies = copies
		if p := c.post(actions.OnCall, "/releases/adopt", `{"reason":"test"}`).refused(http.StatusServiceUnavailable, "missing_part"); p.Hint == "" {
			t.Error("missing_part says no next step")
		}
	}
	if head := must2(c.store.Head(t.Context(), release.StreamEdge))(t); head != 1 || c.rows() != rows {
		t.Errorf("the database ends at %d with %d rows, want 1 with %d", head, c.rows(), rows)
	}
}

// The fleet gets what is served from a node whose database is behind.
func TestANodeThatIsBehindOffersWhatIsServed(t *testing.T) {
	virtual(t, func(t *testing.T, c *control, w *crew) {
		w.change(func() { w.edges = slices.Delete(w.edges, 0, 1) })
		other := c.restored(func() { must2(c.swap())(t) })
		crew := newCrew(other, map[string][]string{"e8": everything, "e9": everything})
		crew.blobs = other.do.Copies
		other.rollouts()
		crew.await(2)
		crew.serve(2, 2)
		if _, err := other.do.Emergency(t.Context(), confirmed(engineer, "hf"), actions.Emergency{Action: actions.SetRegionState,
			Targets: []actions.Target{{App: "mobile", Region: "hf", Expect: "active", State: "draining"}}}); err != nil {
			t.Error(err)
		}
		crew.await(3)
		crew.serve(3, 2, 3)
	})
}

// Freeze stops normal changes, never emergencies or relive.
func TestFreezeStopsNormalChangesOnly(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		freeze := func(expect, state string) *reply {
			return c.emergency(fmt.Sprintf(`{"action":"freeze","reason":"test","targets":[{"expect":%q,"state":%q}]}`, expect, state))
		}
		freeze("open", "frozen").ok()
		c.untouched(func() {
			freeze("open", "frozen").refused(http.StatusConflict, "expect_mismatch")
			freeze("frozen", "frozen").refused(http.StatusUnprocessableEntity, "no_change")
			freeze("frozen", "shut").refused(http.StatusUnprocessableEntity, "bad_request")
			for _, r := range []*reply{c.publish(2, edit(t, "capacity: 60", "capacity: 61"), ""), c.bring("d-1\n", ""),
				c.patch(`{"add":["d-1"],"reason":"test"}`), c.post(actions.Administrator, "/keys/rehash", `{"reason":"test"}`)} {
				if p := r.refused(http.StatusConflict, "frozen"); !strings.Contains(p.Hint, `"state":"open"`) {
					t.Errorf("%s: the hint is %q", r.what, p.Hint)
				}
			}
		})
		if rows := c.auditRows("action=freeze"); len(rows) != 1 || rows[0].Target != "all changes" {
			t.Errorf("the trail says %+v", rows)
		}
		c.emergency(swapOut).ok()
		c.post(actions.OnCall, "/releases/1/relive", `{"reason":"test"}`).ok()
		var app actions.AppView
		if c.get(actions.Viewer, "/apps/mobile").ok().into(&app); !app.Frozen {
			t.Error("relive has ended the freeze, or nobody can see it")
		}
		freeze("frozen", "open").ok()
		c.publish(5, edit(t, "capacity: 60", "capacity: 61"), "").ok()
	})
}
