package caller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/signed"
)

// A28, A29: one full pull at the start, and then everything is there without I/O.
func TestStartIsOneFullPull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instances(5, "orders", "prod", "v1")...)
		n.list("stock", instances(3, "stock", "prod", "v1")...)
		net := one(n)
		c := started(t, net, options(n))
		ready(t, c)
		if asked, full := n.counted(); full != 1 {
			t.Errorf("%d full answers to %d questions, want 1", full, asked)
		}
		before := net.count()
		p, err := c.Pick(t.Context(), "orders")
		if err != nil || p.Reason != route.ByHome {
			t.Errorf("first pick: %+v, %v", p, err)
		}
		if all, _, _ := c.Candidates("orders"); len(all) != 5 {
			t.Errorf("%d candidates after Ready, want 5", len(all))
		}
		if net.count() != before {
			t.Error("the first pick asked somebody")
		}
	})
}

// A27: with the network cut a million picks succeed, and none asks anybody.
func TestPicksNeedNoNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instances(50, "orders", "prod", "v1")...)
		n.publish(1, rule("orders", "v1"))
		net := one(n)
		c := started(t, net, options(n))
		ready(t, c)
		net.mu.Lock()
		net.cut = true
		net.mu.Unlock()
		time.Sleep(time.Minute) // the questions have failed
		before := net.count()
		for range 1_000_000 {
			if _, err := c.Pick(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
		}
		if sent := net.count() - before; sent != 0 {
			t.Errorf("%d requests were sent", sent)
		}
	})
}

// A26: rules are used at once, and within 2 s although every wake-up is lost.
func TestRulesAreUsedInTime(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"woken": false, "wake-ups lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.list("orders", append(instances(2, "orders", "prod", "v1"), instance("orders", "10.1.0.1:80", "prod", "v2"))...)
				n.publish(1, rule("orders", "v1"))
				c := started(t, one(n), options(n))
				ready(t, c)
				n.change(func() { n.deaf = deaf })
				var worst time.Duration
				for i := range 100 {
					time.Sleep(rand.N(3 * time.Second))
					began, want := time.Now(), []string{"v2", "v1"}[i%2]
					n.publish(uint64(i+2), rule("orders", want))
					for {
						if p, err := c.Pick(t.Context(), "orders"); err == nil && p.Instance.Version == want {
							break
						}
						time.Sleep(5 * time.Millisecond)
					}
					worst = max(worst, time.Since(began))
				}
				t.Logf("slowest of 100 publishes: %v", worst)
				limit := 2 * time.Second
				if !deaf {
					limit = 200 * time.Millisecond
				}
				if worst > limit {
					t.Errorf("a publish took %v until it was used, want at most %v", worst, limit)
				}
			})
		})
	}
}

func TestListsFollowControl(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instances(2, "orders", "prod", "v1")...)
		n.list("stock", instances(1, "stock", "prod", "v1")...)
		c := started(t, one(n), options(n))
		ready(t, c)
		all, number, changed := c.Candidates("orders")
		if len(all) != 2 || number != 0 {
			t.Errorf("%d candidates by rules %d", len(all), number)
		}
		n.list("orders", instances(1, "orders", "prod", "v1")...)
		<-changed
		if all, _, changed = c.Candidates("orders"); len(all) != 1 {
			t.Errorf("%d candidates after one left", len(all))
		}
		n.publish(7, rule("stock", "v1"))
		time.Sleep(time.Second)
		select {
		case <-changed:
			t.Error("rules of another service woke those who wait for orders")
		default:
		}
		n.publish(8, rule("stock", "v1"), rule("orders", "v1"))
		<-changed
		if _, number, changed = c.Candidates("orders"); number != 8 {
			t.Errorf("number %d after release 8 changed the rules", number)
		}
		if _, number, _ := c.Candidates("stock"); number != 7 {
			t.Errorf("number %d of stock, whose rules release 7 changed last", number)
		}
		n.publish(9, rule("stock", "v1"))
		n.change(func() { n.put("orders", wire.Service{Gone: true}) })
		<-changed
		if _, err := c.Pick(t.Context(), "orders"); err == nil {
			t.Error("a service that is gone was picked")
		}
		_, _, appears := c.Candidates("orders")
		n.list("orders", instances(3, "orders", "prod", "v1")...)
		<-appears
		if got := picks(t.Context(), c, "orders", 100); len(got) != 3 {
			t.Errorf("back again: %v", got)
		}
	})
}

