package admin_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// rotate makes a new current key in a key file of the node.
func (c *control) rotate(p signed.Purpose) {
	c.t.Helper()
	path := filepath.Join(c.dir, "keys", string(p)+".jwks")
	keys, err := signed.ReadKeys(path, p)
	must(c.t, err)
	next, err := keys.Rotate()
	must(c.t, err)
	must(c.t, os.Remove(path))
	must(c.t, signed.WriteKeys(path, next))
}

// retire lets no release name the previous keys any longer.
func (c *control) retire() outcome {
	c.t.Helper()
	return c.post(actions.Administrator, "/keys/retire", `{"reason":"a day has passed"}`).outcome()
}

// restart starts the node again with the keys that its files have now.
func (c *control) restart() {
	c.t.Helper()
	must(c.t, c.store.Close())
	c.start(nil)
	must(c.t, c.keeper.Restore(c.t.Context()))
}

// follower is a replica with keys of its own, which takes what the control node offers.
type follower struct {
	t      *testing.T
	keeper *release.Keeper
}

func (c *control) follower(keys *release.Keyring, trust *signed.Trust) *follower {
	c.t.Helper()
	suffixes, err := domain.NewSuffixes(everything)
	must(c.t, err)
	loader, err := release.NewLoader(release.LoaderOptions{Deployment: deployment, Suffixes: suffixes, Trust: trust, Keys: keys})
	must(c.t, err)
	keeper, err := release.NewKeeper(loader, nil)
	must(c.t, err)
	return &follower{t: c.t, keeper: keeper}
}

func (f *follower) take(c *control) error {
	f.t.Helper()
	s, err := c.store.Release(f.t.Context(), release.StreamEdge, c.current())
	must(f.t, err)
	return f.keeper.Accept(f.t.Context(), s, c.store, "test")
}

// session is a token that the app mobile gives to a device, as the replica would.
func (f *follower) session(device string) string {
	app := f.keeper.Current().Apps["mobile"]
	req := policy.Request{Device: device, Now: time.Now()}
	d := app.Table.Decide(&req)
	token, _ := app.Table.AppendSession(nil, d, &req, app.Life)
	return string(token)
}

// sticks says whether the replica honours a token.
func (f *follower) sticks(device, token string) bool {
	app := f.keeper.Current().Apps["mobile"]
	req := policy.Request{Device: device, Now: time.Now()}
	s, _ := app.Table.OpenSession(token, &req)
	return s.Region != ""
}

// The list keys are rotated without an id being missed on any replica: first every
// replica has both keys, then the lists move to the new one.
func TestListKeyRotation(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		old := *c.keys
		behind := c.follower(&old, c.keys.Trust()) // never gets the new key
		must(t, behind.take(c))
		c.rotate(signed.List)
		c.rotate(signed.ListSeal)
		c.restart()
		ready := c.follower(c.keys, c.keys.Trust())
		must(t, ready.take(c))

		c.emergency(swapOut).ok() // names both keys now, and the list is under the old one
		must(t, ready.take(c))
		c.post(actions.Administrator, "/keys/retire", `{"reason":"too early"}`).refused(http.StatusConflict, "key_in_use")
		rows := c.rows()
		var out actions.RehashOutcome
		rehash := request{actions.Administrator, "POST", "/keys/rehash", `{"reason":"yearly rotation"}`, []string{"Idempotency-Key", "k"}}
		first := c.call(rehash).ok()
		first.into(&out)
		if out.Release != 3 || !slices.Equal(out.Lists, []string{"staff"}) || out.IDs != 2 || c.rows() != rows+1 {
			t.Errorf("rehash answers %+v, %d rows", out, c.rows()-rows)
		}
		if again := c.call(rehash).ok(); string(again.body) != string(first.body) {
			t.Errorf("rehash repeated answers %s, first %s", again.body, first.body)
		}
		if ids := c.keeper.Current().Manifest.Keys.List; !slices.Equal(ids, c.keys.List.IDs()) || len(ids) != 2 {
			t.Errorf("the release names the list keys %v", ids)
		}
		must(t, ready.take(c))
		if err := behind.take(c); !strings.Contains(fmt.Sprint(err), "--list-key-file") {
			t.Errorf("a replica without the new key: %v", err)
		}
		if !c.contains("staff", "d-1001") || c.contains("staff", "d-1003") {
			t.Error("the list holds others than before")
		}

		// Nothing under the old keys is needed any more, in either file, once no release
		// names them.
		if o := c.retire(); o.Release != 4 {
			t.Errorf("retire made release %d", o.Release)
		}
		c.patch(`{"add":["d-1009"],"reason":"test"}`).ok() // a key that was retired stays out
		if ids := c.keeper.Current().Manifest.Keys.List; !slices.Equal(ids, c.keys.List.IDs()[:1]) {
			t.Errorf("the release names the list keys %v", ids)
		}
		c.rotate(signed.List)
		c.rotate(signed.ListSeal)
		c.restart()
		c.post(actions.Administrator, "/keys/rehash", `{"reason":"once more"}`).ok().into(&out)
		if out.Release != 6 || !c.contains("staff", "d-1002") {
			t.Errorf("the second rotation answers %+v", out)
		}
		c.patch(`{"add":["d-1003"],"reason":"test"}`).ok()
		c.post(actions.Administrator, "/keys/rehash", `{"reason":"nothing to do"}`).ok().into(&out)
		if out.Release != 7 || len(out.Lists) != 0 {
			t.Errorf("where there is nothing to do the answer is %+v", out)
		}
	})
}

