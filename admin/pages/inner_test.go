package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// innerBook is a book with a release of rules, too.
type innerBook struct {
	*book
	rules *release.Signed
}

func (b *innerBook) Rollout(ctx context.Context, stream string) (ledger.Rollout, error) {
	switch {
	case !rules.IsStream(stream):
		return b.book.Rollout(ctx, stream)
	case b.rules == nil:
		return ledger.Rollout{}, b.fails
	default:
		return ledger.Rollout{Head: 1, All: 1}, b.fails
	}
}

func (b *innerBook) Release(context.Context, string, uint64) (release.Signed, error) {
	return *b.rules, b.fails
}

// shelf is a directory that knows one thing.
type shelf struct{ view *directory.View }

func (s shelf) View() (*directory.View, <-chan struct{}) { return s.view, nil }
func (s shelf) Recheck()                                 {}

// follow gives the console's node a directory, and rules unless they are empty.
func (c *console) follow(view *directory.View, set rules.Set) {
	c.t.Helper()
	b := &innerBook{book: c.book}
	if len(set.Rules) > 0 || set.Direct {
		m := must(release.First("test", rules.Stream("cn-hangzhou"), release.Change{Rules: &set, Created: time.Now().Add(-time.Hour),
			Cause: release.Cause{Action: "rules_apply", By: "pipeline-rules", Reason: "order-core to 70 %"}}))
		signed := must(release.Sign(m, c.do.Keys, time.Now()))
		b.rules = &signed
	}
	c.do.Ledger, c.do.Inner, c.do.Region = b, shelf{view}, "cn-hangzhou"
}

func at(last int) discovery.Address {
	return discovery.Address{Host: fmt.Sprintf("10.0.0.%d", last), Port: 8080}
}

// instance of order-core or another service; the version and the env are what differs.
func instance(service, env, version string, last int) directory.Instance {
	return directory.Instance{Sources: []string{"east"}, Instance: discovery.Instance{ID: fmt.Sprintf("%s-%d", service, last), Service: service, Address: at(last),
		Coordinates: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: env, Version: version}}}
}

func ruleOf(service, env, version string, updated string) rules.Rule {
	return rules.Rule{Service: service, Updated: must(time.Parse(time.RFC3339, updated)), Strategy: rules.Strategy{Version: version, Weight: 70},
		Selector: rules.Selector{Cluster: "production", Region: "cn-hangzhou", Env: env}}
}

// house is a region with two services: order-core, whose rule in test matches nobody
// and whose rule in prod has a fallback and shadows another, and notify without rules.
func house() (*directory.View, rules.Set) {
	cpu, none, calls := 0.0, 0, int64(1822)
	loaded, drained, hot, out := instance("order-core", "prod", "v2.3.1", 1), instance("order-core", "prod", "v2.3.1", 2), instance("order-core", "prod", "v2.3.0", 3), instance("order-core", "prod", "v2.3.0", 4)
	loaded.Load, loaded.Started = discovery.Load{CPU: &cpu, Connections: &calls}, time.Now().Add(-3*time.Hour)
	drained.Weight = &none
	hot.Scale = &route.Scale{Thousandths: 600, Why: "hot"}
	out.Scale = &route.Scale{Why: "isolated"}
	v := &directory.View{At: time.Now(), Region: "cn-hangzhou",
		Registries: []directory.State{{Name: "east", Kind: "consul", OK: true, Services: 2}, {Name: "legacy", Kind: "nacos", Age: 3 * time.Minute, Problem: "connection refused"}},
		Services: []directory.Service{
			{Name: "notify", Instances: []directory.Instance{instance("notify", "prod", "v1", 9)}},
			{Name: "order-core", Instances: []directory.Instance{loaded, drained, hot, out, instance("order-core", "test", "v2.4.0", 5)}}},
		Suspicious: []directory.Suspect{{Fingerprint: directory.Fingerprint{ID: "legacy-1", Address: at(20)}, Service: "legacy-pay", Registry: "legacy", Why: "env is missing", Since: time.Now().Add(-time.Hour)}},
		Queue:      []directory.Suspect{{Fingerprint: directory.Fingerprint{ID: "order-core-7", Address: at(7), Started: time.Now().Add(-time.Hour)}, Service: "order-core", Registry: "east", Why: "the start time fits no report", Since: time.Now()}},
		Isolated:   []directory.Verdict{{Fingerprint: directory.Fingerprint{ID: "order-core-4", Address: at(4)}, Service: "order-core", Isolate: true, By: "chen", Reason: "stale prices", At: time.Now()}},
		Calls: []directory.Call{{From: "notify", Env: "prod", To: "order-core", Last: time.Now()}, {From: "notify", Env: "test", To: "order-core", Last: time.Now()},
			{From: "batch", Env: "prod", To: "notify", Last: time.Now()}},
	}
	main := ruleOf("order-core", "prod", "v2.3.1", "2026-11-01T09:00:00Z")
	main.Fallback = &rules.Fallback{Version: "v2.3.0", Weight: 30, Condition: &rules.Condition{Metric: "target-load", Operator: ">", Number: 80}}
	return v, rules.Set{Rules: []rules.Rule{main, ruleOf("order-core", "prod", "v2.3.0", "2026-10-01T09:00:00Z"), ruleOf("order-core", "test", "2.10", "2026-11-01T09:00:00Z")},
		Groups: []rules.Group{{Prefix: "order-", Owners: []string{"pipeline-orders"}, Key: []string{"order-core"}}}}
}

func TestInnerPagesSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	paths := []string{"/map", "/services", "/queues"}
	for _, row := range []struct {
		name string
		do   func(*console)
		has  string
	}{
		{"no registry", func(*console) {}, "--registry NAME=URL"},
		{"none configured", func(c *console) { c.follow(&directory.View{Region: "cn-hangzhou"}, rules.Set{}) }, "--registry NAME=URL"},
		{"starting", func(c *console) { c.follow(nil, rules.Set{}) }, "has not heard from a registry yet"},
		{"a registry is silent", func(c *console) { c.follow(house()) }, "silent for 3\u202fmin"},
		{"it says why", func(c *console) { c.follow(house()) }, "connection refused"},
		{"the kill switch", func(c *console) {
			v, set := house()
			set.Direct = true
			c.follow(v, set)
		}, "The kill switch is thrown: rules do not count."},
	} {
		c := open(t, bank, actions.Viewer)
		row.do(c)
		for _, path := range paths {
			if a := c.get(path).has(t, row.has); a.StatusCode != http.StatusOK {
				t.Errorf("%s, %s: %d", row.name, path, a.StatusCode)
			}
		}
	}
	c := open(t, bank, actions.Viewer)
	c.follow(&directory.View{Region: "cn-hangzhou", Registries: []directory.State{{Name: "east", OK: true}}}, rules.Set{})
	c.get("/map").has(t, "No registry of this region has a service yet", "no rules yet", "dispatchctl rules apply")
	c.get("/services").has(t, "No registry of this region has a service yet")
	c.get("/queues").has(t, "Here come entries whose fingerprint fits no running instance", "Here come entries that lack cluster", "Nothing is isolated")
}

// With the database away, what is in memory stays on the pages.
func TestInnerPagesLiveWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	c.follow(house())
	c.book.fails = errors.New("disk I/O error")
	for path, want := range map[string]string{"/map": "Without the rules there is no map", "/services": "3 of 5 serve", "/services/order-core": "10.0.0.1:8080", "/queues": "env is missing"} {
		if a := c.get(path).has(t, want, "Which rules count is unknown here"); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}

// A rule on a page is what its file says, so people can compare the two.
func TestRuleTextIsARuleFile(t *testing.T) {
	t.Parallel()
	_, set := house()
	odd := ruleOf("a.b", "7", "2.10", "2026-11-01T09:00:00Z")
	odd.Selector.Cluster, odd.Strategy.Weight = "no", 0
	odd.Fallback = &rules.Fallback{Version: "1e3", Weight: 10000}
	for _, r := range append(set.Rules, odd) {
		got, err := rules.Parse([]rules.File{{Name: "one.yaml", Text: r.Text()}})
		if err != nil {
			t.Errorf("%s is no file of a rule: %v", r.Text(), err)
			continue
		}
		want := r
		want.File = "one.yaml"
		if text := got.Rules[0].Text(); text != want.Text() || got.Rules[0].ID() != want.ID() || got.Rules[0].Selector != want.Selector || got.Rules[0].Strategy != want.Strategy {
			t.Errorf("%+v came back as %+v", want, got.Rules[0])
		}
	}
}

