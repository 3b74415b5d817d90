package admin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin"
	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/pages"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// strict runs the test on both databases, where two people are two.
func strict(t *testing.T, test func(t *testing.T, c *control)) {
	t.Helper()
	each(t, func(t *testing.T, c *control) { test(t, c.twoPeople()) })
}

// fourEyed is the same node with four eyes on, over the ledger, whose time tests move.
func (c *control) fourEyed(book actions.Ledger, waits func(actions.Waiting)) *control {
	c.t.Helper()
	suffixes, err := domain.NewSuffixes([]string{"a.com.cn", "b.com.cn", "bank.example"})
	must(c.t, err)
	loader, err := release.NewLoader(release.LoaderOptions{Deployment: deployment, Suffixes: suffixes, Trust: c.keys.Trust(), Keys: c.keys})
	must(c.t, err)
	other := *c
	other.do, err = actions.New(actions.Options{Ledger: book, Keeper: c.keeper, Loader: loader, Keys: c.keys, Suffixes: suffixes,
		Deployment: deployment, FourEyes: true, Waits: waits, Passwords: new(cheap), Now: c.clock.now})
	must(c.t, err)
	opt := c.options
	opt.Actions, opt.Sessions, opt.Log, opt.Now = other.do, c.store, c.logger(), c.clock.now
	who, err := signin.New(opt)
	must(c.t, err)
	shown, err := pages.New(other.do, pages.Options{Log: c.logger(), Visitors: who, SignIn: who, Now: c.clock.now})
	must(c.t, err)
	server := httptest.NewServer(admin.New(other.do, admin.Options{Log: c.logger(), SignIn: who, Pages: shown}))
	c.t.Cleanup(server.Close)
	other.url = server.URL + "/api/v1"
	return &other
}

func (c *control) twoPeople() *control { return c.fourEyed(c.store, nil) }

func (c *control) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(c.log, nil)) }

// spare is bank with another domain in Hefei, which takes two people.
func spare(t *testing.T) string {
	t.Helper()
	return edit(t, "          - {key: hf-main, domain: wapcdst.b.com.cn}", "          - {key: hf-main, domain: wapcdst.b.com.cn}\n          - {key: hf-spare, domain: wapabst2.a.com.cn, state: standby}")
}

// split is bank with another part of its traffic in Shanghai.
func split(t *testing.T, sh int) string {
	t.Helper()
	return edit(t, "{region: sh, of: 6000}, {region: hf, of: 4000}", fmt.Sprintf("{region: sh, of: %d}, {region: hf, of: %d}", sh, 10000-sh))
}

// draft begins a draft as the role.
func (c *control) draft(role, document string, base uint64) actions.DraftView {
	c.t.Helper()
	return c.post(role, "/drafts", fmt.Sprintf(`{"reason":"because of a test","title":"A change","base":%d,"document":%s}`, base, jsonOf(c.t, document))).view()
}

func (r *reply) view() (v actions.DraftView) {
	r.t.Helper()
	r.ok().into(&v)
	return v
}

// turn does something to a draft; more is more of the body.
func (c *control) turn(role, id, what, more string) *reply {
	c.t.Helper()
	return c.post(role, "/drafts/"+id+"/"+what, `{"reason":"because of a test"`+more+`}`)
}

func digest(d actions.DraftView) string { return `,"digest":"` + d.Digest + `"` }

// editDraft saves another document in a draft.
func (c *control) editDraft(role string, d actions.DraftView, document string, base uint64) *reply {
	c.t.Helper()
	return c.call(request{role: role, method: http.MethodPut, path: "/drafts/" + d.ID, headers: []string{"If-Match", strconv.FormatUint(d.Rev, 10)},
		body: fmt.Sprintf(`{"reason":"because of a test","title":"A change","base":%d,"document":%s}`, base, jsonOf(c.t, document))})
}