// T64, A36: a weight of 0 takes effect at once, without a rule.
func TestDrainIsUsedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		two := instances(2, "orders", "prod", "v1")
		n.list("orders", two...)
		c := started(t, one(n), options(n))
		ready(t, c)
		two[0].Weight = new(0)
		n.list("orders", two...)
		time.Sleep(2 * time.Second)
		if got := among(picks(t.Context(), c, "orders", 100_000)); got != "10.0.0.2:80" {
			t.Errorf("after the drain: %s", got)
		}
	})
}

// A release that is not believed changes nothing, and is not asked for in a circle.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	stranger := newNode(t)
	for _, c := range []struct {
		name, log string
		bad       func(n *node) *rules.Signed
	}{
		{"older", "older than what is known", func(n *node) *rules.Signed { return n.sign(4, rules.Set{}) }},
		{"same number, other rules", "other content", func(n *node) *rules.Signed { return n.sign(5, rules.Set{}) }},
		{"a jump that would lock everybody out", "number out of range", func(n *node) *rules.Signed { return n.sign(5+signed.MaxJump+1, rules.Set{}) }},
		{"signed by a stranger", "does not trust", func(*node) *rules.Signed { return stranger.sign(6, rules.Set{}) }},
		{"changed on the way", "signature", func(n *node) *rules.Signed {
			s := n.sign(6, rules.Set{})
			s.Manifest = append([]byte{}, s.Manifest...)
			s.Manifest[len(s.Manifest)-2] ^= 1
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.list("orders", append(instances(1, "orders", "prod", "v1"), instance("orders", "10.1.0.1:80", "prod", "v2"))...)
				n.publish(5, rule("orders", "v2"))
				registry, log := prometheus.NewRegistry(), &logged{}
				opt := options(n)
				opt.Metrics, opt.Log = registry, log.logger()
				k := started(t, one(n), opt)
				ready(t, k)
				bad := c.bad(n)
				if bad.Number == 5 { // the node believes that the caller lacks it
					n.change(func() { n.epoch = "e2" })
					k.mu.Lock()
					k.book.number = 0
					k.mu.Unlock()
				}
				asked, _ := n.counted()
				n.change(func() { n.rules = bad })
				time.Sleep(10 * time.Second)
				if now, _ := n.counted(); now-asked > 12 {
					t.Errorf("%d questions in 10 s", now-asked)
				}
				if got := among(picks(t.Context(), k, "orders", 100)); got != "10.1.0.1:80" {
					t.Errorf("picks went to %s", got)
				}
				if metric(t, registry, "dispatch_discovery_caller_problems_total", "rules") == 0 {
					t.Error("it was not counted")
				}
				if text := log.String(); strings.Count(text, "calls go by what was known before") != 1 || !strings.Contains(text, c.log) {
					t.Errorf("log:\n%s", text)
				}
				n.list("orders", instance("orders", "10.1.0.2:80", "prod", "v2")) // lists go on
				time.Sleep(2 * time.Second)
				if got := among(picks(t.Context(), k, "orders", 100)); got != "10.1.0.2:80" {
					t.Errorf("picks went to %s", got)
				}
				n.publish(6, rule("orders", "v2"))
				time.Sleep(3 * time.Second)
				if !strings.Contains(log.String(), "well again") {
					t.Errorf("the end was not logged:\n%s", log)
				}
			})
		})
	}
}

