package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
)

// The rules that a pipeline publishes stand on the map, and the kill switch there
// reaches the set that callers follow.
func TestMapThroughThePage(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.page(actions.Viewer, "GET", "/map", nil).words("--registry NAME=URL")
		c.hangzhou(services)
		c.page(actions.Viewer, "GET", "/map", nil).words("no rules yet", "order-core", "pay-core")
		c.apply(actions.Administrator, "", "order.yaml", orderRule, "groups.yaml", owners).ok()
		c.page(actions.Viewer, "GET", "/map?env=prod", nil).words("Rules v1", "because of a test", "production / cn-hangzhou / prod", "strategy: {version: v2.3.1, weight: 70}", "1/2 serve")

		form := url.Values{"direct": {"true"}, "reason": {"the rules are wrong"}, "confirm": {region}, "key": {"k-1"}}
		if r := c.page(actions.ReleaseEngineer, "POST", "/map/switch", form); r.status != http.StatusForbidden {
			t.Errorf("a release engineer throws the switch: %d", r.status)
		}
		wrong := url.Values{"direct": {"true"}, "reason": {"the rules are wrong"}, "confirm": {"sh"}, "key": {"k-0"}}
		if r := c.page(actions.OnCall, "POST", "/map/switch", wrong); r.status != http.StatusUnprocessableEntity || !strings.Contains(string(r.body), "confirm_mismatch") {
			t.Errorf("the wrong word: %d %s", r.status, r.body)
		}
		if at := c.page(actions.OnCall, "POST", "/map/switch", form).location(); at != "/map" {
			t.Errorf("it leads to %s", at)
		}
		for _, path := range []string{"/map", "/services", "/queues", "/services/order-core"} {
			c.page(actions.Viewer, "GET", path, nil).words("The kill switch is thrown", "the rules are wrong")
		}
		back := url.Values{"direct": {"false"}, "reason": {"they are right again"}, "confirm": {region}, "key": {"k-2"}}
		c.page(actions.OnCall, "POST", "/map/switch", back).location()
		if r := c.page(actions.Viewer, "GET", "/map", nil).words("Rules v3"); strings.Contains(string(r.body), "The kill switch is thrown") {
			t.Error("the switch is still thrown")
		}
	})
}

// An instance is isolated on the page of its service, stands in the queues, and is lifted there.
func TestIsolationThroughThePages(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		dir := c.do.Inner
		v, _ := dir.View()
		one := v.Services[0].Instances[0]
		at := "/services/order-core?judge=isolate&id=" + url.QueryEscape(one.ID)
		c.page(actions.OnCall, "GET", at, nil).words("Isolate "+one.ID, one.Address.String())
		form := url.Values{"service": {"order-core"}, "id": {one.ID}, "address": {one.Address.String()}, "started": {""}, "do": {"isolate"}, "reason": {"stale prices"}, "key": {"k-1"}}
		if r := c.page(actions.Viewer, "POST", "/services/order-core", form); r.status != http.StatusForbidden {
			t.Errorf("a viewer isolates: %d", r.status)
		}
		if to := c.page(actions.OnCall, "POST", "/services/order-core", form).location(); to != "/services/order-core" {
			t.Errorf("it leads to %s", to)
		}
		awaitView(t, dir, func(v *directory.View) bool { return len(v.Isolated) == 1 })
		c.page(actions.Viewer, "GET", "/services/order-core", nil).words("stale prices", "on-call", "isolated")
		c.page(actions.OnCall, "GET", "/queues", nil).words("stale prices", one.ID, `value="lift"`)
		form.Set("do", "lift")
		form.Set("key", "k-2")
		if to := c.page(actions.OnCall, "POST", "/queues", form).location(); to != "/queues" {
			t.Errorf("it leads to %s", to)
		}
		awaitView(t, dir, func(v *directory.View) bool { return len(v.Isolated) == 0 })
		form.Set("address", "10.9.9.9:1")
		form.Set("do", "isolate")
		form.Set("key", "k-3")
		if r := c.page(actions.OnCall, "POST", "/services/order-core", form); r.status/100 != 4 || !strings.Contains(string(r.body), `value="stale prices"`) {
			t.Errorf("another address than the page shows: %d %s", r.status, r.body)
		}
	})
}

func TestCallsPageSaysThatNothingIsRecorded(t *testing.T) {
	c := published(t, "sqlite")
	c.page(actions.OnCall, "GET", "/calls", nil).words("Decision id")
	if r := c.page(actions.OnCall, "GET", "/calls?id=nobody", nil); r.status != http.StatusNotFound || !strings.Contains(string(r.body), "unknown_call") || !strings.Contains(string(r.body), `value="nobody"`) {
		t.Errorf("an unknown call: %d %s", r.status, r.body)
	}
	if r := c.page(actions.Viewer, "GET", "/calls", nil); r.status != http.StatusForbidden {
		t.Errorf("a viewer explains: %d", r.status)
	}
}
