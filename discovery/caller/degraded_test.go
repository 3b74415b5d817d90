package caller

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// mixed are instances of two clusters and two environments, in two versions.
func mixed() []discovery.Instance {
	elsewhere := instance("orders", "10.3.0.1:80", "prod", "v1")
	elsewhere.Cluster = "other"
	return []discovery.Instance{instance("orders", "10.0.0.1:80", "prod", "v1"), instance("orders", "10.0.0.2:80", "prod", "v2"),
		instance("orders", "10.4.0.1:80", "test", "v1"), elsewhere}
}

const direct = "10.0.0.1:80 10.0.0.2:80" // of mixed, with cluster and env kept

// A48: no rules could ever be loaded, and the registry is there: calls succeed with
// cluster and env kept. When control comes, it counts again without a restart.
func TestDegradedWithoutRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, registry, log := newNode(t), prometheus.NewRegistry(), &logged{}
		n.down = true
		n.list("orders", mixed()...)
		n.publish(1, rule("orders", "v2"))
		source, err := discovery.Open("static:"+registryFile(t, mixed()...), discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		opt := options(n)
		opt.Registry, opt.Services, opt.Metrics, opt.Log = source, []string{"orders"}, registry, log.logger()
		c := started(t, one(n), opt)
		ready(t, c)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
			t.Errorf("degraded picks went to %s", got)
		}
		if p, err := c.Pick(t.Context(), "orders"); err != nil || p.Reason != route.ByDirect || p.ID() == "" {
			t.Errorf("%+v, %v", p, err)
		}
		if metric(t, registry, "dispatch_discovery_degraded", "no_rules") != 1 {
			t.Error("the metric is not 1")
		}
		n.change(func() { n.down = false })
		time.Sleep(20 * time.Second)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != "10.0.0.2:80" {
			t.Errorf("with rules again picks went to %s", got)
		}
		if metric(t, registry, "dispatch_discovery_degraded") != 0 {
			t.Error("the metric is not 0")
		}
		for _, text := range []string{"picks skip rules", "picks follow the rules again"} {
			if strings.Count(log.String(), text) != 1 {
				t.Errorf("the log says %q %d times:\n%s", text, strings.Count(log.String(), text), log)
			}
		}
	})
}

// Control that says that there are no rules is no failure: the home counts.
func TestNoRulesIsNotDegraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, registry := newNode(t), prometheus.NewRegistry()
		n.list("orders", mixed()...)
		opt := options(n)
		opt.Metrics = registry
		c := started(t, one(n), opt)
		ready(t, c)
		if p, err := c.Pick(t.Context(), "orders"); err != nil || p.Reason != route.ByHome {
			t.Errorf("%+v, %v", p, err)
		}
		if metric(t, registry, "dispatch_discovery_degraded") != 0 {
			t.Error("degraded")
		}
	})
}

// A node that has not read its rules yet says so: that none came is no "there are
// none", and is not kept on disk as that.
func TestUnreadRulesAreDegraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, registry := newNode(t), prometheus.NewRegistry()
		n.unread = true
		n.list("orders", mixed()...)
		opt := options(n)
		opt.Metrics, opt.Dir = registry, t.TempDir()
		c := started(t, one(n), opt)
		ready(t, c)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
			t.Errorf("before the rules are read picks went to %s", got)
		}
		if metric(t, registry, "dispatch_discovery_degraded", "no_rules") != 1 {
			t.Error("the metric is not 1")
		}
		time.Sleep(2 * copyEvery)
		if _, err := os.Stat(filepath.Join(opt.Dir, copyName)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is a copy without rules: %v", err)
		}
		n.change(func() { n.unread = false })
		n.publish(1, rule("orders", "v2"))
		time.Sleep(3 * time.Second)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != "10.0.0.2:80" || metric(t, registry, "dispatch_discovery_degraded") != 0 {
			t.Errorf("with rules picks went to %s", got)
		}
	})
}

// Rules that are there but were never believed are the same as none: lists from
// control, cluster and env kept.
func TestOnlyBadRulesIsDegraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, registry := newNode(t), prometheus.NewRegistry()
		stranger := newNode(t)
		n.list("orders", mixed()...)
		n.change(func() { n.rules = stranger.sign(1, rules.Set{}) })
		opt := options(n)
		opt.Metrics = registry
		c := started(t, one(n), opt)
		ready(t, c)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
			t.Errorf("picks went to %s", got)
		}
		if metric(t, registry, "dispatch_discovery_degraded", "no_rules") != 1 {
			t.Error("the metric is not 1")
		}
	})
}

// The kill switch, from the rules and of the process: on and off without a restart.
func TestKillSwitch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason string
		set    func(*node, *Caller, uint64, bool)
	}{
		{"rules", func(n *node, _ *Caller, number uint64, on bool) {
			s := n.sign(number, rules.Set{Rules: []rules.Rule{rule("orders", "v2")}, Direct: on})
			n.change(func() { n.rules = s })
		}},
		{"process", func(_ *node, c *Caller, _ uint64, on bool) { c.SetDirect(on) }},
	} {
		t.Run(row.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, registry := newNode(t), prometheus.NewRegistry()
				n.list("orders", mixed()...)
				n.publish(1, rule("orders", "v2"))
				opt := options(n)
				opt.Metrics = registry
				c := started(t, one(n), opt)
				ready(t, c)
				for round, on := range []bool{true, false, true, false} {
					row.set(n, c, uint64(round+2), on)
					time.Sleep(time.Second)
					want, degraded := "10.0.0.2:80", 0.0
					if on {
						want, degraded = direct, 1
					}
					if got := among(picks(t.Context(), c, "orders", 1000)); got != want {
						t.Errorf("switch %v: %s", on, got)
					}
					if metric(t, registry, "dispatch_discovery_degraded", row.reason) != degraded {
						t.Errorf("switch %v: the metric is not %v", on, degraded)
					}
				}
			})
		})
	}
}