// approved is a draft that a second person agreed to.
func (c *control) approved(document string, base uint64) actions.DraftView {
	c.t.Helper()
	d := c.draft(actions.ReleaseEngineer, document, base)
	c.turn(actions.ReleaseEngineer, d.ID, "submit", "").ok()
	return c.turn(actions.Approver, d.ID, "approve", digest(d)).view()
}

// draftAt is where a draft stands.
func (c *control) draftAt(id string) actions.DraftView {
	c.t.Helper()
	return c.get(actions.Viewer, "/drafts/"+id).view()
}

func TestADraftIsApprovedByAnotherAndPublished(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.draft(actions.ReleaseEngineer, spare(t), 1)
		if d.State != actions.Drafted || d.Stale || d.Approved || d.Ready || len(d.Problems) > 0 || d.Preview == nil || len(d.Preview.Changes) != 1 {
			t.Fatalf("the draft is %+v", d)
		}
		if n := d.Preview.Needs; len(n) != 1 || n[0].Code != "new_domain" || n[0].Path != "apps[mobile].regions[hf]" || n[0].Detail != "wapabst2.a.com.cn is new here" {
			t.Errorf("it needs %+v", n)
		}
		c.untouched(func() {
			if p := c.publish(1, spare(t), "").refused(http.StatusForbidden, "needs_approval"); !strings.Contains(p.Hint, "draft") || len(p.Problems) != 1 {
				t.Errorf("refused with %+v", p)
			}
			c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusForbidden, "needs_approval")
			c.turn(actions.Approver, d.ID, "approve", digest(d)).refused(http.StatusConflict, "draft_state")
		})
		c.turn(actions.ReleaseEngineer, d.ID, "submit", "").ok()
		var pending struct{ Pending []actions.Pending }
		c.get(actions.Viewer, "/pending").ok().into(&pending)
		if p := pending.Pending; len(p) != 1 || p[0].Kind != "draft" || p[0].ID != d.ID || p[0].Author != actions.ReleaseEngineer {
			t.Errorf("pending is %+v", p)
		}
		rows := c.rows()
		d = c.turn(actions.Approver, d.ID, "approve", digest(d)).view()
		if !d.Approved || !d.Ready || len(d.Approvals) != 1 || d.Approvals[0].Approver != actions.Approver || c.rows() != rows+1 {
			t.Errorf("approved it is %+v, after %d rows", d, c.rows()-rows)
		}
		c.get(actions.Viewer, "/pending").ok().into(&pending)
		if len(pending.Pending) != 0 {
			t.Errorf("pending is %+v", pending.Pending)
		}
		if out := c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).outcome(); out.Release != 2 || c.current() != 2 {
			t.Errorf("published %+v", out)
		}
		if d = c.draftAt(d.ID); d.State != actions.Published || d.Release != 2 {
			t.Errorf("the draft is %s, release %d", d.State, d.Release)
		}
		c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusConflict, "draft_state")
		released := c.auditRows("action=publish&target=draft+" + d.ID)
		if len(released) != 1 || !strings.Contains(string(released[0].Details), `"approvers":["approver"]`) {
			t.Errorf("the audit trail has %+v", released)
		}
	})
}

