package handler

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

const (
	// minutesKept is how many finished minutes with answers a Handler remembers: who
	// asks for its counters may be away for ten minutes without losing one.
	minutesKept = 10
	// bindingsKept is how many snapshots keep their cells: as many as may answer at
	// one time, and some more.
	bindingsKept = 8

	secondsAMinute = 60
	// secondsLate is how far behind the running minute an answer still counts as of
	// it: a request that another one overtook at its end, or a clock that is set right.
	secondsLate = 5
	numReasons  = int(policy.NoID) + 1
)

// tally counts answers: for Prometheus since the start, and for the fleet by the
// minute. A request does one atomic addition to a cell that grows for as long as its
// snapshot is bound. What the cells gained when a minute ends is that minute's; the
// first request after it works that out, and the others do not wait for it.
type tally struct {
	start atomic.Int64 // of the running minute, in Unix seconds; 0 before the first request

	mu      sync.Mutex           // guards what follows
	bound   []*binding           // the last one bound last
	minutes []minute             // finished ones in which something was counted, in the order of finishing
	open    map[kind]uint64      // of the running minute, from snapshots that are bound no longer
	regions map[[3]string]uint64 // by app, region and reason: all that those snapshots counted
	rules   map[[2]string]uint64 // by app and policy: the same

	decisions, policies *prometheus.Desc
}

// kind is everything that tells answers apart but the minute.
type kind struct {
	app, region, endpoint, policy, reason string
	release                               uint64
}

// minute is what a finished minute counted.
type minute struct {
	start  int64
	counts map[kind]uint64
}

func newTally() *tally {
	return &tally{open: map[kind]uint64{}, regions: map[[3]string]uint64{}, rules: map[[2]string]uint64{},
		decisions: prometheus.NewDesc("dispatch_decisions_total", "Answers of /route by app, region (empty: the app's fallback) and reason.", []string{"app", "region", "reason"}, nil),
		policies:  prometheus.NewDesc("dispatch_policy_decisions_total", "Answers that a policy decided.", []string{"app", "policy"}, nil)}
}

// cells count the answers of one app in one snapshot.
type cells struct {
	app     *release.Served
	key     string // of the app
	release uint64
	regions []domain.Region
	rows    []atomic.Pointer[row] // by policy + 1 and region + 1; nil until the one sends somebody to the other
	retired atomic.Bool           // what it has was taken over; who still adds must say so
}

// row are the cells of a policy and a region, by endpoint and reason.
type row struct {
	n     []atomic.Uint64
	taken []uint64 // what finished minutes have of n; guarded by tally.mu
}

func newCells(key string, number uint64, served *release.Served) *cells {
	regions := served.Table.Regions()
	return &cells{app: served, key: key, release: number, regions: regions,
		rows: make([]atomic.Pointer[row], (len(served.App.Policies)+1)*(len(regions)+1))}
}

// decided counts one answer.
func (t *tally) decided(c *cells, d policy.Decision) {
	c.add(d)
	if c.retired.Load() { // perhaps only after this one was taken over; then there is nothing
		t.mu.Lock()
		defer t.mu.Unlock()
		t.takeOver(c)
	}
}

func (c *cells) add(d policy.Decision) {
	at := int(d.Policy+1)*(len(c.regions)+1) + int(d.Region) + 1
	r := c.rows[at].Load()
	if r == nil {
		r = c.row(at, int(d.Region))
	}
	r.n[max(0, int(d.Endpoint))*numReasons+int(d.Reason)].Add(1)
}

// row makes cells that are needed for the first time. The fallback is one place.
func (c *cells) row(at, region int) *row {
	size := numReasons
	if region >= 0 {
		size *= len(c.regions[region].Endpoints)
	}
	c.rows[at].CompareAndSwap(nil, &row{n: make([]atomic.Uint64, size), taken: make([]uint64, size)})
	return c.rows[at].Load()
}

// each calls f with every cell that is not 0, and what of it finished minutes have.
func (c *cells) each(f func(k kind, n *atomic.Uint64, taken *uint64)) {
	width := len(c.regions) + 1
	for at := range c.rows {
		r := c.rows[at].Load()
		if r == nil {
			continue
		}
		k := kind{app: c.key, policy: c.app.Table.PolicyKey(int32(at/width) - 1), release: c.release}
		region := at%width - 1
		for i := range r.n {
			if r.n[i].Load() == 0 {
				continue
			}
			if k.reason = policy.Reason(i % numReasons).String(); region >= 0 {
				k.region, k.endpoint = c.regions[region].Key, c.regions[region].Endpoints[i/numReasons].Key
			}
			f(k, &r.n[i], &r.taken[i])
		}
	}
}

// tick says what time it is. It is true for the request that ended a minute.
func (t *tally) tick(now time.Time) bool {
	if d := now.Unix() - t.start.Load(); d >= secondsAMinute || d < -secondsLate {
		return t.end(now)
	}
	return false
}

// end ends the running minute, unless somebody else is at it.
func (t *tally) end(now time.Time) bool {
	if !t.mu.TryLock() {
		return false
	}
	defer t.mu.Unlock()
	return t.turn(now)
}

