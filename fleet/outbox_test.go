package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var eight = time.Date(2027, 3, 1, 8, 0, 0, 0, time.UTC)

// count is n answers of app mobile in the minute after eight.
func count(minute int, reason string, n uint64) Count {
	return Count{Minute: eight.Add(time.Duration(minute) * time.Minute), App: "mobile", Region: "sh", Endpoint: "sh-main", Reason: reason, Release: 7, N: n}
}

func TestAnOutboxTellsUntilItIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := []Count{count(0, "DEFAULT", 5), count(0, "STICKY", 1), count(1, "DEFAULT", 2)}
		o := NewOutbox(func(time.Time) []Count { return now })
		want := func(what string, counts ...Count) []Count {
			t.Helper()
			got := o.Take()
			if !slices.Equal(got, counts) {
				t.Errorf("%s: told %v, want %v", what, got, counts)
			}
			return got
		}
		first := want("at first", now...)
		want("while that is on its way")
		o.Done(first, false)
		first = want("after it was not kept", now...)
		o.Done(first, true)
		want("after it was kept")
		now = []Count{count(0, "DEFAULT", 5), count(0, "STICKY", 1), count(1, "DEFAULT", 3)}
		want("the running minute at once")
		time.Sleep(runningEvery)
		o.Done(want("the running minute after a while", now[2]), true)
		now = []Count{count(0, "DEFAULT", 6), count(0, "STICKY", 1), count(1, "DEFAULT", 3), count(2, "DEFAULT", 1)}
		o.Done(want("a minute that a clock went back into", now[0]), true)
		time.Sleep(runningEvery)
		o.Done(want("the next minute", now[3]), true)
		if o.Lost() != 0 {
			t.Errorf("%d are lost", o.Lost())
		}
		now = append(now, count(3, "DEFAULT", 9), count(4, "DEFAULT", 1))
		o.Done(want("nobody keeps it", count(3, "DEFAULT", 9)), false)
		now = now[5:]
		want("it is forgotten", now...)
		if o.Lost() != 9 {
			t.Errorf("%d are lost, want 9", o.Lost())
		}
	})
}

func TestAnOutboxTellsALotInParts(t *testing.T) {
	t.Parallel()
	var all []Count
	for i := range 2*maxCounts + 10 {
		all = append(all, count(i/maxCounts, fmt.Sprint(i), 1))
	}
	o := NewOutbox(func(time.Time) []Count { return all })
	var told []Count
	for {
		batch := o.Take()
		if len(batch) > maxCounts {
			t.Fatalf("a batch has %d counts", len(batch))
		}
		if len(batch) == 0 {
			break
		}
		told = append(told, batch...)
		o.Done(batch, true)
	}
	if !slices.Equal(told, all) {
		t.Errorf("told %d of %d", len(told), len(all))
	}
}

// book is a ledger of counts.
type book struct {
	mu   sync.Mutex
	rows map[string]uint64 // by replica, boot and count
	told int
	fail error
}

func (b *book) keep(_ context.Context, from Replica, counts []Count) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	if b.rows == nil {
		b.rows = map[string]uint64{}
	}
	for _, c := range counts {
		b.told++
		key := strings.Join([]string{from.ID, from.Boot, c.Minute.Format("15:04"), c.App, c.Reason}, " ")
		b.rows[key] = max(b.rows[key], c.N)
	}
	return nil
}

func (b *book) sum() (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, row := range b.rows {
		n += row
	}
	return n
}

func (b *book) breaks(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// teller is what a replica counts, grown by a test.
type teller struct {
	mu  sync.Mutex
	now []Count
}

func (c *teller) counts(time.Time) []Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.now)
}

