package caller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// filled is a caller with these lists and rules, which does not run: what a pick
// does is a matter of its tables alone.
func filled(tb testing.TB, opt Options, set rules.Set, lists ...[]discovery.Instance) *Caller {
	tb.Helper()
	if opt.Self == (discovery.Coordinates{}) {
		opt.Self = home()
	}
	source, err := discovery.Open("static:"+registryFile(tb), discovery.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	opt.Registry = source
	for _, list := range lists {
		opt.Services = append(opt.Services, list[0].Service)
	}
	c, err := New(opt)
	if err != nil {
		tb.Fatal(err)
	}
	c.heard.listed = true
	c.book.turn(set, 1)
	for _, list := range lists {
		c.learn(list[0].Service, told{Service: wire.Service{Instances: list}, full: true, first: true})
	}
	c.soil()
	c.compileDirty()
	return c
}

// registryFile is a static registry with these instances.
func registryFile(tb testing.TB, all ...discovery.Instance) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "instances.yaml")
	writeRegistry(tb, path, all...)
	return path
}

func writeRegistry(tb testing.TB, path string, all ...discovery.Instance) {
	tb.Helper()
	text := "instances:\n"
	if len(all) == 0 {
		text = "instances: []\n"
	}
	for _, in := range all {
		text += fmt.Sprintf("  - {service: %q, address: %q, cluster: %q, region: %q, env: %q, version: %q}\n",
			in.Service, in.Address, in.Cluster, in.Region, in.Env, in.Version)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatal(err)
	}
}

// A25: nothing matches: an error of each call, and nobody is reached.
func TestNoMatchIsAnError(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{Rules: []rules.Rule{rule("orders", "v9")}}, instances(3, "orders", "prod", "v1"))
	for range 1000 {
		p, err := c.Pick(t.Context(), "orders")
		none, ok := errors.AsType[*route.NoMatch](err)
		if !ok || p.Instance != nil || none.Counts != (route.Counts{Cluster: 3, Region: 3, Env: 3}) || none.Service != "orders" {
			t.Fatalf("%+v, %v", p, err)
		}
		if p.ID() == "" {
			t.Fatal("an error was not recorded")
		}
	}
	if text := func() string { _, err := c.Pick(t.Context(), "orders"); return err.Error() }(); !strings.Contains(text, "orders") || !strings.Contains(text, "cn-hangzhou") || !strings.Contains(text, "v9") {
		t.Errorf("the error does not say what was wanted: %s", text)
	}
}

