package admin_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/store"
)

// plainRule has one version; v2.3.0 is there, too, and may grow.
var plainRule = orderRule[:strings.Index(orderRule, "fallback:")]

const orderGray = "/rules/grays/order-core/prod"

func (c *control) startGray(role, more string) *reply {
	c.t.Helper()
	return c.post(role, orderGray, `{"reason":"because of a test","version":"v2.3.0"`+more+`}`)
}

func (c *control) stepGray(role, more string, headers ...string) *reply {
	c.t.Helper()
	return c.post(role, orderGray+"/step", `{"reason":"because of a test",`+more+`}`, headers...)
}

func (c *control) abortGray(role, confirm string) *reply {
	c.t.Helper()
	return c.post(role, orderGray+"/abort", `{"reason":"because of a test","confirm":"`+confirm+`"}`)
}

func (c *control) gray() (g actions.InnerGray) {
	c.t.Helper()
	c.get(actions.Viewer, orderGray).ok().into(&g)
	return g
}

// A36, C04, C24: a new version takes its steps and everything is taken back.
func TestAVersionGrowsByStepsAndIsTakenBack(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		made := c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		c.get(actions.Viewer, orderGray).refused(404, "no_gray")
		c.post(actions.Pipeline, "/rules/grays/order-core/test", `{"reason":"because of a test","version":"v2.4.0"}`).refused(404, "no_rule")
		if p := c.post(actions.ReleaseEngineer, orderGray, `{"reason":"because of a test","version":"v2.4.0"}`).refused(422, "invalid_rules"); !strings.Contains(p.Problems[0].String(), "cluster staging") && !strings.Contains(p.Problems[0].String(), "matches 0 instances") {
			t.Errorf("a version that nobody has here: %+v", p)
		}
		c.startGray(actions.ReleaseEngineer, `,"steps":[20,5]`).refused(422, "bad_gray")
		c.startGray(actions.ReleaseEngineer, `,"base":7`).refused(409, "stale_base")

		c.stepGray(actions.ReleaseEngineer, `"expect":5`).refused(404, "no_gray")
		out := c.startGray(actions.ReleaseEngineer, "").applied()
		if out.Number != 2 || len(out.Changes) != 1 || out.Changes[0].Kind != rules.Grayed || made.Load() != 2 {
			t.Errorf("start = %+v, made %d times", out, made.Load())
		}
		g := c.gray()
		if g.Version != "v2.3.0" || g.From != "v2.3.1" || g.Share != 5 || g.Step != 1 || g.Next != 20 || g.By != actions.ReleaseEngineer || g.Number != 2 || g.Region != region || g.Finish != "" ||
			!strings.Contains(g.Measure, `dispatch_discovery_picks_total{service="order-core",reason="gray"}`) {
			t.Errorf("gray = %+v", g)
		}
		c.startGray(actions.Pipeline, "").refused(409, "gray_running")
		for i, share := range []string{"0.20", "0.50", "1.00"} {
			expect := []string{`"expect":5`, `"expect":20`, `"expect":50`}[i]
			if out := c.stepGray(actions.Pipeline, expect).applied(); out.Number != uint64(3+i) {
				t.Errorf("step %d = %+v", i+2, out)
			}
			got := shares(c.cells()["order-core/prod/production"])
			if !slices.Contains(got, "v2.3.0 "+share+" 1/1") {
				t.Errorf("at step %d the shares are %q", i+2, got)
			}
			c.stepGray(actions.Pipeline, expect).refused(409, "changed")
		}
		// What callers get at the end, and what Git is to have.
		if g = c.gray(); g.Next != 0 || !strings.Contains(g.Finish, "strategy: {version: v2.3.0, weight: 100}\nfallback: {version: v2.3.1, weight: 0}") {
			t.Errorf("gray = %+v", g)
		}
		c.stepGray(actions.Pipeline, `"expect":100`).refused(409, "last_step")
		if out := c.stepGray(actions.ReleaseEngineer, `"expect":100,"to":50`).applied(); out.Number != 6 || c.gray().Share != 50 {
			t.Errorf("a step back = %+v", out)
		}
		c.stepGray(actions.ReleaseEngineer, `"expect":50,"to":30`).refused(422, "bad_gray")
		if out := c.stepGray(actions.ReleaseEngineer, `"expect":50,"to":50`).applied(); out.Number != 0 {
			t.Errorf("no step = %+v", out)
		}

		p := c.abortGray(actions.OnCall, "").refused(422, "confirm_mismatch")
		if string(p.Data) != `{"confirm":"order-core"}` {
			t.Errorf("what must be typed: %s", p.Data)
		}
		if out := c.abortGray(actions.OnCall, "order-core").applied(); out.Number != 7 || made.Load() != 7 {
			t.Errorf("abort = %+v, made %d times", out, made.Load())
		}
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.1 1.00 1/2"}) {
			t.Errorf("after the abort the shares are %q", got)
		}
		if out := c.abortGray(actions.OnCall, "order-core").applied(); out.Number != 0 {
			t.Errorf("abort again = %+v", out)
		}
		c.post(actions.OnCall, "/rules/grays/order-cora/prod/abort", `{"reason":"because of a test","confirm":"order-cora"}`).refused(404, "no_gray")
		for action, want := range map[string]int{"rules_gray_start": 1, "rules_gray_step": 4, "rules_gray_abort": 1} {
			if rows := c.trailOf(action); len(rows) != want || rows[0].Stream != rules.Stream(region) || rows[0].Target != "order-core/prod" || !strings.Contains(string(rows[0].Details), "v2.3.0 takes") {
				t.Errorf("audit of %s = %+v", action, rows)
			}
		}
	})
}