// D06: isolation is switched while calls run.
func TestIsolationIsSwitched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instance("orders", "10.0.0.1:80", "prod", route.Base), instance("orders", "10.0.0.2:80", "prod", "li"))
		c := started(t, one(n), options(n))
		ready(t, c)
		for _, row := range []struct {
			on   bool
			want string
		}{{true, "10.0.0.1:80"}, {false, "10.0.0.1:80 10.0.0.2:80"}} {
			c.SetIsolate(row.on)
			time.Sleep(time.Second)
			if got := among(picks(t.Context(), c, "orders", 1000)); got != row.want {
				t.Errorf("isolation %v: %s, want %s", row.on, got, row.want)
			}
		}
	})
}

// broken is an engine with a defect.
type broken struct{ engine }

func (broken) Pick(route.Query, uint64) (route.Choice, error) { panic("index out of range") }

// A49: a panic of the engine is counted, and the same call is served.
func TestPanicIsServed(t *testing.T) {
	t.Parallel()
	registry, log := prometheus.NewRegistry(), &logged{}
	c := filled(t, Options{Metrics: registry, Log: log.logger()}, rules.Set{Rules: []rules.Rule{rule("orders", "v2")}}, mixed())
	s := (*c.slots.Load())["orders"]
	good := s.now.Load()
	bad := *good
	bad.table = broken{good.table}
	s.now.Store(&bad)
	if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
		t.Errorf("picks went to %s", got)
	}
	if p, err := c.Pick(WithLane(t.Context(), route.Query{Env: "t2", Base: "test"}), "orders"); err != nil || p.Instance.Env != "test" || p.Step != 2 || p.Reason != route.ByDirect {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := c.Pick(WithLane(t.Context(), route.Query{Env: "t2"}), "orders"); err == nil {
		t.Error("a lane without anybody reached somebody")
	}
	if got := metric(t, registry, "dispatch_discovery_panics_total"); got != 1002 {
		t.Errorf("%v panics were counted", got)
	}
	if text := log.String(); strings.Count(text, "index out of range") != 1 {
		t.Errorf("log:\n%s", text)
	}
	c.soil()
	c.compileDirty()
	if got := among(picks(t.Context(), c, "orders", 1000)); got != "10.0.0.2:80" {
		t.Errorf("with a sound table picks went to %s", got)
	}
}

// Without a table that could be compiled, picks are direct; drained, isolated and
// suspicious instances take nothing even then.
func TestDirectWithoutATable(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, mixed())
	all := append(mixed(), instance("orders", "10.0.0.3:80", "prod", "v1"), instance("orders", "10.0.0.4:80", "prod", "v1"), instance("orders", "10.0.0.5:80", "prod", "v1"))
	all[4].Weight = new(0)
	in := route.Input{Service: "orders", Home: home(), Instances: all, Scale: map[string]route.Scale{
		all[5].ID: {Why: route.Isolated}, all[6].ID: {Why: route.Suspicious}, all[0].ID: {Why: route.Warming}}}
	(*c.slots.Load())["orders"].now.Store(&entry{in: in, view: route.View{Key: "x"}, named: new(atomic.Bool), sent: new(atomic.Bool)})
	if got := among(picks(t.Context(), c, "orders", 1000)); got != direct {
		t.Errorf("picks went to %s", got)
	}
	in.Scale = map[string]route.Scale{all[0].ID: {Why: route.Ejected}, all[5].ID: {Why: route.Ejected}, all[6].ID: {Why: route.Ejected}}
	for _, last := range []bool{false, true} { // who is ejected serves when nobody else is left
		if last {
			in.Instances = all[:1]
		}
		for draw := range uint64(100) {
			choice, err := chooseDirect(&in, route.Query{}, draw<<57)
			if err != nil || in.Scale[choice.Instance.ID].Why == route.Ejected != last {
				t.Fatalf("%v: %+v, %v", last, choice, err)
			}
		}
	}
	isolated := in
	isolated.Isolate, isolated.Instances = true, []discovery.Instance{instance("orders", "10.0.0.1:80", "prod", route.Base),
		instance("orders", "10.0.0.2:80", "prod", "a"), instance("orders", "10.0.0.3:80", "prod", "b")}
	for person, want := range map[string]string{"": "10.0.0.1:80", "a": "10.0.0.2:80", "b": "10.0.0.3:80", "c": "10.0.0.1:80"} {
		for draw := range uint64(100) {
			if choice, err := chooseDirect(&isolated, route.Query{Person: person}, draw<<57); err != nil || choice.Instance.Address.String() != want {
				t.Fatalf("person %q: %+v, %v", person, choice, err)
			}
		}
	}
	if candidates, _, _ := c.Candidates("orders"); len(candidates) != len(all) {
		t.Errorf("%d candidates", len(candidates))
	}
}
