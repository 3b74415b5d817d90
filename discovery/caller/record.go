package caller

import (
	"cmp"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

const (
	// ringSize is how many records are kept, sent or not: 1.5 MB when full.
	ringSize = 8192
	// looseViews is how many views may wait that no record names any more. To look for
	// them takes 0.3 ms of a full ring, so it is not done for each new view.
	looseViews = 64
)

// pickOf is a pick that is to be recorded.
type pickOf struct {
	slot   *slot
	entry  *entry // nil: no table was asked
	lane   route.Query
	draw   uint64
	choice route.Choice
	err    error
	end    string // of the call, if it did not go well
}

// note is a record in the ring. It keeps no table alive.
type note struct {
	at      time.Time
	service string
	view    string
	lane    route.Query
	draw    uint64
	rule    *rules.Rule
	reason  route.Reason
	chosen  discovery.Address
	counts  *route.Counts
	end     string
}

// ring keeps the last records. Numbers count from 1; a record is at its number
// modulo the size.
type ring struct {
	mu      sync.Mutex            // guards the rest
	notes   []note                // grows up to ringSize
	last    uint64                // number of the newest
	sent    uint64                // number of the newest that was sent or given up
	size    int                   // records in a batch that a node takes; 0: maxBatch. Of sendRecords alone
	dropped uint64                // given up since the last batch that arrived
	views   map[string]unsentView // named by records that were not sent, and at most looseViews more
	named   int                   // of views, when they were looked through last
}

// unsentView is a view that no batch has brought yet.
type unsentView struct {
	route.View
	sent *atomic.Bool
}

// note puts a pick into the ring and returns its number.
func (c *Caller) note(p pickOf) uint64 {
	n := note{at: time.Now(), service: p.slot.name, lane: p.lane, draw: p.draw, rule: p.choice.Rule, reason: p.choice.Reason, end: p.end}
	if p.choice.Instance != nil {
		n.chosen = p.choice.Instance.Address
	}
	if none, ok := errors.AsType[*route.NoMatch](p.err); ok {
		n.counts = &none.Counts
	}
	r := &c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.entry != nil {
		n.view = p.entry.view.Key
		p.entry.named.Store(true)
		if len(c.opt.Control) > 0 && !p.entry.sent.Load() {
			if r.views == nil {
				r.views = map[string]unsentView{}
			}
			r.views[n.view] = unsentView{p.entry.view, p.entry.sent}
		}
	}
	r.last++
	if len(r.notes) < ringSize {
		r.notes = append(r.notes, n)
	} else {
		r.notes[(r.last-1)%ringSize] = n
	}
	if r.last-r.sent > ringSize {
		r.sent++
		if len(c.opt.Control) > 0 {
			r.dropped++
			c.metrics.dropped.Inc()
		}
	}
	if len(r.views) > r.named+looseViews { // while no node answers batch is not reached
		r.prune()
	}
	return r.last
}

// prune lets views go that no record names which was not sent. r.mu is held.
func (r *ring) prune() {
	named := make(map[string]bool, len(r.views))
	for number := r.sent + 1; number <= r.last; number++ {
		named[r.notes[(number-1)%ringSize].view] = true
	}
	maps.DeleteFunc(r.views, func(key string, _ unsentView) bool { return !named[key] })
	r.named = len(r.views)
}

// recordID is short enough to be read out: a random part of the process, and a count.
func (c *Caller) recordID(number uint64) string {
	return c.prefix + "-" + strconv.FormatUint(number, 32)
}

// record is the record as it travels. c.ring.mu is held.
func (c *Caller) record(number uint64) wire.Record {
	n := &c.ring.notes[(number-1)%ringSize]
	r := wire.Record{ID: c.recordID(number), At: n.at, Caller: c.opt.ID, Service: n.service, View: n.view,
		Lane: n.lane, Draw: n.draw, Reason: n.reason, Counts: n.counts, Outcome: n.end}
	if n.rule != nil {
		r.Rule = n.rule.ID()
	}
	if n.chosen.Host != "" {
		r.Chosen = n.chosen.String()
	}
	return r
}

// batch is the oldest records that were not sent, at most so many, and the number
// of the last of them. Views that no such record names any more are let go.
func (c *Caller) batch(most int) (b wire.Batch, upTo uint64) {
	r := &c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	b = wire.Batch{Caller: c.opt.ID, Dropped: r.dropped}
	upTo = min(r.sent+uint64(most), r.last)
	now := map[string]bool{}
	for number := r.sent + 1; number <= upTo; number++ {
		now[r.notes[(number-1)%ringSize].view] = true
		b.Records = append(b.Records, c.record(number))
	}
	r.prune()
	for key, view := range r.views {
		if now[key] {
			b.Views = append(b.Views, view.View)
		}
	}
	return b, upTo
}

// most is how many records a batch has.
func (r *ring) most() int { return cmp.Or(r.size, maxBatch) }

// giveUp drops the record that no node takes, alone in its batch.
func (c *Caller) giveUp(upTo uint64) {
	r := &c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent < upTo {
		r.sent = upTo
		r.dropped++
		c.metrics.dropped.Inc()
	}
}

// arrived notes that a batch was taken.
func (c *Caller) arrived(b wire.Batch, upTo uint64) {
	r := &c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = max(r.sent, upTo) // some may have been given up meanwhile
	r.dropped -= b.Dropped
	for _, view := range b.Views {
		if waits, still := r.views[view.Key]; still { // else it comes again with its next record
			waits.sent.Store(true)
			delete(r.views, view.Key)
		}
	}
}

// Explain finds the record of a pick of this process and makes the pick again. The
// record alone comes with the error table_expired when its table is kept no longer,
// no_table when there was none of the service, breaker_open when the call was not
// made, or chosen_by_configuration.
func (c *Caller) Explain(id string) (wire.Record, route.Explanation, error) {
	text, ours := strings.CutPrefix(id, c.prefix+"-")
	number, err := strconv.ParseUint(text, 32, 64)
	c.ring.mu.Lock()
	if !ours || err != nil || number == 0 || number > c.ring.last || c.ring.last-number >= ringSize {
		c.ring.mu.Unlock()
		return wire.Record{}, route.Explanation{}, fault.New(fault.NotFound, "no_record", "this process has no record %s", id).
			WithHint("ask a control node: dispatchctl explain call " + id)
	}
	r := c.record(number)
	c.ring.mu.Unlock()
	if r.Reason == route.ByOverride {
		return r, route.Explanation{}, fault.New(fault.NotFound, "chosen_by_configuration", "record only: chosen by configuration")
	}
	if r.Reason == route.ByBreaker {
		return r, route.Explanation{}, fault.New(fault.NotFound, "breaker_open", "record only: the breaker of %s was open, so nobody was asked for", r.Service)
	}
	if r.View == "" {
		return r, route.Explanation{}, fault.New(fault.NotFound, "no_table", "record only: the caller had no table")
	}
	e := c.kept(r)
	if e == nil {
		return r, route.Explanation{}, fault.New(fault.NotFound, "table_expired", "record only: table expired")
	}
	return r, e.table.Explain(r.Lane, r.Draw), nil
}

// kept is the table that a record names, nil if it is kept no longer.
func (c *Caller) kept(r wire.Record) *entry {
	s := (*c.slots.Load())[r.Service]
	if s == nil || r.View == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range append([]*entry{s.now.Load()}, s.kept...) {
		if e != nil && e.table != nil && e.view.Key == r.View {
			return e
		}
	}
	return nil
}
