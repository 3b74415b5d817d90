package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// minPace and idlePace are the shortest times between two questions: after an
	// answer that changed something, and after one that came early for nothing.
	minPace  = 100 * time.Millisecond
	idlePace = time.Second
)

// Watch asks again and again, each time waiting for a change.
func (c *consul) Watch(ctx context.Context, service string, out Observer) error {
	if err := checkService(service); err != nil {
		return err
	}
	w := &consulWatch{consul: c, belief: belief{source: c.Name(), service: service, probe: c.probe, metrics: c.metrics,
		out: newPublisher(c.Name(), service, out, c.metrics)}}
	for pause(ctx, w.step(ctx)) {
	}
	return nil
}

// consulWatch is one Watch.
type consulWatch struct {
	*consul
	belief

	agent    int       // who is asked
	index    uint64    // the next question waits for more; 0: it asks the leader afresh
	highest  uint64    // index of the last answer that was believed
	askedAt  time.Time // the last question
	failures int       // in a row
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
	w.belief.failed(err)
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
	// Entries that nobody may use are entries: a registry that lists them lost nothing.
	case len(a.instances)+len(a.rejected) > 0 || known == 0:
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
		w.consul.metrics.problem(indexReset)
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
	changed := w.belief.believe(ctx, a)
	asked := w.index
	w.index, w.highest, w.failures = max(a.index, 1), a.index, 0
	switch {
	case a.index == 0:
		w.consul.metrics.problem(noIndex)
		return jitter(doubtPace, doubtPace+time.Second)
	case changed || asked == 0:
		return minPace - time.Since(w.askedAt)
	default:
		return idlePace - time.Since(w.askedAt) // nothing is left after a question that waited
	}
}

// doubt asks the leader about an empty list at once, then calls the instances.
func (w *consulWatch) doubt(ctx context.Context, a answer) time.Duration {
	w.failures, w.index = 0, 0
	if w.contradicted() {
		return 0
	}
	if w.gone(ctx, a.index < w.highest) {
		return w.believe(ctx, a)
	}
	return doubtPace
}
