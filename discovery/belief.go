package discovery

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// doubtPace is the time between two looks while an empty list is held, and after
	// an answer without an index, which cannot be waited on.
	doubtPace = 5 * time.Second
	// holdFor is how long an empty list is held that no probe confirms or denies.
	holdFor = 15 * time.Second
)

// belief is the list that one Watch believes in, and its defence against answers
// that would empty it. Registries differ in how they lie; what to do about an empty
// or shrunken list is the same for all.
type belief struct {
	source  string
	service string
	out     *publisher
	probe   prober
	metrics *metrics

	flaps     flaps     // who comes and goes
	empties   int       // answers in a row that contradict the list we have
	deadSince time.Time // when no probe found an instance alive any more
}

// known are the instances that an empty list would remove.
func (b *belief) known() []Instance { return b.out.last.Instances }

// failed keeps the list and tells why.
func (b *belief) failed(err error) {
	b.metrics.problem(kindIn(err))
	b.out.out.Checked(err)
}

// believe makes the answer the list, and says whether it was news.
func (b *belief) believe(ctx context.Context, a answer) (changed bool) {
	changed = b.out.publish(b.next(a))
	b.out.out.Checked(nil)
	b.empties, b.deadSince = 0, time.Time{}
	b.buryLastResort(ctx)
	return changed
}

// contradicted notes an empty list and says whether it is the first: ask again.
func (b *belief) contradicted() (first bool) {
	b.empties++
	return b.empties == 1
}

// gone judges an empty list that was confirmed against the instances that it would
// remove. Reset says that the registry may have lost what it knew.
//
//	one instance, no reset           the second answer is enough
//	any of several accepts a call    the list stays, and an alarm is raised
//	none does                        the list is empty
//	nobody can tell, or a reset      the same must be so for 15 s
func (b *belief) gone(ctx context.Context, reset bool) bool {
	known := b.known()
	if len(known) == 1 && !reset {
		return true
	}
	pulses := b.probe.all(ctx, known)
	if ctx.Err() != nil {
		return false
	}
	allDead := !slices.ContainsFunc(pulses, func(p pulse) bool { return p != dead })
	if slices.Contains(pulses, alive) {
		b.deadSince = time.Time{}
	} else if b.deadSince.IsZero() {
		b.deadSince = time.Now()
	}
	if !b.deadSince.IsZero() && (allDead && !reset || time.Since(b.deadSince) >= holdFor) {
		return true
	}
	b.metrics.problem(emptyHeld)
	b.out.out.Checked(fmt.Errorf("%s names no instance of %s, but %d of %d accept connections; they stay",
		b.source, b.service, count(pulses, alive), len(known)))
	return false
}

// next is the snapshot after an answer. When more than half of the instances went
// at once, those that went stay as a last resort.
func (b *belief) next(a answer) Snapshot {
	if b.flaps == nil {
		b.flaps = flaps{}
	}
	s := Snapshot{Instances: b.flaps.steady(b.known(), a.instances, time.Now()), Rejected: a.rejected}
	if len(a.instances) == 0 {
		return s
	}
	listed := make(map[Address]bool, len(a.instances))
	for _, in := range a.instances {
		listed[in.Address] = true
	}
	gone := func(in Instance) bool { return listed[in.Address] }
	last := b.out.last
	s.LastResort = slices.DeleteFunc(slices.Clone(last.LastResort), gone)
	removed := slices.DeleteFunc(slices.Clone(last.Instances), gone)
	if 2*len(removed) > len(last.Instances) {
		b.metrics.problem(massDrop)
		s.LastResort = append(s.LastResort, removed...)
	}
	return s
}

// buryLastResort drops what no longer accepts connections.
func (b *belief) buryLastResort(ctx context.Context) {
	s := b.out.last
	if len(s.LastResort) == 0 {
		return
	}
	pulses := b.probe.all(ctx, s.LastResort)
	if ctx.Err() != nil {
		return
	}
	var left []Instance
	for i, in := range s.LastResort {
		if pulses[i] != dead {
			left = append(left, in)
		}
	}
	s.LastResort = left
	b.out.publish(s)
}

func count(pulses []pulse, wanted pulse) (n int) {
	for _, p := range pulses {
		if p == wanted {
			n++
		}
	}
	return n
}