// SEC14, e59: an approval is of exactly what was read, by somebody who wrote none of it.
func TestSEC14AnApprovalIsOfExactlyWhatWasRead(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.approved(spare(t), 1)
		was := digest(d)
		c.untouchedRelease(func() {
			// Approve, then edit.
			evil := strings.Replace(spare(t), "fallback: wap.bank.example", "fallback: wapcdst.b.com.cn", 1)
			d = c.editDraft(actions.ReleaseEngineer, d, evil, 1).view()
			if d.Approved || d.State != actions.Drafted || digest(d) == was {
				t.Errorf("after the edit it is %+v", d)
			}
			c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusForbidden, "needs_approval")
			c.turn(actions.ReleaseEngineer, d.ID, "publish", was).refused(http.StatusConflict, "stale_paper")
			c.turn(actions.ReleaseEngineer, d.ID, "schedule", digest(d)+`,"at":"2099-01-01T10:00 UTC"`).refused(http.StatusForbidden, "needs_approval")
			c.turn(actions.ReleaseEngineer, d.ID, "submit", "").ok()
			c.turn(actions.Approver, d.ID, "approve", was).refused(http.StatusConflict, "stale_approval")
			c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusForbidden, "needs_approval")
			c.publish(1, evil, "").refused(http.StatusForbidden, "needs_approval")
			c.publish(1, spare(t), "allow_empty=true").refused(http.StatusForbidden, "needs_approval") // other flags

			// The author, under whatever name.
			own := c.draft(actions.Administrator, spare(t), 1)
			c.turn(actions.Administrator, own.ID, "submit", "").ok()
			c.turn(actions.Administrator, own.ID, "approve", digest(own)).refused(http.StatusForbidden, "self_approval")
			c.token("other case", "ADMINISTRATOR", actions.Approver)
			c.turn("other case", own.ID, "approve", digest(own)).refused(http.StatusForbidden, "self_approval")
			var made struct{ Secret string }
			c.post(actions.Administrator, "/tokens", `{"name":"pipeline","role":"approver","reason":"test"}`).ok().into(&made)
			c.tokens["own second"] = made.Secret
			if p := c.turn("own second", own.ID, "approve", digest(own)).refused(http.StatusForbidden, "self_approval"); !strings.Contains(p.Detail, "pipeline") {
				t.Errorf("the refusal is %+v", p)
			}
			// Who wrote a part of it.
			c.token("second author", "second author", actions.Administrator)
			own = c.editDraft("second author", c.draftAt(own.ID), spare(t), 1).view()
			c.turn("second author", own.ID, "submit", "").ok()
			c.turn("second author", own.ID, "approve", digest(own)).refused(http.StatusForbidden, "self_approval")
			c.turn(actions.Administrator, own.ID, "approve", digest(own)).refused(http.StatusForbidden, "self_approval")
		})

		// Another base: what was approved was a change of release 1.
		d = c.approved(spare(t), 1)
		c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok()
		if p := c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusConflict, "stale_base"); !strings.Contains(string(p.Data), "capacity") {
			t.Errorf("the conflict shows %s", p.Data)
		}
		d = c.draftAt(d.ID)
		if !d.Stale || d.Ready || len(d.Since) != 1 || len(d.Conflicts) != 0 {
			t.Errorf("the draft is %+v", d)
		}
		d = c.call(request{role: actions.ReleaseEngineer, method: http.MethodPost, path: "/drafts/" + d.ID + "/rebase", body: `{"reason":"take the new base"}`,
			headers: []string{"If-Match", strconv.FormatUint(d.Rev, 10)}}).view()
		if d.Base != 2 || d.Stale || d.Approved || len(d.Problems) > 0 || len(d.Preview.Changes) != 1 || !strings.Contains(d.Document, "capacity: 61") {
			t.Errorf("on the new base it is %+v", d)
		}
		c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusForbidden, "needs_approval")

		// With the signature the document can also come by itself.
		c.turn(actions.ReleaseEngineer, d.ID, "submit", "").ok()
		c.turn(actions.Approver, d.ID, "approve", digest(d)).ok()
		if out := c.publish(2, d.Document, "").outcome(); out.Release != 3 {
			t.Errorf("published %+v", out)
		}
		if d = c.draftAt(d.ID); d.State != actions.Published || d.Release != 3 {
			t.Errorf("the draft is %s, release %d", d.State, d.Release)
		}
	})
}

// untouchedRelease fails if f released anything.
func (c *control) untouchedRelease(f func()) {
	c.t.Helper()
	before := c.current()
	f()
	if c.current() != before {
		c.t.Errorf("release %d became %d", before, c.current())
	}
}

