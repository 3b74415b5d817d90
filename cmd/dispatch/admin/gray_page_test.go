package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

// contains fails unless the page has every text, and none that begins with "!".
// Narrow spaces count as spaces.
func (r *reply) contains(status int, texts ...string) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: %d, want %d\n%s", r.what, r.status, status, r.body)
	}
	for _, text := range texts {
		unwanted, not := strings.CutPrefix(text, "!")
		if strings.Contains(r.shown(), unwanted) == not {
			r.t.Errorf("%s: has %q %v\n%s", r.what, unwanted, !not, r.body)
		}
	}
	return r
}

// The whole way of a gray by the console, by forms alone: plan, sign, preview, start, wait, abort.
func TestAGrayByTheConsole(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	const path = "/gray/mobile/gray"
	get := func(role, path string) *reply { return g.page(role, http.MethodGet, path, nil) }
	post := func(role, path string, pairs ...string) *reply {
		form := url.Values{"reason": {"test"}}
		for i := 0; i < len(pairs); i += 2 {
			form.Add(pairs[i], pairs[i+1])
		}
		return g.page(role, http.MethodPost, path, form)
	}
	get(actions.Viewer, "/gray").contains(200, `<a href="/gray/mobile/gray">`, "no plan", "1 %")
	get(actions.Viewer, path).contains(200, "<h1>", "!<form method=\"post\" action=\"/gray")
	get(actions.ReleaseEngineer, path).contains(200, `name="steps" value="5, 20, 50, 100"`, "Save the plan")
	get(actions.Viewer, "/gray/mobile/none").contains(404, "unknown_policy")
	get("", path).contains(303)

	plan := []string{"rev", "0", "steps", "5, 20 → 50，100", "bake", "10", "sample", "500", "on_fail", "zero",
		"url", g.gauge.URL, "query", `sum(rate(errors{job="<b>"}[5m]))`, "op", "<", "threshold", "0.01", "url", "", "query", "", "op", "<", "threshold", "", "hook", ""}
	post(actions.OnCall, path+"/plan", plan...).contains(403, "may not gray")
	post(actions.ReleaseEngineer, path+"/plan", append([]string{"probe", "true"}, append(plan, "hook", "http://169.254.169.254/")...)...).
		contains(422, "--signal-hosts", `value="5, 20 → 50，100"`, `value="http://169.254.169.254/"`)
	post(actions.ReleaseEngineer, path+"/plan", "rev", "0", "steps", "five", "bake", "10", "sample", "500", "probe", "true").contains(422, "is not a number")
	post(actions.ReleaseEngineer, path+"/plan", plan...).contains(303)
	get(actions.ReleaseEngineer, path).contains(200, "waits for a second person", "not signed yet", "5, 20, 50, 100 %", "!Sign this plan", "!job=\"<b>")
	get(actions.Approver, path).contains(200, "Sign this plan", `name="digest" value="`+g.gray().Digest)
	post(actions.Approver, path+"/approve", "digest", g.gray().Digest).contains(303)
	get(actions.ReleaseEngineer, path+"/preview").contains(200, "Buckets 0 to 499 of 10 000", "mobile/gray", "No data of real requests", "/explain?app=mobile&amp;device_id=example-")
	get(actions.ReleaseEngineer, path).contains(200, "Send 5 % to hf", "signed by approver")
	post(actions.ReleaseEngineer, path, "action", "start", "expect", "0").contains(303)
	get(actions.ReleaseEngineer, path).contains(200, "● running", "Grow to 20 % in hf", "not every replica serves")
	post(actions.ReleaseEngineer, path, "action", "next", "expect", "500").contains(409, "not_ready", "not every replica serves")
	g.ripen()
	get(actions.Viewer, path).contains(200, "● pass", "0.001", "The step to 20 % is ready", "500 of 500 requests", "95 % confidence", "● as expected", "!Abort gray")
	post(actions.OnCall, path, "action", "abort", "confirm", "wrong").contains(422, "confirm_mismatch", `value="wrong"`)
	get(actions.OnCall, path).contains(200, "Abort gray", `placeholder="gray"`)
	g.expect(actions.GrayRunning, "500", "")
	post(actions.OnCall, path, "action", "abort", "confirm", "gray").contains(303)
	g.expect(actions.GrayAborted, "0", "by on-call: test")
	get(actions.Viewer, "/gray?lang=zh").contains(303)
	r := g.browse(http.MethodGet, path, nil, "Cookie", g.signedIn(actions.Viewer)+"; dispatch_lang=zh")
	r.contains(200, "■ 已中止", "信号")
	for _, id := range []string{"gray.state", "gray.said", "<no value>", "style=\"", "onclick"} {
		r.contains(200, "!"+id)
	}
}
