package inner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/internal/testenv"
)

var (
	regions = []string{"cn-hangzhou", "cn-shanghai", "cn-beijing"}
	envs    = []string{"dev", "test", "pre", "prod"}
)

// callsPerEnv is how many calls each environment makes across one registry.
const callsPerEnv = 10_000

// cities are three regions over one Consul, with one control node each, and in
// every environment of every region an order service in two versions.
type cities struct {
	consul   *testenv.Control
	registry string
	controls map[string]*control
	orders   []*hop
	shops    map[string]*hop // by environment, in the first region
	copies   string          // of the shops' tables

	published uint64 // releases of rules in the first region
}

func startCities(t *testing.T) *cities {
	t.Helper()
	agent, addr, err := testenv.ControlConsul(t.TempDir())
	must(t, err)
	c := &cities{consul: start(t, agent), registry: "consul://" + addr, controls: map[string]*control{}, shops: map[string]*hop{}, copies: t.TempDir()}
	for _, region := range regions {
		c.controls[region] = startControl(t, region, c.registry)
		for _, env := range envs {
			c.orders = append(c.orders, launch(t, place{server: "order", region: region, env: env}, "-registry", c.registry, "-calls", "order.api"))
		}
	}
	for _, version := range []string{"v1", "v2"} { // beside the one above
		c.orders = append(c.orders, launch(t, place{server: "order", region: regions[0], env: "prod", version: version}, "-registry", c.registry, "-calls", "order.api"))
	}
	registered(t, c.orders...)
	for _, env := range envs {
		c.shops[env] = launch(t, place{server: "shop", region: regions[0], env: env}, c.shopArgs(c.controls[regions[0]], env)...)
	}
	for _, shop := range c.shops {
		registered(t, shop)
	}
	return c
}

func (c *cities) shopArgs(control *control, env string) []string {
	return []string{"-registry", c.registry, "-calls", "order.api", "-fleet", "http://" + control.fleet, "-fleet-token-file", control.tokenFile,
		"-trust-keys", control.trust, "-dir", filepath.Join(c.copies, env)}
}

// rule is a rule of order.api in prod of the first region.
func rule(updated time.Time, region, version string) string {
	return fmt.Sprintf("service: order.api\nupdated: %s\nselector: {cluster: shared, region: %s, env: prod}\nstrategy: {version: %q, weight: 100}\n",
		updated.Format(time.RFC3339), region, version)
}

// folder is a folder with this one rule.
func folder(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "order.yaml"), []byte(text), 0o600))
	return dir
}

// Everything that three cities have to show on one registry. The parts follow one
// another: each leaves what the next begins with.
func TestThreeCitiesShareOneRegistry(t *testing.T) {
	c := startCities(t)
	home := c.controls[regions[0]]
	shop := c.shops["prod"]

	// A16: dev, test, pre and prod share one registry, and no call crosses.
	for _, env := range envs {
		within(t, 20*time.Second, func() error { // the directory looks for new names every 2 s
			if counts, errs := c.shops[env].calls(t, 10, "order.api"); len(errs) > 0 {
				return fmt.Errorf("in %s: %v %v", env, counts, errs)
			}
			return nil
		})
		counts, errs := c.shops[env].calls(t, callsPerEnv, "order.api")
		total := 0
		for where, n := range counts {
			if total += n; !strings.HasPrefix(where, env+" ") {
				t.Errorf("%d calls from %s went to %s", n, env, where)
			}
		}
		if total != callsPerEnv || len(errs) > 0 {
			t.Errorf("of %d calls in %s, %d arrived; %v", callsPerEnv, env, total, errs)
		}
		t.Logf("A16 %s: %d calls, %v, 0 crossed", env, total, counts)
	}
	c.staysInRegion(t, shop)
	c.lintCatches(t, home)
	c.rulesTravel(t, home, shop)
	c.explains(t, home, shop)
	c.switchesToDirect(t, home, shop)
	c.scrapes(t, home)
	c.outlivesEverything(t, home)
}

// staysInRegion: A54, all instances that were called are those of the caller's region.
func (c *cities) staysInRegion(t *testing.T, shop *hop) {
	t.Helper()
	got, err := shop.ask(t.Context(), url.Values{"path": {"order.api"}, "n": {"1000"}})
	must(t, err)
	for _, order := range c.orders {
		for where, n := range got.Counts {
			if strings.HasSuffix(where, " "+order.addr) && order.region != shop.region {
				t.Errorf("%d calls from %s went to %s", n, shop.region, order.region)
			}
		}
	}
}

// lintCatches: A24, every value of the rule is legal, and no instance has them all:
// what once sent the traffic of one environment into another.
func (c *cities) lintCatches(t *testing.T, home *control) {
	t.Helper()
	out, exit := home.ctl(t, "rules", "lint", folder(t, rule(time.Now(), regions[1], "v2")))
	if exit != 1 || !strings.Contains(out, "order.yaml") || !strings.Contains(out, regions[1]) {
		t.Errorf("lint of a rule for another region ended with %d:\n%s", exit, out)
	}
	out, exit = home.ctl(t, "rules", "lint", folder(t, rule(time.Now(), "cn-hangzhuo", "v2")))
	if exit != 1 || !strings.Contains(out, "cn-hangzhuo") {
		t.Errorf("lint of a misspelt region ended with %d:\n%s", exit, out)
	}
	if out, exit = home.ctl(t, "rules", "apply", folder(t, rule(time.Now(), regions[1], "v2")), "--reason", "never", "--confirm", regions[0]); exit != 1 {
		t.Errorf("a rule that matches nothing was published (%d):\n%s", exit, out)
	}
}

