package inner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/internal/signed"
)

// follower is a caller of the control node's services, in this process.
type follower struct {
	*caller.Caller
	end func()
}

// follows starts a caller that keeps its copy in dir.
func (c *control) follows(t testing.TB, dir string) *follower {
	t.Helper()
	tokens, err := signed.ReadTokens(c.tokenFile)
	must(t, err)
	trust, err := signed.ReadTrust(c.trust)
	must(t, err)
	calls, err := caller.New(caller.Options{ID: "test-1", Self: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod"},
		Control: []string{"http://" + c.fleet}, Token: tokens[0], Trust: trust, Services: []string{"order-core"}, Dir: dir})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- calls.Run(ctx) }()
	f := &follower{Caller: calls}
	f.end = func() {
		if stop(); f.end != nil {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		f.end = nil
	}
	t.Cleanup(func() {
		if f.end != nil {
			f.end()
		}
	})
	return f
}

// sees waits until a pick is made by rules of this number.
func (f *follower) sees(t testing.TB, limit time.Duration, number uint64) time.Duration {
	t.Helper()
	return within(t, limit, func() error {
		p, err := f.Pick(t.Context(), "order-core")
		if err == nil && p.Number != number {
			err = fmt.Errorf("picked by rules v%d, not v%d", p.Number, number)
		}
		return err
	})
}

// tally is how many of 100,000 picks went to each version.
func (f *follower) tally(t testing.TB) map[string]int {
	t.Helper()
	counts, recorded := map[string]int{}, 0
	for range 100_000 {
		p, err := f.Pick(t.Context(), "order-core")
		must(t, err)
		if counts[p.Instance.Version]++; p.ID() != "" {
			recorded++
		}
	}
	if recorded > 1000 { // one in a thousand is, of both versions
		t.Errorf("%d of 100,000 picks are recorded", recorded)
	}
	return counts
}

// A36, C04, C24, T64: callers follow each step and the way back within 2 s, to the
// point and to nobody; a key that moved stays; a caller that starts alone keeps the step.
func TestAVersionGrowsAndIsTakenBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	registry := filepath.Join(dir, "registry.yaml")
	var text strings.Builder
	text.WriteString("instances:\n")
	for i, version := range []string{"v2.3.1", "v2.3.1", "v2.3.1", "v2.4.0", "v2.4.0"} {
		fmt.Fprintf(&text, "  - {service: order-core, address: \"127.0.0.1:%d\", cluster: production, region: cn-hangzhou, env: prod, version: %s}\n", 9001+i, version)
	}
	must(t, os.WriteFile(registry, []byte(text.String()), 0o600))
	rules := filepath.Join(dir, "rules")
	must(t, os.Mkdir(rules, 0o700))
	must(t, os.WriteFile(filepath.Join(rules, "order-core.yaml"), []byte("service: order-core\nupdated: 2026-11-30T09:00:00Z\n"+
		"selector: {cluster: production, region: cn-hangzhou, env: prod}\nstrategy: {version: v2.3.1}\n"), 0o600))
	c := startControl(t, "cn-hangzhou", "static:"+registry)
	ctl := func(args ...string) {
		t.Helper()
		if out, exit := c.ctl(t, append(args, "--reason", "because of a test")...); exit != 0 {
			t.Fatalf("%v: exit %d\n%s", args, exit, out)
		}
	}
	ctl("rules", "apply", rules, "--confirm", "cn-hangzhou")
	f := c.follows(t, filepath.Join(dir, "copy"))
	f.sees(t, 10*time.Second, 1)

	inside, before := map[string]bool{}, 0 // keys that moved, and at what share
	var slowest time.Duration
	step := func(number uint64, share int, args ...string) {
		t.Helper()
		ctl(append([]string{"gray", "inner"}, args...)...)
		slowest = max(slowest, f.sees(t, 2*time.Second, number))
		seen := float64(f.tally(t)["v2.4.0"]) / 1000
		if math.Abs(seen-float64(share)) > 1 || share%100 == 0 && seen != float64(share) {
			t.Errorf("%.3f %% of the picks at %d %%", seen, share)
		}
		for i := range 2000 {
			key := fmt.Sprintf("user-%d", i)
			p, err := f.Pick(caller.WithKey(t.Context(), key), "order-core")
			must(t, err)
			now := p.Instance.Version == "v2.4.0"
			if inside[key] != now && now != (share > before) {
				t.Errorf("%s moved against the gray from %d %% to %d %%", key, before, share)
			}
			inside[key] = now
		}
		before = share
	}
	step(2, 5, "start", "order-core/prod", "v2.4.0", "--confirm", "order-core")
	step(3, 20, "step", "order-core/prod", "--confirm", "order-core")
	step(4, 50, "step", "order-core/prod", "--confirm", "order-core")
	step(5, 100, "step", "order-core/prod", "--confirm", "order-core")
	step(6, 20, "step", "order-core/prod", "--to", "20", "--confirm", "order-core")

	// A caller that starts while control is away has the step of its copy.
	f.end()
	must(t, c.Stop(15*time.Second))
	alone := c.follows(t, filepath.Join(dir, "copy"))
	alone.sees(t, 20*time.Second, 6)
	if seen := float64(alone.tally(t)["v2.4.0"]) / 1000; math.Abs(seen-20) > 1 {
		t.Errorf("%.3f %% of the picks from the copy at 20 %%", seen)
	}
	must(t, c.Start(t.Context()))
	f = alone
	within(t, 10*time.Second, func() error { // the node draws its directory first
		if out, exit := c.ctl(t, "gray", "inner", "step", "order-core/prod", "--to", "50", "--confirm", "order-core", "--reason", "because of a test"); exit != 0 {
			return errors.New(out)
		}
		return nil
	})
	f.sees(t, 30*time.Second, 7) // callers ask a node that was away more seldom

	step(8, 0, "abort", "order-core/prod", "--confirm", "order-core")
	t.Logf("callers followed within %s", slowest.Round(time.Millisecond))
}
