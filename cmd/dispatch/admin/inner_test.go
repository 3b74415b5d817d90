package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/store"
)

const region = "cn-hangzhou"

// services is the registry of most tests.
const services = `instances:
  - {service: order-core, address: "10.0.0.1:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.3.1}
  - {service: order-core, address: "10.0.0.2:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.3.1, weight: 0}
  - {service: order-core, address: "10.0.0.3:8080", cluster: production, region: cn-hangzhou, env: prod, version: v2.3.0}
  - {service: order-core, address: "10.0.0.4:8080", cluster: staging, region: cn-hangzhou, env: test, version: v2.4.0}
  - {service: order-core, address: "10.0.0.5:8080", cluster: lab, region: cn-hangzhou, env: test, version: v2.4.0}
  - {service: pay-core, address: "10.0.0.6:8080", cluster: production, region: cn-hangzhou, env: prod, version: "2.10"}
  - {service: pay-core, address: "10.0.0.7:8080", cluster: production, region: cn-hangzhou, env: prod, version: "2.11"}
`

// orderRule is the sample of the seed: row A21.
const orderRule = `service: order-core
updated: 2026-11-01T09:00:00Z
selector: {cluster: production, region: cn-hangzhou, env: prod}
strategy: {version: v2.3.1, weight: 70}
fallback: {version: v2.3.0, weight: 30, condition: "target-load > 80"}
`

const payRule = `service: pay-core
updated: 2026-11-01T09:00:00Z
selector: {cluster: production, region: cn-hangzhou, env: prod}
strategy: {version: "2.10", weight: 100}
`

// owners give each family to one token; payments take two people.
const owners = `groups:
  - {prefix: order-, owners: [pipeline]}
  - {prefix: pay-, owners: [pipeline, pay-ci], key: [pay-core]}
`

// folder is the files of an input, by name.
func folder(files ...string) []rules.File {
	list := []rules.File{}
	for i := 0; i < len(files); i += 2 {
		list = append(list, rules.File{Name: files[i], Text: files[i+1]})
	}
	return list
}

// hangzhou lets a node keep the directory of a registry until the test ends, and
// counts how often it hears that rules were made.
func (c *control) hangzhou(registry string) *atomic.Int64 {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "services.yaml")
	must(c.t, os.WriteFile(file, []byte(registry), 0o600))
	source, err := discovery.Open("static:"+file, discovery.Options{})
	must(c.t, err)
	dir, err := directory.New(directory.Options{Region: region, Registries: []directory.Registry{{Name: "file", Source: source}}, Memory: c.store.Inner()})
	must(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- dir.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
		source.Close()
	})
	awaitView(c.t, dir, func(v *directory.View) bool { return len(v.Services) == 2 && v.Registries[0].OK })
	return c.keeps(dir)
}

// keeps gives a node a directory.
func (c *control) keeps(in actions.Inner) *atomic.Int64 {
	made := new(atomic.Int64)
	c.do.Region, c.do.Inner, c.do.RulesMade = region, in, func() { made.Add(1) }
	return made
}

// awaitView waits for a view.
func awaitView(t *testing.T, dir actions.Inner, fits func(*directory.View) bool) *directory.View {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		v, changed := dir.View()
		if fits(v) {
			return v
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("the directory has %+v", v)
		}
	}
}

// rulesBody is the body of a write of rules; more is more of it.
func rulesBody(t *testing.T, more string, files ...string) string {
	t.Helper()
	text, err := json.Marshal(folder(files...))
	must(t, err)
	return `{"reason":"because of a test","files":` + string(text) + more + `}`
}

func (c *control) apply(role, more string, files ...string) *reply {
	c.t.Helper()
	return c.post(role, "/rules", rulesBody(c.t, more, files...))
}

func (c *control) lint(more string, files ...string) *reply {
	c.t.Helper()
	return c.post(actions.Pipeline, "/rules/lint", strings.Replace(rulesBody(c.t, more, files...), `"reason":"because of a test",`, "", 1))
}

func (r *reply) applied() (out actions.RulesApplied) {
	r.t.Helper()
	r.ok().into(&out)
	return out
}

func (r *reply) check() (out actions.RulesCheck) {
	r.t.Helper()
	r.ok().into(&out)
	return out
}

func (c *control) rules() (v actions.RulesView) {
	c.t.Helper()
	c.get(actions.Viewer, "/rules").ok().into(&v)
	return v
}

// cells are those of the map, by SERVICE/ENV/CLUSTER.
func (c *control) cells() map[string]actions.MapCell {
	c.t.Helper()
	var m actions.CallMap
	c.get(actions.Viewer, "/directory/map").ok().into(&m)
	found := map[string]actions.MapCell{}
	for _, cell := range m.Cells {
		found[cell.Service+"/"+cell.Env+"/"+cell.Cluster] = cell
	}
	return found
}

// shares are the versions of a cell with their shares, serving and all instances.
func shares(cell actions.MapCell) (text []string) {
	for _, v := range cell.Versions {
		text = append(text, fmt.Sprintf("%s %.2f %d/%d", v.Version, v.Share, v.Serving, v.Instances))
	}
	return text
}