// A node that starts while a registry is away lacks its instances: what was known
// of them stays until the node hears from it. What it did hear counts at once.
func TestNodeThatStartsWithoutItsRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		five, other := instances(5, "orders", "prod", "v1"), instance("orders", "10.2.0.1:80", "prod", "v1")
		other.Source = "second"
		n.list("orders", append([]discovery.Instance{other}, five...)...)
		n.list("stock", instances(1, "stock", "prod", "v1")...)
		c := started(t, one(n), options(n))
		ready(t, c)
		n.change(func() { // of the registry main it hears nothing, and other has left the second one
			n.epoch, n.partial = "e2", map[string]string{"main": "no leader"}
			delete(n.lists, "stock")
			n.put("orders", wire.Service{})
		})
		time.Sleep(time.Minute)
		if got := picks(t.Context(), c, "orders", 1000); len(got) != 5 || got["10.2.0.1:80"] > 0 {
			t.Errorf("orders: %v", got)
		}
		if got := among(picks(t.Context(), c, "stock", 10)); got != "10.0.0.1:80" {
			t.Errorf("stock: %s", got)
		}
		n.change(func() { // it hears of main again: two are left there
			n.partial = nil
			n.put("orders", wire.Service{Instances: five[:2]})
		})
		time.Sleep(time.Minute)
		if got := picks(t.Context(), c, "orders", 1000); len(got) != 2 {
			t.Errorf("orders: %v", got)
		}
		if _, err := c.Pick(t.Context(), "stock"); err == nil {
			t.Error("stock is carried although nobody registers it")
		}
	})
}

// A52: of two nodes one dies; picks go on and the other one is asked.
func TestFailOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t)
		b := newNode(t)
		b.keys, b.epoch = a.keys, "e2"
		for _, n := range []*node{a, b} {
			n.list("orders", instances(5, "orders", "prod", "v1")...)
			n.publish(3, rule("orders", "v1"))
		}
		opt := options(a)
		opt.Control = []string{"https://a:8083", "https://b:8083"}
		c := started(t, &network{nodes: map[string]*node{"a:8083": a, "b:8083": b}}, opt)
		ready(t, c)
		dies, lives := a, b
		if asked, _ := a.counted(); asked == 0 {
			dies, lives = b, a
		}
		if asked, _ := lives.counted(); asked != 0 {
			t.Error("two nodes are asked at a time")
		}
		dies.change(func() { dies.down = true })
		time.Sleep(wire.HoldFor + failOver)
		lives.list("orders", instances(1, "orders", "prod", "v1")...)
		time.Sleep(time.Second)
		if got := picks(t.Context(), c, "orders", 100); len(got) != 1 {
			t.Errorf("after the fail-over: %v", got)
		}
	})
}

// T49: 1,000 callers of a node that restarts do not come back in one second.
func TestHerd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const herd = 1000
		n := newNode(t)
		n.list("orders", instances(3, "orders", "prod", "v1")...)
		net := one(n)
		var mu sync.Mutex
		var began time.Time
		seconds := map[int]int{}
		came := func() {
			mu.Lock()
			defer mu.Unlock()
			seconds[int(time.Since(began)/time.Second)]++
		}
		var all []*Caller
		for range herd {
			all = append(all, started(t, &tap{RoundTripper: net, came: came}, options(n)))
		}
		for _, c := range all {
			ready(t, c)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		began = time.Now()
		mu.Unlock()
		n.change(func() { n.down = true })
		time.Sleep(5 * time.Second)
		n.change(func() { n.down, n.epoch = false, "e2" })
		time.Sleep(30 * time.Second)
		peak, sum := 0, 0
		mu.Lock()
		defer mu.Unlock()
		for _, questions := range seconds {
			peak, sum = max(peak, questions), sum+questions
		}
		t.Logf("questions of callers without a node, by second: %v", seconds)
		if peak > herd/5 || sum < herd {
			t.Errorf("%d of %d callers in one second, want at most 20 %%; %d in all", peak, herd, sum)
		}
		if _, full := n.counted(); full != 2*herd {
			t.Errorf("%d full answers to %d callers that each saw two epochs", full, herd)
		}
	})
}

// A change of a list reaches the table although hundreds come each second, and they
// cost at most twenty compiles a second.
func TestEventsAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instances(1, "orders", "prod", "v1")...)
		c := started(t, one(n), options(n))
		ready(t, c)
		before := c.tables.Load()
		for i := range 2000 { // 10 s
			n.list("orders", instances(1+i%7, "orders", "prod", "v1")...)
			time.Sleep(5 * time.Millisecond)
		}
		n.list("orders", instance("orders", "10.9.9.9:80", "prod", "v1"))
		time.Sleep(200 * time.Millisecond)
		if got := among(picks(t.Context(), c, "orders", 100)); got != "10.9.9.9:80" {
			t.Errorf("the last event was lost: %s", got)
		}
		if made := c.tables.Load() - before; made > 230 {
			t.Errorf("%d tables in 10 s, want at most 20 a second", made)
		}
	})
}