// What the node signs is what callers follow.
func TestCallersFollowTheGray(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		c.startGray(actions.Pipeline, `,"steps":[10,30,50,100],"by_key":true`).ok()
		s, err := c.store.Release(t.Context(), rules.Stream(region), 2)
		must(t, err)
		set, err := rules.Verify(rules.Signed{Number: 2, Manifest: s.Manifest, Signature: s.Signature}, c.keys.Trust(), deployment, region)
		must(t, err)
		r := set.Rules[0]
		if r.Strategy != (rules.Strategy{Version: "v2.3.0", Weight: 10}) || *r.Fallback != (rules.Fallback{Version: "v2.3.1", Weight: 90}) || r.Gray == nil || !r.Gray.ByKey || !strings.HasSuffix(r.ID(), "+10%") {
			t.Errorf("callers follow %+v", r)
		}
		if v := c.rules(); len(v.Set.Grays) != 1 || !reflect.DeepEqual(v.Set.Rules[0].Strategy, rules.Strategy{Version: "v2.3.1", Weight: 70}) {
			t.Errorf("Git has %+v", v.Set)
		}
		if cell := c.cells()["order-core/prod/production"]; cell.Gray == nil || cell.Gray.Share != 10 || cell.Rule.Strategy.Version != "v2.3.1" || cell.Rule.Gray != nil {
			t.Errorf("cell = %+v", cell)
		}
		var list struct{ Grays []actions.InnerGray }
		c.get(actions.Viewer, "/rules/grays").ok().into(&list)
		if len(list.Grays) != 1 || list.Grays[0].Share != 10 {
			t.Errorf("grays = %+v", list)
		}
	})
}