// turn ends the running minute if now is outside of it; t.mu is held.
func (t *tally) turn(now time.Time) bool {
	start := t.start.Load()
	if d := now.Unix() - start; d < secondsAMinute && d >= -secondsLate {
		return false
	}
	counts := t.open
	t.open = map[kind]uint64{}
	for _, b := range t.bound {
		for _, c := range b.apps {
			c.each(func(k kind, cell *atomic.Uint64, taken *uint64) {
				n := cell.Load()
				counts[k] += n - *taken
				*taken = n
			})
		}
	}
	t.keep(start, counts)
	t.start.Store(now.Unix() - now.Unix()%secondsAMinute)
	return true
}

// keep remembers a finished minute. One may end twice, when a clock is set back.
func (t *tally) keep(start int64, counts map[kind]uint64) {
	for k, n := range counts {
		if n == 0 {
			delete(counts, k)
		}
	}
	if len(counts) == 0 {
		return
	}
	for i := range t.minutes {
		if t.minutes[i].start == start {
			for k, n := range counts {
				t.minutes[i].counts[k] += n
			}
			return
		}
	}
	t.minutes = append(t.minutes, minute{start, counts})
	if surplus := len(t.minutes) - minutesKept; surplus > 0 {
		t.minutes = slices.Delete(t.minutes, 0, surplus)
	}
}

// bind returns the counters of a snapshot: those that are bound, or else fresh ones.
func (t *tally) bind(snap *release.Snapshot, fresh func() *binding) *binding {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.bound {
		if b.snap == snap {
			return b
		}
	}
	b := fresh()
	if len(t.bound) == bindingsKept {
		t.retire(t.bound[0])
		t.bound = slices.Delete(t.bound, 0, 1)
	}
	t.bound = append(t.bound, b)
	return b
}

// retire takes over what a binding has counted.
func (t *tally) retire(b *binding) {
	for _, c := range b.apps {
		c.retired.Store(true) // first: whoever adds after a cell was emptied sees it
		t.takeOver(c.cells)
	}
}

// takeOver empties cells; t.mu is held.
func (t *tally) takeOver(c *cells) {
	c.each(func(k kind, cell *atomic.Uint64, taken *uint64) {
		n := cell.Swap(0)
		t.open[k] += n - *taken
		*taken = 0
		t.regions[[3]string{k.app, k.region, k.reason}] += n
		if k.policy != "" {
			t.rules[[2]string{k.app, k.policy}] += n
		}
	})
}

// counts are the answers by the minute since then, the running minute included.
func (t *tally) counts(now, since time.Time) []fleet.Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	running := map[kind]uint64{}
	add := func(counts map[kind]uint64) {
		for k, n := range counts {
			running[k] += n
		}
	}
	add(t.open)
	for _, b := range t.bound {
		for _, c := range b.apps {
			c.each(func(k kind, cell *atomic.Uint64, taken *uint64) {
				if n := cell.Load(); n > *taken {
					running[k] += n - *taken
				}
			})
		}
	}
	var all []fleet.Count
	start := t.start.Load()
	for _, m := range t.minutes {
		if m.start == start { // a clock was set back into it
			add(m.counts)
			continue
		}
		all = appendCounts(all, m, since)
	}
	all = appendCounts(all, minute{start, running}, since)
	slices.SortFunc(all, func(a, b fleet.Count) int {
		return cmp.Or(a.Minute.Compare(b.Minute), cmp.Compare(a.App, b.App), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Endpoint, b.Endpoint),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Release, b.Release))
	})
	return all
}

func appendCounts(to []fleet.Count, m minute, since time.Time) []fleet.Count {
	at := time.Unix(m.start, 0).UTC()
	if at.Before(since) {
		return to
	}
	for k, n := range m.counts {
		to = append(to, fleet.Count{Minute: at, App: k.app, Region: k.region, Endpoint: k.endpoint, Policy: k.policy,
			Reason: k.reason, Release: k.release, N: n})
	}
	return to
}

// Describe implements prometheus.Collector.
func (t *tally) Describe(out chan<- *prometheus.Desc) {
	out <- t.decisions
	out <- t.policies
}

// Collect implements prometheus.Collector. A series of a snapshot that is bound is
// there from the first request on, also with 0.
func (t *tally) Collect(out chan<- prometheus.Metric) {
	regions, rules := t.totals()
	for labels, n := range regions {
		out <- prometheus.MustNewConstMetric(t.decisions, prometheus.CounterValue, float64(n), labels[:]...)
	}
	for labels, n := range rules {
		out <- prometheus.MustNewConstMetric(t.policies, prometheus.CounterValue, float64(n), labels[:]...)
	}
}

// totals are all answers since the start, by app, region and reason, and by app and policy.
func (t *tally) totals() (regions map[[3]string]uint64, rules map[[2]string]uint64) {
	regions, rules = map[[3]string]uint64{}, map[[2]string]uint64{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, n := range t.regions {
		regions[k] = n
	}
	for k, n := range t.rules {
		rules[k] = n
	}
	for _, b := range t.bound {
		for _, c := range b.apps {
			for reason := policy.Sticky; reason <= policy.NoID; reason++ {
				regions[[3]string{c.key, "", reason.String()}] += 0
				for i := range c.regions {
					regions[[3]string{c.key, c.regions[i].Key, reason.String()}] += 0
				}
			}
			for i := range c.app.App.Policies {
				rules[[2]string{c.key, c.app.Table.PolicyKey(int32(i))}] += 0
			}
			c.each(func(k kind, cell *atomic.Uint64, _ *uint64) {
				n := cell.Load()
				regions[[3]string{k.app, k.region, k.reason}] += n
				if k.policy != "" {
					rules[[2]string{k.app, k.policy}] += n
				}
			})
		}
	}
	return regions, rules
}