// Sessions outlive a rotation of their key: a release names both, and seals with the new one.
func TestSessionKeyRotation(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	edge := c.follower(c.keys, c.keys.Trust())
	must(t, edge.take(c))
	before := edge.session("d-5")

	c.rotate(signed.Session)
	c.restart()
	c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok()
	if ids := c.keeper.Current().Manifest.Keys.Session; !slices.Equal(ids, c.keys.Session.IDs()) || len(ids) != 2 {
		t.Errorf("the release names the session keys %v", ids)
	}
	if err := edge.take(c); err == nil {
		t.Error("a replica without the new key took the release")
	}
	edge = c.follower(c.keys, c.keys.Trust())
	must(t, edge.take(c))
	after := edge.session("d-5")
	if !edge.sticks("d-5", before) || !edge.sticks("d-5", after) || edge.sticks("d-6", before) {
		t.Error("a session is lost, or everybody's")
	}

	c.retire()
	must(t, edge.take(c))
	if edge.sticks("d-5", before) || !edge.sticks("d-5", after) {
		t.Error("a session under the retired key is honoured, or one under the current key is not")
	}
	c.rotate(signed.Session)
	c.restart()
	c.publish(3, edit(t, "capacity: 60", "capacity: 62"), "").ok()
	edge = c.follower(c.keys, c.keys.Trust())
	must(t, edge.take(c))
	if edge.sticks("d-5", before) || !edge.sticks("d-5", after) {
		t.Error("after the next rotation a session under the previous key is lost")
	}
}

// Signatures change hands once whoever checks them knows the next key: records
// stand under both, and manifests under the new one.
func TestPublisherAndRecordKeyRotation(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	old := c.keys.Trust()
	c.rotate(signed.Publisher)
	c.rotate(signed.Record)
	c.restart()
	c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok()
	if err := c.follower(c.keys, old).take(c); !strings.Contains(fmt.Sprint(err), "does not trust") {
		t.Errorf("an edge that trusts the old keys alone: %v", err)
	}
	edge := c.follower(c.keys, c.keys.Trust())
	must(t, edge.take(c))
	answer := edge.keeper.Current().Apps["mobile"].Fallback
	if !slices.Equal(answer.Kids, c.keys.Record.IDs()) || len(answer.Kids) != 2 {
		t.Errorf("records stand under %v, want both of %v", answer.Kids, c.keys.Record.IDs())
	}
	current, previous := c.keys.Record.IDs()[0], c.keys.Record.IDs()[1]
	if string(answer.Body(previous)) == string(answer.Body(current)) {
		t.Error("an app that pins the previous key gets a record under the current one")
	}
}