// trailOf is the audit rows of an action, newest first.
func (c *control) trailOf(action string) []ledger.AuditEntry {
	c.t.Helper()
	rows, err := c.store.Audit(c.t.Context(), ledger.AuditFilter{Action: action})
	must(c.t, err)
	return rows
}

func TestANodeWithoutRegistrySaysSo(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	for _, path := range []string{"/directory", "/directory/map"} {
		if p := c.get(actions.Viewer, path).refused(404, "no_registry"); !strings.Contains(p.Hint, "--registry NAME=URL") {
			t.Errorf("%s: the hint is %q", path, p.Hint)
		}
	}
	if p := c.get(actions.Viewer, "/rules").refused(404, "no_region"); !strings.Contains(p.Hint, "--region") {
		t.Errorf("the hint is %q", p.Hint)
	}
	c.do.Region = region
	if v := c.rules(); v.Number != 0 || v.Region != region || v.Set.Rules == nil {
		t.Errorf("rules = %+v", v)
	}
	c.lint("", "order.yaml", orderRule).refused(404, "no_registry")
	c.apply(actions.Pipeline, "", "order.yaml", orderRule).refused(404, "no_registry")
	c.keeps(new(drawn))
	c.get(actions.Viewer, "/directory").refused(503, "directory_starting")
}

// A22, A23, A24: form, values and combination, each with file and line, all at once.
func TestRulesAreCheckedAgainstTheDirectory(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		for name, test := range map[string]struct {
			files []string
			want  []string // file:line: path of each problem, and a part of its text
		}{
			"A22 form": {[]string{"a.yaml", strings.Replace(orderRule, "v2.3.1", "2.10", 1), "b.yaml", strings.Replace(payRule, "selector", "selectr", 1)},
				[]string{"a.yaml:4 without quotes", "b.yaml:3 unknown"}},
			"A23 a value that nobody has": {[]string{"a.yaml", strings.Replace(orderRule, "cn-hangzhou", "cn-hangzhuo", 1)}, []string{"a.yaml:3 cn-hangzhuo"}},
			// The accident of seed 000: the region exists elsewhere, and nobody here is in it.
			"A24 the wrong region": {[]string{"a.yaml", strings.Replace(orderRule, "cn-hangzhou", "cn-shanghai", 1)}, []string{"a.yaml:3 cn-shanghai"}},
			"A24 legal and matching nothing": {[]string{"a.yaml", strings.Replace(orderRule, "env: prod", "env: test", 1)},
				[]string{"a.yaml:4 matches 0 instances", "a.yaml:5 matches 0 instances"}},
			"a service that nobody runs": {[]string{"a.yaml", strings.Replace(orderRule, "order-core", "order-cora", 1)}, []string{"a.yaml:1 order-cora"}},
			"T51 a wildcard":             {[]string{"a.yaml", strings.Replace(orderRule, "env: prod", `env: "*"`, 1)}, []string{"a.yaml:3 wildcards"}},
		} {
			for _, answer := range []*reply{c.lint("", test.files...), c.apply(actions.Pipeline, "", test.files...)} {
				p := answer.refused(422, "invalid_rules")
				for _, want := range test.want {
					at, part, _ := strings.Cut(want, " ")
					if !slices.ContainsFunc(p.Problems, func(one fault.Problem) bool {
						return fmt.Sprintf("%s:%d", one.File, one.Line) == at && strings.Contains(one.String(), part)
					}) {
						t.Errorf("%s: no problem %q in %+v", name, want, p.Problems)
					}
				}
			}
		}
		if v := c.rules(); v.Number != 0 {
			t.Errorf("something was published: %+v", v)
		}
	})
}

// A version that died must not keep anybody from publishing another rule, least of
// all a way back: what callers follow already only warns.
func TestARuleThatWentStaleBlocksNobody(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule, "pay.yaml", payRule).ok()
		v, _ := c.do.Inner.View()
		without := *v
		without.Services = slices.DeleteFunc(slices.Clone(v.Services), func(s directory.Service) bool { return s.Name == "pay-core" })
		d := new(drawn)
		d.view.Store(&without)
		c.keeps(d)
		back := strings.Replace(orderRule, "weight: 70", "weight: 0", 1)
		check := c.lint("", "order.yaml", back, "pay.yaml", payRule).check()
		if len(check.Warnings) == 0 || check.Warnings[0].File != "pay.yaml" {
			t.Errorf("warnings %+v", check.Warnings)
		}
		c.apply(actions.Pipeline, "", "order.yaml", back, "pay.yaml", payRule).ok()
		c.apply(actions.Pipeline, "", "order.yaml", back, "pay.yaml", strings.Replace(payRule, "T09", "T11", 1)).refused(422, "invalid_rules")
	})
}

func TestRulesArePublishedForEverybodyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		made := c.hangzhou(services)
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.0 0.50 1/1", "v2.3.1 0.50 1/2"}) {
			t.Errorf("without rules the shares are %q", got)
		}
		check := c.lint("", "order.yaml", orderRule).check()
		if check.Base != 0 || len(check.Changes) != 1 || check.Changes[0].Kind != rules.Added || len(check.Needs) != 0 || made.Load() != 0 {
			t.Errorf("check = %+v", check)
		}
		out := c.apply(actions.Pipeline, "", "order.yaml", orderRule).applied()
		if out.Number != 1 || !reflect.DeepEqual(out.Changes, check.Changes) || made.Load() != 1 {
			t.Errorf("applied = %+v, made %d times", out, made.Load())
		}
		// What callers get: signed, of this stream, and the same rules.
		s, err := c.store.Release(t.Context(), rules.Stream(region), 1)
		must(t, err)
		set, err := rules.Verify(rules.Signed{Number: 1, Manifest: s.Manifest, Signature: s.Signature}, c.keys.Trust(), deployment, region)
		must(t, err)
		v := c.rules()
		if got, want := jsonOf(t, v.Set), jsonOf(t, set); got != want || v.Number != 1 || v.By != actions.Pipeline || v.Reason != "because of a test" {
			t.Errorf("rules = %+v", v)
		}
		cells := c.cells()
		if got := shares(cells["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.1 0.70 1/2", "v2.3.0 0.30 1/1"}) {
			t.Errorf("with the rule the shares are %q", got)
		}
		for name, want := range map[string]bool{"order-core/prod/production": true, "order-core/test/staging": false, "order-core/test/lab": false, "pay-core/prod/production": false} {
			if cell, known := cells[name]; !known || (cell.Rule != nil) != want || cell.Problem != "" {
				t.Errorf("%s = %+v", name, cell)
			}
		}
		rows := c.trailOf("rules_apply")
		if len(rows) != 1 || rows[0].Actor != actions.Pipeline || rows[0].Stream != rules.Stream(region) || rows[0].Release != 1 || !strings.Contains(string(rows[0].Details), "v2.3.1 70") {
			t.Errorf("audit = %+v", rows)
		}
		// The release of edges has nothing to do with it.
		if rollout, err := c.store.Rollout(t.Context(), rules.Stream(region)); err != nil || rollout.Canary != "" || rollout.All != 1 || c.current() != 1 {
			t.Errorf("rollout = %+v, %v, edges serve %d", rollout, err, c.current())
		}

		if again := c.apply(actions.Pipeline, "", "order.yaml", orderRule).applied(); again.Number != 0 || len(again.Changes) != 0 || made.Load() != 1 {
			t.Errorf("the same rules again: %+v", again)
		}
		gray := strings.Replace(strings.Replace(orderRule, "weight: 70", "weight: 0", 1), "T09", "T10", 1)
		if next := c.apply(actions.Pipeline, `,"base":1`, "order.yaml", gray).applied(); next.Number != 2 {
			t.Errorf("next = %+v", next)
		}
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.0 1.00 1/1", "v2.3.1 0.00 0/1"}) && !slices.Equal(got, []string{"v2.3.0 1.00 1/1", "v2.3.1 0.00 1/2"}) {
			t.Errorf("A36, weight 0: the shares are %q", got)
		}
		var stale ledger.StaleBase
		p := c.apply(actions.Pipeline, `,"base":1`, "order.yaml", orderRule).refused(409, "stale_base")
		must(t, json.Unmarshal(p.Data, &stale))
		if stale != (ledger.StaleBase{Base: 1, Head: 2}) || !strings.Contains(p.Hint, "dispatchctl rules diff") {
			t.Errorf("stale = %+v, hint %q", stale, p.Hint)
		}
		c.lint(`,"base":1`, "order.yaml", orderRule).refused(409, "stale_base")
	})
}

// A32: the newest of two rules counts; lint and map name the other one.
// A database that was restored stands below what callers follow: the next rules pass
// them, or callers would take none, nor the kill switch. A number that nobody can
// have jumped to is no reason to refuse.
func TestRulesPassWhatCallersFollow(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		heard := uint64(41)
		c.do.RulesHeard = func() uint64 { return heard }
		if out := c.apply(actions.Pipeline, "", "order.yaml", orderRule).applied(); out.Number != 42 {
			t.Errorf("after callers follow 41, the next is %d", out.Number)
		}
		heard = 1 << 50
		if out := c.post(actions.OnCall, "/rules/switch", `{"reason":"rules burn","direct":true,"confirm":"`+region+`"}`).applied(); out.Number != 43 {
			t.Errorf("after a caller claims %d, the next is %d", heard, out.Number)
		}
	})
}

func TestAShadowedRuleIsNamed(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.hangzhou(services)
	newer := strings.Replace(strings.Replace(orderRule, "T09", "T11", 1), "weight: 70", "weight: 10", 1)
	check := c.lint("", "a.yaml", orderRule, "b.yaml", newer).check()
	if len(check.Warnings) != 1 || check.Warnings[0].File != "a.yaml" {
		t.Errorf("warnings = %+v", check.Warnings)
	}
	c.apply(actions.Pipeline, "", "a.yaml", orderRule, "b.yaml", newer).ok()
	cell := c.cells()["order-core/prod/production"]
	if cell.Rule == nil || cell.Rule.File != "b.yaml" || !slices.Equal(cell.Shadowed, []string{"order-core/prod@2026-11-01T09:00:00Z"}) {
		t.Errorf("cell = %+v", cell)
	}
}