func TestServicesAreFoundByNameAddressAndEnv(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	c.follow(house())
	for query, want := range map[string][2]bool{ // order-core, notify
		"": {true, true}, "q=ORDER": {true, false}, "q=10.0.0.9": {false, true}, "q=order-core-3": {true, false}, "env=test": {true, false}, "q=nobody": {false, false}} {
		a := c.get("/services?" + query)
		for i, name := range []string{"order-core", "notify"} {
			if got := strings.Contains(a.text, `href="/services/`+name+`"`); got != want[i] {
				t.Errorf("%q finds %s: %v", query, name, got)
			}
		}
	}
	c.get("/services").has(t, "3 of 5 serve", "1 too hot", "1 drained", "1 isolated", "2 entries get no calls")
	c.get("/services?q=nobody").has(t, "Nothing fits the search")
}

func TestServiceShowsEachInstanceAsItIs(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	c.follow(house())
	a := c.get("/services/order-core").has(t, "10.0.0.1:8080", "unknown", "0\u202f%", "1\u202f822", "60\u202f%", "too hot", "drained", "chen", "stale prices",
		"judge=lift&amp;id=order-core-4", "judge=isolate&amp;id=order-core-1", "Rule for v2.3.1", "1 older rule is shadowed", "owned by pipeline-orders", "key service", "1 entry gets no calls")
	if strings.Count(a.text, ">default<") != 4 { // of five instances one states its weight
		t.Errorf("%d weights are the default", strings.Count(a.text, ">default<"))
	}
	if got := c.get("/services/order-core?q=10.0.0.3").text; strings.Contains(got, "10.0.0.1:8080") || !strings.Contains(got, "10.0.0.3:8080") {
		t.Error("the search of instances finds others")
	}
	if a := c.get("/services/nobody"); a.StatusCode != http.StatusNotFound {
		t.Errorf("a service that nobody has: %d", a.StatusCode)
	}
	if a := c.get("/services/order-core?judge=isolate&id=gone").has(t, "unknown_instance"); a.StatusCode != http.StatusNotFound {
		t.Errorf("an instance that has left: %d", a.StatusCode)
	}
	c.get("/services/order-core?judge=isolate&id=order-core-1").has(t, "Isolate order-core-1", `value="10.0.0.1:8080"`, `name="reason"`)
	viewer := open(t, bank, actions.Viewer)
	viewer.follow(house())
	if strings.Contains(viewer.get("/services/order-core").text, "judge=isolate") {
		t.Error("a viewer is offered to isolate")
	}
}

func TestLargeServiceIsShownInPart(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	v, set := house()
	var many []directory.Instance
	for i := range 1000 {
		one := instance("order-core", "prod", "v2.3.1", 1)
		one.Address.Port, one.ID = uint16(10_000+i), fmt.Sprintf("order-core-%d", i)
		many = append(many, one)
	}
	v.Services[1].Instances = many
	c.follow(v, set)
	c.get("/services/order-core").has(t, "Shown are 200 of 1\u202f000 instances")
	if a := c.get("/services/order-core?q=:10999").has(t, "order-core-999"); strings.Contains(a.text, "Shown are") {
		t.Error("one instance is too many")
	}
}

func TestQueuesShowWhyAndSinceWhen(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	c.follow(house())
	c.get("/queues").has(t, "the start time fits no report", "env is missing", "legacy-pay", `value="accept"`, `value="refuse"`, `value="lift"`, "chen", "stale prices")
	viewer := open(t, bank, actions.Viewer)
	viewer.follow(house())
	if a := viewer.get("/queues"); strings.Contains(a.text, `value="accept"`) {
		t.Error("a viewer is offered to accept")
	}
	if a := viewer.post("/queues", url.Values{"do": {"accept"}}); a.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer accepts: %d", a.StatusCode)
	}
}

