package caller

import (
	"iter"
	"maps"
	"slices"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

const (
	// coldFor is how long an instance that appears gets nothing; then its part grows
	// for rampFor. A registration is not yet a warm process: 30 s cover caches and pools.
	coldFor = 30 * time.Second
	rampFor = 30 * time.Second
	// rememberFor is how long an instance that went is known to be warm: a registry
	// that flaps must not take its part from it.
	rememberFor = 10 * time.Minute
)

// list is one service as the feeds tell it, and what was seen of its instances.
type list struct {
	told      wire.Service         // as it came
	carried   []discovery.Instance // of registries that the teller does not hear from, see learn
	instances []discovery.Instance // both; replaced, never changed
	edition   uint64               // counts what instances have been
	scaled    uint64               // counts what told.Scale has been
	seen      map[fingerprint]sighting
	heat      heat   // of its instances and versions
	watch     *watch // who is out; nil: nobody watches
}

// fingerprint tells a process from the one before it at its address. An ID is no part
// of it: a second instance of the same ID gives both another.
type fingerprint struct {
	address discovery.Address
	started int64 // Unix ms; 0: unknown
}

func fingerprintOf(in *discovery.Instance) fingerprint {
	f := fingerprint{address: in.Address}
	if !in.Started.IsZero() {
		f.started = in.Started.UnixMilli()
	}
	return f
}

// sighting is when a process was first seen, by the clock of this machine alone:
// Started is the clock of another one.
type sighting struct {
	since time.Time // zero: it was there before us, and is warm
	gone  time.Time // zero: it is there
}

// see notes who is there now. Of the first list that a source gives, everybody was
// there before us. It returns how many begin to warm.
func (l *list) see(first bool, now time.Time) (fresh int) {
	if l.seen == nil {
		l.seen = map[fingerprint]sighting{}
	}
	there := map[fingerprint]bool{}
	for i := range l.instances {
		f := fingerprintOf(&l.instances[i])
		there[f] = true
		s, known := l.seen[f]
		switch {
		case known:
			s.gone = time.Time{}
		case !first:
			s.since = now
			fresh++
		}
		l.seen[f] = s
	}
	for f, s := range l.seen {
		switch {
		case there[f]:
		case f.started == 0 || !s.gone.IsZero() && now.Sub(s.gone) > rememberFor:
			delete(l.seen, f) // without a start it may come back as another process
		case s.gone.IsZero():
			s.gone = now
			l.seen[f] = s
		}
	}
	return fresh
}

// warmth is how much of its weight an instance has at an age, in thousandths: none,
// then thirty steps of a second each.
func warmth(age time.Duration) int {
	if age < coldFor {
		return 0
	}
	steps := int((age-coldFor)/time.Second) + 1
	return min(steps*1000/int(rampFor/time.Second), 1000)
}

// scale is what callers must lower, and what this one lowers because an instance
// warms, is ejected or is hot. Of several the lowest counts; what is isolated or
// suspicious stays named so, and what is ejected too unless it is one of those:
// ejected serves last, whatever else lowers it.
func (l *list) scale(now time.Time) map[string]route.Scale {
	all := l.told.Scale
	copied := false
	lower := func(id string, s route.Scale) {
		told, is := all[id]
		lowest := told.Thousandths < s.Thousandths || told.Thousandths == s.Thousandths && s.Why != route.Ejected
		if s.Thousandths == 1000 || is && (lowest || told.Why == route.Isolated || told.Why == route.Suspicious) {
			return
		}
		if told.Why == route.Ejected {
			s.Why = route.Ejected
		}
		if !copied {
			if all, copied = maps.Clone(all), true; all == nil {
				all = map[string]route.Scale{}
			}
		}
		all[id] = s
	}
	ejected := l.watch.lowered()
	for i := range l.instances {
		in := &l.instances[i]
		f := fingerprintOf(in)
		if part, is := ejected[f]; is {
			lower(in.ID, route.Scale{Thousandths: part, Why: route.Ejected})
		}
		if seen := l.seen[f]; !seen.since.IsZero() {
			lower(in.ID, route.Scale{Thousandths: warmth(now.Sub(seen.since)), Why: route.Warming})
		}
		lower(in.ID, l.heat.scale(f))
	}
	return all
}

// idle says whether an instance takes nothing whoever else is left: it is drained,
// isolated or suspicious.
func (l *list) idle(in *discovery.Instance) bool {
	why := l.told.Scale[in.ID].Why
	return in.Share() <= 0 || why == route.Isolated || why == route.Suspicious
}

// warms says whether somebody does, or did until a second ago.
func (l *list) warms(now time.Time) bool {
	for _, s := range l.seen {
		if !s.since.IsZero() && s.gone.IsZero() && now.Sub(s.since) <= coldFor+rampFor+2*tickEvery {
			return true
		}
	}
	return false
}

// told is what a feed says about a service.
type told struct {
	wire.Service
	full    bool              // of an answer that says everything anew
	partial map[string]string // registries that the teller does not hear from
	first   bool              // nothing of its source was known
}

// learn takes over what a feed says of a service. c.mu is held.
//
// A control node that starts while a registry is away lacks that registry's
// instances in its full answer. We may still know them: they are carried until it
// hears from the registry again.
func (c *Caller) learn(name string, t told) {
	l := c.lists[name]
	if l == nil {
		l = &list{}
		c.lists[name] = l
	}
	before, count := l.instances, len(l.carried)
	if t.full {
		l.carried = l.instances
	}
	l.carried = slices.DeleteFunc(slices.Clone(l.carried), func(in discovery.Instance) bool {
		return t.partial[in.Source] == "" || slices.ContainsFunc(t.Instances, func(other discovery.Instance) bool { return other.Address == in.Address })
	})
	same := l.edition > 0 && count == 0 && len(l.carried) == 0 && slices.EqualFunc(before, t.Instances, discovery.Instance.Equal)
	scaled := !maps.Equal(l.told.Scale, t.Scale)
	renamed := l.told.Digest != t.Digest
	if scaled {
		l.scaled++
	}
	l.told = t.Service
	l.told.Load = nil // heat has taken it
	if !same {
		l.edition++
		if l.instances = t.Instances; len(l.carried) > 0 {
			l.instances = slices.Concat(t.Instances, l.carried)
		}
		now := time.Now()
		if fresh := l.see(t.first, now); fresh > 0 {
			c.log.Info("instances are warming", "of", name, "instances", fresh, "until", now.Add(coldFor+rampFor).Format(time.RFC3339))
		}
	}
	c.feel(name, l, t.Load)
	if !same || scaled || renamed {
		c.soil(name)
		signal(c.copying)
	}
}

// settle ends carrying for registries that the teller hears from again. c.mu is held.
func (c *Caller) settle(partial map[string]string) {
	for name, l := range c.lists {
		if slices.ContainsFunc(l.carried, func(in discovery.Instance) bool { return partial[in.Source] == "" }) {
			c.learn(name, told{Service: l.told, partial: partial})
		}
	}
}

// forget takes a service away that nobody registers any more. c.mu is held.
func (c *Caller) forget(name string) {
	delete(c.lists, name)
	c.soil(name)
	signal(c.copying)
}

// digest names the list in records; empty for one that no control node has given.
func (l *list) digest() string {
	if len(l.carried) > 0 {
		return ""
	}
	return l.told.Digest
}

// names are the services that have a table: those of the options, else all that
// have instances or rules. c.mu is held.
func (c *Caller) names() iter.Seq[string] {
	if len(c.opt.Services) > 0 {
		return slices.Values(c.opt.Services)
	}
	return func(yield func(string) bool) {
		for name := range c.lists {
			if !yield(name) {
				return
			}
		}
		for name := range c.book.of {
			if c.lists[name] == nil && !yield(name) {
				return
			}
		}
	}
}
