package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// instance is one of a world.
type instance struct{ service, cluster, region, env, version string }

// world is a Directory.
type world []instance

func (w world) Values(coordinate string) []string {
	found := map[string]bool{}
	for _, in := range w {
		found[map[string]string{"cluster": in.cluster, "region": in.region, "env": in.env, "version": in.version}[coordinate]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func (w world) Match(service string, s Selector, version string) (n int) {
	for _, in := range w {
		if in == (instance{service, s.Cluster, s.Region, s.Env, version}) {
			n++
		}
	}
	return n
}

func (w world) Service(name string) (known bool, names []string) {
	found := map[string]bool{}
	for _, in := range w {
		found[in.service] = true
	}
	return found[name], slices.Sorted(maps.Keys(found))
}

// worldOf has an instance for every version of a set.
func worldOf(s Set) (w world) {
	for _, r := range s.Rules {
		at := instance{r.Service, r.Selector.Cluster, r.Selector.Region, r.Selector.Env, r.Strategy.Version}
		w = append(w, at)
		if r.Fallback != nil {
			at.version = r.Fallback.Version
			w = append(w, at)
		}
	}
	return w
}

// bank is the world of most tests.
func bank() world {
	return world{
		{"order-core", "production", "cn-hangzhou", "prod", "v2.3.1"},
		{"order-core", "production", "cn-hangzhou", "prod", "v2.3.1"},
		{"order-core", "production", "cn-hangzhou", "prod", "v2.3.0"},
		{"order-core", "shared", "cn-hangzhou", "test", "v2.4.0"},
		{"pay-core", "production", "cn-hangzhou", "prod", "2.10"},
		{"pay-ledger.rpc", "production", "cn-hangzhou", "prod", "v5"},
		{"pay-ledger.control", "production", "cn-hangzhou", "prod", "v5"},
		{"order-core", "production", "cn-shanghai", "prod", "v2.3.1"}, // of a registry that several regions share
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to string
		want     []string
	}{
		"the sample": {"", "", nil},
		"A23 a value that nobody has": {"cn-hangzhou", "cn-hangzhuo",
			[]string{`order-core.yaml:3: selector.region: no instance has the region cn-hangzhuo (did you mean cn-hangzhou?)`}},
		"A23 a cluster that nobody has": {"production", "produktion", []string{`order-core.yaml:3: selector.cluster: no instance has the cluster produktion (did you mean production?)`}},
		"A23 nothing like it":           {"env: prod", "env: staging-7", []string{`order-core.yaml:3: selector.env: no instance has the env staging-7 (there are prod, test)`}},
		"A23 a version that nobody has": {"v2.3.1", "v3.0.0", []string{`order-core.yaml:4: strategy.version: no instance has the version v3.0.0 (`}},
		"A23 a fallback that nobody has": {"v2.3.0", "v2.2.9",
			[]string{`order-core.yaml:5: fallback.version: no instance has the version v2.2.9 (did you mean`}},
		"A24 values that nobody has together": {"env: prod", "env: test", []string{
			`order-core.yaml:4: strategy.version: matches 0 instances: every value exists, but no instance of order-core has production, cn-hangzhou, test and v2.3.1 together (env prod would match 2)`,
			`order-core.yaml:5: fallback.version: matches 0 instances: every value exists, but no instance of order-core has production, cn-hangzhou, test and v2.3.0 together (env prod would match 1)`}},
		"A24 the version of another service": {"v2.3.1", `"2.10"`, []string{`order-core.yaml:4: strategy.version: matches 0 instances`}},
		"a version to come takes no traffic": {"v2.3.1, weight: 70", "v9, weight: 0", nil},
		"a fallback to come takes some":      {"v2.3.0, weight: 30", "v9, weight: 0", []string{`order-core.yaml:5: fallback.version: no instance has the version v9`}},
		"A54 another region": {"cn-hangzhou", "cn-shanghai",
			[]string{`order-core.yaml:3: selector.region: cn-shanghai is not the region of these callers, cn-hangzhou (another region is reached through its gateway;`}},
		"A54 a region that this directory does not hold": {"cn-hangzhou", "eu-frankfurt",
			[]string{`selector.region: no instance here has the region eu-frankfurt; the callers are in cn-hangzhou (another region is reached through its gateway`}},
		"a service that nobody runs": {"order-core", "order-cor", []string{`order-core.yaml:1: service: no service is named order-cor (did you mean order-core?)`}},
		"a service unlike all":       {"order-core", "x", []string{`order-core.yaml:1: service: no service is named x (it must run somewhere before it has a rule)`}},
		"B13 a short name":           {"order-core", "control", []string{`order-core.yaml:1: service: no service is named control (write the full name: pay-ledger.control)`}},
		"B13 a server":               {"order-core", "pay-ledger", []string{`service: no service is named pay-ledger (write the full name: pay-ledger.control, pay-ledger.rpc)`}},
		"T65 nobody takes traffic": {"weight: 70}\nfallback: {version: v2.3.0, weight: 30", "weight: 0}\nfallback: {version: v2.3.0, weight: 0",
			[]string{`order-core.yaml:4: strategy.weight: no version takes traffic: every call would be an error`}},
		"several at once": {"order-core\nupdated: 2026-11-30T09:00:00Z\nselector: {cluster: production, region: cn-hangzhou", "ordercore\nupdated: 2026-11-30T09:00:00Z\nselector: {cluster: prodution, region: cn-hangzho",
			[]string{`order-core.yaml:1: service:`, `order-core.yaml:3: selector.cluster:`, `order-core.yaml:3: selector.region:`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := File{"order-core.yaml", sample}
			if c.from != "" {
				file = edit(t, c.from, c.to)
			}
			found := Lint(mustParse(t, file), "cn-hangzhou", bank())
			if len(found) != len(c.want) {
				t.Fatalf("%d problems, want %d:\n%s", len(found), len(c.want), lines(found))
			}
			for i, want := range c.want {
				if got := found[i].String(); !strings.HasPrefix(got, want) && !strings.Contains(got, ": "+want) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
		})
	}
}

// A32: rules of one time are reported, because only their names decide.
func TestLintReportsRulesOfOneTime(t *testing.T) {
	t.Parallel()
	b := edit(t, "v2.3.1", "v2.3.2") // shadowed: that nobody has the version moves no call
	b.Name = "b.yaml"
	set := mustParse(t, File{"a.yaml", sample}, b)
	found := Lint(set, "cn-hangzhou", bank())
	if len(found) != 1 || !strings.HasPrefix(found[0].String(), "b.yaml:2: updated: a.yaml has a rule for order-core in prod of the same time") {
		t.Errorf("found\n%s", lines(found))
	}
	b = edit(t, "09:00:00Z", "08:59:59Z")
	b.Name = "b.yaml"
	if found := Lint(mustParse(t, File{"a.yaml", sample}, b), "cn-hangzhou", bank()); len(found) > 0 {
		t.Errorf("an older rule beside it: %s", lines(found))
	}
}

// A31: no service has two owners.
func TestLintReportsGroupsThatOverlap(t *testing.T) {
	t.Parallel()
	set := mustParse(t, File{"groups.yaml", `groups:
  - {prefix: order-, owners: [ci-order], key: [pay-core]}
  - {prefix: pay-, owners: [ci-pay], key: [pay-core]}
  - {prefix: order-core, owners: [ci-core]}
  - {prefix: crm, owners: [ci-crm]}
`})
	want := `groups.yaml:2: groups[order-]: the key service pay-core is not in this group (move it to the group that it belongs to)
groups.yaml:4: groups[order-core]: overlaps the group order- (groups share no service; write prefixes of which none begins with another)
`
	if got := lines(Lint(set, "cn-hangzhou", bank())); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestLintReportsTimesToCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for ahead, bad := range map[time.Duration]bool{0: false, 24 * time.Hour: false, 24*time.Hour + time.Second: true, 10_000 * time.Hour: true} {
			at := time.Now().Add(ahead).UTC().Format(time.RFC3339)
			found := Lint(mustParse(t, edit(t, "2026-11-30T09:00:00Z", at)), "cn-hangzhou", bank())
			if bad != (len(found) == 1 && strings.Contains(found[0].String(), "order-core.yaml:2: updated: "+at+" lies more than a day ahead")) || !bad && len(found) > 0 {
				t.Errorf("%s ahead: %s", ahead, lines(found))
			}
		}
	})
}

// A set that comes from a release has no lines, and everything else.
func TestLintOfARelease(t *testing.T) {
	t.Parallel()
	set := mustParse(t, edit(t, "cn-hangzhou", "cn-hangzhuo"))
	found := Lint(Set{Rules: set.Rules}, "cn-hangzhou", bank())
	if len(found) != 1 || found[0].File != "order-core.yaml" || found[0].Line != 0 {
		t.Errorf("found %+v", found)
	}
	if found := Lint(Set{}, "cn-hangzhou", world{}); len(found) > 0 {
		t.Errorf("nothing has problems: %s", lines(found))
	}
	empty := Lint(mustParse(t, File{"a.yaml", sample}), "cn-hangzhou", world{})
	if !strings.Contains(lines(empty), "is a registry away?") {
		t.Errorf("an empty directory:\n%s", lines(empty))
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"cn-hangzhou", "cn-shanghai", "prod", "v2.3.1"}
	for word, want := range map[string]string{"cn-hangzhuo": "cn-hangzhou", "CN-Hangzhou": "cn-hangzhou", "cn-shanghia": "cn-shanghai", "prd": "prod",
		"v2.3.0": "v2.3.1", "staging": "", "": "", strings.Repeat("x", 200): ""} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func BenchmarkLint(b *testing.B) {
	var set Set
	for i := range 200 {
		r := mustParse(b, File{"order-core.yaml", sample}).Rules[0]
		r.Service = fmt.Sprintf("order-%d", i)
		set.Rules = append(set.Rules, r)
	}
	dir := worldOf(set)[:2] // a Directory that answers at once: what is measured is Lint
	b.ReportAllocs()
	for b.Loop() {
		if found := Lint(set, "cn-hangzhou", dir); len(found) != 199 { // all but the first service are unknown
			b.Fatal(lines(found))
		}
	}
}
