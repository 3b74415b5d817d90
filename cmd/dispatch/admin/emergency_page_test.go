package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

// swapForm is the panel of a swap in mobile/sh as its hidden fields send it.
func swapForm(from, to string) url.Values {
	return url.Values{"action": {"swap"}, "app": {"mobile"}, "region": {"sh"}, "from": {from}, "to": {to}, "expect": {from}}
}

// typed is the panel with what a person types, and the key that the page gave it.
func typed(form url.Values, reason, confirm, key string) url.Values {
	form.Set("reason", reason)
	form.Set("confirm", confirm)
	form.Set("key", key)
	return form
}

// Three steps: the page, the panel, and the confirmation; then the undo that stays.
func TestEmergencyThroughThePage(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		board := c.page(actions.OnCall, "GET", "/emergency", nil).words("wapabst.a.com.cn", "wapabst2.a.com.cn", "Swap", "Freeze normal changes")
		if len(board.body) > 40_000 {
			t.Errorf("the page has %d bytes", len(board.body))
		}
		swap := swapForm("sh-main", "sh-spare")
		c.page(actions.OnCall, "GET", "/emergency?"+swap.Encode(), nil).
			words("Swap to wapabst2.a.com.cn", `placeholder="sh"`, "autofocus", `value="incident"`, "no requests in the last 5 min")

		refused := c.page(actions.OnCall, "POST", "/emergency", typed(swap, `it "burns"`, "hf", "k-1"))
		if text := string(refused.body); refused.status != http.StatusUnprocessableEntity || !strings.Contains(text, "confirm_mismatch") ||
			!strings.Contains(text, "it &#34;burns&#34;") || !strings.Contains(text, "Swap to wapabst2.a.com.cn") {
			t.Errorf("the wrong confirmation: %d %s", refused.status, text)
		}
		for range 2 { // e.g. a second click: the key makes it the same change
			if at := c.page(actions.OnCall, "POST", "/emergency", typed(swap, "it burns", "SH", "k-2")).location(); at != "/emergency?done=2" {
				t.Errorf("it leads to %s", at)
			}
		}
		c.page(actions.OnCall, "GET", "/emergency?done=2", nil).words("v2 on 1/1 replicas", "Undo", "it burns", `name="to" value="sh-main"`)
		if got := c.keeper.Current().Number; got != 2 {
			t.Errorf("release %d is live", got)
		}
		stale := c.page(actions.OnCall, "POST", "/emergency", typed(swap, "it burns", "sh", "k-3"))
		if stale.status != http.StatusConflict || !strings.Contains(string(stale.body), "sh-spare") {
			t.Errorf("from a stale screen: %d %s", stale.status, stale.body)
		}
		c.page(actions.OnCall, "POST", "/emergency", typed(swapForm("sh-spare", "sh-main"), "undone", "sh", "k-4")).location()
		if app, err := c.do.App("mobile"); err != nil || !app.Regions[0].Endpoints[0].Serves() {
			t.Errorf("after the undo: %+v %v", app, err)
		}
	})
}

func TestEmergencyPageInTheScript(t *testing.T) {
	c := published(t, "sqlite")
	script := []string{"Cookie", c.signedIn(actions.OnCall), "X-Fragment", "board"}
	panel := c.browse("GET", "/emergency?"+swapForm("sh-main", "sh-spare").Encode(), nil, script...).ok()
	if strings.Contains(string(panel.body), "<html") {
		t.Error("the panel comes as a whole page")
	}
	done := c.browse("POST", "/emergency", typed(swapForm("sh-main", "sh-spare"), "it burns", "sh", "k"), script...).ok()
	if at := done.header.Get("X-Replace"); at != "/emergency?done=2" || !strings.Contains(string(done.body), "v2 on 1/1 replicas") {
		t.Errorf("%q %s", at, done.body)
	}
}

