package directory

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// maxCalls bounds the map: 500 services that each call 20 others.
	maxCalls = 10_000
	// callLives is how long a call counts that is asked for no more.
	callLives = 24 * time.Hour
	// callPace is how exact its last time is.
	callPace = time.Minute
)

// calls remembers who asked for whose instances.
type calls struct {
	mu     sync.Mutex // guards the rest
	last   map[Call]time.Time
	listed []Call
	old    bool // listed is
	fresh  bool // somebody calls somebody new, or no more
	swept  time.Time
}

func newCalls() *calls { return &calls{last: map[Call]time.Time{}, listed: []Call{}} }

// note notes that from calls each of to in env, as far as there is room. known says
// which services there are: names that somebody made up take no room.
func (c *calls) note(from Call, to []string, known func(string) bool) {
	if from.From == "" {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range to {
		from.To = name
		last, there := c.last[from]
		if now.Sub(last) < callPace || !there && (len(c.last) >= maxCalls || !known(name)) {
			continue
		}
		c.last[from] = now
		c.old, c.fresh = true, c.fresh || !there
	}
}

// list is everything, by From, then To, and whether pairs came or went since the
// last time.
func (c *calls) list(now time.Time) (all []Call, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) >= callPace {
		c.swept = now
		for call, last := range c.last {
			if now.Sub(last) >= callLives {
				delete(c.last, call)
				c.old, c.fresh = true, true
			}
		}
	}
	if c.old {
		c.listed = make([]Call, 0, len(c.last))
		for call, last := range c.last {
			call.Last = last
			c.listed = append(c.listed, call)
		}
		slices.SortFunc(c.listed, func(a, b Call) int {
			return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Env, b.Env))
		})
	}
	fresh = c.fresh
	c.old, c.fresh = false, false
	return c.listed, fresh
}
