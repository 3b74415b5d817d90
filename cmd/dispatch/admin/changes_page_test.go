package admin_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

// words fails unless the page has every text, and has a word for everything.
func (r *reply) words(want ...string) *reply {
	r.t.Helper()
	body := string(r.ok().body)
	for _, text := range want {
		if !strings.Contains(body, text) {
			r.t.Errorf("%s has no %q in\n%s", r.what, text, body)
		}
	}
	if bare := regexp.MustCompile(`[>"](changes|rules|settings|layout)\.[a-z_.]+[<"]`).FindString(body); bare != "" {
		r.t.Errorf("%s shows the name of a message: %s", r.what, bare)
	}
	return r
}

// location is where a form leads.
func (r *reply) location() string {
	r.t.Helper()
	if r.status != http.StatusSeeOther {
		r.t.Fatalf("%s: %d %s", r.what, r.status, r.body)
	}
	return r.header.Get("Location")
}

func TestAChangeGoesThroughThePages(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		c.page(actions.ReleaseEngineer, "GET", "/changes", nil).words("No drafts", "New draft")
		c.page(actions.ReleaseEngineer, "GET", "/changes/new", nil).words("sh-main", `name="base" type="number" min="0" value="1"`)
		form := func(document string) url.Values {
			return url.Values{"title": {"<b>Spare</b> in Hefei"}, "document": {strings.ReplaceAll(document, "\n", "\r\n")}, "base": {"1"}, "reason": {`"><script>alert(1)</script>`}, "rev": {"0"}}
		}
		// What is wrong stays visible with its line, and the text is not lost.
		wrong := c.page(actions.ReleaseEngineer, "POST", "/changes/new", form("apps:\n  - key: mobile\n    falback: x\n"))
		if body := string(wrong.body); wrong.status != http.StatusUnprocessableEntity || !strings.Contains(body, "line 3") || !strings.Contains(body, "falback: x") {
			t.Errorf("%d %s", wrong.status, body)
		}
		at := c.page(actions.ReleaseEngineer, "POST", "/changes/new", form(spare(t))).location()
		id := strings.TrimPrefix(at, "/changes/")
		read := c.page(actions.ReleaseEngineer, "GET", at, nil).words("&lt;b&gt;Spare", "wapabst2.a.com.cn is new here", "This takes a second person", "Submit for review")
		if body := string(read.body); strings.Contains(body, "<script>alert") || strings.Contains(body, "<b>Spare") {
			t.Error("the page has what was typed as HTML")
		}
		say := url.Values{"reason": {"because of a test"}, "digest": {c.draftAt(id).Digest}}
		c.page(actions.ReleaseEngineer, "POST", at+"/submit", say).location()
		c.page(actions.Approver, "GET", "/changes?tab=review", nil).words("Waiting for review (1)", id)
		if r := c.page(actions.ReleaseEngineer, "POST", at+"/approve", say); r.status != http.StatusForbidden {
			t.Errorf("the author approves: %d", r.status)
		}
		stale := url.Values{"reason": {"because of a test"}, "digest": {strings.Repeat("0", 64)}}
		if r := c.page(actions.Approver, "POST", at+"/approve", stale); r.status != http.StatusConflict || !strings.Contains(string(r.body), "was changed since you looked") {
			t.Errorf("an old page approves: %d", r.status)
		}
		c.page(actions.Approver, "POST", at+"/approve", say).location()
		c.page(actions.ReleaseEngineer, "GET", at, nil).words("approved", "Approved by")
		if to := c.page(actions.ReleaseEngineer, "POST", at+"/publish", say).location(); to != "/releases/2" {
			t.Errorf("it leads to %s", to)
		}
		c.page(actions.Viewer, "GET", "/releases/2", nil).words("Release 2", "hf-spare", "live")
		c.page(actions.Viewer, "GET", "/releases/1/diff/2", nil).words("From release 1 to 2", "hf-spare")
		c.page(actions.Viewer, "GET", "/changes?tab=history", nil).words("v2", "v1")
		c.page(actions.Viewer, "GET", "/rules", nil).words("in the list: staff", "Otherwise", "wapabst2.a.com.cn")

		c.page(actions.OnCall, "GET", "/releases/1", nil).words("Make release 1 live again (as 3)", "release 1")
		back := url.Values{"reason": {"because of a test"}, "confirm": {"yes"}}
		if r := c.page(actions.OnCall, "POST", "/releases/1/relive", back); r.status != http.StatusUnprocessableEntity || c.current() != 2 {
			t.Errorf("another word confirms: %d", r.status)
		}
		back.Set("confirm", "release 1")
		if to := c.page(actions.OnCall, "POST", "/releases/1/relive", back).location(); to != "/releases/3" {
			t.Errorf("it leads to %s", to)
		}
		c.page(actions.Approver, "GET", "/releases/3", nil).words("not reviewed", "Sign release 3")
		c.page(actions.Approver, "POST", "/releases/3/review", url.Values{"reason": {"looked at it"}}).location()
		c.page(actions.Approver, "GET", "/releases/3", nil).words("● reviewed")
		for _, path := range []string{"/changes", "/changes?tab=review", "/changes?tab=scheduled", "/changes?tab=history", at, "/changes/new", "/releases/1", "/releases/1/diff/2", "/rules", "/settings", "/settings?edit"} {
			page := c.browse("GET", path, nil, "Cookie", c.signedIn(actions.Administrator)+"; dispatch_lang=zh").words(`lang="zh-Hans"`)
			if strings.Contains(string(page.body), "a message") {
				t.Errorf("%s is not in Chinese", path)
			}
		}
		for _, path := range []string{"/changes/none", "/releases/99", "/releases/x", "/releases/1/diff/99"} {
			if r := c.page(actions.Viewer, "GET", path, nil); r.status != http.StatusNotFound {
				t.Errorf("%s: %d", path, r.status)
			}
		}
	})
}

