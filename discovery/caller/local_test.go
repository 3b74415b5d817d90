package caller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
)

// ruleText is a rule file for prod.
func ruleText(version string) string {
	return "service: orders\nupdated: 2026-11-30T09:00:00Z\nselector: {cluster: production, region: cn-hangzhou, env: prod}\n" +
		"strategy: {version: " + version + ", weight: 100}\n"
}

func writeRule(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "orders.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A60, B25: one service, a static file, a folder of rules, and no other program.
// A04: rules that are wrong leave the old ones in use.
func TestWithFilesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, registry, log := t.TempDir(), prometheus.NewRegistry(), &logged{}
		writeRule(t, dir, ruleText("v2"))
		path := registryFile(t, mixed()...)
		source, err := discovery.Open("static:"+path, discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := started(t, nil, Options{Self: home(), Registry: source, Services: []string{"orders"}, RulesDir: dir, Metrics: registry, Log: log.logger()})
		ready(t, c)
		expect := func(when, want string, number uint64) {
			t.Helper()
			if got := among(picks(t.Context(), c, "orders", 1000)); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
			if p, _ := c.Pick(t.Context(), "orders"); p.Number != number {
				t.Errorf("%s: rules %d, want %d", when, p.Number, number)
			}
			if metric(t, registry, "dispatch_discovery_degraded") != 0 {
				t.Errorf("%s: degraded", when)
			}
		}
		expect("at the start", "10.0.0.2:80", 1)
		writeRule(t, dir, ruleText("v1"))
		time.Sleep(2 * time.Second)
		expect("after a change", "10.0.0.1:80", 2)
		for name, text := range map[string]string{
			"a wildcard": strings.Replace(ruleText("v2"), "prod}", `"*"}`, 1), "no region": strings.Replace(ruleText("v2"), "region: cn-hangzhou, ", "", 1),
			"no YAML": "service: [", "empty": "",
		} {
			before := metric(t, registry, "dispatch_discovery_caller_problems_total", "rules")
			writeRule(t, dir, text)
			time.Sleep(2 * time.Second)
			expect(name, "10.0.0.1:80", 2)
			if metric(t, registry, "dispatch_discovery_caller_problems_total", "rules") == before {
				t.Errorf("%s: not counted", name)
			}
		}
		if err := os.Remove(filepath.Join(dir, "orders.yaml")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		expect("without a file", "10.0.0.1:80", 2)
		writeRule(t, dir, ruleText("v2"))
		time.Sleep(2 * time.Second)
		expect("right again", "10.0.0.2:80", 3)
		if text := log.String(); strings.Count(text, "well again") != 1 || strings.Count(text, "calls go by what was known before") != 1 {
			t.Errorf("log:\n%s", text)
		}
		writeRegistry(t, path, append(mixed(), instance("orders", "10.0.0.7:80", "prod", "v2"))...)
		time.Sleep(70 * time.Second)
		expect("with another instance, warm", "10.0.0.2:80 10.0.0.7:80", 3)
	})
}

// Files that change are not believed before they rest.
func TestFilesThatAreBeingWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writeRule(t, dir, ruleText("v1"))
		source, err := discovery.Open("static:"+registryFile(t, mixed()...), discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := started(t, nil, Options{Self: home(), Registry: source, Services: []string{"orders"}, RulesDir: dir})
		ready(t, c)
		time.Sleep(time.Second + 70*time.Millisecond)
		for i := range 50 {
			writeRule(t, dir, ruleText([]string{"v2", "v1"}[i%2]))
			time.Sleep(settleFor)
			if got := among(picks(t.Context(), c, "orders", 10)); got != "10.0.0.1:80" {
				t.Fatalf("after %d writes: %s", i+1, got)
			}
		}
		writeRule(t, dir, ruleText("v2"))
		time.Sleep(2 * time.Second)
		if got := among(picks(t.Context(), c, "orders", 10)); got != "10.0.0.2:80" {
			t.Errorf("at rest: %s", got)
		}
	})
}

// chatty is a registry that changes two hundred times a second.
type chatty struct{ untouched }