func (c *teller) set(now ...Count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// counting keeps into b on the given clock.
func (b *book) counting(tb testing.TB, reg *prometheus.Registry) *Counting {
	tb.Helper()
	c := must(NewCounting(CountingOptions{Keep: b.keep, Now: func() time.Time { return eight.Add(5 * time.Minute) }, Registry: reg}))
	run(tb, c.Run)
	return c
}

// Two control nodes, a replica that restarts, a database that goes and comes: every
// answer is in the books once, and the replica sends nothing twice that it knows kept.
func TestCountsReachTheBooksOnce(t *testing.T) {
	t.Parallel()
	bank, books := newBank(t, 3), new(book)
	regs := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	first := newControl(t, func(o *ServerOptions) { o.Counting = books.counting(t, regs[0]) })
	second := newControl(t, func(o *ServerOptions) { o.Counting = books.counting(t, regs[1]) })
	first.offer(t, bank, bank.now())
	second.offer(t, bank, bank.now())
	counts := new(teller)
	counts.set(count(0, "DEFAULT", 5), count(1, "DEFAULT", 2))
	r := bank.replica(t, "sh-1", func(o *FollowerOptions) { o.Counts = NewOutbox(counts.counts) })
	r.Use([]Source{first.source("first"), second.source("second")})
	stop := start(t, r.Run)
	eventually(t, 20*time.Second, func() bool { return books.sum() == 7 })

	books.breaks(errors.New("it is away"))
	counts.set(count(0, "DEFAULT", 5), count(1, "DEFAULT", 4), count(2, "DEFAULT", 1))
	eventually(t, 30*time.Second, func() bool { return dropped(t, regs[0], "database")+dropped(t, regs[1], "database") > 0 })
	books.breaks(nil)
	eventually(t, 30*time.Second, func() bool { return books.sum() == 10 })
	stop()

	again := bank.replica(t, "sh-1", func(o *FollowerOptions) { o.Counts, o.Self.Boot = NewOutbox(counts.counts), "sh-1-2" })
	counts.set(count(2, "DEFAULT", 3))
	again.Use([]Source{first.source("first")})
	run(t, again.Run)
	eventually(t, 20*time.Second, func() bool { return books.sum() == 13 })
	for _, m := range append(first.roster.Members(first.offered), second.roster.Members(second.offered)...) {
		if len(m.Counts) > 0 {
			t.Error("a roster remembers counts")
		}
	}
}

func dropped(tb testing.TB, reg *prometheus.Registry, why string) float64 {
	return metric(tb, reg, "dispatch_counts_dropped_total", why)
}

func TestCountsThatCannotBeAreNotKept(t *testing.T) {
	t.Parallel()
	books, reg := new(book), prometheus.NewRegistry()
	c := books.counting(t, reg)
	bad := []Count{count(36, "DEFAULT", 1), count(-25*60, "DEFAULT", 1), count(0, "bad\nreason", 1), count(0, strings.Repeat("x", 129), 1),
		{Minute: eight.Add(time.Second), App: "mobile", N: 1}}
	if b := c.offer(Replica{ID: "a", Boot: "1"}, bad); !b.isKept() {
		t.Error("a replica would send again what nobody believes")
	}
	b := c.offer(Replica{ID: "a", Boot: "1"}, append(bad, count(0, "DEFAULT", 4)))
	eventually(t, 5*time.Second, b.isKept)
	if books.sum() != 4 {
		t.Errorf("the books have %v", books.rows)
	}
	if clock, form := dropped(t, reg, "clock"), dropped(t, reg, "form"); clock != 4 || form != 6 {
		t.Errorf("dropped %v for the clock and %v for their form", clock, form)
	}
	var none *Counting
	if none.offer(Replica{}, []Count{count(0, "DEFAULT", 1)}).isKept() {
		t.Error("nobody keeps it")
	}
}

// A database that hangs keeps one batch of each replica waiting, and no more than so many.
func TestCountsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := must(NewCounting(CountingOptions{Keep: new(book).keep, Now: func() time.Time { return eight }, Registry: reg}))
	for i := range maxBatches + 5 {
		c.offer(Replica{ID: fmt.Sprint(i), Boot: "1"}, []Count{count(0, "DEFAULT", 1)})
	}
	if b := c.offer(Replica{ID: "0", Boot: "1"}, []Count{count(0, "DEFAULT", 2)}); b == nil || len(c.waiting) != maxBatches {
		t.Errorf("%d batches wait", len(c.waiting))
	}
	if got := dropped(t, reg, "busy"); got != 5 {
		t.Errorf("%v counts had no room, want 5", got)
	}
}