// B04: what the traffic carries counts before the process's own, as a pair.
func TestLaneOfTrafficCountsFirst(t *testing.T) {
	t.Parallel()
	all := []discovery.Instance{instance("orders", "10.0.0.2:80", "t2", "v1"), instance("orders", "10.0.0.3:80", "t3", "v1"), instance("orders", "10.0.0.9:80", "t0", "v1")}
	c := filled(t, Options{Lane: route.Query{Env: "t3", Base: "t0"}}, rules.Set{}, all)
	for _, row := range []struct {
		name string
		lane route.Query
		want string
	}{
		{"none: the process's", route.Query{}, "10.0.0.3:80"},
		{"the traffic's", route.Query{Env: "t2", Base: "t0"}, "10.0.0.2:80"},
		{"its base, B03", route.Query{Env: "t7", Base: "t0"}, "10.0.0.9:80"},
		{"a person alone keeps the process's environments", route.Query{Person: "li"}, "10.0.0.3:80"},
		{"the process's base does not help the traffic's env, B06", route.Query{Env: "t7"}, "error"},
	} {
		got := among(picks(WithLane(t.Context(), row.lane), c, "orders", 100))
		if row.want == "error" && strings.HasPrefix(got, "error: ") {
			continue
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if lane := c.Lane(WithLane(t.Context(), route.Query{Env: "t2"})); lane != (route.Query{Env: "t2"}) {
		t.Errorf("what travels on is %+v", lane)
	}
}

// T60, B05: from t2 over a service that t2 lacks, and back to t2.
func TestLaneComesBack(t *testing.T) {
	t.Parallel()
	b := []discovery.Instance{instance("b", "10.0.0.1:80", "t0", "v1")}
	last := []discovery.Instance{instance("c", "10.0.0.2:80", "t2", "v1"), instance("c", "10.0.0.3:80", "t0", "v1")}
	self := home()
	self.Env = "t0"
	inT0 := filled(t, Options{Self: self}, rules.Set{}, b, last)
	traffic := WithLane(t.Context(), route.Query{Env: "t2", Base: "t0"})
	if got := among(picks(traffic, inT0, "b", 100)); got != "10.0.0.1:80" {
		t.Errorf("a to b: %s", got)
	}
	if got := among(picks(traffic, inT0, "c", 100)); got != "10.0.0.2:80" {
		t.Errorf("b to c: %s", got)
	}
}

// D02 to D08: developers A and B never meet.
func TestDevelopersNeverMeet(t *testing.T) {
	t.Parallel()
	base, a, b := instance("orders", "10.0.0.1:80", "test", "base"), instance("orders", "10.0.0.2:80", "test", "a"), instance("orders", "10.0.0.3:80", "test", "b")
	self := home()
	self.Env = "test"
	opt := Options{Self: self, Isolate: true}
	everybody := filled(t, opt, rules.Set{}, []discovery.Instance{base, a, b})
	as := func(person string) context.Context { return WithLane(t.Context(), route.Query{Person: person}) }
	for person, want := range map[string]string{"": "10.0.0.1:80", "a": "10.0.0.2:80", "b": "10.0.0.3:80", "unknown": "10.0.0.1:80"} {
		if got := picks(as(person), everybody, "orders", 10_000); got[want] != 10_000 {
			t.Errorf("person %q: %v, want %s alone", person, got, want)
		}
	}
	if got := picks(as("a"), filled(t, opt, rules.Set{}, []discovery.Instance{b}), "orders", 1000); !strings.HasPrefix(among(got), "error: ") || len(got) != 1 {
		t.Errorf("only b is there, and a reached %v", got)
	}
	if got := picks(as("a"), filled(t, Options{Self: self}, rules.Set{}, []discovery.Instance{base, a, b}), "orders", 1000); len(got) != 3 {
		t.Errorf("without isolation: %v", got)
	}
}

// A key keeps the lane that it is added to.
func TestKeyKeepsItsLane(t *testing.T) {
	t.Parallel()
	ctx := WithKey(Keep(WithLane(t.Context(), route.Query{Env: "t2", Base: "t0", Person: "a"})), "u1")
	if got := LaneOf(ctx); got != (route.Query{Env: "t2", Base: "t0", Person: "a", Key: "u1"}) {
		t.Errorf("the lane is %+v", got)
	}
}

// B13: a short name is refused, and the full ones are named.
func TestShortNamesListFullOnes(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, instances(1, "passport.rpc", "prod", "v1"), instances(1, "passport.control", "prod", "v1"),
		instances(1, "login.rpc", "prod", "v1"), instances(1, "passporter", "prod", "v1"))
	for name, want := range map[string][]string{"passport": {"passport.control", "passport.rpc"}, "rpc": {"login.rpc", "passport.rpc"}, "other": nil, "pass": nil} {
		_, err := c.Pick(t.Context(), name)
		none, ok := errors.AsType[*route.NoMatch](err)
		if want == nil && (fault.CodeOf(err) != "not_followed" || !strings.Contains(err.Error(), "passport.rpc")) || want != nil && (!ok || !slices.Equal(none.Names, want)) {
			t.Errorf("%s: %v", name, err)
		}
		for _, full := range want {
			if !strings.Contains(err.Error(), full) {
				t.Errorf("%s: %v does not name %s", name, err, full)
			}
		}
	}
}

// B09, B10, T25: overrides count before the registry, and are balanced.
func TestOverrides(t *testing.T) {
	t.Parallel()
	self := home()
	self.Env = "test"
	registry := prometheus.NewRegistry()
	c := filled(t, Options{Self: self, Metrics: registry, Overrides: []string{"svc.api@10.0.0.215:8080;[2001:db8::1]:8000"}}, rules.Set{},
		instances(3, "svc.api", "test", "v1"), instances(3, "svc.other", "test", "v1"))
	got := picks(t.Context(), c, "svc.api", 10_000)
	if len(got) != 2 || math.Abs(float64(got["[2001:db8::1]:8000"])-5000) > 200 {
		t.Errorf("svc.api: %v", got)
	}
	if got := picks(t.Context(), c, "svc.other", 100); len(got) != 3 {
		t.Errorf("svc.other: %v", got)
	}
	p, err := c.Pick(t.Context(), "svc.api")
	if err != nil || p.Reason != route.ByOverride || p.ID() == "" {
		t.Errorf("%+v, %v", p, err)
	}
	record, _, err := c.Explain(p.ID())
	if fault.CodeOf(err) != "chosen_by_configuration" || record.Chosen != p.Instance.Address.String() || record.Reason != route.ByOverride {
		t.Errorf("%+v, %v", record, err)
	}
	if n := metric(t, registry, "dispatch_discovery_picks_total", "svc.api", "override"); n != 10_001 {
		t.Errorf("%v picks were counted", n)
	}
	if all, _, _ := c.Candidates("svc.api"); len(all) != 2 {
		t.Errorf("candidates: %v", all)
	}
}

// B09: with an override the registry is not asked.
func TestOverrideDoesWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		self := home()
		self.Env = "test"
		c := started(t, nil, Options{Self: self, Registry: untouched{t}, Services: []string{"orders"}, Overrides: []string{"orders@10.0.0.1:80"}})
		ready(t, c)
		if got := among(picks(t.Context(), c, "orders", 100)); got != "10.0.0.1:80" {
			t.Errorf("picks went to %s", got)
		}
	})
}

// untouched is a registry that must not be asked.
type untouched struct{ t *testing.T }

