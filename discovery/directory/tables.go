package directory

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

const (
	// goneFor is how long callers are told that a service is gone; they ask every 5 s.
	// Who was away for longer gets everything.
	goneFor = time.Minute
	// buryEvery is how often what is old is looked for.
	buryEvery = 10 * time.Second
	// maxEncoded bounds the answers that are kept for callers who ask for all: they
	// know one of the last few versions.
	maxEncoded = 16
)

// table is one service as callers get it. It is never changed once it is published.
type table struct {
	name  string
	list  *list
	scale map[string]route.Scale
	load  map[string]wire.Load
	gone  bool
	whole bool // what changed is more than load

	changed uint64 // version in which list or scale changed, or the service went
	loaded  uint64 // version in which load changed
	since   time.Time
	bodies  *bodies
}

// tables holds the newest table of each service, and who waits for another.
type tables struct {
	epoch string

	mu       sync.Mutex // guards the rest
	version  uint64
	floor    uint64 // who knows less than this version gets everything
	by       map[string]*table
	partial  map[string]string
	everyone map[*waiter]bool
	waiting  map[string]map[*waiter]bool // by service
	encoded  map[span]*answer            // to this version, for callers who ask for all
	lists    recent
	buried   time.Time
}

// waiter waits for news of some services.
type waiter struct {
	names []string
	news  chan struct{} // has a token when there is some
}

func newTables() *tables {
	var epoch [16]byte
	_, _ = rand.Read(epoch[:]) // never fails
	return &tables{epoch: hex.EncodeToString(epoch[:]), by: map[string]*table{}, everyone: map[*waiter]bool{},
		waiting: map[string]map[*waiter]bool{}, encoded: map[span]*answer{}, lists: newRecent()}
}

// publish takes tables into a new version and wakes those who wait for one of them.
// Loads alone wake nobody: every instance sends one each 10 s. Which registries are
// away changes together with the lists, or a caller would let go of instances that a
// registry that is back is about to name.
func (t *tables) publish(changes []*table, partial map[string]string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = partial
	if t.bury(now); len(changes) == 0 {
		return
	}
	t.version++
	clear(t.encoded)
	wake := false
	for _, c := range changes {
		before := t.by[c.name]
		c.changed, c.loaded, c.since, c.bodies = t.version, t.version, now, &bodies{}
		if c.whole || c.gone {
			wake = true
			for w := range t.waiting[c.name] {
				poke(w.news)
			}
		} else {
			c.changed = before.changed
		}
		if before != nil && before.list != nil && (c.gone || before.list.digest != c.list.digest) {
			t.lists.replaced(before.list.digest, now)
		}
		if !c.gone {
			t.lists.add(c.name, c.list)
		}
		t.by[c.name] = c
	}
	if wake {
		for w := range t.everyone {
			poke(w.news)
		}
	}
}

// bury forgets services that are gone for long, and old lists.
func (t *tables) bury(now time.Time) {
	if now.Sub(t.buried) < buryEvery {
		return
	}
	t.buried = now
	count := len(t.by)
	for name, c := range t.by {
		if c.gone && now.Sub(c.since) >= goneFor {
			t.floor = max(t.floor, c.changed)
			delete(t.by, name)
		}
	}
	if len(t.by) < count {
		t.by = fresh(t.by)
	}
	t.lists.prune(now)
}

// fresh copies a map out of which something was deleted: the old one keeps the room
// of the most that it ever held.
func fresh[K comparable, V any](m map[K]V) map[K]V {
	n := make(map[K]V, len(m))
	maps.Copy(n, m)
	return n
}

// join returns a waiter for news of these services, or of all. Leave it.
func (t *tables) join(names []string) *waiter {
	w := &waiter{names: names, news: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(names) == 0 {
		t.everyone[w] = true
	}
	for _, name := range names {
		if t.waiting[name] == nil {
			t.waiting[name] = map[*waiter]bool{}
		}
		t.waiting[name][w] = true
	}
	return w
}

func (t *tables) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.everyone, w)
	for _, name := range w.names {
		if delete(t.waiting[name], w); len(t.waiting[name]) == 0 {
			delete(t.waiting, name)
		}
	}
}

// known says whether there is a service of this name.
func (t *tables) known(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.by[name]
	return c != nil && !c.gone
}

// since answers what changed in services, or in all, after a version of an epoch.
func (t *tables) since(epoch string, version uint64, names []string) *answer {
	t.mu.Lock()
	s := span{from: version, to: t.version, full: epoch != t.epoch || version < t.floor || version > t.version}
	if s.full {
		s.from = 0
	}
	if len(names) == 0 {
		defer t.mu.Unlock()
		if a := t.encoded[s]; a != nil {
			return a.with(t.partial)
		}
		a := newAnswer(t.epoch, s, s.pick(slices.Collect(maps.Values(t.by))))
		if len(t.encoded) < maxEncoded {
			t.encoded[s] = a
		}
		return a.with(t.partial)
	}
	found := make([]*table, 0, len(names))
	for _, name := range names {
		if c := t.by[name]; c != nil {
			found = append(found, c)
		}
	}
	partial := t.partial
	t.mu.Unlock()
	return newAnswer(t.epoch, s, s.pick(found)).with(partial)
}

// named finds lists by their digests, as far as they are remembered.
func (t *tables) named(digests []string) map[string][]discovery.Instance {
	lists := map[string]*list{}
	t.mu.Lock()
	for _, digest := range digests {
		if k := t.lists.by[digest]; k != nil {
			lists[digest] = k.list
		}
	}
	t.mu.Unlock()
	found := make(map[string][]discovery.Instance, len(lists))
	for digest, l := range lists {
		var instances []discovery.Instance
		_ = json.Unmarshal(l.json, &instances) // it is what we wrote
		found[digest] = instances
	}
	return found
}