// T30: what the files lack is an error until somebody says that it shall go.
func TestRulesAreNotLostByAccident(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule, "pay.yaml", payRule).ok()
		for name, files := range map[string][]string{"no files": nil, "one is gone": {"order.yaml", orderRule}} {
			p := c.apply(actions.Pipeline, "", files...).refused(422, "rules_removed")
			if len(p.Problems) != 2-len(files)/2 || p.Problems[len(p.Problems)-1].Path != "pay-core/prod" || !strings.Contains(p.Hint, "--delete") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		// One that hides another is missed as well: without it the other would count.
		newer := strings.Replace(strings.Replace(orderRule, "T09", "T11", 1), "weight: 70", "weight: 10", 1)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule, "order-new.yaml", newer, "pay.yaml", payRule).ok()
		if p := c.apply(actions.Pipeline, "", "order.yaml", orderRule, "pay.yaml", payRule).refused(422, "rules_removed"); len(p.Problems) != 1 || p.Problems[0].Path != "order-core/prod" {
			t.Errorf("the newer one is gone: %+v", p)
		}
		c.apply(actions.Pipeline, `,"delete":true`, "order.yaml", orderRule, "pay.yaml", payRule).ok()
		if v := c.rules(); v.Number != 3 || len(v.Set.Rules) != 2 {
			t.Errorf("rules = %+v", v)
		}
		if out := c.apply(actions.Pipeline, `,"delete":true`).applied(); out.Number != 4 || len(out.Changes) != 2 {
			t.Errorf("applied = %+v", out)
		}
		if v := c.rules(); v.Number != 4 || v.Set.Rules == nil || len(v.Set.Rules) != 0 {
			t.Errorf("rules = %+v", v)
		}
	})
}

// A31: who owns a group changes its rules, nobody else.
func TestRulesBelongToTheirOwners(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		_, secret, err := c.store.CreateToken(t.Context(), ledger.NewToken{Type: "api", Name: "pay-ci", Role: actions.Pipeline}, ledger.Change{By: "test", Reason: "test"})
		must(t, err)
		c.tokens["pay-ci"] = secret
		files := []string{"groups.yaml", owners, "order.yaml", orderRule, "pay.yaml", payRule}
		c.apply(actions.Administrator, "", files...).ok()
		edited := slices.Clone(files)
		edited[3] = strings.Replace(orderRule, "weight: 70", "weight: 10", 1)
		p := c.apply("pay-ci", "", edited...).refused(403, "not_your_group")
		if len(p.Problems) != 1 || p.Problems[0].Path != "order-core" {
			t.Errorf("problems = %+v", p.Problems)
		}
		if rows := c.trailOf("rules_refused"); len(rows) != 1 || rows[0].Actor != "pay-ci" || !strings.Contains(string(rows[0].Details), "not_your_group") {
			t.Errorf("audit = %+v", rows)
		}
		if cell := c.cells()["pay-core/prod/production"]; cell.Group != "pay-" || !cell.Key {
			t.Errorf("cell = %+v", cell)
		}
		if out := c.apply(actions.Pipeline, "", edited...).applied(); out.Number != 2 {
			t.Errorf("by its owner: %+v", out)
		}
	})
}

// A33: a change of a key service takes a second person, who signs exactly that change.
func TestKeyServicesTakeTwoPeople(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.do.FourEyes = true
		c.hangzhou(services)
		files := []string{"groups.yaml", owners, "pay.yaml", payRule}
		check := c.lint("", files...).check()
		if !slices.Contains(check.Needs, "pay-core") || check.Approved != "" {
			t.Errorf("check = %+v", check)
		}
		var waiting actions.RulesCheck
		p := c.apply(actions.Administrator, "", files...).refused(403, "approval_required")
		must(t, json.Unmarshal(p.Data, &waiting))
		if waiting.Digest != check.Digest || !strings.Contains(p.Hint, "dispatchctl rules approve") {
			t.Errorf("refusal = %+v", p)
		}
		sign := func(role, digest string, files ...string) *reply {
			return c.post(role, "/rules/approve", rulesBody(t, `,"digest":"`+digest+`"`, files...))
		}
		sign(actions.Approver, "zz", files...).refused(422, "bad_digest")
		other := []string{files[0], files[1], files[2], strings.Replace(payRule, "2.10", "2.11", 1)}
		sign(actions.Approver, check.Digest, other...).refused(409, "other_digest")
		sign(actions.Approver, c.lint("", "order.yaml", orderRule).check().Digest, "order.yaml", orderRule).refused(409, "no_approval_needed")
		// A signature of one's own does not count.
		sign(actions.Administrator, check.Digest, files...).ok()
		c.apply(actions.Administrator, "", files...).refused(403, "self_approval")
		// Nor does that of a token that one made.
		var made struct{ Secret string }
		c.post(actions.Administrator, "/tokens", `{"reason":"because of a test","name":"second-hand","role":"approver"}`).ok().into(&made)
		c.tokens["second-hand"] = made.Secret
		sign("second-hand", check.Digest, files...).ok()
		c.apply(actions.Administrator, "", files...).refused(403, "self_approval")
		if signed := sign(actions.Approver, check.Digest, files...).check(); signed.Approved != actions.Approver {
			t.Errorf("signed = %+v", signed)
		}
		sign(actions.Approver, check.Digest, files...).refused(409, "already_approved")
		if again := c.lint("", files...).check(); again.Approved != actions.Approver {
			t.Errorf("lint after the signature: %+v", again)
		}
		// Another change is not signed.
		c.apply(actions.Administrator, "", other...).refused(403, "approval_required")
		if out := c.apply(actions.Administrator, "", files...).applied(); out.Number != 1 {
			t.Errorf("applied = %+v", out)
		}
		// The same files after another release are another change.
		sign(actions.Approver, c.lint("", other...).check().Digest, other...).ok()
		c.apply(actions.Pipeline, "", append(slices.Clone(files), "order.yaml", orderRule)...).ok()
		c.apply(actions.Pipeline, `,"delete":true`, other...).refused(403, "approval_required")
		if rows := c.trailOf("rules_approve"); len(rows) != 4 || rows[1].Actor != actions.Approver || rows[1].Target != rules.Stream(region) || !strings.Contains(string(rows[1].Details), check.Digest) {
			t.Errorf("audit = %+v", rows)
		}
		if verdict, err := c.store.VerifyAudit(t.Context()); err != nil || verdict.Bad != 0 {
			t.Errorf("the trail: %+v, %v", verdict, err)
		}
	})
}

