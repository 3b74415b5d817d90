package rules

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// grown is the sample's rule without its fallback, and a gray of v2.4.0 beside it.
func grown(t testing.TB, share int) (Set, Gray) {
	t.Helper()
	g := Gray{Service: "order-core", Env: "prod", Version: "v2.4.0", Share: share, Steps: DefaultSteps(), Since: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), By: "eng"}
	s, err := plainSet(t, "v2.3.1", "").WithGray(g)
	if err != nil {
		t.Fatal(err)
	}
	return s, g
}

// plainSet is the sample's rule with another main version, and what its fallback is.
func plainSet(t testing.TB, main, fallback string) Set {
	t.Helper()
	text := strings.Replace(sample, "v2.3.1, weight: 70", main+", weight: 100", 1)
	text = text[:strings.Index(text, "fallback:")] + fallback
	return mustParse(t, File{"order-core.yaml", text}, File{"groups.yaml", groupsText})
}

// codeOf is the code of an error, empty without one.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.CodeOf(err)
}

func TestEffectiveRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ share, old int }{{5, 95}, {20, 80}, {50, 50}, {100, 0}} {
		s, g := grown(t, c.share)
		before := string(encode(t, s))
		got := s.Effective()
		r := got.Rules[0]
		if (r.Strategy != Strategy{"v2.4.0", c.share}) || r.Fallback == nil || *r.Fallback != (Fallback{Version: "v2.3.1", Weight: c.old}) || !reflect.DeepEqual(*r.Gray, g) {
			t.Errorf("at %d: %+v, fallback %+v", c.share, r, r.Fallback)
		}
		if len(got.Grays) > 0 || !reflect.DeepEqual(got.Effective(), got) {
			t.Errorf("at %d it is put in twice: %+v", c.share, got)
		}
		if string(encode(t, s)) != before {
			t.Errorf("at %d the set itself was changed", c.share)
		}
	}
	s, _ := grown(t, 20)
	if id := s.Effective().Rules[0].ID(); id != "order-core/prod@2026-11-30T09:00:00Z+20%" {
		t.Errorf("the rule's name is %s", id)
	}
}

// The rule that counts grows, not one that it shadows.
func TestGrayIsOfTheRuleThatCounts(t *testing.T) {
	t.Parallel()
	s, _ := grown(t, 5)
	old := s.Rules[0]
	old.Updated, old.File = old.Updated.Add(-time.Hour), "old.yaml"
	s.Rules = []Rule{old, s.Rules[0]}
	for _, r := range s.Effective().Rules {
		if counts := r.File == "order-core.yaml"; counts != (r.Gray != nil) {
			t.Errorf("%s has the gray %v", r.ID(), r.Gray)
		}
	}
}

func TestGraySteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ share, step, next int }{{5, 1, 20}, {20, 2, 50}, {50, 3, 100}, {100, 4, 0}} {
		if g := (Gray{Share: c.share, Steps: DefaultSteps()}); g.Step() != c.step || g.Next() != c.next {
			t.Errorf("at %d: step %d, next %d", c.share, g.Step(), g.Next())
		}
	}
}