// What was done with break glass on one replica becomes a release for all.
func TestReconcileMakesAReleaseOfAnOverride(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		w := newCrew(c, map[string][]string{"e1": everything, "e2": everything, "e3": everything})
		broken := &release.Override{ID: "o1", By: "operator", Reason: "control is down", Until: time.Now().Add(time.Hour), Actions: []release.OverrideAction{
			{Swap: &release.Swap{App: "mobile", Region: "sh", From: "sh-main", To: "sh-spare", Expect: "sh-main"}},
			{Region: &release.SetRegion{App: "mobile", Region: "hf", Expect: "active", State: "off"}}}}
		reconcile := func(replica string) *reply {
			return c.post(actions.OnCall, "/overrides/reconcile", fmt.Sprintf(`{"replica":%q,"reason":"as it was done at night"}`, replica))
		}
		w.of("e1").override = broken
		c.untouched(func() {
			if p := reconcile("e2").refused(http.StatusNotFound, "no_override"); !strings.Contains(p.Hint, "e1") {
				t.Errorf("the hint is %q", p.Hint)
			}
			w.of("e3").override = &release.Override{ID: "o2"}
			reconcile("e1").refused(http.StatusConflict, "other_override")
			w.of("e3").override = broken // the same on two replicas is one
		})
		var view actions.FleetView
		c.get(actions.Viewer, "/fleet").ok().into(&view)
		if len(view.Members) != 3 || view.Members[0].Override == nil || view.Members[0].Override.Reason != "control is down" {
			t.Errorf("the override is shown as %+v", view.Members)
		}
		c.emergency(swapOut).ok() // half of it was done meanwhile
		if o := reconcile("e1").outcome(); o.Release != 3 {
			t.Errorf("it became release %d", o.Release)
		}
		m := c.keeper.Current().Manifest
		if m.Clears != 3 || c.serves("mobile", "sh") != "wapabst2.a.com.cn" || c.state("mobile", "hf") != "off" {
			t.Errorf("the release clears overrides from before %d; hf is %s", m.Clears, c.state("mobile", "hf"))
		}
		if rows := c.auditRows("action=reconcile"); len(rows) != 1 || rows[0].Target != "e1" || !strings.Contains(string(rows[0].Details), "control is down") {
			t.Errorf("the trail says %+v", rows)
		}
	})
}

// The fleet is shown as it reports itself.
func TestTheFleetIsShown(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	w := newCrew(c, map[string][]string{"e1": {"bank.example"}, "e2": everything})
	s, err := c.store.Release(t.Context(), release.StreamEdge, 1)
	must(t, err)
	must(t, w.Offer(t.Context(), fleet.Offer{All: s}))
	r := c.get(actions.Viewer, "/fleet").ok()
	var view actions.FleetView
	r.into(&view)
	if view.Rollout.Head != 1 || view.Rollout.All != 1 || view.Served != 1 || view.Lost != 0 || len(view.Members) != 2 {
		t.Fatalf("the fleet is %s", r.body)
	}
	if e1 := view.Members[0]; e1.ID != "e1" || e1.Number != 0 || e1.Refusal == nil || e1.Refusal.Code != "host_outside_suffixes" || e1.Refusal.Reason == "" {
		t.Errorf("one that refuses is %+v", e1)
	}
	if e2 := view.Members[1]; e2.Number != 1 || e2.Seq != 1 || e2.Digest != c.keeper.Current().Digest.String() || e2.State != fleet.Current || e2.Seen.IsZero() {
		t.Errorf("one that serves is %+v", e2)
	}
	if strings.Contains(string(r.body), "manifest") {
		t.Errorf("a release is in it: %s", r.body)
	}
}

// A share that goes wrong goes back to 0 at once, and hard takes its sessions along.
func TestAGrayIsAborted(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.publish(1, edit(t, "    otherwise: {split:", "      - {key: gray, match_all: true, then: {share: {region: hf, of: 800}}}\n    otherwise: {split:"), "").ok()
	abort := func(expect string, hard bool) *reply {
		return c.emergency(fmt.Sprintf(`{"action":"abort_gray","reason":"errors","targets":[{"app":"mobile","policy":"gray","expect":%q,"hard":%t}]}`, expect, hard))
	}
	gray := func() actions.GrayView {
		var app actions.AppView
		c.get(actions.Viewer, "/apps/mobile").ok().into(&app)
		return app.Grays[0]
	}
	if g := gray(); g != (actions.GrayView{Policy: "gray", Region: "hf", Share: "800"}) {
		t.Errorf("the gray is shown as %+v", g)
	}
	c.untouched(func() { abort("500", false).refused(http.StatusConflict, "expect_mismatch") })
	abort("800", false).ok()
	if g := gray(); g.Share != "0" {
		t.Errorf("then as %+v", g)
	}
	abort("0", true).ok()
	if epoch := c.keeper.Current().Manifest.Operational.Apps["mobile"].Policies["gray"].Epoch; epoch != 1 {
		t.Errorf("the policy's epoch is %d", epoch)
	}
}
