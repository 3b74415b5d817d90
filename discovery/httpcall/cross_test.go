package httpcall

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
)

// registered is a registry with these instances in it.
func registered(t testing.TB, instances ...discovery.Instance) discovery.Source {
	t.Helper()
	var b strings.Builder
	b.WriteString("instances:\n")
	for _, in := range instances {
		fmt.Fprintf(&b, "  - {service: %q, address: %q, cluster: %q, region: %q, env: %q, version: %q}\n",
			in.Service, in.Address, in.Cluster, in.Region, in.Env, in.Version)
	}
	path := filepath.Join(t.TempDir(), "instances.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := discovery.Open("static:"+path, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

// callerIn is a running caller of a service, in an environment.
func callerIn(t testing.TB, source discovery.Source, service, env string, lane route.Query) *caller.Caller {
	t.Helper()
	c, err := caller.New(caller.Options{Self: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: env, Version: "v1"},
		Lane: lane, Registry: source, Services: []string{service}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// dev, test, pre and prod share one registry: 10,000 calls, 0 of them to another.
func TestNothingCrosses(t *testing.T) {
	t.Parallel()
	envs := []string{"dev", "test", "pre", "prod"}
	var all []discovery.Instance
	for _, env := range envs {
		for range 2 {
			all = append(all, serving(t, "order-core", env, says(env, nil)))
		}
	}
	source := registered(t, all...)
	var calls sync.WaitGroup
	var crossed, arrived atomic.Int64
	for _, env := range envs {
		client := clientOf(t, New(callerIn(t, source, "order-core", env, route.Query{}), nil))
		for range 4 {
			calls.Go(func() {
				for range 2500 / 4 {
					text, err := get(t, client, t.Context(), "http://order-core/")
					if err != nil {
						t.Error(err)
					}
					if arrived.Add(1); text != env {
						crossed.Add(1)
					}
				}
			})
		}
	}
	calls.Wait()
	if arrived.Load() != 10_000 || crossed.Load() != 0 {
		t.Errorf("%d of %d calls crossed", crossed.Load(), arrived.Load())
	}
}

// B04: a caller in one environment goes by the lane of the traffic, then by its own.
func TestLaneOfTheTrafficThenOfTheProcess(t *testing.T) {
	t.Parallel()
	source := registered(t, serving(t, "order-core", "t0", says("t0", nil)), serving(t, "order-core", "t2", says("t2", nil)))
	client := clientOf(t, New(callerIn(t, source, "order-core", "t2", route.Query{Env: "t2", Base: "t0"}), nil))
	for want, lane := range map[string]route.Query{"t2": {}, "t0": {Env: "t0"}} {
		if text, err := get(t, client, caller.WithLane(t.Context(), lane), "http://order-core/"); text != want || err != nil {
			t.Errorf("%+v: %q, %v", lane, text, err)
		}
	}
	// T60: nobody in t9, so the base; and the next hop is told t9 all the same.
	if text, err := get(t, client, caller.WithLane(t.Context(), route.Query{Env: "t9", Base: "t0"}), "http://order-core/"); text != "t0" || err != nil {
		t.Errorf("the base of the traffic: %q, %v", text, err)
	}
	if _, err := get(t, client, caller.WithLane(t.Context(), route.Query{Env: "t9"}), "http://order-core/"); err == nil {
		t.Error("a lane with nobody in it was served")
	}
}