func (untouched) Name() string { return "untouched" }
func (untouched) Close()       {}
func (u untouched) Watch(_ context.Context, service string, _ discovery.Observer) error {
	u.t.Errorf("asked for %s", service)
	return nil
}
func (untouched) Register(context.Context, discovery.Instance) (discovery.Lease, error) {
	return nil, nil
}

// B11: production refuses overrides unless told otherwise. All mistakes are listed.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	prod := options(n)
	prod.Overrides = []string{"orders@10.0.0.1:80"}
	if _, err := New(prod); err == nil || !strings.Contains(err.Error(), "AllowProd") {
		t.Errorf("New = %v", err)
	}
	prod.AllowProd = true
	log := &logged{}
	prod.Log = log.logger()
	c, err := New(prod)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c)()
	if !strings.Contains(log.String(), "10.0.0.1:80") {
		t.Errorf("it was not logged:\n%s", log)
	}
	bad := options(n)
	bad.Self, bad.Sample, bad.Trust, bad.RulesDir = discovery.Coordinates{Cluster: " "}, -1, nil, "rules"
	bad.ID = strings.Repeat("x", maxCallerID+1)
	bad.Control = []string{"http://control:8083", "control:8083", "https://control:8083/x", "https://u:p@control", "http://127.0.0.1:8083", "http://localhost:1", "http://[::1]:8083/"}
	bad.Overrides = []string{"orders", "@10.0.0.1:80", "orders@", "orders@10.0.0.1", "stock@10.0.0.1:80;2001:db8::1:80", "stock@10.0.0.2:80", "pay@10.0.0.1:80;10.0.0.1:80"}
	_, err = New(bad)
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("New = %v", err)
	}
	var paths []string
	for _, p := range e.Problems {
		paths = append(paths, p.Path)
	}
	want := "Self.Cluster Self.Region Self.Env ID Sample Control Control Control Control Trust RulesDir " +
		"Overrides Overrides Overrides Overrides Overrides Overrides Overrides"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("got  %s\nwant %s\n%v", got, want, err)
	}
	if _, err := New(Options{Self: home()}); err == nil || !strings.Contains(err.Error(), "neither Control nor Registry") {
		t.Errorf("New = %v", err)
	}
	if bad.Control[6] != "http://[::1]:8083/" {
		t.Error("the options of the caller were changed")
	}
}

func FuzzOverrides(f *testing.F) {
	for _, text := range []string{"svc.api@10.0.0.215:8080;10.0.0.214:8000", "svc@[2001:db8::1]:80;10.0.0.1:80", "a@b:1", "@", "a@;", "a@1.2.3.4:0", "ä@\x00:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p fault.Problems
		all := parseOverrides(&p, &Options{Overrides: []string{text}})
		if len(p) > 0 {
			return
		}
		name, list, _ := strings.Cut(text, "@")
		if len(all[name]) != strings.Count(list, ";")+1 {
			t.Errorf("%q: %d addresses", text, len(all[name]))
		}
		for _, in := range all[name] {
			if again, err := discovery.ParseAddress(in.Address.String()); err != nil || again != in.Address {
				t.Errorf("%q: %v is no address: %v", text, in.Address, err)
			}
		}
	})
}

// scale is a service of 1,000 instances beside 200 rules.
func scale(tb testing.TB) *Caller {
	var set rules.Set
	for i := range 199 {
		set.Rules = append(set.Rules, rule(fmt.Sprintf("other-%d", i), "v1"))
	}
	r := rule("orders", "v1")
	r.Strategy.Weight, r.Fallback = 100, nil
	set.Rules = append(set.Rules, r)
	return filled(tb, Options{Sample: math.MaxInt32}, set, instances(1000, "orders", "prod", "v1"), instances(3, "stock", "prod", "v1"))
}

func TestPickAllocatesNothing(t *testing.T) {
	c := scale(t)
	for name, ctx := range map[string]context.Context{"plain": t.Context(), "lane": WithLane(t.Context(), route.Query{Env: "prod", Base: "test"})} {
		for _, service := range []string{"orders", "stock"} {
			if n := testing.AllocsPerRun(10_000, func() { _, _ = c.Pick(ctx, service) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, service, n)
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	c := scale(b)
	ctx := context.Background()
	lane := WithLane(ctx, route.Query{Env: "prod", Base: "test"})
	table := (*c.slots.Load())["orders"].now.Load().table
	b.Run("table alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = table.Pick(route.Query{}, rand.Uint64())
		}
	})
	b.Run("pick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Pick(ctx, "orders")
		}
	})
	b.Run("pick in a lane", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Pick(lane, "orders")
		}
	})
	b.Run("recorded pick", func(b *testing.B) {
		keep := Keep(ctx)
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Pick(keep, "orders")
		}
	})
	b.Run("error", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Pick(WithLane(ctx, route.Query{Env: "t1"}), "orders")
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = c.Pick(ctx, "orders")
			}
		})
	})
}