// token makes a token that somebody else asked for.
func (c *control) token(key, name, role string) {
	c.t.Helper()
	_, secret, err := c.store.CreateToken(c.t.Context(), ledger.NewToken{Type: "api", Name: name, Role: role}, ledger.Change{By: "test", Reason: "test"})
	must(c.t, err)
	c.tokens[key] = secret
}

// What takes two people: a domain where it was not, a region that goes, and more than
// a tenth of an app's users; the marks of the one who publishes do not stand in for them.
func TestWhatTakesTwoPeople(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		gone := edit(t, "        failover: [hf]\n        endpoints:\n          - {key: main, domain: corp-sh.bank.example}", "        endpoints:\n          - {key: main, domain: corp-sh.bank.example}",
			"      - key: hf\n        failover: [sh]\n        endpoints:\n          - {key: main, domain: corp-hf.bank.example}\n", "")
		for name, test := range map[string]struct{ document, query, code string }{
			"a domain in another region": {spare(t), "", "new_domain"},
			"a fallback":                 {edit(t, "fallback: wap.bank.example", "fallback: wapcdst.b.com.cn"), "", "new_domain"},
			"a name of the app":          {edit(t, "    fallback: wap.bank.example", "    hosts: [m.bank.example]\n    fallback: wap.bank.example"), "", "new_domain"},
			"many people":                {split(t, 4000), "approve_big_move=true", "big_move"},
			"a region that goes":         {gone, "approve_region_removed=true", "region_removed"},
		} {
			var preview *[]actions.Need
			c.untouched(func() {
				p := c.publish(1, test.document, test.query).refused(http.StatusForbidden, "needs_approval")
				if len(p.Problems) != 1 || !strings.Contains(p.Problems[0].Detail, test.code) {
					t.Errorf("%s: %+v", name, p.Problems)
				}
				var out struct {
					Preview struct{ Needs []actions.Need }
				}
				c.publish(1, test.document, test.query+"&dry_run=true").ok().into(&out)
				preview = &out.Preview.Needs
			})
			if len(*preview) != 1 || (*preview)[0].Code != test.code {
				t.Errorf("%s: a dry run says %+v", name, *preview)
			}
		}
		if out := c.publish(1, split(t, 5500), "").outcome(); out.Release != 2 {
			t.Errorf("5 %% took two people: %+v", out)
		}
	})
}

// With four eyes off one person passes, and hears of it.
func TestOnePersonPassesWhereFourEyesAreOff(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	d := c.draft(actions.ReleaseEngineer, spare(t), 1)
	out := c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).outcome()
	if out.Release != 2 || !slices.ContainsFunc(out.Warnings, func(p fault.Problem) bool { return strings.Contains(p.Detail, "four eyes are off") }) {
		t.Errorf("published %+v", out)
	}
}