func TestOnePersonPublishesWhereFourEyesAreOff(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.hangzhou(services)
	out := c.apply(actions.Administrator, "", "groups.yaml", owners, "pay.yaml", payRule).applied()
	if out.Number != 1 || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Detail, "pay-core") {
		t.Errorf("applied = %+v", out)
	}
}

// A20: rules come from a pipeline; a hand that tries is refused and seen, and cannot
// fill the trail.
func TestAHandThatWritesRulesIsSeen(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		for range 25 {
			c.apply(actions.ReleaseEngineer, "", "order.yaml", orderRule).refused(403, "role")
		}
		c.apply(actions.Viewer, "", "order.yaml", orderRule).refused(403, "role")
		rows := c.trailOf("rules_refused")
		if len(rows) != 11 || rows[0].Actor != actions.Viewer || rows[1].Actor != actions.ReleaseEngineer || rows[0].Target != rules.Stream(region) ||
			!strings.Contains(string(rows[0].Details), `"code":"role"`) {
			t.Errorf("%d rows: %+v", len(rows), rows)
		}
		c.apply("", "", "order.yaml", orderRule).refused(401, "no_token")
		if out := c.apply(actions.Pipeline, "", "order.yaml", orderRule).applied(); out.Number != 1 {
			t.Errorf("the same file by the pipeline: %+v", out)
		}
	})
}

func TestTheKillSwitchIsThrownAndTakenBack(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		made := c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule).ok()
		flip := func(role, body string, headers ...string) *reply {
			return c.post(role, "/rules/switch", `{"reason":"rules burn",`+body+`}`, headers...)
		}
		p := flip(actions.OnCall, `"direct":true`).refused(422, "confirm_mismatch")
		if string(p.Data) != `{"confirm":"`+region+`"}` {
			t.Errorf("what must be typed: %s", p.Data)
		}
		flip(actions.OnCall, `"direct":true,"confirm":"cn-shanghai"`).refused(422, "confirm_mismatch")
		on := flip(actions.OnCall, `"direct":true,"confirm":"CN-Hangzhou"`, "Idempotency-Key", "k1").applied()
		if on.Number != 2 || len(on.Changes) != 1 || on.Changes[0].Kind != rules.Switched || made.Load() != 2 {
			t.Errorf("on = %+v", on)
		}
		if again := flip(actions.OnCall, `"direct":true,"confirm":"CN-Hangzhou"`, "Idempotency-Key", "k1").applied(); again.Number != 2 || made.Load() != 2 {
			t.Errorf("the same key again: %+v", again)
		}
		if again := flip(actions.OnCall, `"direct":true,"confirm":"cn-hangzhou"`).applied(); again.Number != 0 {
			t.Errorf("on again: %+v", again)
		}
		var m actions.CallMap
		c.get(actions.Viewer, "/directory/map").ok().into(&m)
		cell := c.cells()["order-core/prod/production"]
		if !m.Direct || m.Number != 2 || cell.Rule == nil || !slices.Equal(shares(cell), []string{"v2.3.0 0.50 1/1", "v2.3.1 0.50 1/2"}) {
			t.Errorf("the map is direct: %v, cell %+v", m.Direct, cell)
		}
		// Rules that are published meanwhile keep the switch, and the switch keeps the rules.
		c.apply(actions.Pipeline, "", "order.yaml", orderRule, "pay.yaml", payRule).ok()
		if v := c.rules(); !v.Set.Direct || len(v.Set.Rules) != 2 {
			t.Errorf("rules = %+v", v)
		}
		if off := flip(actions.BreakGlass, `"direct":false,"confirm":"cn-hangzhou"`).applied(); off.Number != 4 {
			t.Errorf("off = %+v", off)
		}
		if v := c.rules(); v.Set.Direct || len(v.Set.Rules) != 2 {
			t.Errorf("rules = %+v", v)
		}
		c.do.Env = "prod"
		flip(actions.OnCall, `"direct":true,"confirm":"cn-hangzhou"`).refused(422, "confirm_mismatch")
		flip(actions.OnCall, `"direct":true,"confirm":"prod/cn-hangzhou"`).ok()
		if rows := c.trailOf("rules_switch"); len(rows) != 3 || rows[2].Actor != actions.OnCall || rows[1].Actor != actions.BreakGlass {
			t.Errorf("audit = %+v", rows)
		}
	})
}