// A pipeline neither ends nor keeps a gray by accident.
func TestRulesAndARunningGray(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		c.startGray(actions.Pipeline, "").ok()
		newer := strings.Replace(plainRule, "T09", "T10", 1)
		if out := c.apply(actions.Pipeline, "", "order.yaml", newer, "pay.yaml", payRule).applied(); out.Number != 3 || c.gray().Share != 5 {
			t.Errorf("the same main version: %+v, gray %+v", out, c.gray())
		}
		// The switch keeps it, too; a step says that it does not count.
		c.post(actions.OnCall, "/rules/switch", `{"reason":"rules burn","direct":true,"confirm":"cn-hangzhou"}`).ok()
		if out := c.stepGray(actions.Pipeline, `"expect":5`).applied(); out.Number != 5 || len(out.Warnings) != 1 || !c.gray().Direct {
			t.Errorf("a step under the switch: %+v", out)
		}
		c.post(actions.OnCall, "/rules/switch", `{"reason":"rules burn","direct":false,"confirm":"cn-hangzhou"}`).ok()

		files := []string{"order.yaml", strings.Replace(orderRule, "T09", "T11", 1), "pay.yaml", payRule}
		check := c.lint("", files...).check()
		if len(check.Warnings) != 1 || !strings.Contains(check.Warnings[0].String(), "v2.3.0") {
			t.Errorf("lint only warns: %+v", check)
		}
		for more, files := range map[string][]string{"": files, `,"delete":true`: {"pay.yaml", payRule}} {
			if p := c.apply(actions.Pipeline, more, files...).refused(409, "gray_running"); !strings.Contains(p.Hint, "dispatchctl gray inner abort order-core/prod") {
				t.Errorf("refusal = %+v", p)
			}
		}
		if c.gray().Share != 20 {
			t.Errorf("a refused change moved it: %+v", c.gray())
		}
		// Finished by Git.
		done := strings.NewReplacer("T09", "T12", "v2.3.1", "v2.3.0").Replace(plainRule)
		out := c.apply(actions.Pipeline, "", "order.yaml", done, "pay.yaml", payRule).applied()
		if len(out.Changes) != 2 || out.Changes[0].Kind != rules.Grayed || out.Changes[0].After != "" {
			t.Errorf("finished = %+v", out)
		}
		c.get(actions.Viewer, orderGray).refused(404, "no_gray")
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.0 1.00 1/1"}) {
			t.Errorf("the shares are %q", got)
		}
	})
}

// A fallback that serves is not left out unless somebody says so; an abort brings it back.
func TestAGrayBesideAFallback(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		three := services + `  - {service: order-core, address: "10.0.0.8:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.4.0}` + "\n"
		c.hangzhou(three)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule).ok()
		start := func(more string) *reply {
			return c.post(actions.Pipeline, orderGray, `{"reason":"because of a test","version":"v2.4.0"`+more+`}`)
		}
		if p := start("").refused(422, "bad_gray"); !strings.Contains(p.Problems[0].Hint, "--without-fallback") {
			t.Errorf("refusal = %+v", p)
		}
		c.startGray(actions.Pipeline, `,"without_fallback":true`).refused(422, "bad_gray") // v2.3.0 has 30 by the rule
		start(`,"without_fallback":true`).ok()
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.1 0.95 1/2", "v2.4.0 0.05 1/1"}) {
			t.Errorf("the shares are %q", got)
		}
		c.abortGray(actions.OnCall, "order-core").ok()
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.1 0.70 1/2", "v2.3.0 0.30 1/1"}) {
			t.Errorf("after the abort the shares are %q", got)
		}
	})
}