func TestADraftShowsWhatIsWrongWithIt(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		c.untouched(func() {
			post := func(document string) *reply {
				return c.post(actions.ReleaseEngineer, "/drafts", fmt.Sprintf(`{"reason":"test","title":"A change","base":1,"document":%s}`, jsonOf(t, document)))
			}
			p := post("apps:\n  - key: mobile\n    falback: x\n").refused(http.StatusUnprocessableEntity, "bad_document")
			if p.Problems[0].Line == 0 {
				t.Errorf("problems without lines: %+v", p.Problems)
			}
			r := post(bank)
			if p := r.refused(http.StatusUnprocessableEntity, "ids_in_draft"); p.Problems[0].Line == 0 || strings.Contains(string(r.body), "d-1001") {
				t.Errorf("ids in a draft: %s", r.body)
			}
			post(strings.Repeat("#", 2<<20)).refused(http.StatusRequestEntityTooLarge, "draft_too_large")
		})
		d := c.draft(actions.ReleaseEngineer, edit(t, "failover: [sh]", "failover: [nowhere]"), 1)
		if len(d.Problems) == 0 || d.Problems[0].Line == 0 || d.Preview != nil {
			t.Errorf("problems are %+v", d.Problems)
		}
		c.turn(actions.ReleaseEngineer, d.ID, "submit", "").refused(http.StatusUnprocessableEntity, "bad_document")
		// e56: two editors began with the same revision.
		if d2 := c.editDraft(actions.ReleaseEngineer, d, kept, 1).view(); len(d2.Problems) > 0 || len(d2.Preview.Changes) > 0 {
			t.Errorf("mended it has %+v", d2)
		}
		c.editDraft(actions.Administrator, d, spare(t), 1).refused(http.StatusConflict, "stale_paper")
		c.call(request{role: actions.ReleaseEngineer, method: http.MethodPut, path: "/drafts/" + d.ID, body: `{"reason":"test","title":"A change","base":1,"document":"a"}`}).
			refused(http.StatusPreconditionRequired, "if_match")

		if d = c.turn(actions.ReleaseEngineer, d.ID, "submit", "").view(); d.State != actions.Submitted {
			t.Errorf("it is %s", d.State)
		}
		if d = c.turn(actions.Approver, d.ID, "reject", "").view(); d.State != actions.Rejected || !strings.HasPrefix(d.Why, "approver: because") {
			t.Errorf("rejected it is %s, %q", d.State, d.Why)
		}
		if d = c.turn(actions.ReleaseEngineer, d.ID, "withdraw", "").view(); d.State != actions.Withdrawn {
			t.Errorf("it is %s", d.State)
		}
		c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusConflict, "draft_state")
		var list struct{ Drafts []actions.DraftSummary }
		c.get(actions.Viewer, "/drafts?state=withdrawn").ok().into(&list)
		if len(list.Drafts) != 1 || list.Drafts[0].ID != d.ID {
			t.Errorf("withdrawn are %+v", list.Drafts)
		}
	})
}

func TestADraftAndAReleaseThatChangedTheSamePart(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.draft(actions.ReleaseEngineer, edit(t, "capacity: 60", "capacity: 50"), 1)
		c.publish(1, edit(t, "capacity: 60", "capacity: 70"), "").ok()
		d = c.draftAt(d.ID)
		if !slices.Equal(d.Conflicts, []string{"apps[mobile].regions[sh].capacity"}) {
			t.Errorf("conflicts are %q", d.Conflicts)
		}
		p := c.call(request{role: actions.ReleaseEngineer, method: http.MethodPost, path: "/drafts/" + d.ID + "/rebase", body: `{"reason":"take the new base"}`,
			headers: []string{"If-Match", strconv.FormatUint(d.Rev, 10)}}).refused(http.StatusConflict, "draft_conflict")
		if len(p.Problems) != 1 || p.Problems[0].Path != d.Conflicts[0] {
			t.Errorf("problems are %+v", p.Problems)
		}
	})
}

// halting is a store in which nobody can note that a draft was published: the
// process died in between.
type halting struct{ actions.Ledger }

func (h halting) SavePaper(ctx context.Context, p ledger.Paper, c ledger.Change) (ledger.Paper, error) {
	if c.Action == "draft_published" {
		return p, fault.New(fault.Unavailable, "gone", "the process died")
	}
	return h.Ledger.SavePaper(ctx, p, c)
}