// rulesTravel: A26, a rule that was published is in use within 2 s; the watch makes it less.
func (c *cities) rulesTravel(t *testing.T, home *control, shop *hop) {
	t.Helper()
	const times = 100
	var took []time.Duration
	for i := range times {
		want := []string{"v1", "v2"}[i%2]
		dir := folder(t, rule(time.Now(), regions[0], want))
		out, exit := home.ctl(t, "rules", "apply", dir, "--reason", "to "+want, "--confirm", regions[0])
		if exit != 0 {
			t.Fatalf("apply ended with %d:\n%s", exit, out)
		}
		c.published++
		took = append(took, within(t, 5*time.Second, func() error {
			counts, errs := shop.calls(t, 10, "order.api")
			if len(errs) > 0 || counts["prod "+want] != 10 {
				return fmt.Errorf("%s takes not everything yet: %v %v", want, counts, errs)
			}
			return nil
		}))
	}
	if p99 := quantile(took, 0.99); p99 > 2*time.Second {
		t.Errorf("a rule took up to %s from the answer of apply to its use", p99)
	}
	t.Logf("A26 rule published to used, %d times: p50 %s, p99 %s after the answer of apply", times, quantile(took, 0.5), quantile(took, 0.99))
}

// explains: A47, the record of a call names its rule, and the same choice comes out again.
func (c *cities) explains(t *testing.T, home *control, shop *hop) {
	t.Helper()
	got, err := shop.ask(t.Context(), url.Values{"path": {"order.api"}, "keep": {"true"}})
	must(t, err)
	if got.ID == "" {
		t.Fatal("a call that was to be recorded has no ID")
	}
	var said string
	within(t, 10*time.Second, func() error {
		out, exit := home.ctl(t, "explain", "call", got.ID)
		if said = out; exit != 0 {
			return errors.New(out)
		}
		return nil
	})
	for _, want := range []string{"reproduced", got.Places[1].Address, "order.api/prod@"} {
		if !strings.Contains(said, want) {
			t.Errorf("explain of %s lacks %q:\n%s", got.ID, want, said)
		}
	}
}

// switchesToDirect: A48, the kill switch goes past rules and versions, and keeps the env.
func (c *cities) switchesToDirect(t *testing.T, home *control, shop *hop) {
	t.Helper()
	if out, exit := home.ctl(t, "rules", "switch", "direct", "--confirm", regions[0], "--reason", "the engine is wrong"); exit != 0 {
		t.Fatalf("switch ended with %d:\n%s", exit, out)
	}
	c.published++
	both := func() error {
		counts, errs := shop.calls(t, 200, "order.api")
		if len(errs) > 0 || counts["prod v1"] == 0 || counts["prod v2"] == 0 || len(counts) != 2 {
			return fmt.Errorf("not both versions of prod: %v %v", counts, errs)
		}
		return nil
	}
	within(t, 5*time.Second, both)
	if out, exit := home.ctl(t, "rules", "switch", "rules", "--confirm", regions[0], "--reason", "it is mended"); exit != 0 {
		t.Fatalf("switch back ended with %d:\n%s", exit, out)
	}
	c.published++
	within(t, 5*time.Second, func() error {
		if both() == nil {
			return errors.New("both versions are still called")
		}
		return nil
	})
}

// scrapes: B20, Prometheus finds the region's instances.
func (c *cities) scrapes(t *testing.T, home *control) {
	t.Helper()
	tokens, err := signed.ReadTokens(home.tokenFile)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+home.fleet+"/discovery/prometheus", nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+tokens[0])
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	var groups []struct {
		Targets []string
		Labels  map[string]string
	}
	must(t, json.Unmarshal(text, &groups))
	targets := map[string]string{}
	for _, g := range groups {
		for _, target := range g.Targets {
			targets[target] = g.Labels["region"] + " " + g.Labels["env"]
		}
	}
	for _, order := range c.orders {
		if at, found := targets[order.addr]; found != (order.region == regions[0]) || found && at != order.region+" "+order.env {
			t.Errorf("%s is a target: %v, as %q", order.Name, found, at)
		}
	}
}

// outlivesEverything: control node and Consul are gone, and the shop starts anew
// from its copy on disk.
func (c *cities) outlivesEverything(t *testing.T, home *control) {
	t.Helper()
	before, _ := c.shops["prod"].calls(t, 100, "order.api")
	within(t, 20*time.Second, func() error { // copies are written some seconds apart
		text, err := os.ReadFile(filepath.Join(c.copies, "prod", "tables.copy"))
		if err != nil {
			return err
		}
		_, body, _ := strings.Cut(string(text), "\n")
		var kept struct{ Rules struct{ Number uint64 } }
		if err := json.Unmarshal([]byte(body), &kept); err != nil || kept.Rules.Number != c.published {
			return fmt.Errorf("the copy has rules %d of %d: %w", kept.Rules.Number, c.published, err)
		}
		return nil
	})
	must(t, home.Kill())
	must(t, c.consul.Kill())
	must(t, c.shops["prod"].Kill())
	again := launch(t, place{server: "shop", region: regions[0], env: "prod"}, c.shopArgs(home, "prod")...)
	within(t, 20*time.Second, func() error {
		got, err := again.ask(t.Context(), url.Values{"path": {"order.api"}, "n": {"100"}})
		if err != nil {
			return err
		}
		after := map[string]int{}
		for where, n := range got.Counts {
			after[where[:strings.LastIndex(where, " ")]] += n
		}
		if fmt.Sprint(before) != fmt.Sprint(after) {
			return fmt.Errorf("before %v, from disk %v %v", before, after, got.Errors)
		}
		return nil
	})
}