// outrun is a ledger to which somebody else writes just before a release of rules.
type outrun struct {
	*store.Store
	first *atomic.Pointer[func()]
}

func (o outrun) Append(ctx context.Context, w ledger.Write) error {
	if f := o.first.Swap(nil); f != nil && rules.IsStream(w.Signed.Stream) {
		(*f)()
	}
	return o.Store.Append(ctx, w)
}

// Of two who publish at once one is told; an emergency is tried again.
func TestRulesThatComeFirstAreNotOverwritten(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			first := new(atomic.Pointer[func()])
			c := empty(t, kind, func(s *store.Store) actions.Ledger { return outrun{s, first} })
			c.hangzhou(services)
			other := c.sibling()
			other.hangzhou(services)
			before := func(f func()) { first.Store(&f) }
			before(func() { other.apply(actions.Pipeline, "", "pay.yaml", payRule).ok() })
			p := c.apply(actions.Pipeline, "", "order.yaml", orderRule).refused(409, "stale_base")
			if !strings.Contains(p.Hint, "dispatchctl rules diff") {
				t.Errorf("hint = %q", p.Hint)
			}
			before(func() { other.apply(actions.Pipeline, "", "pay.yaml", payRule, "order.yaml", orderRule).ok() })
			out := c.post(actions.OnCall, "/rules/switch", `{"reason":"rules burn","direct":true,"confirm":"cn-hangzhou"}`).applied()
			if v := c.rules(); out.Number != 3 || v.Number != 3 || len(v.Set.Rules) != 2 || !v.Set.Direct {
				t.Errorf("switch = %+v, rules %+v", out, v)
			}
		})
	}
}

// drawn is a directory whose view a test draws.
type drawn struct {
	view     atomic.Pointer[directory.View]
	rechecks atomic.Int64
}

func (d *drawn) View() (*directory.View, <-chan struct{}) { return d.view.Load(), nil }
func (d *drawn) Recheck()                                 { d.rechecks.Add(1) }

func fingerprint(id, address string, started time.Time) directory.Fingerprint {
	a, err := discovery.ParseAddress(address)
	if err != nil {
		panic(err)
	}
	return directory.Fingerprint{ID: id, Address: a, Started: started}
}

// verdicts are those that directories follow, by ID.
func (c *control) verdicts() map[string]directory.Verdict {
	c.t.Helper()
	all, err := c.store.Inner().Verdicts(c.t.Context())
	must(c.t, err)
	found := map[string]directory.Verdict{}
	for _, v := range all {
		found[v.ID] = v
	}
	return found
}

func (c *control) judge(role, id, address, started, do string) *reply {
	c.t.Helper()
	body := fmt.Sprintf(`{"reason":"because of a test","service":"order-core","id":%q,"address":%q,"do":%q`, id, address, do)
	if started != "" {
		body += `,"started":"` + started + `"`
	}
	return c.post(role, "/directory/verdicts", body+"}")
}