// A node that answers at once that there is nothing new is not asked in a circle.
func TestImpatientNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", instances(1, "orders", "prod", "v1")...)
		n.hasty = true
		c := started(t, one(n), options(n))
		ready(t, c)
		asked, _ := n.counted()
		time.Sleep(10 * time.Second)
		if now, _ := n.counted(); now-asked > 11 {
			t.Errorf("%d questions in 10 s", now-asked)
		}
	})
}

func TestReadyNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.down = true
		opt := options(n)
		opt.Services = []string{"orders", "stock"}
		c := started(t, one(n), opt)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		err := c.Ready(ctx)
		if err == nil || !strings.Contains(err.Error(), "orders, stock") || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "try:") {
			t.Errorf("Ready = %v", err)
		}
		_, err = c.Pick(t.Context(), "orders")
		if _, none := errors.AsType[*route.NoMatch](err); err == nil || none || !strings.Contains(err.Error(), "not been loaded") && !strings.Contains(err.Error(), "has been loaded yet") {
			t.Errorf("Pick = %v", err)
		}
	})
}

func TestBackoffIsWideAndBounded(t *testing.T) {
	t.Parallel()
	for rounds, limit := range map[int]time.Duration{1: firstBackoff, 2: maxBackoff, 50: maxBackoff, math.MaxInt32: maxBackoff} {
		longest := time.Duration(0)
		for range 10_000 {
			longest = max(longest, backoff(rounds))
		}
		if longest > limit || longest < limit*9/10 {
			t.Errorf("after %d rounds up to %v, want %v", rounds, longest, limit)
		}
	}
}

// C16: 17 services of 8 instances and 200 events a second for ten minutes cost less
// than 5 % of a core, and none is lost. The node's part is in the figure. It does not
// run beside other tests: it measures what the process uses.
func TestCostOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const services, each = 17, 200
		seconds, most := 600, 0.05
		if raceDetector {
			seconds, most = 20, 0.30
		}
		n := newNode(t)
		name := func(i int) string { return fmt.Sprintf("service-%d", i) }
		lists := map[string][]discovery.Instance{}
		for i := range services {
			lists[name(i)] = instances(8, name(i), "prod", "v1")
			n.list(name(i), lists[name(i)]...)
		}
		n.publish(1, rule(name(0), "v1"))
		c := started(t, one(n), options(n))
		ready(t, c)
		before, tables, began := cpu(t), c.tables.Load(), time.Now()
		for i := range seconds * each {
			service := name(rand.IntN(services))
			all := slices.Clone(lists[service])
			all[i%8].Weight = new(i % 1000)
			lists[service] = all
			n.list(service, all...)
			time.Sleep(time.Second / each)
		}
		time.Sleep(200 * time.Millisecond)
		used := cpu(t) - before
		share := used.Seconds() / time.Since(began).Seconds()
		t.Logf("%d events in %v: %d tables, %v of processor, %.2f %% of a core", seconds*each, time.Since(began).Round(time.Second), c.tables.Load()-tables, used, share*100)
		if share > most {
			t.Errorf("%.1f %% of a core, want less than %.0f %%", share*100, most*100)
		}
		for service, want := range lists {
			if got := (*c.slots.Load())[service].now.Load().in.Instances; !slices.EqualFunc(got, want, discovery.Instance.Equal) {
				t.Errorf("the last event of %s was lost", service)
			}
		}
	})
}

// cpu is the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// tap is the network of one caller; it tells of the questions that follow a failed one.
type tap struct {
	http.RoundTripper
	lost bool
	came func()
}

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.lost {
		t.came()
	}
	res, err := t.RoundTripper.RoundTrip(r)
	t.lost = err != nil
	return res, err
}
