package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// minPace and idlePace are the shortest times between two questions: after an
	// answer that changed something, and after one that came early for nothing.
	minPace  = 100 * time.Millisecond
	idlePace = time.Second
	// doubtPace is the time between two looks while an empty list is held, and after
	// an answer without an index, which cannot be waited on.
	doubtPace = 5 * time.Second
	// holdFor is how long an empty list is held that no probe confirms or denies.
	holdFor = 15 * time.Second
)

// Watch asks again and again, each time waiting for a change.
func (c *consul) Watch(ctx context.Context, service string, out Observer) error {
	if err := checkService(service); err != nil {
		return err
	}
	w := &consulWatch{consul: c, service: service, out: newPublisher(c.Name(), service, out, c.metrics)}
	for pause(ctx, w.step(ctx)) {
	}
	return nil
}

// consulWatch is one Watch.
type consulWatch struct {
	*consul
	service string
	out     *publisher

	agent     int       // who is asked
	index     uint64    // the next question waits for more; 0: it asks the leader afresh
	highest   uint64    // index of the last answer that was believed
	askedAt   time.Time // the last question
	failures  int       // in a row
	empties   int       // in a row, that contradict the list we have
	deadSince time.Time // when no probe found an instance alive any more
}

// step asks once, judges the answer and returns how long to wait before the next.
func (w *consulWatch) step(ctx context.Context) time.Duration {
	w.askedAt = time.Now()
	a, err := w.list(ctx, w.agent, w.service, w.index)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		return w.failed(err)
	default:
		return w.take(ctx, a)
	}
}

// failed keeps the list, turns to the next agent and backs off.
func (w *consulWatch) failed(err error) time.Duration {
	kind := unreachable
	if p, ok := errors.AsType[*problem](err); ok {
		kind = p.kind
	}
	w.metrics.problem(kind)
	w.out.out.Checked(err)
	w.failures++
	w.index, w.agent = 0, (w.agent+1)%len(w.agents)
	if w.failures == 1 && errors.Is(err, context.DeadlineExceeded) {
		return jitter(0, 500*time.Millisecond) // it hung for us alone; nobody else asks now
	}
	return backoff(w.failures)
}

// verdict is what an answer is worth.
type verdict uint8

const (
	believe  verdict = iota
	askAgain         // the index went back: what the leader says afresh counts
	distrust         // as good as no answer
	doubt            // an empty list that may be true
)

// judge looks at an answer to a question with the index asked; known is how many
// instances the list has that it would replace.
func judge(asked uint64, known int, a answer) verdict {
	switch {
	// Without an index there is nothing to compare; 1 is what we ask for then.
	case a.index < asked && (asked > 1 || a.index > 0):
		return askAgain
	case len(a.instances) > 0 || known == 0:
		return believe
	// 1 is the index of an empty store, and of an answer that was cut short because
	// the token ended while it waited.
	case a.index <= 1:
		return distrust
	default:
		return doubt
	}
}

// take acts on an answer and returns how long to wait.
func (w *consulWatch) take(ctx context.Context, a answer) time.Duration {
	switch judge(w.index, len(w.out.last.Instances), a) {
	case askAgain:
		w.metrics.problem(indexReset)
		if len(a.instances) == 0 && len(w.out.last.Instances) > 0 {
			w.out.out.Checked(fmt.Errorf("consul's index went from %d to %d, with an empty list; the leader is asked", w.index, a.index))
		}
		w.index = 0
		return jitter(0, 500*time.Millisecond)
	case distrust:
		return w.failed(&problem{noIndex, fmt.Errorf("consul sent an empty list with the index %d", a.index)})
	case doubt:
		return w.doubt(ctx, a)
	default:
		return w.believe(ctx, a)
	}
}

func (w *consulWatch) believe(ctx context.Context, a answer) time.Duration {
	changed := w.out.publish(w.next(a))
	w.out.out.Checked(nil)
	asked := w.index
	w.index, w.highest = max(a.index, 1), a.index
	w.failures, w.empties, w.deadSince = 0, 0, time.Time{}
	w.buryLastResort(ctx)
	switch {
	case a.index == 0:
		w.metrics.problem(noIndex)
		return jitter(doubtPace, doubtPace+time.Second)
	case changed || asked == 0:
		return minPace - time.Since(w.askedAt)
	default:
		return idlePace - time.Since(w.askedAt) // nothing is left after a question that waited
	}
}

// next is the snapshot after an answer. When more than half of the instances went
// at once, those that went stay as a last resort.
func (w *consulWatch) next(a answer) Snapshot {
	s := Snapshot{Instances: a.instances, Rejected: a.rejected}
	if len(a.instances) == 0 {
		return s
	}
	listed := make(map[Address]bool, len(a.instances))
	for _, in := range a.instances {
		listed[in.Address] = true
	}
	gone := func(in Instance) bool { return listed[in.Address] }
	last := w.out.last
	s.LastResort = slices.DeleteFunc(slices.Clone(last.LastResort), gone)
	removed := slices.DeleteFunc(slices.Clone(last.Instances), gone)
	if 2*len(removed) > len(last.Instances) {
		w.metrics.problem(massDrop)
		s.LastResort = append(s.LastResort, removed...)
	}
	return s
}

// buryLastResort drops what no longer accepts connections.
func (w *consulWatch) buryLastResort(ctx context.Context) {
	s := w.out.last
	if len(s.LastResort) == 0 {
		return
	}
	pulses := w.probe.all(ctx, s.LastResort)
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
	w.out.publish(s)
}

// doubt judges an empty list against the instances that it would remove.
//
//	one instance, index as expected  a second answer of the leader is enough
//	any of several accepts a call    the list stays, and an alarm is raised
//	none does                        the list is empty
//	nobody can tell, or the index is lower than it was
//	                                 the same must be so for 15 s
func (w *consulWatch) doubt(ctx context.Context, a answer) time.Duration {
	w.failures, w.index = 0, 0
	if w.empties++; w.empties == 1 {
		return 0 // the leader is asked at once
	}
	known := w.out.last.Instances
	reset := a.index < w.highest
	if len(known) == 1 && !reset {
		return w.believe(ctx, a)
	}
	pulses := w.probe.all(ctx, known)
	if ctx.Err() != nil {
		return 0
	}
	allDead := !slices.ContainsFunc(pulses, func(p pulse) bool { return p != dead })
	if slices.Contains(pulses, alive) {
		w.deadSince = time.Time{}
	} else if w.deadSince.IsZero() {
		w.deadSince = time.Now()
	}
	if !w.deadSince.IsZero() && (allDead && !reset || time.Since(w.deadSince) >= holdFor) {
		return w.believe(ctx, a)
	}
	w.metrics.problem(emptyHeld)
	w.out.out.Checked(fmt.Errorf("consul names no instance of %s, but %d of %d accept connections; they stay",
		w.service, count(pulses, alive), len(known)))
	return doubtPace
}

func count(pulses []pulse, wanted pulse) (n int) {
	for _, p := range pulses {
		if p == wanted {
			n++
		}
	}
	return n
}
