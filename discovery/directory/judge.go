package directory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

const (
	// grace is how long an entry and a report may disagree. After a plain restart the
	// one changes before the other: by a report's 10 s, or a registry's delay.
	grace = 15 * time.Second
	// sharedFor is how long reports of other nodes are fresh enough to call anything a
	// ghost: longer without them, and a restart may have been told elsewhere.
	sharedFor = 15 * time.Second
)

// verdicts are the newest about each instance.
type verdicts struct {
	by  map[key]Verdict
	out []Verdict // those that keep somebody out, by service and ID
}

func newVerdicts(all []Verdict) verdicts {
	v := verdicts{by: make(map[key]Verdict, len(all)), out: []Verdict{}}
	for _, one := range all {
		k := key{one.Service, one.ID}
		if before, known := v.by[k]; !known || !one.At.Before(before.At) {
			v.by[k] = one
		}
	}
	for _, one := range v.by {
		if one.Isolate || one.Refuse {
			v.out = append(v.out, one)
		}
	}
	slices.SortFunc(v.out, func(a, b Verdict) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.ID, b.ID)) })
	return v
}

// equal says whether two sets decide the same.
func (v verdicts) equal(other verdicts) bool {
	return maps.EqualFunc(v.by, other.by, func(a, b Verdict) bool {
		return a.At.Equal(b.At) && a.Isolate == b.Isolate && a.Accept == b.Accept && a.Refuse == b.Refuse && a.Fingerprint.is(b.Fingerprint)
	})
}

func (f Fingerprint) is(other Fingerprint) bool {
	return f.ID == other.ID && f.Address == other.Address && sameTime(f.Started, other.Started)
}

// fingerprint is how people see the entry.
func (e *entry) fingerprint() Fingerprint { return Fingerprint{e.ID, e.Address, e.Started} }

// about looks for isolation under every ID that the entry has or had, and for the
// verdict on its fingerprint.
func (v verdicts) about(e *entry) (isolate, accept, refuse bool) {
	if len(v.by) == 0 {
		return false, false, false
	}
	one := func(id string, started time.Time) {
		if found, known := v.by[key{e.Service, id}]; known {
			same := found.is(Fingerprint{id, e.Address, started})
			isolate = isolate || found.Isolate
			accept, refuse = accept || found.Accept && same, refuse || found.Refuse && same
		}
	}
	one(e.self.id, e.Started)
	one(listedID(e.self.id, e.Address), e.Started)
	for _, other := range e.others {
		one(other.id, other.started)
	}
	return isolate, accept, refuse
}

// judge looks at every entry of a service: what its reports say, and what people
// decided. It returns what callers shall lower and what they shall know of load.
func (d *Directory) judge(s *service, now time.Time) (scale map[string]route.Scale, load map[string]wire.Load) {
	s.queue = nil
	ghosts := d.opt.Memory != nil && !d.reports.shared.IsZero() && now.Sub(d.reports.shared) < sharedFor
	for i := range s.entries {
		e := &s.entries[i]
		report, agrees := d.agrees(e)
		if agrees && report.Load != (discovery.Load{}) {
			if load == nil {
				load = make(map[string]wire.Load, len(s.entries))
			}
			load[e.ID] = wire.Load{Load: report.Load, Heard: report.Heard}
		}
		isolate, accept, refuse := d.verdicts.about(e)
		switch {
		case agrees || accept:
			e.queued, e.why = time.Time{}, ""
		case e.queued.IsZero() && ghosts:
			if why, since := d.against(e); why != "" && now.Sub(since) >= grace {
				e.queued, e.why = now, why
			}
		}
		word := ""
		switch {
		case isolate:
			word = route.Isolated
		case refuse || !e.queued.IsZero():
			word = route.Suspicious
		case e.vanished:
			word = route.Vanished
		}
		if word != "" {
			if scale == nil {
				scale = map[string]route.Scale{}
			}
			scale[e.ID] = route.Scale{Why: word}
		}
		if !e.queued.IsZero() && !refuse {
			s.queue = append(s.queue, Suspect{e.fingerprint(), s.name, e.Source, e.why, e.queued})
		}
	}
	return scale, load
}

// agrees finds a report with the fingerprint of the entry, as any registry has it.
func (d *Directory) agrees(e *entry) (told, bool) {
	if t, known := d.reports.of(e.Service, e.self); known && t.fits(e.Address, e.self.started) {
		return t, true
	}
	for _, as := range e.others {
		if t, known := d.reports.of(e.Service, as); known && t.fits(e.Address, as.started) {
			return t, true
		}
	}
	return told{}, false
}

// fits says whether a report is of the process that an entry means. A start that
// nobody knows speaks against nothing.
func (t told) fits(a discovery.Address, started time.Time) bool {
	return t.Address == a && (t.Started.IsZero() || started.IsZero() || sameTime(t.Started, started))
}

// against says which element of the fingerprint speaks against an entry that agrees
// with no report, and since when; empty if none does. An entry that nobody reports
// about is an older service, and nothing is said.
func (d *Directory) against(e *entry) (why string, since time.Time) {
	t, known := d.reports.of(e.Service, e.self)
	for i := 0; !known && i < len(e.others); i++ {
		t, known = d.reports.of(e.Service, e.others[i])
	}
	switch {
	case known && t.Address != e.Address:
		return fmt.Sprintf("address: registered at %s, but %s reports from %s", e.Address, t.ID, t.Address), later(e.since, t.since)
	case known:
		return fmt.Sprintf("started: registered as %s, but %s reports %s", stamp(e.Started), t.ID, stamp(t.Started)), later(e.since, t.since)
	}
	for _, k := range d.reports.at(e.Address) {
		t := d.reports.by[k]
		if k.service != e.Service && t.fits(e.Address, e.Started) { // one process may have two names while it moves
			continue
		}
		return fmt.Sprintf("address: %s is where %s of %s reports from", e.Address, t.ID, t.Service), later(e.since, t.since)
	}
	return "", time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
