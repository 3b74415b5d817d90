package drills

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
)

const (
	// leastC20 of the normal throughput must be left at the entry while the cache stalls.
	leastC20 = 0.80
	// limitC19 is how long GET /health may take meanwhile.
	limitC19 = 100 * time.Millisecond
	// workersC20 are those of each service.
	workersC20 = 64
)

// hiccup is what a cache that stalls did to the chain in front of it.
type hiccup struct {
	normal, during, after float64 // answers a second at the entry
	health                [][]time.Duration
	unhealthy             int // services whose GET /health took longer than limitC19, at p99
	seconds               [][]string
}

func (h hiccup) left() float64 { return h.during / h.normal }

// C19, C20: five services stand in a row, each with 64 workers; the cache behind the
// last one stalls. With the layer on at least 80 % of the answers come, and every
// service is healthy; with it off the entry has next to nothing left, as in seed 002,
// which had an eighth.
func TestC20HiccupIsNotAmplified(t *testing.T) {
	on := stall(t, false)
	off := stall(t, true)
	var worst []time.Duration
	var rows [][]string
	for i, took := range on.health {
		worst = append(worst, quantile(took, 0.99))
		for _, d := range took {
			rows = append(rows, []string{"on", strconv.Itoa(i + 1), micros(d)})
		}
	}
	keep(t, "C19", []string{"layer", "service", "health_us"}, rows)
	keep(t, "C20", []string{"layer", "second", "answers"}, append(on.seconds, off.seconds...))
	length := stallC20()
	figure(t, "C20", "cache stalls %s, layer on: %.0f of %.0f answers a second, %.0f %% (limit 80 %%), afterwards %.0f; %d of 5 services unhealthy", length, on.during, on.normal, 100*on.left(), on.after, on.unhealthy)
	figure(t, "C20", "cache stalls %s, layer off: %.0f of %.0f answers a second, %.0f %% (seed: 12 %%), afterwards %.0f; %d of 5 services unhealthy", length, off.during, off.normal, 100*off.left(), off.after, off.unhealthy)
	figure(t, "C19", "/health of 5 services meanwhile, layer on: slowest p99 %s (limit %s)", short(quantile(worst, 1)), limitC19)
	if on.left() < leastC20 {
		t.Errorf("the entry kept %.0f %% with the layer on", 100*on.left())
	}
	if on.unhealthy > 0 {
		t.Errorf("%d services became unhealthy with the layer on: p99 %v", on.unhealthy, worst)
	}
	if off.left() >= leastC20/2 || off.unhealthy < 2 {
		t.Errorf("with the layer off %.0f %% are left and %d services are unhealthy: C20 shows nothing", 100*off.left(), off.unhealthy)
	}
}

func stallC20() time.Duration { return pick(4*time.Second, 20*time.Second) }

// stall puts a load on the chain and lets its cache stall.
func stall(t *testing.T, off bool) (h hiccup) {
	pauses, cache := pausesOf(t), freeAddr(t)
	start(t, "cache", part{Server: &serverPart{Service: "cache", Listen: cache, Version: "v1"}})
	tiers := chain(t, cache, off)
	normally, rate := pick(time.Second, 5*time.Second), pick(100, 300)
	ctx, stop := context.WithTimeout(t.Context(), normally+stallC20()+2*normally)
	defer stop()
	begin := time.Now().Add(normally / 2) // connections are made before
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workersC20}, Timeout: time.Second}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var answers []time.Duration // when they came
	var load sync.WaitGroup
	load.Go(func() {
		openLoop(ctx, rate, func() {
			if get(t.Context(), client, "http://"+tiers[0]+"/") == nil {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, time.Since(begin))
			}
		})
	})
	pass(t, time.Until(begin.Add(normally)))
	stalled := time.Since(begin)
	setFaults(t, cache, faults{Slow: 100, Until: time.Now().Add(stallC20())})
	during, end := context.WithTimeout(t.Context(), stallC20())
	defer end()
	h.health = waits(during, tiers)
	load.Wait()
	healed := stalled + stallC20()
	h.normal = rateIn(answers, 0, stalled)
	h.during = rateIn(answers, stalled, healed)
	h.after = rateIn(answers, healed+normally/2, healed+normally)
	limit := limitC19 + pick(pauses(), 0) // in small what the machine does to every timer is not held against it
	for _, took := range h.health {
		if quantile(took, 0.99) > limit {
			h.unhealthy++
		}
	}
	layer := map[bool]string{false: "on", true: "off"}[off]
	for s := time.Duration(0); s < healed+normally; s += time.Second {
		h.seconds = append(h.seconds, []string{layer, short(s - stalled), strconv.Itoa(int(rateIn(answers, s, s+time.Second)))})
	}
	return h
}

// chain starts five services, the last of which calls the cache, and returns their addresses.
func chain(t *testing.T, cache string, off bool) (tiers []string) {
	names, listed := []string{"gateway", "order", "account", "user", "profile"}, []discovery.Instance{instance(t, "cache", cache, "v1")}
	for _, name := range names {
		tiers = append(tiers, freeAddr(t))
		listed = append(listed, instance(t, name, tiers[len(tiers)-1], "v1"))
	}
	registry := roster(t, listed...)
	for i, name := range names {
		p := &tierPart{Listen: tiers[i], Workers: workersC20, Registry: registry, Calls: "cache", At: cache, Soft: 100 * time.Millisecond, Off: off}
		if i+1 < len(names) {
			p.Calls, p.At, p.Soft = names[i+1], tiers[i+1], 0
		}
		start(t, name, part{Tier: p})
	}
	return tiers
}

// rateIn is how many came a second between two times.
func rateIn(came []time.Duration, from, to time.Duration) float64 {
	n := 0
	for _, at := range came {
		if at >= from && at < to {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}
