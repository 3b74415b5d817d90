package caller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
)

const (
	// tickEvery is how often what depends on time alone is compiled again: warming.
	tickEvery = time.Second
	// coalesce bounds compiling to twenty times a second for each service, whatever
	// its registry does. The last state is always compiled.
	coalesce = 50 * time.Millisecond
	// keptTables is how many tables of a service that records name are kept after
	// their time, for Explain.
	keptTables = 4
)

// engine is what a pick asks. *route.Table is one.
type engine interface {
	Pick(q route.Query, draw uint64) (route.Choice, error)
	Explain(q route.Query, draw uint64) route.Explanation
	Candidates() []*discovery.Instance
}

// entry is a table in use and what records say of it. It is never changed.
type entry struct {
	table engine // nil: it could not be compiled, and every pick is direct
	in    route.Input
	view  route.View
	watch *watch
	seats seats        // of the instances in watch
	named *atomic.Bool // a record names the view
	sent  *atomic.Bool // and control has the view
}

// slot is where the table of one service is.
type slot struct {
	name     string
	override []discovery.Instance // instead of all tables
	now      atomic.Pointer[entry]
	by       *Caller
	picks    counters
	outcomes counters

	mu         sync.Mutex // guards the rest
	kept       []*entry   // former ones that records name, oldest first
	candidates []discovery.Instance
	number     uint64
	changed    chan struct{} // closed and replaced when candidates or number differ; nil: nobody asked
	gone       bool          // the service is known no longer
}

// keepTables compiles what is dirty until ctx ends.
func (c *Caller) keepTables(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	c.compileDirty() // services with an override are ready now
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-tick.C:
			c.soilWarming()
		}
		c.compileDirty()
		if !pause(ctx, coalesce) {
			return
		}
	}
}

// soilWarming has the services compiled again in which somebody warms, or in which
// heat without reports fades.
func (c *Caller) soilWarming() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for name, l := range c.lists {
		if l.warms(now) {
			c.dirty[name] = true
		}
		if l.heat.active() {
			c.feel(name, l, nil)
		}
	}
	for name := range c.watches {
		if c.lists[name] == nil {
			c.unsee(name)
		}
	}
	c.metrics.age.Set(c.heard.age(now).Seconds())
}

// compileDirty compiles all services that changed. Only one goroutine may call it.
func (c *Caller) compileDirty() {
	c.mu.Lock()
	dirty, loaded := c.dirty, c.heard.any()
	c.dirty = map[string]bool{}
	c.mu.Unlock()
	var fresh []*slot
	var gone []string
	slots := *c.slots.Load()
	for name := range dirty {
		s := slots[name]
		if s != nil && s.override != nil {
			continue
		}
		next, ok := c.input(name)
		switch {
		case !ok && s != nil:
			gone = append(gone, name)
		case !ok:
		case s != nil:
			c.swap(s, next)
		default:
			s = c.newSlot(name)
			c.swap(s, next)
			fresh = append(fresh, s)
		}
	}
	if len(fresh)+len(gone) > 0 {
		c.resize(fresh, gone)
	}
	c.showDegraded()
	c.checkReady(loaded)
}

// resize replaces the map of slots.
func (c *Caller) resize(fresh []*slot, gone []string) {
	next := maps.Clone(*c.slots.Load())
	for _, s := range fresh {
		next[s.name] = s
	}
	var left []*slot
	for _, name := range gone {
		left = append(left, next[name])
		delete(next, name)
		c.metrics.forget(name)
	}
	c.slots.Store(&next)
	for _, s := range left {
		s.end()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.appeared)
	c.appeared = make(chan struct{})
}

// newSlot is the slot of a service, without a table yet.
func (c *Caller) newSlot(name string) *slot {
	return &slot{name: name, by: c, picks: counters{vec: c.metrics.picks, service: name}, outcomes: counters{vec: c.metrics.outcomes, service: name}}
}