func TestWithGrayRefuses(t *testing.T) {
	t.Parallel()
	const serving, standing, watched = "fallback: {version: v2.3.0, weight: 30}\n", "fallback: {version: v2.3.0, weight: 0}\n",
		"fallback: {version: v2.3.0, weight: 0, condition: target-load > 80}\n"
	for _, c := range []struct {
		name, fallback string
		edit           func(*Gray)
		code, path     string
	}{
		{"a version beside one", "", func(*Gray) {}, "", ""},
		{"a fallback that only stands by", standing, func(*Gray) {}, "", ""},
		{"a fallback that serves", serving, func(*Gray) {}, "bad_gray", "without_fallback"},
		{"one that would serve", watched, func(*Gray) {}, "bad_gray", "without_fallback"},
		{"one that may be left out", serving, func(g *Gray) { g.WithoutFallback = true }, "", ""},
		{"the version that stands by", standing, func(g *Gray) { g.Version = "v2.3.0" }, "", ""},
		{"a version that serves already", serving, func(g *Gray) { g.Version, g.WithoutFallback = "v2.3.0", true }, "bad_gray", "version"},
		{"the main version", "", func(g *Gray) { g.Version = "v2.3.1" }, "bad_gray", "version"},
		{"no version", "", func(g *Gray) { g.Version = "" }, "bad_gray", "version"},
		{"a pattern", "", func(g *Gray) { g.Version = "v2.*" }, "bad_gray", "version"},
		{"no steps", "", func(g *Gray) { g.Steps = nil }, "bad_gray", "steps"},
		{"too many steps", "", func(g *Gray) {
			g.Steps = nil
			for i := range 21 {
				g.Steps = append(g.Steps, i+1)
			}
		}, "bad_gray", "steps"},
		{"a step of 0", "", func(g *Gray) { g.Steps = []int{0, 5} }, "bad_gray", "steps[0]"},
		{"steps that fall", "", func(g *Gray) { g.Steps = []int{5, 50, 20} }, "bad_gray", "steps[2]"},
		{"a step above all", "", func(g *Gray) { g.Steps = []int{5, 101} }, "bad_gray", "steps[1]"},
		{"steps that stop before all", "", func(g *Gray) { g.Steps = []int{5, 20} }, "bad_gray", "steps"},
		{"A36: other steps", "", func(g *Gray) { g.Steps, g.Share = []int{10, 30, 50, 100}, 10 }, "", ""},
		{"a share between steps", "", func(g *Gray) { g.Share = 7 }, "bad_gray", "share"},
		{"a share of 0, which is an abort", "", func(g *Gray) { g.Share = 0 }, "bad_gray", "share"},
		{"no rule in the environment", "", func(g *Gray) { g.Env = "test" }, "no_rule", ""},
	} {
		g := Gray{Service: "order-core", Env: "prod", Version: "v2.4.0", Share: 5, Steps: DefaultSteps()}
		c.edit(&g)
		s, err := plainSet(t, "v2.3.1", c.fallback).WithGray(g)
		if codeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
			continue
		}
		if c.path != "" && !strings.Contains(problems(t, err), c.path) {
			t.Errorf("%s: %v names no %s", c.name, err, c.path)
		}
		if err == nil && (len(s.Grays) != 1 || s.check() != nil) {
			t.Errorf("%s: %+v, %v", c.name, s.Grays, s.check())
		}
	}
	idle := plainSet(t, "v2.3.1", standing)
	idle.Rules[0].Strategy.Weight = 0
	if _, err := idle.WithGray(Gray{Service: "order-core", Env: "prod", Version: "v2.4.0", Share: 5, Steps: DefaultSteps()}); fault.CodeOf(err) != "bad_gray" {
		t.Errorf("a main version that people took out would have traffic again: %v", err)
	}
}

func TestCarry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, main, fallback string
		code                 string
		left                 int
	}{
		{"the same main version: it goes on", "v2.3.1", "", "", 1},
		{"with another that stands by", "v2.3.1", "fallback: {version: v2.3.0, weight: 0}\n", "", 1},
		{"the new version is the main version: finished by Git", "v2.4.0", "", "", 0},
		{"finished, with the old one beside it", "v2.4.0", "fallback: {version: v2.3.1, weight: 30}\n", "", 0},
		{"a third version", "v2.5.0", "", "gray_running", 0},
		{"a fallback that would be left out", "v2.3.1", "fallback: {version: v2.3.0, weight: 30}\n", "gray_running", 0},
		{"the new version by weight", "v2.3.1", "fallback: {version: v2.4.0, weight: 30}\n", "gray_running", 0},
	} {
		before, _ := grown(t, 20)
		after, err := plainSet(t, c.main, c.fallback).Carry(before)
		if codeOf(err) != c.code || len(after.Grays) != c.left {
			t.Errorf("%s: %v, %d run on", c.name, err, len(after.Grays))
		}
		if err != nil && !strings.Contains(err.Error(), "dispatchctl gray inner abort order-core/prod") {
			t.Errorf("%s: %v names no next step", c.name, err)
		}
		if err := after.check(); err != nil {
			t.Errorf("%s: callers would refuse it: %v", c.name, err)
		}
	}
	before, _ := grown(t, 20)
	if _, err := (Set{}).Carry(before); fault.CodeOf(err) != "gray_running" {
		t.Errorf("the rule goes: %v", err)
	}
}