func TestSettingsGoThroughThePage(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		c.page(actions.Viewer, "GET", "/settings", nil).words("Safety rules", "a.com.cn", "90 d")
		form := url.Values{"reason": {"because of a test"}, "rev": {"0"}, "max_move_percent": {"5"}, "remove_from_list_percent": {"10"}, "min_usable_regions": {"1"},
			"probe_quorum": {"2"}, "emergencies_per_person": {"3"}, "emergency_window": {"10m"}, "flap_wait": {"5s"}, "flap_wait_after_two": {"1m"}, "flap_window": {"10m"},
			"probe_fresh": {"30s"}, "review_after": {"24h"}, "freezes": {"2097-02-05T00:00 2097-02-12T00:00 Asia/Shanghai spring festival\r\n22:00 06:00 Asia/Shanghai fri,sat weekend nights"}}
		c.page(actions.ReleaseEngineer, "POST", "/settings", form).location()
		c.page(actions.Viewer, "GET", "/settings", nil).words("spring festival", "weekend nights")
		form.Set("rev", "1")
		form.Set("probe_quorum", "many")
		form.Set("freezes", "tomorrow")
		r := c.page(actions.ReleaseEngineer, "POST", "/settings", form)
		if body := string(r.body); r.status != http.StatusUnprocessableEntity || !strings.Contains(body, "safety.probe_quorum") || !strings.Contains(body, "tomorrow</textarea>") {
			t.Errorf("%d %s", r.status, body)
		}
		form.Set("probe_quorum", "1")
		form.Set("freezes", "22:00 06:00 Asia/Shanghai fri,sat weekend nights")
		c.page(actions.ReleaseEngineer, "POST", "/settings", form).location()
		c.page(actions.Approver, "GET", "/settings", nil).words("probe_quorum: 2 → 1", "spring", "Approve these settings")
		var v actions.SettingsView
		c.get(actions.Viewer, "/settings").ok().into(&v)
		c.page(actions.Approver, "POST", "/settings/approve", url.Values{"reason": {"agreed"}, "digest": {v.Proposal.Digest}}).location()
		v = actions.SettingsView{}
		c.get(actions.Viewer, "/settings").ok().into(&v)
		if v.Settings.Safety.ProbeQuorum != 1 || v.Settings.Safety.MaxMovePercent != 5 || len(v.Settings.Freezes) != 1 {
			t.Errorf("the settings are %+v", v.Settings)
		}
	})
}