func TestADraftIsReleasedOnceWhateverDies(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		dying := c.fourEyed(halting{c.store}, nil)
		d := dying.approved(spare(t), 1)
		if out := dying.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).outcome(); out.Release != 2 || len(out.Warnings) == 0 {
			t.Errorf("published %+v", out)
		}
		s := dying.approved(edit(t, "capacity: 60", "capacity: 61"), 1)
		dying.at(s, "10:00")
		dying.clock.set(t, "10:00")
		must2(dying.do.PublishDue(t.Context(), c.logger()))(t)
		released := c.current()

		alive := c.fourEyed(c.store, nil)
		if out := alive.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).outcome(); out.Release != 2 {
			t.Errorf("published again %+v", out)
		}
		must2(alive.do.PublishDue(t.Context(), c.logger()))(t)
		if c.current() != released || alive.draftAt(d.ID).State != actions.Published {
			t.Errorf("release %d became %d, the draft is %s", released, c.current(), alive.draftAt(d.ID).State)
		}
		if got := alive.draftAt(s.ID); got.State != actions.Published || got.Release != released || released != 3 {
			t.Errorf("the scheduled draft is %s, release %d of %d", got.State, got.Release, released)
		}
	})
}

func TestEmergenciesAreReviewedByAnother(t *testing.T) {
	each(t, func(t *testing.T, plain *control) {
		heard := make(chan actions.Waiting, 100)
		c := plain.fourEyed(plain.store, func(w actions.Waiting) { heard <- w })
		c.token("night", "night", actions.Administrator)
		c.post("night", "/emergency", swapOut).ok()
		var pending struct{ Pending []actions.Pending }
		c.get(actions.Viewer, "/pending").ok().into(&pending)
		if p := pending.Pending; len(p) != 1 || p[0].Kind != "release" || p[0].ID != "2" || p[0].Author != "night" {
			t.Fatalf("pending is %+v", p)
		}
		review := func(role string, n int) *reply {
			return c.post(role, fmt.Sprintf("/releases/%d/review", n), `{"reason":"looked at it"}`)
		}
		review("night", 2).refused(http.StatusForbidden, "self_approval")
		review(actions.Approver, 1).refused(http.StatusUnprocessableEntity, "not_reviewed")
		review(actions.Approver, 9).refused(http.StatusNotFound, "unknown_release")

		c.clock.ahead.Store(int64(25 * time.Hour))
		done := c.running(t)
		w := <-heard
		if w.Unreviewed != 1 || w.Oldest.IsZero() {
			t.Errorf("heard %+v", w)
		}
		waitFor(t, func() bool { return strings.Contains(c.log.String(), "emergencies were not reviewed") })
		done()

		review(actions.Approver, 2).ok()
		c.get(actions.Viewer, "/pending").ok().into(&pending)
		if len(pending.Pending) != 0 {
			t.Errorf("pending is %+v", pending.Pending)
		}
		review(actions.Approver, 2).refused(http.StatusConflict, "already_approved")
	})
}

func TestReliveShowsBothSidesBefore(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok()
	var p actions.RelivePreview
	c.untouched(func() { c.get(actions.Viewer, "/releases/1/relive").ok().into(&p) })
	if p.Of != 1 || p.Current != 2 || p.As != 3 || len(p.Preview.Changes) != 1 || p.Preview.Changes[0].From != "61" || p.Preview.Changes[0].To != "60" || p.Confirm != "release 1" {
		t.Errorf("the preview is %+v", p)
	}
}