// A19: an entry whose fingerprint does not fit waits for a person, who decides about
// what they saw and nothing else.
func TestTheQueueIsDecidedByPeople(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		const started = "2026-11-30T08:00:00.123456Z"
		at := must2(time.Parse(time.RFC3339, started))(t)
		d := new(drawn)
		d.view.Store(&directory.View{Region: region, Queue: []directory.Suspect{
			{Fingerprint: fingerprint("ghost", "10.0.0.9:8080", at), Service: "order-core", Why: "started"},
			{Fingerprint: fingerprint("other", "10.0.0.8:8080", at), Service: "order-core", Why: "started"}}})
		c.keeps(d)
		for name, r := range map[string]*reply{
			"restarted since":  c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", "2026-11-30T08:00:01Z", "accept"),
			"moved since":      c.judge(actions.OnCall, "ghost", "10.0.0.7:8080", started, "refuse"),
			"not in the queue": c.judge(actions.OnCall, "gone", "10.0.0.9:8080", started, "accept"),
			"nothing decided":  c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, "lift"),
		} {
			if p := r.refused(409, "changed"); !strings.Contains(p.Hint, "/api/v1/directory") {
				t.Errorf("%s: the hint is %q", name, p.Hint)
			}
		}
		c.judge(actions.OnCall, "ghost", "nowhere", started, "accept").refused(422, "bad_address")
		c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, "think").refused(422, "bad_request")
		if len(c.verdicts()) != 0 || d.rechecks.Load() != 0 {
			t.Error("something was decided")
		}
		c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, "accept").ok()
		c.judge(actions.BreakGlass, "other", "10.0.0.8:8080", started, "refuse").ok()
		found := c.verdicts()
		if v := found["ghost"]; !v.Accept || v.Refuse || v.Isolate || v.By != actions.OnCall || v.Reason != "because of a test" || !v.Started.Equal(at) || v.Service != "order-core" {
			t.Errorf("accepted: %+v", v)
		}
		if v := found["other"]; !v.Refuse || v.Accept || d.rechecks.Load() != 2 {
			t.Errorf("refused: %+v, %d rechecks", v, d.rechecks.Load())
		}
		c.judge(actions.OnCall, "other", "10.0.0.8:8080", started, "lift").ok()
		if _, still := c.verdicts()["other"]; still {
			t.Error("a lifted verdict still counts")
		}
		// Isolation stands above what was decided, which comes back.
		c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, "isolate").ok()
		if v := c.verdicts()["ghost"]; !v.Isolate || !v.Accept {
			t.Errorf("isolated: %+v", v)
		}
		// Also when the entry waits in the queue meanwhile, and somebody decides there.
		for do, says := range map[string]func(directory.Verdict) bool{"refuse": func(v directory.Verdict) bool { return v.Refuse }, "accept": func(v directory.Verdict) bool { return v.Accept }} {
			c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, do).ok()
			if v := c.verdicts()["ghost"]; !v.Isolate || !says(v) {
				t.Errorf("isolated and then %s: %+v", do, v)
			}
		}
		c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, "accept").ok()
		c.judge(actions.OnCall, "ghost", "10.0.0.9:8080", started, "lift").ok()
		if v := c.verdicts()["ghost"]; v.Isolate || !v.Accept {
			t.Errorf("isolation lifted: %+v", v)
		}
		c.judge(actions.OnCall, "other", "10.0.0.8:8080", started, "refuse").ok()
		c.judge(actions.OnCall, "other", "10.0.0.8:8080", started, "isolate").ok()
		c.judge(actions.OnCall, "other", "10.0.0.8:8080", started, "lift").ok()
		if v := c.verdicts()["other"]; v.Isolate || !v.Refuse {
			t.Errorf("refused, isolated and lifted: %+v", v)
		}
		rows := c.trailOf("instance_isolate")
		if len(rows) != 2 || rows[1].Actor != actions.OnCall || rows[1].Target != "order-core/ghost" || !strings.Contains(string(rows[1].Details), "10.0.0.9:8080") {
			t.Errorf("audit = %+v", rows)
		}
		// What a registry calls an instance may be longer than the id of a paper.
		long := strings.Repeat("长", 150) + " \n"
		d.view.Store(&directory.View{Queue: []directory.Suspect{{Fingerprint: fingerprint(long, "10.0.0.9:8080", at), Service: "order-core"}}})
		body := jsonOf(t, map[string]any{"reason": "because of a test", "service": "order-core", "id": long, "address": "10.0.0.9:8080", "started": started, "do": "accept"})
		c.post(actions.OnCall, "/directory/verdicts", body).ok()
		if v := c.verdicts()[long]; !v.Accept {
			t.Errorf("verdict about a long id: %+v", v)
		}
	})
}

// T22, T53: an isolated instance takes nothing until it is lifted, whatever it registers.
func TestAnIsolatedInstanceTakesNothing(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule).ok()
		var v directory.View
		c.get(actions.Viewer, "/directory").ok().into(&v)
		i := slices.IndexFunc(v.Services[0].Instances, func(i directory.Instance) bool { return i.Version == "v2.3.0" })
		one := v.Services[0].Instances[i]
		c.judge(actions.OnCall, one.ID, one.Address.String(), "", "isolate").ok()
		of := func(v *directory.View) *route.Scale { return v.Services[0].Instances[i].Scale }
		awaitView(t, c.do.Inner, func(v *directory.View) bool { return of(v) != nil && of(v).Thousandths == 0 && len(v.Isolated) == 1 })
		if got := shares(c.cells()["order-core/prod/production"]); !slices.Equal(got, []string{"v2.3.1 1.00 1/2", "v2.3.0 0.00 0/1"}) {
			t.Errorf("the shares are %q", got)
		}
		c.judge(actions.OnCall, one.ID, one.Address.String(), "", "lift").ok()
		awaitView(t, c.do.Inner, func(v *directory.View) bool { return of(v) == nil && len(v.Isolated) == 0 })
	})
}