// The start of a gray takes a second person where a rule does, its steps and its end
// do not; who owns the group decides all of them.
func TestDifferencesOfGrays(t *testing.T) {
	t.Parallel()
	none := plainSet(t, "v2.3.1", "")
	five, _ := grown(t, 5)
	twenty, g := grown(t, 20)
	for _, c := range []struct {
		name string
		a, b Set
		key  bool
	}{{"start", none, five, true}, {"step", five, twenty, false}, {"abort", twenty, none, false}} {
		d := Diff(c.a, c.b)
		if len(d) != 1 || d[0].Kind != Grayed || d[0].Key != c.key || d[0].Service != "order-core" || d[0].Env != "prod" {
			t.Errorf("%s: %+v", c.name, d)
		}
		if err := MayChange(Actor{Name: "ci-order"}, c.a, c.b); err != nil {
			t.Errorf("%s by an owner: %v", c.name, err)
		}
		if err := MayChange(Actor{Name: "ci-pay"}, c.a, c.b); fault.CodeOf(err) != "not_your_group" {
			t.Errorf("%s by another: %v", c.name, err)
		}
	}
	changed := func(edit func(*Gray)) Set {
		other := g
		edit(&other)
		s := plainSet(t, "v2.3.1", "")
		s.Grays = []Gray{other}
		return s
	}
	for name, other := range map[string]Set{
		"by":       changed(func(g *Gray) { g.By = "other" }),
		"since":    changed(func(g *Gray) { g.Since = g.Since.Add(time.Second) }),
		"by key":   changed(func(g *Gray) { g.ByKey = true }),
		"steps":    changed(func(g *Gray) { g.Steps = []int{5, 20, 100} }),
		"fallback": changed(func(g *Gray) { g.WithoutFallback = true }),
		"version":  changed(func(g *Gray) { g.Version = "v2.5.0" }),
	} {
		if len(Diff(twenty, other)) != 1 {
			t.Errorf("another %s is no difference", name)
		}
	}
}

func TestVerifyPutsGraysIn(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	s, _ := grown(t, 20)
	got, err := Verify(p.sign(t, 7, manifest(t, s)), p.trust(), "bank", "cn-hangzhou")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Rules, s.Effective().Rules) || len(got.Grays) > 0 {
		t.Errorf("read %+v", got)
	}
	text := manifest(t, s)
	for name, edit := range map[string][2]string{
		"a share that is no step":  {`"share":20`, `"share":21`},
		"the main version":         {`"version":"v2.4.0"`, `"version":"v2.3.1"`},
		"a rule that is not there": {`"env":"prod","version":"v2.4.0"`, `"env":"test","version":"v2.4.0"`},
		"two of one rule":          {`"grays":[`, `"grays":[` + graysOf(t, s) + `,`},
		"a gray within a rule":     {`"file":"order-core.yaml"`, `"file":"order-core.yaml","gray":` + graysOf(t, s)},
	} {
		if strings.Count(text, edit[0]) != 1 {
			t.Fatalf("%s: %q is not in %s", name, edit[0], text)
		}
		bad := p.sign(t, 7, strings.Replace(text, edit[0], edit[1], 1))
		if _, err := Verify(bad, p.trust(), "bank", "cn-hangzhou"); fault.CodeOf(err) != "bad_rules" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// graysOf is the one gray of a set, as JSON.
func graysOf(t testing.TB, s Set) string {
	t.Helper()
	return string(must(t, s.Grays[0]))
}

func TestEqualSetsWithGraysHaveEqualBytes(t *testing.T) {
	t.Parallel()
	a, g := grown(t, 20)
	other := g
	other.Service = "crm"
	crm := a.Rules[0]
	crm.Service = "crm"
	a.Rules, a.Grays = append(a.Rules, crm), []Gray{g, other}
	b := a
	g.Since = g.Since.In(time.FixedZone("", 8*3600))
	b.Grays = []Gray{other, g}
	if x, y := string(encode(t, a)), string(encode(t, b)); x != y {
		t.Errorf("bytes\n%s\nand\n%s", x, y)
	}
	var again Set
	if err := json.Unmarshal(encode(t, a), &again); err != nil || len(Diff(a, again)) > 0 {
		t.Errorf("through JSON: %v, %+v", err, Diff(a, again))
	}
}

// A version that grows must be there, as one of a rule.
func TestLintOfGrays(t *testing.T) {
	t.Parallel()
	s, g := grown(t, 5)
	there := append(bank(), instance{"order-core", "production", "cn-hangzhou", "prod", "v2.4.0"})
	if found := LintGray(s, g, "cn-hangzhou", there); len(found) > 0 {
		t.Errorf("it is there: %s", lines(found))
	}
	if found := Lint(s, "cn-hangzhou", there); len(found) > 0 {
		t.Errorf("it is there: %s", lines(found))
	}
	elsewhere := append(bank(), instance{"order-core", "production", "cn-hangzhou", "test", "v2.4.0"})
	found := LintGray(s, g, "cn-hangzhou", elsewhere)
	if len(found) != 1 || found[0].Path != "gray.version" || !strings.Contains(found[0].Hint, "env test would match 1") {
		t.Errorf("it is in test alone: %s", lines(found))
	}
	if found := Lint(s, "cn-hangzhou", bank()); len(found) != 1 || found[0].File != "order-core.yaml" {
		t.Errorf("nobody has it: %+v", found)
	}
}