func TestSettingsThatLoosenARuleWaitForASecondPerson(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		var v actions.SettingsView
		c.get(actions.Viewer, "/settings").ok().into(&v)
		if v.Rev != 0 || v.Settings.Safety != actions.DefaultSettings().Safety || v.Suffixes == "" || !v.FourEyes {
			t.Errorf("the settings are %+v", v)
		}
		put := func(rev uint64, change func(*actions.Settings)) *reply {
			s := v.Settings
			change(&s)
			body := strings.Replace(jsonOf(t, s), "{", `{"reason":"because of a test",`, 1)
			return c.call(request{role: actions.ReleaseEngineer, method: http.MethodPut, path: "/settings", body: body, headers: []string{"If-Match", strconv.FormatUint(rev, 10)}})
		}
		rows := c.rows()
		put(0, func(s *actions.Settings) { s.Safety.MaxMovePercent = 5 }).ok().into(&v)
		if v.Rev != 1 || v.Settings.Safety.MaxMovePercent != 5 || v.Proposal != nil || c.rows() != rows+1 {
			t.Errorf("tightened they are %+v", v)
		}
		c.publish(1, split(t, 5300), "").refused(http.StatusForbidden, "needs_approval") // 7 %
		put(0, func(s *actions.Settings) { s.Safety.MaxMovePercent = 4 }).refused(http.StatusConflict, "stale_paper")
		c.untouched(func() {
			p := put(1, func(s *actions.Settings) {
				s.Safety.MinUsableRegions, s.Safety.FlapWait = 0, 0
				s.Freezes = []actions.FreezeWindow{{From: "2027-03-28T02:30", To: "2027-03-28T05:00", Zone: "Europe/Berlin", Reason: "summer time"}}
			})
			if p.status != http.StatusUnprocessableEntity {
				t.Errorf("nonsense is %d %s", p.status, p.body)
			}
		})
		put(1, func(s *actions.Settings) { s.Safety.MaxMovePercent, s.Safety.ProbeQuorum = 50, 1 }).ok().into(&v)
		if v.Settings.Safety.MaxMovePercent != 5 || v.Proposal == nil || len(v.Proposal.Looser) != 2 || v.Proposal.By != actions.ReleaseEngineer {
			t.Fatalf("loosened they are %+v", v)
		}
		sign := func(role, digest string) *reply {
			return c.post(role, "/settings/approve", `{"reason":"agreed","digest":"`+digest+`"}`)
		}
		sign(actions.Approver, strings.Repeat("0", 64)).refused(http.StatusConflict, "stale_approval")
		signed := sign(actions.Approver, v.Proposal.Digest).ok()
		v = actions.SettingsView{}
		signed.into(&v)
		if v.Settings.Safety.MaxMovePercent != 50 || v.Proposal != nil {
			t.Errorf("approved they are %+v", v)
		}
		c.publish(1, split(t, 5300), "").ok()
	})
}

func TestAFreezeWindowStopsWhatCanWait(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		var v actions.SettingsView
		c.get(actions.Viewer, "/settings").ok().into(&v)
		now := c.clock.now().UTC()
		s := v.Settings
		s.Freezes = []actions.FreezeWindow{{From: now.Add(-time.Hour).Format("2006-01-02T15:04"), To: now.Add(48 * time.Hour).Format("2006-01-02T15:04"), Zone: "UTC", Reason: "spring festival"}}
		body := strings.Replace(jsonOf(t, s), "{", `{"reason":"because of a test",`, 1)
		c.call(request{role: actions.ReleaseEngineer, method: http.MethodPut, path: "/settings", body: body, headers: []string{"If-Match", "0"}}).ok()
		d := c.draft(actions.ReleaseEngineer, edit(t, "capacity: 60", "capacity: 61"), 1)
		c.untouched(func() {
			if p := c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").refused(http.StatusConflict, "frozen"); !strings.Contains(p.Detail, "spring festival") {
				t.Errorf("refused with %+v", p)
			}
			c.turn(actions.ReleaseEngineer, d.ID, "publish", digest(d)).refused(http.StatusConflict, "frozen")
			c.turn(actions.ReleaseEngineer, d.ID, "schedule", digest(d)+`,"at":"`+now.Add(24*time.Hour).Format("2006-01-02T15:04")+` UTC"`).refused(http.StatusConflict, "frozen")
			c.patch(`{"reason":"test","add":["d-7"]}`).refused(http.StatusConflict, "frozen")
		})
		c.post(actions.OnCall, "/emergency", swapOut).ok()
		c.clock.ahead.Store(int64(49 * time.Hour))
		c.publish(2, edit(t, "capacity: 60", "capacity: 61"), "").ok()
	})
}

// tail is the end of a log, for messages.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