// A47: a call of before a restart of everything is made again from what was kept.
func TestACallIsExplainedAfterARestart(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.hangzhou(services)
		c.apply(actions.Pipeline, "", "order.yaml", orderRule).ok()
		var d directory.View
		c.get(actions.Viewer, "/directory").ok().into(&d)
		var list []discovery.Instance
		for _, one := range d.Services[0].Instances {
			list = append(list, one.Instance)
		}
		// As a caller in production compiles and picks.
		home := discovery.Coordinates{Cluster: "production", Region: region, Env: "prod", Version: "v1"}
		view := route.View{Key: "gateway:1", Service: "order-core", Home: home, Digest: "sha-1", Number: 1}
		table := route.Compile(route.Input{Service: "order-core", Home: home, Instances: list, Rules: c.rules().Set.Rules, Number: 1})
		batch := wire.Batch{Caller: "gateway", Views: []route.View{view}}
		record := func(id string, draw uint64, lane route.Query, change func(*wire.Record)) {
			r := wire.Record{ID: id, At: time.Now().UTC(), Caller: "gateway", Service: "order-core", View: view.Key, Lane: lane, Draw: draw, Reason: route.ByNobody}
			if choice, err := table.Pick(lane, draw); err == nil {
				r.Reason, r.Chosen = choice.Reason, choice.Instance.Address.String()
			}
			if change != nil {
				change(&r)
			}
			batch.Records = append(batch.Records, r)
		}
		record("main", 5, route.Query{}, nil)
		record("fallback", 1<<64-5, route.Query{}, nil)
		record("keyed", 1<<64-5, route.Query{Key: "d-1001"}, nil)
		record("nobody", 7, route.Query{Env: "pre"}, nil)
		record("differs", 5, route.Query{}, func(r *wire.Record) { r.Chosen = "10.9.9.9:1" })
		// Four tenths of the main version's part had moved: without them draw and version do not fit.
		hot := view
		hot.Key, hot.Shift, hot.Load = "gateway:4", map[string]int{"prod": 4}, map[string]float64{"prod": 92.5}
		batch.Views = append(batch.Views, hot)
		table = route.Compile(route.Input{Service: "order-core", Home: home, Instances: list, Rules: c.rules().Set.Rules, Number: 1, Shift: hot.Shift, Load: hot.Load})
		record("shifted", 1<<63, route.Query{}, func(r *wire.Record) { r.View = hot.Key })
		record("override", 5, route.Query{}, func(r *wire.Record) { r.Reason, r.View = route.ByOverride, "" })
		record("breaker", 0, route.Query{}, func(r *wire.Record) { r.Reason, r.View, r.Chosen = route.ByBreaker, "", "" })
		// All of a version were put out; the table's other inputs are as before.
		bad := view
		bad.Key, bad.Scale = "gateway:5", map[string]route.Scale{}
		for _, in := range list {
			bad.Scale[in.ID] = route.Scale{Why: route.Ejected}
		}
		batch.Views = append(batch.Views, bad)
		table = route.Compile(route.Input{Service: "order-core", Home: home, Instances: list, Rules: c.rules().Set.Rules, Number: 1, Scale: bad.Scale})
		record("panic", 5, route.Query{}, func(r *wire.Record) { r.View, r.Outcome = bad.Key, "silent" })
		record("no-view", 5, route.Query{}, func(r *wire.Record) { r.View = "gone" })
		lost, foreign := view, view
		lost.Key, lost.Digest, foreign.Key, foreign.Number = "gateway:2", "sha-2", "gateway:3", 99
		batch.Views = append(batch.Views, lost, foreign)
		record("no-list", 5, route.Query{}, func(r *wire.Record) { r.View = lost.Key })
		record("no-rules", 5, route.Query{}, func(r *wire.Record) { r.View = foreign.Key })
		must(t, c.store.Inner().SaveRecords(t.Context(), batch, map[string][]discovery.Instance{"sha-1": list}))
		// The rules move on, and the node starts anew.
		c.apply(actions.Pipeline, `,"delete":true`).ok()
		again := c.sibling()
		again.do.Region = region
		for id, want := range map[string]string{"main": "rule", "FALLBACK": "fallback", "keyed": "", "nobody": "nobody", "shifted": "fallback", "panic": "rule"} {
			var got actions.CallExplained
			again.get(actions.OnCall, "/calls/"+id).ok().into(&got)
			if got.Standing != actions.CallReproduced || got.Explanation == nil || got.Explanation.Chosen != got.Record.Chosen ||
				want != "" && string(got.Explanation.Reason) != want || len(got.Explanation.Steps) == 0 {
				t.Errorf("%s: %+v\n%+v", id, got, got.Explanation)
			}
			if x := got.Explanation; id == "shifted" && (x == nil || x.Shift == nil || x.Shift.Tenths != 4 || *x.Shift.Load != 92.5 || x.Sides[0].Weight != 70 || x.Sides[0].Effective != 0.42) {
				t.Errorf("explain does not say what the condition moved: %+v", x)
			}
			if id == "panic" && (!got.Explanation.Panic || got.Record.Outcome != "silent") {
				t.Errorf("explain does not say that all were out: %+v", got)
			}
			if strings.Contains(jsonOf(t, got), "d-1001") {
				t.Errorf("%s shows the key of the lane", id)
			}
		}
		for id, want := range map[string]string{"differs": actions.CallDiffers, "override": actions.CallConfigured, "breaker": actions.CallRefused, "no-view": actions.CallExpired,
			"no-list": actions.CallExpired, "no-rules": actions.CallExpired} {
			var got actions.CallExplained
			again.get(actions.OnCall, "/calls/"+id).ok().into(&got)
			if got.Standing != want || (got.Explanation != nil) != (want == actions.CallDiffers) || got.Record.ID != id {
				t.Errorf("%s: %+v, want %s", id, got, want)
			}
		}
		if p := again.get(actions.OnCall, "/calls/none").refused(404, "unknown_call"); !strings.Contains(p.Hint, "code asks for it") {
			t.Errorf("hint = %q", p.Hint)
		}
	})
}
