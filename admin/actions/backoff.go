package actions

import (
	"sync"
	"time"
)

// backoff makes whoever tries again and again wait: after free tries each further
// one doubles the wait, up to longest. It is kept in memory, at most size keys, by
// each control node for itself.
type backoff struct {
	free    int
	longest time.Duration
	size    int

	mu    sync.Mutex
	tries map[string]tries
}

type tries struct {
	count int
	until time.Time // no try before
}

// forgiven is how long after the last wait everything is forgotten.
const forgiven = time.Hour

func newBackoff(free int, longest time.Duration) *backoff {
	return &backoff{free: free, longest: longest, size: 10_000, tries: map[string]tries{}}
}

// take counts one try, before its outcome is known: many at once must not all
// pass. wait is how long it comes too early; then it is not counted.
func (b *backoff) take(key string, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.tries[key]
	if wait := was.until.Sub(now); wait > 0 {
		return wait
	}
	if now.Sub(was.until) > forgiven {
		was = tries{}
	}
	if _, known := b.tries[key]; !known {
		b.room(now)
	}
	was.count++
	was.until = now
	if over := was.count - b.free; over > 0 {
		was.until = now.Add(min(time.Second<<min(over-1, 30), b.longest))
	}
	b.tries[key] = was
	return 0
}

// right gives a try back that was no guess: an office behind one address may sign in.
func (b *backoff) right(key string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, known := b.tries[key]; known {
		b.tries[key] = tries{count: max(was.count-1, 0), until: now}
	}
}

// forget is for a key whose owner has come.
func (b *backoff) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tries, key)
}

// sampled is among how many keys the one to forget is chosen.
const sampled = 16

// room makes place for one more key: of a few, in the random order of maps, the
// one with the fewest tries goes. So a flood of names does not wash out the one
// that is being guessed.
func (b *backoff) room(now time.Time) {
	if len(b.tries) < b.size {
		return
	}
	seen, fewest, victim := 0, 0, ""
	for key, t := range b.tries {
		if seen++; seen > sampled {
			break
		}
		if now.Sub(t.until) > forgiven {
			victim = key
			break
		}
		if victim == "" || t.count < fewest {
			fewest, victim = t.count, key
		}
	}
	delete(b.tries, victim)
}
