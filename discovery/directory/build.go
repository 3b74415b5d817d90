package directory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

// loadPace is how often callers are told the loads of a service: as often as each
// instance reports its own.
const loadPace = wire.ReportEvery

// build makes lists of what is dirty, judges, publishes tables and a view. With all
// it looks at everything: fingerprints become suspicious and loads expire without news.
func (d *Directory) build(all bool) {
	start := time.Now()
	d.mu.Lock()
	all = all || d.all
	settled := !d.isComplete() && d.settled()
	if all {
		d.reports.expire(start)
	}
	if all || settled {
		d.observe(start)
	}
	changes, partial := d.rebuild(all, start), d.partial()
	called, others := d.calls.list(start)
	view := d.draw(start)
	view.Calls = called
	news := d.news || others
	if all && d.dropped {
		d.services, d.names, d.dropped = fresh(d.services), slices.Clone(d.names), false
	}
	d.all, d.news = false, false
	d.dirty = map[string]bool{}
	d.mu.Unlock()

	d.tables.publish(changes, partial, start)
	d.show(view, news)
	if settled {
		close(d.complete)
	}
	if all {
		d.metrics.size(view)
	}
	d.metrics.build.Observe(time.Since(start).Seconds())
}

// show makes a view the newest. With news it ends the wait of whoever has the last.
func (d *Directory) show(v *View, news bool) {
	before := d.edition.Load()
	if !news {
		d.edition.Store(&edition{v, before.changed})
		return
	}
	d.edition.Store(&edition{v, make(chan struct{})})
	close(before.changed)
}

// settled says whether there is no more to wait for before the first full answer:
// each registry was heard or is away, and so is Memory.
func (d *Directory) settled() bool {
	for _, r := range d.registries {
		if !r.settled() {
			return false
		}
	}
	return d.opt.Memory == nil || d.verdicts.by != nil
}

func (d *Directory) isComplete() bool {
	select {
	case <-d.complete:
		return true
	default:
		return false
	}
}

// observe looks how the registries are.
func (d *Directory) observe(now time.Time) {
	states := make([]State, len(d.registries))
	for i, r := range d.registries {
		states[i] = r.state(now)
	}
	d.news = d.news || !slices.EqualFunc(states, d.states, func(a, b State) bool { a.Age, b.Age = 0, 0; return a == b })
	d.states = states
}

// partial are the registries that are away, and why.
func (d *Directory) partial() map[string]string {
	var away map[string]string
	for _, s := range d.states {
		if s.OK {
			continue
		}
		if away == nil {
			away = map[string]string{}
		}
		away[s.Name] = s.Problem
	}
	return away
}

// rebuild merges what is dirty, judges it, or everything, and returns the tables that
// callers shall have instead of theirs.
func (d *Directory) rebuild(all bool, now time.Time) (changes []*table) {
	names := d.names
	if !all {
		names = slices.Sorted(maps.Keys(d.dirty))
	}
	for _, name := range slices.Clone(names) { // some are dropped
		s := d.services[name]
		if s == nil {
			continue
		}
		if len(s.from) == 0 {
			changes = append(changes, &table{name: name, gone: true})
			d.drop(name)
			d.news = true
			continue
		}
		redrawn := d.dirty[name] && s.merge(now)
		queued := len(s.queue)
		scale, load := d.judge(s, now)
		t := &table{name: name, list: s.list, scale: scale, load: load}
		switch {
		case s.table == nil, s.table.list.digest != t.list.digest, !maps.Equal(s.table.scale, scale):
			t.whole = true
		case maps.EqualFunc(s.table.load, load, sameLoad), now.Sub(s.loaded) < loadPace:
			t = nil
		}
		d.news = d.news || redrawn || t != nil && t.whole || queued != len(s.queue)
		if t != nil {
			s.table = t
			changes = append(changes, t)
			if len(load) > 0 {
				s.loaded = now
			}
		}
		if redrawn || t != nil || !maps.EqualFunc(s.load, load, sameLoad) {
			s.load = load
			s.draw(scale, load)
		}
	}
	return changes
}

// draw makes what people see of a service.
func (s *service) draw(scale map[string]route.Scale, load map[string]wire.Load) {
	s.shown = Service{Name: s.name, Instances: make([]Instance, len(s.entries))}
	for i := range s.entries {
		e := &s.entries[i]
		in := &s.shown.Instances[i]
		*in = Instance{Instance: e.Instance, Load: load[e.ID].Load, Sources: e.sources}
		if lowered, yes := scale[e.ID]; yes {
			in.Scale = &lowered
		}
	}
}

// draw makes the view of everything but calls.
func (d *Directory) draw(now time.Time) *View {
	v := &View{At: now, Region: d.opt.Region, Registries: d.states, Services: make([]Service, len(d.names)),
		Queue: []Suspect{}, Isolated: d.verdicts.out, Calls: []Call{}}
	for i, name := range d.names {
		s := d.services[name]
		v.Services[i] = s.shown
		v.Queue = append(v.Queue, s.queue...)
	}
	if d.suspects == nil {
		d.suspects = d.listSuspects()
	}
	v.Suspicious = d.suspects
	if v.Isolated == nil {
		v.Isolated = []Verdict{}
	}
	return v
}

// listSuspects are the entries that no registry's words could be understood of.
func (d *Directory) listSuspects() []Suspect {
	all := []Suspect{}
	for _, r := range d.registries {
		for _, w := range r.watches {
			all = append(all, w.rejected...)
			if w.refused != nil {
				all = append(all, Suspect{Service: w.name, Registry: r.Name, Why: w.refused.Error(), Since: w.since})
			}
		}
	}
	slices.SortFunc(all, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Registry, b.Registry), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address.String(), b.Address.String()))
	})
	return all
}

func sameLoad(a, b wire.Load) bool {
	return a.Heard.Equal(b.Heard) && same(a.CPU, b.CPU) && same(a.Memory, b.Memory) && same(a.Connections, b.Connections)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
