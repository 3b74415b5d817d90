package caller

import (
	"context"
	"slices"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/outlier"
	"dispatch.example/dispatch/discovery/route"
)

// Outcome is how a call to a picked instance ended, as far as it says something
// about the instance.
type Outcome = outlier.Outcome

// The outcomes.
const (
	// Answered is any answer that shows a working instance, also "not found".
	Answered = outlier.Answered
	// Failed is an answer that it cannot (HTTP 5xx, gRPC Internal, Unavailable, …), or
	// a connection that broke.
	Failed = outlier.Failed
	// Unreachable is that no connection was made within the dial limit, or was refused.
	Unreachable = outlier.Unreachable
	// Silent is that no answer came before the deadline.
	Silent = outlier.Silent
	// Canceled is that the caller gave up. It says nothing.
	Canceled = outlier.Canceled
)

// Done says how the call to a picked instance ended; whoever makes calls says so of
// each, once, with the context of the pick. Instances that fail are put out for a
// while (package outlier). A call that did not go well is recorded, if its pick was
// not, so p.ID names it afterwards.
func (c *Caller) Done(ctx context.Context, p *Pick, o Outcome) {
	s := p.slot
	if s == nil || p.Instance == nil {
		return // of no Caller, or an error
	}
	s.outcomes.inc(int(o), o.String())
	if p.entry != nil && p.entry.watch != nil {
		c.notice(p.entry, p.Instance, o)
	}
	if o != Answered && o != Canceled {
		c.recordEnd(ctx, p, o)
	}
}

// notice tells the watch how a call ended.
func (c *Caller) notice(e *entry, in *discovery.Instance, o Outcome) {
	w, at, now := e.watch, e.seats[in], c.now()
	w.mu.Lock()
	change := w.outliers.Note(at, o, now)
	w.mu.Unlock()
	if change.Step != outlier.Same {
		c.changed(w, fingerprintOf(in), change)
	}
}

// now is cheaper than time.Now: only the monotonic clock is read.
func (c *Caller) now() time.Time { return c.began.Add(time.Since(c.began)) }

// recordEnd records how a call ended that did not go well.
func (c *Caller) recordEnd(ctx context.Context, p *Pick, o Outcome) {
	if p.record != 0 {
		c.ring.end(p.record, o)
		return
	}
	p.record = c.note(pickOf{slot: p.slot, entry: p.entry, lane: c.Lane(ctx), draw: p.draw, choice: p.Choice, end: o.String()})
	p.slot.keep(p.entry)
}

// end adds how the call ended to a record that is not sent yet.
func (r *ring) end(number uint64, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number > r.sent && r.last-number < ringSize {
		r.notes[(number-1)%ringSize].end = o.String()
	}
}

// keep is for a table that a record names although it is no longer in use: its call
// took longer than it.
func (s *slot) keep(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e == nil || e == s.now.Load() || slices.Contains(s.kept, e) {
		return
	}
	s.kept = append(s.kept, e)
	s.kept = slices.Clone(s.kept[max(0, len(s.kept)-keptTables):])
}

// Refused records that a call was not made because the breaker of the service is
// open, and returns the ID of the record.
func (c *Caller) Refused(ctx context.Context, service string) string {
	choice := route.Choice{Reason: route.ByBreaker}
	s := (*c.slots.Load())[service]
	if s == nil {
		s = &slot{name: service}
		c.metrics.picks.WithLabelValues("", string(choice.Reason)).Inc()
	} else {
		s.picks.inc(reasonAt(choice.Reason), string(choice.Reason))
	}
	return c.recordID(c.note(pickOf{slot: s, lane: c.Lane(ctx), choice: choice}))
}

// redraws is how often PickOther draws: of two equal instances it misses the other
// one once in 65,536 times.
const redraws = 16

// PickOther is Pick, but not the instance where the call failed before, unless no
// pick of this lane gives another in 16 draws. Instances are told apart by address.
func (c *Caller) PickOther(ctx context.Context, service string, not *discovery.Instance) (Pick, error) {
	return c.pick(ctx, service, not)
}

// Single says whether no other instance is known in the coordinates of the one that
// was picked (cluster, region and env): nobody to try instead, and it is not put out
// because it fails.
func (p Pick) Single() bool {
	if p.Instance == nil || p.slot == nil {
		return false
	}
	all := p.slot.override
	if p.entry != nil {
		all = p.entry.in.Instances
	}
	for i := range all {
		in := &all[i]
		if in.Address != p.Instance.Address && in.Cluster == p.Instance.Cluster && in.Region == p.Instance.Region && in.Env == p.Instance.Env {
			return false
		}
	}
	return true
}
