package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/signed"
)

// A caller and two control nodes, as they run: lists reach picks, isolation takes
// traffic away at once, records come back with the list they were made from, and a
// node that starts while a registry is away takes nothing from a caller.
func TestCallerFollowsControlNodes(t *testing.T) {
	consul, static, memory := newBook("consul"), newBook("static"), newShelf()
	one, two := at("orders", 1), at("orders", 2)
	consul.write("orders", one)
	static.write("orders", two)
	first, end := follow(t, memory, consul, static)
	s := serve(t, first, nil)
	var answers atomic.Pointer[Server]
	answers.Store(s)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers.Load().ServeHTTP(w, r) }))
	c := calling(t, node.URL)
	if got := picked(t, c); !slices.Equal(got, []string{one.Address.String(), two.Address.String()}) {
		t.Fatalf("picks go to %v", got)
	}
	memory.do(func() {
		memory.verdicts = []Verdict{{Fingerprint: Fingerprint{ID: two.ID}, Service: "orders", Isolate: true}}
	})
	first.Recheck()
	within(t, "isolated: picks go to the other alone", func() bool { return slices.Equal(picked(t, c), []string{one.Address.String()}) })
	within(t, "records come with the list of their view", func() (found bool) {
		memory.do(func() {
			for i, b := range memory.batches {
				for _, v := range b.Views {
					found = found || len(b.Records) > 0 && len(memory.lists[i][v.Digest]) == 2
				}
			}
		})
		return found
	})
	memory.do(func() { memory.verdicts = nil })
	first.Recheck()
	within(t, "lifted: picks go to both", func() bool { return len(picked(t, c)) == 2 })

	consul.fail(errors.New("away"))
	second, endSecond := follow(t, memory, consul, static)
	defer endSecond()
	after := serve(t, second, nil)
	end()
	s.Stop()
	answers.Store(after) // the same address, another process
	within(t, "the new node is asked", func() bool { v, _ := second.View(); return len(v.Calls) == 1 })
	static.write("orders", relabelled(two))
	within(t, "the new node's list, and what only the old one knew", func() bool { return knows(c, one, relabelled(two)) })
	consul.fail(nil)
	consul.write("orders")
	within(t, "what the registry took away when it was back", func() bool { return knows(c, relabelled(two)) })
	after.Stop()
	node.Close()
}

// calling is a caller of orders that asks a control node and records every pick.
func calling(t *testing.T, url string) *caller.Caller {
	t.Helper()
	keys, err := signed.NewKeys(signed.Publisher)
	if err != nil {
		t.Fatal(err)
	}
	c, err := caller.New(caller.Options{ID: "shop-1", Service: "shop", Self: home(), Control: []string{url}, Trust: signed.TrustOf(keys), Services: []string{"orders"}, Sample: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the caller: %v", err)
		}
	})
	ready, cancelReady := context.WithTimeout(ctx, 10*time.Second)
	defer cancelReady()
	if err := c.Ready(ready); err != nil {
		t.Fatal(err)
	}
	return c
}

// picked are the addresses that 100 picks go to.
func picked(t *testing.T, c *caller.Caller) []string {
	t.Helper()
	var found []string
	for range 100 {
		p, err := c.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if a := p.Instance.Address.String(); !slices.Contains(found, a) {
			found = append(found, a)
		}
	}
	slices.Sort(found)
	return found
}

// knows says whether these are the candidates of orders.
func knows(c *caller.Caller, want ...discovery.Instance) bool {
	all, _, _ := c.Candidates("orders")
	byID := func(a, b discovery.Instance) int { return strings.Compare(a.ID, b.ID) }
	return slices.EqualFunc(slices.SortedFunc(slices.Values(all), byID), want, func(a, b discovery.Instance) bool {
		return a.ID == b.ID && maps.Equal(a.Labels, b.Labels)
	})
}

func relabelled(in discovery.Instance) discovery.Instance {
	in.Labels = map[string]string{"seen": "later"}
	return in
}

// within waits up to 15 s for something to be so.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(15 * time.Second)
	defer deadline.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after 15 s it is not so: %s", what)
		}
	}
}

// A43: what an instance reports of its CPU lowers it in a caller, by a step for each
// report although they say the same.
func TestLoadReachesPicks(t *testing.T) {
	t.Parallel()
	book := newBook("consul")
	one, two := at("orders", 1), at("orders", 2)
	book.write("orders", one, two)
	d, end := follow(t, nil, book)
	defer end()
	s := serve(t, d, nil)
	node := httptest.NewServer(s)
	defer node.Close()
	defer s.Stop()
	c := calling(t, node.URL)
	part := func() (thousandths int) {
		p, err := c.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		_, x, err := c.Explain(p.ID())
		if err != nil {
			t.Fatal(err)
		}
		for _, candidate := range x.Candidates {
			if candidate.ID == one.ID && candidate.Scale != nil && candidate.Scale.Why == route.Hot {
				thousandths = candidate.Scale.Thousandths
			}
		}
		return thousandths
	}
	hot, full := reportOf(one), 100.0
	hot.Load.CPU = &full
	for _, want := range []int{700, 490} {
		if w := send(s, wire.ReportsPath, []wire.Report{hot}); w.Code != http.StatusNoContent {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		within(t, fmt.Sprintf("it has %d thousandths", want), func() bool { return part() == want })
	}
}
