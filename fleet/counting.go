package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxBatches is how many batches may wait for the database: one for each replica
	// of a fleet of a thousand.
	maxBatches = 1000
	// maxCountAhead and maxCountAge are how far off a minute may be before it is not
	// believed: a clock that is wrong would put it where nobody looks.
	maxCountAhead = 30 * time.Minute
	maxCountAge   = 24 * time.Hour
)

// CountingOptions say where counts go.
type CountingOptions struct {
	// Keep writes down what a replica counted. Required.
	Keep     func(ctx context.Context, from Replica, counts []Count) error
	Now      func() time.Time     // default time.Now
	Log      *slog.Logger         // default: discard
	Registry *prometheus.Registry // default: no metrics
}

// Counting keeps what replicas count. Whoever hears a report leaves its batch here
// and does not wait; Run alone writes. A replica sends a batch again until it hears
// that it is kept, so a database that is slow or away loses nothing that the replica
// still remembers, and at most one batch of a replica waits.
type Counting struct {
	opt  CountingOptions
	wake chan struct{} // holds one: something waits

	mu      sync.Mutex // guards waiting
	waiting map[[2]string]*batch

	dropped *prometheus.CounterVec
}

// batch is what one report counts.
type batch struct {
	from   Replica
	counts []Count
	kept   atomic.Bool
}

// isKept says whether the replica may forget; also of no batch at all.
func (b *batch) isKept() bool { return b != nil && b.kept.Load() }

// NewCounting checks the options.
func NewCounting(opt CountingOptions) (*Counting, error) {
	if opt.Keep == nil {
		return nil, errors.New("counting: nobody keeps what is counted")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	c := &Counting{opt: opt, wake: make(chan struct{}, 1), waiting: map[[2]string]*batch{}}
	c.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_counts_dropped_total",
		Help: "Counts of replicas that were not kept. database and busy: the replica sends them again. clock and form: it does not; set the clock of the replica that the log names."}, []string{"why"})
	for _, why := range []string{"database", "busy", "clock", "form"} {
		c.dropped.WithLabelValues(why)
	}
	if opt.Registry != nil {
		if err := opt.Registry.Register(c.dropped); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// offer leaves what a replica counted to Run. It is nil if there is nothing, or no room.
func (c *Counting) offer(from Replica, counts []Count) *batch {
	if c == nil || len(counts) == 0 {
		return nil
	}
	b := &batch{from: from, counts: c.believed(from, counts)}
	if len(b.counts) == 0 {
		b.kept.Store(true) // it would not get better
		return b
	}
	key := [2]string{from.ID, from.Boot}
	c.mu.Lock()
	room := len(c.waiting) < maxBatches || c.waiting[key] != nil
	if room {
		c.waiting[key] = b
	}
	c.mu.Unlock()
	if !room {
		c.dropped.WithLabelValues("busy").Add(float64(len(counts)))
		return nil
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return b
}

// believed are the counts of a minute that can be, with names that can be shown.
func (c *Counting) believed(from Replica, counts []Count) []Count {
	now := c.opt.Now()
	good := make([]Count, 0, len(counts))
	late := 0
	for _, n := range counts {
		n.Minute = n.Minute.UTC()
		switch off := now.Sub(n.Minute); {
		case off > maxCountAge || off < -maxCountAhead:
			late++
		case !n.Minute.Truncate(time.Minute).Equal(n.Minute) || !named(n.App, n.Region, n.Endpoint, n.Policy, n.Reason):
			c.dropped.WithLabelValues("form").Inc()
		default:
			good = append(good, n)
		}
	}
	if late > 0 {
		c.dropped.WithLabelValues("clock").Add(float64(late))
		c.opt.Log.Warn("counts of a replica are of another time", "replica", from.ID, "counts", late, "try", "set its clock")
	}
	return good
}

// named says whether all names can be stored and shown.
func named(names ...string) bool {
	for _, name := range names {
		if len(name) > 128 {
			return false
		}
		for _, r := range name {
			if !unicode.IsPrint(r) {
				return false
			}
		}
	}
	return true
}

// Run writes until ctx ends.
func (c *Counting) Run(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil
		}
		err := c.write(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing: // one line for each outage
			c.opt.Log.WarnContext(ctx, "what replicas count is not kept", "err", err, "try", "bring the database back; replicas remember ten minutes")
		case err == nil && failing:
			c.opt.Log.InfoContext(ctx, "what replicas count is kept again")
		}
		failing = err != nil
	}
}

// write keeps all that waits. After a failure it leaves the rest to the replicas,
// which send it again.
func (c *Counting) write(ctx context.Context) error {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = map[[2]string]*batch{}
	c.mu.Unlock()
	var failed error
	for _, b := range waiting {
		if failed == nil {
			if failed = c.opt.Keep(ctx, b.from, b.counts); failed == nil {
				b.kept.Store(true)
				continue
			}
			failed = fmt.Errorf("keep counts of %s: %w", b.from.ID, failed)
		}
		c.dropped.WithLabelValues("database").Add(float64(len(b.counts)))
	}
	return failed
}
