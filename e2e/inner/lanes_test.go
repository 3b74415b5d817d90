package inner

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// registryFile names the ports api and control of each hop, which may then register.
func registryFile(t *testing.T, path string, hops ...*hop) {
	t.Helper()
	var b strings.Builder
	b.WriteString("instances:\n")
	for _, h := range hops {
		for _, port := range []struct{ name, addr string }{{"api", h.addr}, {"control", h.admin}} {
			fmt.Fprintf(&b, "  - {service: %q, address: %q, cluster: shared, region: %q, env: %q, version: %q}\n",
				h.server+"."+port.name, port.addr, h.region, h.env, h.version)
		}
	}
	must(t, os.WriteFile(path+".new", []byte(b.String()), 0o600))
	must(t, os.Rename(path+".new", path))
}

// B03 to B05: a call that went through the base environment returns to the feature
// environment where that has the next service.
func TestAFeatureLaneReturnsFromItsBase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "registry.yaml")
	must(t, os.WriteFile(file, []byte("instances: []\n"), 0o600))
	common := []string{"-registry", "static:" + file, "-calls", "b.api,c.api"}
	const region = "cn-hangzhou"
	a := launch(t, place{server: "a", region: region, env: "t2", base: "t0", version: "v1"}, common...)
	b := launch(t, place{server: "b", region: region, env: "t0", version: "v1"}, common...)
	inBase, inFeature := launch(t, place{server: "c", region: region, env: "t0", version: "v1"}, common...), launch(t, place{server: "c", region: region, env: "t2", base: "t0", version: "v1"}, common...)
	registryFile(t, file, a, b, inBase, inFeature)
	registered(t, a, b, inBase, inFeature)

	got, err := a.ask(t.Context(), url.Values{"path": {"b.api,c.api"}})
	must(t, err)
	var went []string
	for _, p := range got.Places {
		went = append(went, p.Server+" in "+p.Env)
	}
	if fmt.Sprint(went) != "[a in t2 b in t0 c in t2]" {
		t.Errorf("the call went %v", went)
	}
	// Traffic that carries no lane has that of the process, and never t2.
	if got, err = b.ask(t.Context(), url.Values{"path": {"c.api"}, "n": {"1000"}}); err != nil || len(got.Errors) > 0 {
		t.Fatal(err, got.Errors)
	}
	for where, n := range got.Counts {
		if !strings.HasPrefix(where, "t0 ") {
			t.Errorf("%d calls from the base went to %s", n, where)
		}
	}
	// B06: neither environment has it.
	if _, err := a.ask(t.Context(), url.Values{"path": {"b.api"}}, "baggage: env_id=t9,base_env=t8"); err == nil || !strings.Contains(err.Error(), "t9") {
		t.Errorf("a lane without instances gave %v, not an error that names it", err)
	}
}

// D02 to D05: two developers share a registry with the server, and never meet.
func TestDevelopersNeverMeet(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "registry.yaml")
	must(t, os.WriteFile(file, []byte("instances: []\n"), 0o600))
	common := []string{"-registry", "static:" + file, "-calls", "middle.api,order.api", "-isolate"}
	const region, env = "cn-hangzhou", "dev"
	middle := launch(t, place{server: "middle", region: region, env: env, version: "base"}, common...)
	server := launch(t, place{server: "order", region: region, env: env, version: "base"}, common...)
	devA, devB := launch(t, place{server: "order", region: region, env: env, version: "dev-a"}, common...), launch(t, place{server: "order", region: region, env: env, version: "dev-b"}, common...)
	shop := launch(t, place{server: "shop", region: region, env: env, version: "base"}, common...)
	all := []*hop{middle, server, devA, devB, shop}
	registryFile(t, file, all...)
	registered(t, all...)

	const calls = 10_000
	for person, want := range map[string]string{"": "base", "dev-a": "dev-a", "dev-b": "dev-b", "dev-c": "base"} {
		counts, errs := shop.calls(t, calls, "order.api", "baggage: dispatch_person="+person)
		if person == "" {
			counts, errs = shop.calls(t, calls, "order.api")
		}
		if counts[env+" "+want] != calls || len(errs) > 0 {
			t.Errorf("traffic of %q went to %v, want %s alone; %v", person, counts, want, errs)
		}
	}
	// Also behind a service in between that is nobody's.
	if counts, errs := shop.calls(t, 100, "middle.api,order.api", "baggage: dispatch_person=dev-a"); counts[env+" dev-a"] != 100 {
		t.Errorf("behind another service, traffic of dev-a went to %v; %v", counts, errs)
	}
	// D03: without A's instance it is the server's; D08: without that too it is an error, not B's.
	registryFile(t, file, middle, server, devB, shop)
	within(t, 10*time.Second, func() error {
		if counts, errs := shop.calls(t, 100, "order.api", "baggage: dispatch_person=dev-a"); counts[env+" base"] != 100 {
			return fmt.Errorf("traffic of dev-a went to %v; %v", counts, errs)
		}
		return nil
	})
	registryFile(t, file, middle, devB, shop)
	within(t, 10*time.Second, func() error {
		counts, errs := shop.calls(t, 100, "order.api", "baggage: dispatch_person=dev-a")
		if counts[env+" dev-b"] > 0 {
			t.Fatalf("traffic of dev-a reached dev-b: %v", counts)
		}
		if len(counts) > 0 {
			return fmt.Errorf("traffic of dev-a went to %v; %v", counts, errs)
		}
		return nil
	})
}

// A25: the rule of the outage, each value legal and the region wrong, gives errors
// and sends nobody elsewhere.
func TestARuleForTheWrongRegionFailsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, rules := filepath.Join(dir, "registry.yaml"), filepath.Join(dir, "rules")
	must(t, os.Mkdir(rules, 0o700))
	must(t, os.WriteFile(file, []byte("instances: []\n"), 0o600))
	wrong := strings.ReplaceAll(rule(time.Now(), "cn-shanghai", "v1"), "env: prod", "env: pre")
	must(t, os.WriteFile(filepath.Join(rules, "order.yaml"), []byte(wrong), 0o600))
	common := []string{"-registry", "static:" + file, "-calls", "order.api", "-rules", rules}
	pre := launch(t, place{server: "order", region: "cn-hangzhou", env: "pre", version: "v1"}, common...)
	prod := launch(t, place{server: "order", region: "cn-hangzhou", env: "prod", version: "v1"}, common...)
	shop := launch(t, place{server: "shop", region: "cn-hangzhou", env: "pre", version: "v1"}, common...)
	registryFile(t, file, pre, prod, shop)
	registered(t, pre, prod, shop)
	const calls = 1000
	counts, errs := shop.calls(t, calls, "order.api")
	if len(counts) > 0 || len(errs) != 1 {
		t.Fatalf("%d calls went to %v with errors %v", calls, counts, errs)
	}
	for text, n := range errs {
		if n != calls {
			t.Errorf("%d of %d calls failed", n, calls)
		}
		for _, part := range []string{"order.api", "cn-shanghai", "pre", "v1", "cluster", "region"} {
			if !strings.Contains(text, part) {
				t.Errorf("the error lacks %q: %s", part, text)
			}
		}
		t.Log(text)
	}
}
