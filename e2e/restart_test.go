package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
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

// golden asks the edges the golden requests, each n-th of them, and returns region
// and domain of every answer. They travel as JSON, which carries any character.
func golden(t *testing.T, top *topology.Topology, nth int) []string {
	t.Helper()
	requests, err := release.GoldenRequests()
	must(t, err)
	answers := make([]string, 0, len(requests)/nth)
	for i := 0; i < len(requests); i += nth {
		r := requests[i]
		body := map[string]string{"app": "mobile"}
		for name, value := range map[string]string{"device_id": r.Device, "user_id": r.User, "app_version": r.AppVersion, "platform": r.Platform,
			"channel": r.Channel, "carrier": r.Carrier, "locale": r.Locale, "origin": r.Origin} {
			if value != "" {
				body[name] = value
			}
		}
		from := "192.0.2.1"
		if r.Addr.IsValid() {
			from = r.Addr.String()
		}
		a, err := top.Ask(t.Context(), top.Edges[i%len(top.Edges)].Public, body, "X-Forwarded-For", from)
		must(t, err)
		answers = append(answers, fmt.Sprintf("%s %s release %d", a.Region, a.Domain, a.Release))
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
	nth := pick(10, 1)
	before := golden(t, top, nth)
	stopEverything(t, top)
	var slowest time.Duration
	for _, edge := range top.Edges {
		must(t, edge.Kill())
		begin := time.Now()
		must(t, edge.Launch())
		within(t, 3*time.Second, func() error {
			return topology.Get(t.Context(), "http://"+edge.Ops+"/readyz", http.StatusOK, fmt.Sprintf("number %d", o.Release))
		})
		slowest = max(slowest, time.Since(begin))
	}
	after := golden(t, top, nth)
	different := 0
	for i := range before {
		if before[i] != after[i] {
			different++
			if different < 5 {
				t.Errorf("golden request %d: %s before, %s after the restart", i*nth, before[i], after[i])
			}
		}
	}
	figure(t, "P3", "ready %s after kill -9 with database, Redis, Consul and control down; %d of %d answers differ", ms(slowest), different, len(before))
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
	stopEverything(t, top)
	for _, edge := range top.Edges {
		must(t, edge.Kill())
		must(t, edge.Start(t.Context()))
	}
	check("an empty folder, everything down")
	figure(t, "P4", "%d edges without a release: alive, not ready, 503", len(top.Edges))
}

// stopEverything ends all that is behind the edges.
func stopEverything(t *testing.T, top *topology.Topology) {
	t.Helper()
	for _, c := range top.Controls {
		must(t, c.Kill())
	}
	for _, c := range []*testenv.Control{top.MariaDB, top.Redis, top.Consul} {
		must(t, c.Stop(20*time.Second))
	}
}