func (chatty) Watch(ctx context.Context, service string, out discovery.Observer) error {
	for version := uint64(1); ; version++ {
		out.Publish(discovery.Snapshot{Service: service, Version: version, Instances: instances(1+int(version%5), service, "prod", "v1")})
		if version == 2000 {
			<-ctx.Done()
			return nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return nil
		}
	}
}

// C16: whatever a registry does, a service is compiled twenty times a second at
// most, and its last state counts.
func TestRegistryThatNeverRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := started(t, nil, Options{Self: home(), Registry: chatty{untouched{t}}, Services: []string{"orders"}})
		ready(t, c)
		time.Sleep(11 * time.Second)
		if made := c.tables.Load(); made < 100 || made > 220 {
			t.Errorf("%d tables in 10 s, want at most 20 a second", made)
		}
		if got := len((*c.slots.Load())["orders"].now.Load().in.Instances); got != 1 {
			t.Errorf("%d instances, the last list has 1", got)
		}
	})
}

// Rules that were wrong from the start are those that could never be loaded.
func TestFolderThatIsWrongAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, registry := t.TempDir(), prometheus.NewRegistry()
		writeRule(t, dir, "service: *x\n")
		source, err := discovery.Open("static:"+registryFile(t, mixed()...), discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := started(t, nil, Options{Self: home(), Registry: source, Services: []string{"orders"}, RulesDir: dir, Metrics: registry})
		ready(t, c)
		time.Sleep(2 * time.Second)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != direct || metric(t, registry, "dispatch_discovery_degraded", "no_rules") != 1 {
			t.Errorf("picks went to %s", got)
		}
		writeRule(t, dir, ruleText("v2"))
		time.Sleep(2 * time.Second)
		if got := among(picks(t.Context(), c, "orders", 1000)); got != "10.0.0.2:80" || metric(t, registry, "dispatch_discovery_degraded") != 0 {
			t.Errorf("picks went to %s", got)
		}
	})
}

// A16: dev, test, pre and prod share one registry; 10,000 picks of each stay in it.
func TestEnvironmentsShareARegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all []discovery.Instance
		envs := []string{"dev", "test", "pre", "prod"}
		for i, env := range envs {
			for j := range 3 {
				all = append(all, instance("order-core", fmt.Sprintf("10.0.%d.%d:80", i, j+1), env, "v1"))
			}
		}
		source, err := discovery.Open("static:"+registryFile(t, all...), discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range envs {
			self := home()
			self.Env = env
			c := started(t, nil, Options{Self: self, Registry: source, Services: []string{"order-core"}})
			ready(t, c)
			seen := map[string]int{}
			for range 10_000 {
				p, err := c.Pick(t.Context(), "order-core")
				if err != nil {
					t.Fatal(err)
				}
				if p.Instance.Env != env {
					t.Fatalf("%s reached %s in %s", env, p.Instance.Address, p.Instance.Env)
				}
				seen[p.Instance.Address.String()]++
			}
			if len(seen) != 3 {
				t.Errorf("%s reached %v", env, seen)
			}
		}
	})
}

// D03, D04: A and B with a static registry; A's own instance stops, and A falls back
// to the shared pool.
func TestDevelopersWithARegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, a, b := instance("orders", "10.0.0.1:80", "test", route.Base), instance("orders", "10.0.0.2:80", "test", "a"), instance("orders", "10.0.0.3:80", "test", "b")
		path := registryFile(t, base, a, b)
		source, err := discovery.Open("static:"+path, discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		self := home()
		self.Env = "test"
		as := func(person string) *Caller {
			c := started(t, nil, Options{Self: self, Lane: route.Query{Person: person}, Registry: source, Services: []string{"orders"}, Isolate: true})
			ready(t, c)
			return c
		}
		ofA, ofB := as("a"), as("b")
		if got := among(picks(t.Context(), ofA, "orders", 10_000)); got != "10.0.0.2:80" {
			t.Errorf("a reached %s", got)
		}
		writeRegistry(t, path, base, b)
		time.Sleep(10 * time.Second)
		if got := among(picks(t.Context(), ofA, "orders", 10_000)); got != "10.0.0.1:80" {
			t.Errorf("without an own instance a reached %s", got)
		}
		if got := among(picks(t.Context(), ofB, "orders", 10_000)); got != "10.0.0.3:80" {
			t.Errorf("b reached %s", got)
		}
	})
}
