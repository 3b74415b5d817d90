package fleet

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxCounts bounds what one report counts: two apps with twelve kinds of answer
	// make 24 a minute, a large configuration a few thousand, which take some polls.
	maxCounts = 512
	// runningEvery is how often the running minute is told, so that a chart follows
	// what happens and the database does not write the same row all the time.
	runningEvery = 10 * time.Second
)

// Outbox says which counters of this process somebody has yet to be told. It tells
// them until they are kept, one batch at a time, and never the same number twice
// after that. Its methods may be called by several goroutines.
type Outbox struct {
	counts func(since time.Time) []Count

	mu      sync.Mutex // guards what follows
	out     bool       // a batch is on its way
	kept    map[Count]uint64
	waiting map[Count]uint64 // seen and not kept
	running time.Time        // when the newest minute was told last
	lost    uint64           // answers in minutes that were forgotten before they were kept
}

// NewOutbox tells what counts returns: all that the process still remembers, the
// oldest minute first.
func NewOutbox(counts func(since time.Time) []Count) *Outbox {
	return &Outbox{counts: counts, kept: map[Count]uint64{}, waiting: map[Count]uint64{}}
}

// kindOf is a count without its number.
func kindOf(c Count) Count {
	c.N = 0
	return c
}

// Take is what is to be told now, none while another batch is on its way. Done must
// be called with what it returned, unless that is empty.
func (o *Outbox) Take() []Count {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out {
		return nil
	}
	all, now := o.counts(time.Time{}), time.Now()
	o.forget(all)
	due := o.running.IsZero() || now.Sub(o.running) >= runningEvery
	var batch []Count
	for _, c := range all {
		kind := kindOf(c)
		if c.N <= o.kept[kind] {
			continue
		}
		o.waiting[kind] = c.N
		newest := c.Minute.Equal(all[len(all)-1].Minute)
		if len(batch) == maxCounts || newest && !due {
			continue
		}
		if batch = append(batch, c); newest {
			o.running = now
		}
	}
	o.out = len(batch) > 0
	return batch
}

// forget drops what the process remembers no more.
func (o *Outbox) forget(all []Count) {
	there := make(map[Count]bool, len(all))
	for _, c := range all {
		there[kindOf(c)] = true
	}
	for kind, n := range o.waiting {
		if !there[kind] {
			o.lost += n - o.kept[kind]
			delete(o.waiting, kind)
		}
	}
	for kind := range o.kept {
		if !there[kind] {
			delete(o.kept, kind)
		}
	}
}

// Done says whether a batch is kept. One that is not is told again.
func (o *Outbox) Done(batch []Count, kept bool) {
	if len(batch) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out = false
	if !kept {
		o.running = time.Time{}
		return
	}
	for _, c := range batch {
		kind := kindOf(c)
		if o.kept[kind] = c.N; o.waiting[kind] <= c.N {
			delete(o.waiting, kind)
		}
	}
}

// Lost is how many answers were forgotten before anybody kept their count.
func (o *Outbox) Lost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// RegisterOutbox shows what an Outbox has lost.
func RegisterOutbox(o *Outbox, reg prometheus.Registerer) error {
	return reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "dispatch_counts_lost_total",
		Help: "Answers whose count reached no database within ten minutes; charts lack them. When it rises, no control node keeps what this replica reports."},
		func() float64 { return float64(o.Lost()) }))
}
