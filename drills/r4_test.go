package drills

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/httpcall"
)

const (
	callsR4 = 100_000
	// limitR4 is by how many points a share may differ from its step.
	limitR4 = 1.0
	// limitC24 is how soon a version that was taken back gets nothing.
	limitC24 = 2 * time.Second
)

// R4, C04, C24: a gray grows by 5, 20 and 50 through the API. Calls without a key are
// shared by chance, those with one by it, and whoever was among the 5 % is among the
// 20 %. Taken back, the new version gets nothing within two seconds. In full the
// calls are sent.
func TestR4SharesOfAGray(t *testing.T) {
	var listed []discovery.Instance
	for i, version := range []string{"v1", "v2"} {
		address := "127.0.0.1:" + strconv.Itoa(i+1)
		if *full {
			address = freeAddr(t)
			start(t, "server-"+version, part{Server: &serverPart{Service: "r4", Listen: address, Version: version}})
		}
		listed = append(listed, instance(t, "r4", address, version))
	}
	n := startNode(t, roster(t, listed...))
	within(t, 20*time.Second, func() error { return n.listed(t, "r4") })
	n.apply(t, "r4", `strategy: {version: "v1", weight: 100}`)
	opt := caller.Options{Self: home("v1"), Services: []string{"r4"}}
	must(t, n.reach().options(&opt))
	c := follow(t, opt)
	call := callerR4(t, c)

	var rows [][]string
	inside := map[string]bool{} // keys that the step before had
	line, moved := "", 0
	for i, step := range []int{5, 20, 50} {
		if i == 0 {
			n.ctl(t, "gray", "inner", "start", "r4/prod", "v2", "--reason", "drill", "--confirm", "r4")
		} else {
			n.ctl(t, "gray", "inner", "step", "r4/prod", "--reason", "drill", "--confirm", "r4")
		}
		pass(t, 2*time.Second) // callers follow within that
		chance, keyed := 0, map[string]bool{}
		for range callsR4 {
			if call(t.Context()) == "v2" {
				chance++
			}
		}
		for k := range callsR4 {
			key := "device-" + strconv.Itoa(k)
			if call(caller.WithKey(t.Context(), key)) == "v2" {
				keyed[key] = true
			}
		}
		for key := range inside {
			if !keyed[key] {
				moved++
			}
		}
		inside = keyed
		byChance, byKey := 100*float64(chance)/callsR4, 100*float64(len(keyed))/callsR4
		line += fmt.Sprintf("%d %%: %.2f and %.2f; ", step, byChance, byKey)
		rows = append(rows, []string{strconv.Itoa(step), strconv.Itoa(chance), strconv.Itoa(len(keyed)), strconv.Itoa(callsR4)})
		for _, share := range []float64{byChance, byKey} {
			if math.Abs(share-float64(step)) > limitR4 {
				t.Errorf("at step %d it has %.2f %%", step, share)
			}
		}
	}
	n.ctl(t, "gray", "inner", "abort", "r4/prod", "--reason", "drill", "--confirm", "r4")
	begin := time.Now()
	last := time.Duration(0)
	for time.Since(begin) < limitC24+time.Second {
		if call(t.Context()) == "v2" {
			last = time.Since(begin)
		}
	}
	keep(t, "R4", []string{"step_percent", "by_chance", "by_key", "calls"}, rows)
	figure(t, "R4", "%s gray through the API, by chance and by key: %slimit 1 point; %d keys of a step are not in the next", pick("100,000 picks", "100,000 calls"), line, moved)
	figure(t, "C24", "taken back, the last call to the new version is sent %s after the answer (limit %s)", short(last), limitC24)
	if moved > 0 {
		t.Errorf("%d keys moved back as the share grew", moved)
	}
	if last > limitC24 {
		t.Errorf("the new version is called %s after it was taken back", last)
	}
}

// callerR4 calls or picks, and says which version it was.
func callerR4(t *testing.T, c *caller.Caller) func(context.Context) string {
	client := webClient(t, c, nil)
	return func(ctx context.Context) string {
		if !*full {
			p, err := c.Pick(ctx, "r4")
			must(t, err)
			return p.Instance.Version
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://r4/", nil)
		must(t, err)
		resp, err := client.Do(req)
		must(t, err)
		defer func() { _ = resp.Body.Close() }() // it is read to its end
		_, err = io.Copy(io.Discard, resp.Body)
		must(t, err)
		p, ok := httpcall.PickOf(resp)
		if !ok {
			t.Fatal("an answer that no instance gave")
		}
		return p.Instance.Version
	}
}

// listed says whether the node has heard of a service.
func (n *node) listed(t *testing.T, service string) error {
	t.Helper()
	for line := range strings.Lines(n.ctl(t, "services")) {
		if strings.HasPrefix(line, service+" ") {
			return nil
		}
	}
	return fmt.Errorf("the control node knows no %s", service)
}
