package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/e2e/topology"
)

// question is one request whose answer must be the same after a restart.
type question struct {
	edge    *topology.Node
	headers []string
}

// questions are as varied as the policies of the example read them.
func questions(top *topology.Topology, n int) []question {
	all := make([]question, n)
	for i := range all {
		q := question{edge: top.Edges[i%len(top.Edges)], headers: []string{"X-Device-Id", fmt.Sprintf("d-%d", 1000+i)}}
		switch i % 4 {
		case 1:
			q.headers = append(q.headers, "X-Platform", "ios", "X-App-Version", fmt.Sprintf("10.%d.0", i%5))
		case 2:
			q.headers = append(q.headers, "X-Forwarded-For", fmt.Sprintf("27.115.%d.%d", i%128, i%250+1))
		case 3:
			q.headers = append(q.headers, "X-Forwarded-For", fmt.Sprintf("36.5.%d.%d", i%250, i%250+1), "X-User-Id", fmt.Sprintf("u-%d", i))
		}
		all[i] = q
	}
	return all
}

// ask returns region and domain of every answer.
func ask(t *testing.T, top *topology.Topology, all []question) []string {
	t.Helper()
	answers := make([]string, len(all))
	for i, q := range all {
		a, err := top.Route(t.Context(), q.edge.Public, q.headers...)
		must(t, err)
		answers[i] = fmt.Sprintf("%s %s release %d", a.Region, a.Domain, a.Release)
	}
	return answers
}

// P3: an edge that starts while everything behind it is down is ready within 3 s
// and answers as before.
func TestP03RestartWithEverythingDown(t *testing.T) {
	top := start(t, topology.Options{NoProxy: true})
	o, err := top.Swap(t.Context()) // so that the document alone would answer otherwise
	must(t, err)
	must(t, top.WaitServing(t.Context(), o.Release))
	all := questions(top, pick(1_000, 10_000))
	before := ask(t, top, all)
	for _, c := range top.Controls {
		must(t, c.Kill())
	}
	for _, server := range []interface{ Stop(time.Duration) error }{top.MariaDB, top.Redis, top.Consul} {
		must(t, server.Stop(20*time.Second))
	}
	var slowest time.Duration
	for _, edge := range top.Edges {
		must(t, edge.Kill())
		begin := time.Now()
		must(t, edge.Launch())
		took := within(t, 3*time.Second, func() error {
			return topology.Get(t.Context(), "http://"+edge.Ops+"/readyz", http.StatusOK, fmt.Sprintf("number %d", o.Release))
		})
		slowest = max(slowest, time.Since(begin))
		_ = took
	}
	after := ask(t, top, all)
	different := 0
	for i := range before {
		if before[i] != after[i] {
			different++
			if different < 5 {
				t.Errorf("%v: %s before, %s after the restart", all[i].headers, before[i], after[i])
			}
		}
	}
	figure(t, "P3", "ready %s after kill -9 with database, Redis, Consul and control down; %d of %d answers differ", ms(slowest), different, len(all))
}

// P4: without a release there is no answer, and never an empty or invented domain.
func TestP04NothingLoadedIsNotReady(t *testing.T) {
	top := start(t, topology.Options{NoProxy: true, Empty: true})
	check := func(when string) {
		for _, edge := range top.Edges {
			must(t, topology.Get(t.Context(), "http://"+edge.Ops+"/readyz", http.StatusServiceUnavailable, "none loaded yet"))
			must(t, topology.Get(t.Context(), "http://"+edge.Ops+"/healthz", http.StatusOK, "ok"))
			_, err := top.Route(t.Context(), edge.Public, "X-Device-Id", "d-1")
			p, ok := err.(*topology.Problem)
			if !ok || p.Status != http.StatusServiceUnavailable || strings.Contains(p.Detail, `"domain"`) {
				t.Errorf("%s: %s answers %v", when, edge.Name, err)
			}
		}
	}
	check("nothing published")
	for _, c := range top.Controls {
		must(t, c.Kill())
	}
	for _, server := range []interface{ Stop(time.Duration) error }{top.MariaDB, top.Redis, top.Consul} {
		must(t, server.Stop(20*time.Second))
	}
	for _, edge := range top.Edges {
		must(t, edge.Kill())
		must(t, edge.Start(t.Context()))
	}
	check("an empty folder, everything down")
	figure(t, "P4", "%d edges without a release: alive, not ready, 503", len(top.Edges))
}
