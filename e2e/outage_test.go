package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"dispatch.example/dispatch/e2e/load"
	"dispatch.example/dispatch/e2e/topology"
)

// P2: with the database, Redis and Consul gone, no answer fails and none is slower.
func TestP02AnswersGoOnWithoutAnythingBehind(t *testing.T) {
	outage(t, "P2", pick(30*time.Second, 5*time.Minute))
}

// P2 at its full length: 24 h in make soak.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		*soak = 10 * time.Second // make check only shows that it runs
	}
	outage(t, "P2", *soak)
}

// outage stops everything behind one of two fleets and measures both in turn, so
// that whatever else this machine does falls on both.
func outage(t *testing.T, promise string, lasting time.Duration) {
	whole := start(t, topology.Options{Edges: 1, NoProxy: true, Pinned: true})
	cut := start(t, topology.Options{Edges: 1, NoProxy: true, Pinned: true})
	for _, dependency := range dependencies(cut) {
		must(t, dependency.call(t.Context()))
	}
	window := load.Load{Rate: 1500, For: max(lasting/12, time.Second)}
	measure := func(top *topology.Topology) (load.Result, time.Duration) {
		edge := top.Edges[0]
		window.Addrs = []string{edge.Public}
		before := cpuOf(t, edge.PID())
		r := window.Run(t.Context())
		return r, (cpuOf(t, edge.PID()) - before) / time.Duration(max(r.Served, 1))
	}
	measure(whole) // warm-up
	measure(cut)
	for _, dependency := range dependencies(cut) {
		must(t, dependency.stop())
		if dependency.call(t.Context()) == nil {
			t.Fatalf("%s still answers", dependency.name)
		}
	}
	began, served := time.Now(), 0
	var with, without, cpuWith, cpuWithout []time.Duration
	for time.Since(began) < lasting || len(with) < 5 {
		for _, side := range []struct {
			top      *topology.Topology
			p99, cpu *[]time.Duration
		}{{whole, &with, &cpuWith}, {cut, &without, &cpuWithout}} {
			r, cpu := measure(side.top)
			if r.Failed+r.Shed > 0 || r.Served != r.Sent {
				t.Errorf("with everything up: %v; %s %v", side.top == whole, r, r.Failures)
			}
			served += r.Served
			*side.p99, *side.cpu = append(*side.p99, r.Quantile(0.99)), append(*side.cpu, cpu)
		}
	}
	a, b := median(with), median(without)
	figure(t, promise, "%s without database, Redis and Consul: %d answers, 0 failed; p99 %s, with them %s; CPU a request %.2f times",
		time.Since(began).Round(time.Second), served, ms(b), ms(a), float64(median(cpuWithout))/float64(median(cpuWith)))
	// The small form has five windows of a few seconds on a machine that does other
	// things: it finds answers that wait for what is gone, the full form judges speed.
	if limit := a + pick(20*time.Millisecond, max(a/10, time.Millisecond)); b > limit {
		t.Errorf("p99 %s without, %s with; limit %s", b, a, limit)
	}
	if float64(median(cpuWithout)) > pick(1.3, 1.1)*float64(median(cpuWith)) {
		t.Errorf("CPU a request %s without, %s with; limit %.1f times", median(cpuWithout), median(cpuWith), pick(1.3, 1.1))
	}
}

// dependency is something that the product leans on: a call shows that it is there.
type dependency struct {
	name string
	call func(context.Context) error
	stop func() error
}

func dependencies(top *topology.Topology) []dependency {
	return []dependency{
		{"database", func(ctx context.Context) error {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return top.Call(limited, top.Controls[0], topology.Request{Path: "/hosts"}, nil)
		}, func() error { return top.MariaDB.Stop(20 * time.Second) }},
		{"Redis", func(ctx context.Context) error {
			client := redis.NewClient(&redis.Options{Addr: top.RedisAddr(), MaxRetries: -1, DialerRetries: 1})
			defer client.Close()
			keys, err := client.Keys(ctx, "dispatch:*").Result()
			if err == nil && len(keys) == 0 {
				err = fmt.Errorf("nobody uses it")
			}
			return err
		}, func() error { return top.Redis.Stop(20 * time.Second) }},
		{"Consul", func(ctx context.Context) error {
			return topology.Get(ctx, top.ConsulURL()+"/v1/catalog/services", http.StatusOK, "dispatch")
		}, func() error { return top.Consul.Stop(20 * time.Second) }},
	}
}