// A33: the start for a key service takes a second person, its steps and its end none.
func TestAGrayOfAKeyServiceTakesTwoPeople(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.do.FourEyes = true
		c.hangzhou(services)
		groups := strings.Replace(owners, "owners: [pipeline, pay-ci]", "owners: [pipeline, administrator]", 1)
		files := []string{"groups.yaml", groups, "pay.yaml", payRule}
		c.post(actions.Approver, "/rules/approve", rulesBody(t, `,"digest":"`+c.lint("", files...).check().Digest+`"`, files...)).ok()
		c.apply(actions.Administrator, "", files...).ok()
		const at, body = "/rules/grays/pay-core/prod", `{"reason":"because of a test","version":"2.11"`
		c.post(actions.ReleaseEngineer, at, body+`}`).refused(403, "not_your_group")
		p := c.post(actions.Pipeline, at, body+`}`).refused(403, "approval_required")
		var check actions.RulesCheck
		must(t, json.Unmarshal(p.Data, &check))
		if check.Digest == "" || !slices.Equal(check.Needs, []string{"pay-core"}) || !strings.Contains(p.Hint, "dispatchctl gray inner approve pay-core/prod 2.11 --steps 5,20,50,100 --digest "+check.Digest) {
			t.Errorf("refusal = %+v", p)
		}
		sign := func(role, more string) *reply {
			return c.post(role, at+"/approve", body+more+`,"digest":"`+check.Digest+`"}`)
		}
		sign(actions.Approver, `,"steps":[50,100]`).refused(409, "other_digest")
		if signed := sign(actions.Approver, "").check(); signed.Approved != actions.Approver {
			t.Errorf("signed = %+v", signed)
		}
		c.post(actions.Pipeline, at, body+`,"steps":[50,100]}`).refused(403, "approval_required")
		c.post(actions.Pipeline, at, body+`,"by_key":true}`).refused(403, "approval_required")
		c.post(actions.Pipeline, at, body+`}`).ok()
		c.post(actions.ReleaseEngineer, at+"/step", `{"reason":"because of a test","expect":5}`).refused(403, "not_your_group")
		if rows := c.trailOf("rules_refused"); len(rows) != 2 || rows[0].Actor != actions.ReleaseEngineer || !strings.Contains(string(rows[0].Details), "not_your_group") {
			t.Errorf("audit of refusals = %+v", rows)
		}
		c.post(actions.Pipeline, at+"/step", `{"reason":"because of a test","expect":5}`).ok()
		c.post(actions.ReleaseEngineer, at+"/step", `{"reason":"because of a test","expect":20}`).refused(403, "not_your_group")
		// Whoever is on call takes it back, whoever owns it.
		c.post(actions.OnCall, at+"/abort", `{"reason":"because of a test","confirm":"pay-core"}`).ok()
		// The signature was for one start.
		c.post(actions.Pipeline, at, body+`}`).refused(403, "approval_required")
		if rows := c.trailOf("rules_gray_approve"); len(rows) != 1 || rows[0].Actor != actions.Approver {
			t.Errorf("audit = %+v", rows)
		}
	})
}

// A rule that others publish meanwhile neither stops a step nor is lost by it, and of
// two who take the same step one is told.
func TestStepsAmongOtherReleases(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			first := new(atomic.Pointer[func()])
			c := empty(t, kind, func(s *store.Store) actions.Ledger { return outrun{s, first} })
			c.hangzhou(services)
			other := c.sibling()
			other.hangzhou(services)
			c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
			before := func(f func()) { first.Store(&f) }
			before(func() { other.apply(actions.Pipeline, "", "order.yaml", plainRule, "pay.yaml", payRule).ok() })
			if out := c.startGray(actions.ReleaseEngineer, "").applied(); out.Number != 3 || len(c.rules().Set.Rules) != 2 {
				t.Errorf("start = %+v", out)
			}
			before(func() { other.stepGray(actions.Pipeline, `"expect":5`).ok() })
			c.stepGray(actions.ReleaseEngineer, `"expect":5`).refused(409, "changed")
			if g := c.gray(); g.Share != 20 || g.By != actions.Pipeline {
				t.Errorf("gray = %+v", g)
			}
			before(func() { other.stepGray(actions.Pipeline, `"expect":20`).ok() })
			if out := c.abortGray(actions.OnCall, "order-core").applied(); out.Number != 6 {
				t.Errorf("the abort comes through: %+v", out)
			}
			c.get(actions.Viewer, orderGray).refused(404, "no_gray")
		})
	}
}