func TestEveryEmergencyHasItsPanel(t *testing.T) {
	c := published(t, "sqlite")
	for name, row := range map[string]struct{ query, want, confirm string }{
		"drain":    {"action=region_state&app=mobile&region=sh&state=draining&expect=active", "Drain mobile/sh", "sh"},
		"turn off": {"action=region_state&app=mobile&region=sh&state=off&expect=active", "Turn off mobile/sh", "sh"},
		"freeze":   {"action=freeze&state=frozen&expect=open", "Freeze normal changes and automation", "freeze"},
	} {
		c.page(actions.OnCall, "GET", "/emergency?"+row.query, nil).words(row.want, `placeholder="`+row.confirm+`"`)
		form, err := url.ParseQuery(row.query)
		must(t, err)
		if r := c.page(actions.Viewer, "POST", "/emergency", typed(form, "test", row.confirm, name)); r.status != http.StatusForbidden {
			t.Errorf("%s by a viewer: %d", name, r.status)
		}
	}
	if r := c.page(actions.OnCall, "GET", "/emergency?action=nonsense", nil); r.status != http.StatusUnprocessableEntity || !strings.Contains(string(r.body), "wapabst.a.com.cn") {
		t.Errorf("an action that is none: %d", r.status)
	}
	if r := c.page(actions.Viewer, "GET", "/emergency", nil).ok(); strings.Contains(string(r.body), `data-fragment="board"`) {
		t.Error("a viewer sees buttons")
	}
}

// Whom an emergency moves is answered beside its panel, for actions that can move somebody.
func TestEffectOfAnEmergency(t *testing.T) {
	c := published(t, "sqlite")
	const off = "action=region_state&app=mobile&expect=active&region=sh&state=off"
	c.page(actions.OnCall, "GET", "/emergency?"+off, nil).words(`id="effect"`, "/emergency/effect?action=region_state&amp;app=mobile&amp;expect=active&amp;region=sh&amp;state=off")
	c.page(actions.OnCall, "GET", "/emergency/effect?"+off, nil).words("Turn off mobile/sh", "of the app&#39;s users get another region, by synthetic requests", "/emergency?action=region_state&amp;app=mobile")
	for _, still := range []string{swapForm("sh-main", "sh-spare").Encode(), "action=freeze&state=frozen&expect=open"} {
		if r := c.page(actions.OnCall, "GET", "/emergency?"+still, nil).ok(); strings.Contains(string(r.body), `id="effect"`) {
			t.Errorf("%s moves nobody and has an effect on load", still)
		}
	}
	if r := c.page(actions.OnCall, "GET", "/emergency/effect?action=nonsense", nil); r.status != http.StatusUnprocessableEntity {
		t.Errorf("an action that is none: %d", r.status)
	}
}

func TestEveryPageOfTheFrameOpens(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		for path, want := range map[string]string{"/": "Requests by region", "/emergency": "mobile/sh", "/explain": "Device id", "/fleet": "This node serves"} {
			c.page(actions.Administrator, "GET", path, nil).words(want)
		}
		c.page(actions.OnCall, "POST", "/explain", url.Values{"app": {"mobile"}, "device_id": {"d-1001"}}).
			words("wapcdst.b.com.cn", "How the rules were walked", "staff", "in use")
		if r := c.page(actions.OnCall, "POST", "/explain", url.Values{"app": {"mobile"}, "address": {"nowhere"}}); r.status != http.StatusUnprocessableEntity || !strings.Contains(string(r.body), "bad_address") {
			t.Errorf("a bad address: %d", r.status)
		}
	})
}

func TestUnreviewedEmergencyStaysOnEveryPage(t *testing.T) {
	c := published(t, "sqlite")
	c.page(actions.OnCall, "POST", "/emergency", typed(swapForm("sh-main", "sh-spare"), "it burns", "sh", "k")).location()
	for _, path := range []string{"/", "/fleet", "/explain"} {
		c.page(actions.ReleaseEngineer, "GET", path, nil).words("1 emergency change waits for a second person")
	}
}

func TestReleaseIsFollowedByEvents(t *testing.T) {
	c := published(t, "sqlite")
	events := c.browse("GET", "/events/release/1", nil, "Cookie", c.signedIn(actions.Viewer)).ok()
	if got := events.header.Get("Content-Type"); got != "text/event-stream" || !strings.Contains(string(events.body), "v1 on 1/1 replicas") {
		t.Errorf("%s %s", got, events.body)
	}
}