// input is an entry that lacks nothing but its table. ok is false when nobody knows
// the service any more, or nothing about it has been told yet.
func (c *Caller) input(name string) (next *entry, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.opt.Services) > 0 && !slices.Contains(c.opt.Services, name) {
		return nil, false // it has rules, and we do not call it
	}
	chapter, l := c.book.chapter(name), c.lists[name]
	if l == nil {
		if !c.heard.any() || len(chapter.rules) == 0 {
			return nil, false
		}
		l = &list{}
	}
	in := route.Input{Service: name, Home: c.opt.Self, Instances: l.instances, Rules: chapter.rules, Number: chapter.since,
		Direct: c.direct || c.book.direct || !c.book.known, Isolate: c.isolate}
	l.watch = c.watchOf(name)
	seats := c.see(l, in)
	in.Scale = l.scale(time.Now())
	in.Shift, in.Load = l.heat.shift(chapter.rules)
	view := route.View{Key: c.prefix + ":" + strconv.FormatUint(c.tables.Add(1), 10), Service: name, Home: in.Home,
		Digest: l.digest(), Number: in.Number, Direct: in.Direct, Isolate: in.Isolate, Scale: in.Scale, Shift: in.Shift, Load: in.Load}
	return &entry{in: in, view: view, watch: l.watch, seats: seats, named: &atomic.Bool{}, sent: &atomic.Bool{}}, true
}

// swap compiles a table and takes it into use. If that panics the one in use stays;
// without one, picks are direct.
func (c *Caller) swap(s *slot, next *entry) {
	began := time.Now()
	table, err := compile(next.in)
	c.metrics.compile.Observe(time.Since(began).Seconds())
	c.troubles.note("compile", err, "of", s.name)
	old := s.now.Load()
	if err != nil {
		c.metrics.panics.Inc()
		if old != nil && old.table != nil {
			return
		}
	}
	if err == nil {
		next.table = table
	}
	s.now.Store(next)
	s.tell(old, next)
	c.troubles.note("pick", nil, "of", s.name)
}

func compile(in route.Input) (table *route.Table, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("compile the table of %s: panic: %v", in.Service, p)
		}
	}()
	return route.Compile(in), nil
}

// tell keeps the old table for Explain, and wakes whoever waits for other candidates.
func (s *slot) tell(old, next *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old != nil && old.named.Load() {
		s.kept = append(s.kept, old)
		s.kept = slices.Clone(s.kept[max(0, len(s.kept)-keptTables):])
	}
	if s.changed == nil {
		return // nobody has asked
	}
	candidates := next.candidates()
	if s.number == next.in.Number && slices.EqualFunc(candidates, s.candidates, discovery.Instance.Equal) {
		return
	}
	s.candidates, s.number = candidates, next.in.Number
	close(s.changed)
	s.changed = make(chan struct{})
}

// end wakes whoever waits for candidates of a service that is gone.
func (s *slot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// candidates are those that some pick may choose.
func (e *entry) candidates() []discovery.Instance {
	if e.table == nil {
		return e.in.Instances
	}
	pointers := e.table.Candidates()
	all := make([]discovery.Instance, len(pointers))
	for i, in := range pointers {
		all[i] = *in
	}
	return all
}

// Candidates are the instances that picks of the service may choose now, in whatever
// lane, the number of the rules, and a channel that is closed when either changed.
// The list must not be changed.
func (c *Caller) Candidates(service string) (all []discovery.Instance, number uint64, changed <-chan struct{}) {
	c.mu.Lock()
	appeared := c.appeared
	c.mu.Unlock()
	s := (*c.slots.Load())[service]
	if s == nil {
		return nil, 0, appeared
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, 0, appeared
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
		if s.candidates = s.override; s.override == nil {
			e := s.now.Load()
			s.candidates, s.number = e.candidates(), e.in.Number
		}
	}
	return s.candidates, s.number, s.changed
}
