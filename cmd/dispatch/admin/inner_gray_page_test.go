package admin_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

// A version grows and is taken back on the page of its service.
func TestAVersionGrowsThroughThePage(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Administrator, "", "order.yaml", plainRule, "pay.yaml", payRule).ok()
		const page = "/services/order-core"
		c.page(actions.ReleaseEngineer, "GET", page, nil).words("Let another version grow in prod", "<option>v2.3.0</option>", "5, 20, 50, 100")
		if r := c.page(actions.OnCall, "GET", page, nil); strings.Contains(string(r.body), "Let another version grow") {
			t.Error("somebody on call is offered a start")
		}
		post := func(role, do string, form url.Values) *reply {
			form.Set("key", strings.Join([]string{role, do, form.Get("reason"), form.Get("expect")}, "-"))
			return c.page(role, "POST", page+"/gray/prod/"+do, form)
		}
		start := url.Values{"version": {"v2.3.0"}, "steps": {"5, 3"}, "reason": {"the new one"}}
		if r := post(actions.ReleaseEngineer, "start", start); r.status != http.StatusUnprocessableEntity || !strings.Contains(string(r.body), "bad_gray") ||
			!strings.Contains(string(r.body), `value="the new one"`) || !strings.Contains(string(r.body), `value="5, 3"`) {
			t.Errorf("steps that fall: %d %s", r.status, r.body)
		}
		start.Set("steps", "5 → 20 → 100 %")
		start.Set("reason", "the newer one")
		if r := post(actions.Viewer, "start", start); r.status != http.StatusForbidden {
			t.Errorf("a viewer starts: %d", r.status)
		}
		if at := post(actions.ReleaseEngineer, "start", start).location(); at != page {
			t.Errorf("it leads to %s", at)
		}
		c.page(actions.Viewer, "GET", page, nil).words("v2.3.0 grows in prod", "5 %", "1 of 1 serve", "can take it back")
		c.page(actions.Viewer, "GET", "/map?env=prod", nil).words("v2.3.0 grows: 5 %")
		if at := post(actions.ReleaseEngineer, "step", url.Values{"expect": {"5"}, "reason": {"looks well"}}).location(); at != page {
			t.Errorf("it leads to %s", at)
		}
		if r := post(actions.ReleaseEngineer, "step", url.Values{"expect": {"5"}, "reason": {"once more"}}); r.status != http.StatusConflict || !strings.Contains(string(r.body), "20 %") {
			t.Errorf("a step that somebody took already: %d %s", r.status, r.body)
		}
		post(actions.ReleaseEngineer, "step", url.Values{"expect": {"20"}, "reason": {"looks well"}}).location()
		c.page(actions.Viewer, "GET", page, nil).words("it has everything", "Put this into Git", "strategy: {version: v2.3.0, weight: 100}")
		if r := post(actions.OnCall, "abort", url.Values{"reason": {"it is slow"}, "confirm": {"pay-core"}}); r.status != http.StatusUnprocessableEntity ||
			!strings.Contains(string(r.body), `value="it is slow"`) {
			t.Errorf("the wrong word: %d %s", r.status, r.body)
		}
		if at := post(actions.OnCall, "abort", url.Values{"reason": {"it is very slow"}, "confirm": {"order-core"}}).location(); at != page {
			t.Errorf("it leads to %s", at)
		}
		if r := c.page(actions.ReleaseEngineer, "GET", page, nil).words("Let another version grow in prod"); strings.Contains(string(r.body), "grows in prod") {
			t.Error("it still grows")
		}
	})
}

// The form offers what a start would not be refused for.
func TestTheFormOffersWhatCanGrow(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services + `  - {service: order-core, address: "10.0.0.8:8080", cluster: production, region: cn-shanghai, env: prod, version: v2.4.0}` + "\n")
		off := strings.Replace(payRule, "100}", "0}\nfallback: {version: \"2.11\", weight: 100}", 1)
		c.apply(actions.Administrator, "", "order.yaml", orderRule, "pay.yaml", off).ok()
		for service, why := range map[string]string{"order-core": "v2.3.0 is the fallback that serves, and v2.4.0 is in another region", "pay-core": "the main version takes nothing"} {
			if r := c.page(actions.ReleaseEngineer, "GET", "/services/"+service, nil); r.status != http.StatusOK || strings.Contains(string(r.body), "Let another version grow") {
				t.Errorf("%s: a start is offered, though %s", service, why)
			}
		}
	})
}

// The start for a key service is signed on the page, with the digest of the refusal.
func TestAStartIsSignedOnThePage(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.do.FourEyes = true
		c.hangzhou(services)
		files := []string{"groups.yaml", owners, "pay.yaml", payRule}
		c.post(actions.Approver, "/rules/approve", rulesBody(t, `,"digest":"`+c.lint("", files...).check().Digest+`"`, files...)).ok()
		c.apply(actions.Administrator, "", files...).ok()
		const page = "/services/pay-core"
		form := url.Values{"version": {"2.11"}, "steps": {"10, 100"}, "reason": {"the new one"}, "key": {"k-1"}}
		r := c.page(actions.Pipeline, "POST", page+"/gray/prod/start", form)
		digest := regexp.MustCompile(`--digest ([0-9a-f]{64})`).FindStringSubmatch(string(r.body))
		if r.status != http.StatusForbidden || digest == nil {
			t.Fatalf("a start for a key service: %d %s", r.status, r.body)
		}
		c.page(actions.Approver, "GET", page, nil).words("Agree that another version grows in prod")
		form.Set("digest", strings.Repeat("0", 64))
		form.Set("key", "k-2")
		if r := c.page(actions.Approver, "POST", page+"/gray/prod/approve", form); r.status != http.StatusConflict || !strings.Contains(string(r.body), `value="10, 100"`) {
			t.Errorf("another digest: %d %s", r.status, r.body)
		}
		form.Set("digest", digest[1])
		form.Set("key", "k-3")
		if at := c.page(actions.Approver, "POST", page+"/gray/prod/approve", form).location(); at != page {
			t.Errorf("it leads to %s", at)
		}
		form.Del("digest")
		form.Set("key", "k-4")
		if at := c.page(actions.Pipeline, "POST", page+"/gray/prod/start", form).location(); at != page {
			t.Errorf("it leads to %s", at)
		}
		c.page(actions.Viewer, "GET", page, nil).words("2.11 grows in prod", "10 %")
	})
}
