package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"dispatch.example/dispatch/e2e/load"
	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/fleet"
)

// background asks an edge while something happens, and fails the test if any
// answer is missing or slower than a second.
func background(t *testing.T, addr string) (stop func() load.Result) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan load.Result, 1)
	go func() { done <- load.Load{Addrs: []string{addr}, Rate: 200, For: time.Hour, Conns: 8}.Run(ctx) }()
	return func() load.Result {
		cancel()
		r := <-done
		// The requests under way when the context ended are no failures of the edge.
		if r.Failed > 0 || r.Quantile(1) > time.Second {
			t.Errorf("answers meanwhile: %s, slowest %s, %v", r, r.Quantile(1), r.Failures)
		}
		return r
	}
}

// P11: a Redis that is frozen, so that connections stay open and nothing answers,
// slows no answer and holds up no release for longer than a poll.
func TestP11FrozenRedisHoldsNothingUp(t *testing.T) {
	top := start(t, topology.Options{NoProxy: true})
	rounds := pick(5, 20)
	swaps := func() (took []time.Duration, r load.Result) {
		stop := background(t, top.Edges[0].Public)
		for range rounds {
			took = append(took, swapAndWait(t, top))
		}
		return took, stop()
	}
	_, calm := swaps()
	must(t, top.Redis.Pause())
	took, frozen := swaps()
	slowest := slices.Max(took)
	must(t, top.Redis.Resume())
	o, err := top.Swap(t.Context())
	must(t, err)
	must(t, top.WaitServing(t.Context(), o.Release))
	figure(t, "P11", "Redis frozen: a swap reaches every edge in %s (limit 6 s), most in %s; p99 of /route %s, before %s", ms(slowest), ms(median(took)), ms(frozen.Quantile(0.99)), ms(calm.Quantile(0.99)))
	if slowest > 6*time.Second {
		t.Errorf("a swap took %s with Redis frozen, limit 6 s", slowest)
	}
	if frozen.Quantile(0.99) > calm.Quantile(0.99)+pick(20*time.Millisecond, max(calm.Quantile(0.99)/10, 5*time.Millisecond)) {
		t.Errorf("p99 %s with Redis frozen, %s before", frozen.Quantile(0.99), calm.Quantile(0.99))
	}
}

// P13: a database that takes 10 s for each answer slows no request of an app, and
// the admin API says so within 3 s.
func TestP13SlowDatabaseIsASoonRefusal(t *testing.T) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	slow := toxiproxy.NewProxy(server, "database", "127.0.0.1:0", "")
	top := start(t, topology.Options{NoProxy: true, Database: func(addr string) (string, error) {
		slow.Upstream = addr
		err := slow.Start()
		return slow.Listen, err
	}})
	t.Cleanup(slow.Stop)
	_, err := slow.Toxics.AddToxicJson(strings.NewReader(`{"type":"latency","stream":"downstream","attributes":{"latency":10000}}`))
	must(t, err)
	stop := background(t, top.Edges[0].Public)
	var slowest time.Duration
	for range 3 {
		begin := time.Now()
		err := top.Call(t.Context(), top.Controls[0], topology.Request{Path: "/hosts"}, nil)
		slowest = max(slowest, time.Since(begin))
		p, ok := err.(*topology.Problem)
		if !ok || p.Status != http.StatusServiceUnavailable || p.Hint == "" {
			t.Errorf("with a slow database the admin API answers %v", err)
		}
	}
	r := stop()
	must(t, slow.Toxics.RemoveToxic(t.Context(), "latency_downstream"))
	within(t, 30*time.Second, func() error {
		return top.Call(t.Context(), top.Controls[0], topology.Request{Path: "/hosts"}, nil)
	})
	figure(t, "P13", "database 10 s an answer: admin refuses after %s (limit 3 s), p99 of /route %s", ms(slowest), ms(r.Quantile(0.99)))
	if slowest > 3*time.Second {
		t.Errorf("refused after %s, limit 3 s", slowest)
	}
}

// P14: an edge that is cut off serves on, is red within 15 s, says its age itself,
// and is up to date 6 s after the cut has healed.
func TestP14PartitionedEdgeServesAndIsRed(t *testing.T) {
	top := start(t, topology.Options{NoProxy: true, Links: true})
	edge := top.Edges[0]
	within(t, 10*time.Second, func() error { return stateIs(t, top, edge, fleet.Current) })
	stop := background(t, edge.Public)
	edge.Cut()
	begin := time.Now()
	o, err := top.Swap(t.Context())
	must(t, err)
	for _, other := range top.Edges[1:] {
		must(t, top.WaitEdge(t.Context(), other, o.Release))
	}
	within(t, 20*time.Second, func() error { return stateIs(t, top, edge, fleet.Silent) })
	red := time.Since(begin)
	a, err := top.Route(t.Context(), edge.Public)
	if err != nil || a.Release != o.Release-1 {
		t.Errorf("cut off, the edge answers %+v, %v", a, err)
	}
	status, text, err := top.Ready(t.Context(), edge)
	if err != nil || status != http.StatusOK || !strings.Contains(text, "age ") {
		t.Errorf("cut off, the edge says %d %q %v; it must be ready and say its age", status, text, err)
	}
	edge.Heal()
	healed := time.Now()
	must(t, top.WaitEdge(t.Context(), edge, o.Release))
	converged := time.Since(healed)
	within(t, 10*time.Second, func() error { return stateIs(t, top, edge, fleet.Current) })
	stop()
	figure(t, "P14", "cut off: serves on, red after %.1f s (limit 15 s and a poll of this test); up to date %s after it healed (limit 6 s)", red.Seconds(), ms(converged))
	if red > 16*time.Second { // 15 s, and a second for this test to see it
		t.Errorf("red after %s", red)
	}
	if converged > 6*time.Second {
		t.Errorf("up to date %s after it healed", converged)
	}
}

func stateIs(t *testing.T, top *topology.Topology, edge *topology.Node, want fleet.State) error {
	t.Helper()
	members, err := top.Fleet(t.Context(), top.Controls[0])
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.ID == edge.Name {
			if m.State != want {
				return fmt.Errorf("%s is %s, want %s", edge.Name, m.State, want)
			}
			return nil
		}
	}
	return fmt.Errorf("%s is not in the fleet of %d", edge.Name, len(members))
}