// A step that was meant for a version which others took back moves no other version.
func TestAStepIsOfTheVersionThatWasSeen(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services + `  - {service: order-core, address: "10.0.0.8:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.4.0}` + "\n")
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		c.startGray(actions.Pipeline, "").ok()
		c.abortGray(actions.OnCall, "order-core").ok()
		c.post(actions.Pipeline, orderGray, `{"reason":"because of a test","version":"v2.4.0"}`).ok()
		if p := c.stepGray(actions.Pipeline, `"expect":5,"version":"v2.3.0"`).refused(409, "changed"); !strings.Contains(p.Detail, "v2.4.0 grows in order-core/prod now, not v2.3.0") {
			t.Errorf("refusal = %+v", p)
		}
		if g := c.gray(); g.Share != 5 {
			t.Errorf("gray = %+v", g)
		}
		c.stepGray(actions.Pipeline, `"expect":5,"version":"v2.4.0"`).ok()
	})
}

// An abort is never refused, but says when nobody is there to take the calls back.
func TestAnAbortToAVersionThatIsGone(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		c.startGray(actions.Pipeline, "").ok()
		if g := c.gray(); len(g.Back) != 0 {
			t.Errorf("the old version serves, and a way back is doubted: %+v", g.Back)
		}
		var v directory.View
		c.get(actions.Viewer, "/directory").ok().into(&v)
		for _, one := range v.Services[0].Instances {
			if one.Version == "v2.3.1" {
				c.judge(actions.OnCall, one.ID, one.Address.String(), "", "isolate").ok()
			}
		}
		awaitView(t, c.do.Inner, func(v *directory.View) bool { return len(v.Isolated) == 2 })
		const want = "nobody has v2.3.1: without the gray every call of order-core/prod fails"
		g := c.gray()
		if len(g.Back) != 1 || g.Back[0].Detail != want || !strings.Contains(g.Back[0].Hint, "dispatchctl gray inner step order-core/prod --to 5") || g.Problem != "" {
			t.Errorf("back = %+v, problem %q", g.Back, g.Problem)
		}
		c.page(actions.Viewer, "GET", "/services/order-core", nil).words("Before you take it back: " + want)
		if out := c.abortGray(actions.OnCall, "order-core").applied(); out.Number != 3 || len(out.Warnings) != 1 || out.Warnings[0].Detail != want {
			t.Errorf("abort = %+v", out)
		}
	})
}

// Who throws the switch while a version grows, and who aborts under it, is told.
func TestTheSwitchAndAGray(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		to := func(direct string) actions.RulesApplied {
			t.Helper()
			return c.post(actions.OnCall, "/rules/switch", `{"reason":"rules burn","direct":`+direct+`,"confirm":"cn-hangzhou"}`).applied()
		}
		if out := to("true"); len(out.Warnings) != 0 {
			t.Errorf("no gray runs: %+v", out)
		}
		to("false")
		c.startGray(actions.Pipeline, "").ok()
		out := to("true") // v2.3.0 is one of two that take calls
		if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Detail, "v2.3.0 grows by order-core/prod and takes 5 %; while the switch is thrown it takes what its instances are of all, 1 of 2") {
			t.Errorf("switch = %+v", out)
		}
		c.page(actions.OnCall, "GET", "/services/order-core", nil).words("this changes no call now")
		if out := c.abortGray(actions.OnCall, "order-core").applied(); len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Detail, "the kill switch is thrown") {
			t.Errorf("abort = %+v", out)
		}
	})
}

func TestAStepIsTakenOnce(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", plainRule).ok()
		c.startGray(actions.Pipeline, "").ok()
		for range 2 {
			if out := c.stepGray(actions.Pipeline, `"expect":5`, "Idempotency-Key", "k1").applied(); out.Number != 3 {
				t.Errorf("step = %+v", out)
			}
		}
		if rows, err := c.store.Audit(t.Context(), ledger.AuditFilter{Action: "rules_gray_step"}); err != nil || len(rows) != 1 {
			t.Errorf("audit = %+v, %v", rows, err)
		}
	})
}