// What was typed stays when a verdict is refused.
func TestRefusedVerdictKeepsItsForm(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	c.follow(house())
	c.book.fails = fault.New(fault.Unavailable, "database_slow", "the database is slow")
	a := c.post("/queues", url.Values{"service": {"order-core"}, "id": {"order-core-7"}, "address": {"10.0.0.7:8080"}, "do": {"accept"}, "reason": {"seen it \"start\""}})
	if a.StatusCode == http.StatusSeeOther {
		t.Fatalf("%d", a.StatusCode)
	}
	a.has(t, `value="seen it &#34;start&#34;"`, " open>")
	b := c.post("/services/order-core", url.Values{"id": {"order-core-1"}, "address": {"10.0.0.1:8080"}, "do": {"isolate"}, "reason": {"why not"}})
	b.has(t, `value="why not"`, "Isolate order-core-1")
}

func TestCallIsExplained(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	c.get("/calls").has(t, "Decision id", "Give the id of a pick")
	_, set := house()
	v := &visit{Pages: c.pages, lang: "en"}
	explained := actions.CallExplained{Standing: actions.CallReproduced}
	explained.Record.Reason, explained.Record.Chosen, explained.Record.Draw = route.ByFallback, "10.0.0.3:8080", 1<<63
	explained.Record.Outcome = "silent"
	explained.Explanation = &route.Explanation{Reason: route.ByFallback, Rule: &set.Rules[0], Chosen: "10.0.0.3:8080", AllCold: true, Panic: true, Shift: &route.Shift{Condition: "target-load > 80", Tenths: 3, Load: new(93.25)},
		Steps:      []route.Step{{Env: "t2", Known: 9, Counts: route.Counts{Cluster: 9, Region: 9}}, {Env: "prod", Known: 9, Counts: route.Counts{Cluster: 9, Region: 9, Env: 4, Version: 4}}},
		Sides:      []route.Side{{Version: "v2.3.1", Weight: 70, Effective: .7}, {Version: "v2.3.0", Weight: 30, Effective: .3}},
		Candidates: []route.Candidate{{Address: "10.0.0.3:8080", Weight: 100, Score: 1, Scale: &route.Scale{Thousandths: 600, Why: "hot"}}}}
	answer := v.callAnswer(explained)
	if answer.Reason != "the fallback version of the rule" || answer.Sides[0].Drawn || !answer.Sides[1].Drawn || answer.Sides[1].Path != "M700 0H1000V10H700z" {
		t.Errorf("%+v", answer)
	}
	text := c.render("calls", callsPage{ID: "p-1", Answer: answer})
	for _, want := range []string{"reproduced", "9223372036854775808", "the draw fell here", "target-load &gt; 80: 3 tenths of the main version&#39;s part", "The load was 93.2 % when", "Every instance that fits was warming up", "The caller had put out every instance", "no answer came before the deadline", "600 ‰", "fallback: {version: v2.3.0", "■ 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for _, standing := range []string{actions.CallDiffers, actions.CallExpired, actions.CallConfigured, actions.CallRefused} {
		alone := actions.CallExplained{Standing: standing}
		if alone.Record.Reason = route.ByNobody; standing == actions.CallRefused {
			alone.Record.Reason = route.ByBreaker
		}
		if text := c.render("calls", callsPage{ID: "p-1", Answer: v.callAnswer(alone)}); !strings.Contains(text, "nowhere: the call failed") {
			t.Errorf("%s: %s", standing, text)
		}
	}
}

// render is a page that is made by hand.
func (c *console) render(name string, page any) string {
	c.t.Helper()
	w := &strings.Builder{}
	set := must(c.pages.templates.of("en", []string{actions.Administrator}, name))
	if err := set.ExecuteTemplate(w, "main", view{Page: page, Lang: "en"}); err != nil {
		c.t.Fatal(err)
	}
	return w.String()
}

func TestTalliesAreInOrder(t *testing.T) {
	t.Parallel()
	if got := tallied([]string{"b", "a", "b", "c"}); !slices.Equal(got, []tally{{"b", 2}, {"a", 1}, {"c", 1}}) {
		t.Errorf("%v", got)
	}
}
