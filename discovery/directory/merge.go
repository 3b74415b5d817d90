package directory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
)

// service is what the builder keeps of one service.
type service struct {
	name    string
	from    map[*watch]bool // that name it; none: it is gone
	entries []entry         // by listed ID, then address
	list    *list
	table   *table    // as callers have it; nil: never published
	queue   []Suspect // of its entries
	load    map[string]wire.Load
	loaded  time.Time // when callers were last told loads
	shown   Service
}

// entry is one address of a service, out of all registries that name it.
type entry struct {
	discovery.Instance              // of the registry that comes first, under its listed ID
	self               registered   // how that registry has it
	others             []registered // how further registries have it
	sources            []string
	json               []byte // of the Instance; part of list.json
	vanished           bool   // no registry has it any more; it still accepts connections

	since  time.Time // when this fingerprint was first seen here
	queued time.Time // since when it waits for a person; zero: it does not
	why    string
}

// registered is an entry as a registry has it. A report may name any of them.
type registered struct {
	id      string
	name    string // of the service, as the registry spells it
	started time.Time
}

// list is the list of one service that callers get. It is never changed.
type list struct {
	digest string
	json   []byte // the canonical JSON: instances as encoding/json writes them
}

// service returns the service of this name, and makes it if there is none.
func (d *Directory) service(name string) *service {
	s := d.services[name]
	if s == nil {
		s = &service{name: name, from: map[*watch]bool{}, shown: Service{Name: name, Instances: []Instance{}}}
		d.services[name] = s
		at, _ := slices.BinarySearch(d.names, name)
		d.names = slices.Insert(d.names, at, name)
	}
	return s
}

// drop forgets a service that nobody names.
func (d *Directory) drop(name string) {
	delete(d.services, name)
	d.dropped = true
	if at, known := slices.BinarySearch(d.names, name); known {
		d.names = slices.Delete(d.names, at, at+1)
	}
}

// merge makes the entries and the list anew and reports whether a view of them
// would differ. What did not change keeps its JSON, so one change among many entries
// costs a walk over them.
func (s *service) merge(now time.Time) (changed bool) {
	entries := s.gather(now)
	changed = s.list == nil || len(entries) != len(s.entries)
	size := 2
	for i := range entries {
		e, before := &entries[i], s.before(&entries[i], i)
		if before == nil {
			changed = true
		} else {
			if before.self.id == e.self.id && sameTime(before.Started, e.Started) {
				e.since, e.queued, e.why = before.since, before.queued, before.why
			}
			if before.Equal(e.Instance) {
				e.json = before.json
			}
			changed = changed || e.json == nil || before.vanished != e.vanished || !slices.Equal(before.sources, e.sources)
		}
		if e.json == nil {
			e.json, _ = json.Marshal(e.Instance) // texts, whole numbers and a time with a year of four digits
		}
		size += len(e.json) + 1
	}
	if changed {
		s.list = newList(entries, size)
	}
	// Entries that equal those before still have others to compare reports with.
	s.entries = entries
	return changed
}

// before is the entry of the last list under the same ID and address, nil if there
// is none. Most stand at the place i where they stood; some were told apart only now,
// or need it no longer.
func (s *service) before(e *entry, i int) *entry {
	if i < len(s.entries) && compareEntries(&s.entries[i], e) == 0 {
		return &s.entries[i]
	}
	for _, id := range []string{e.ID, e.self.id, listedID(e.self.id, e.Address)} {
		want := entry{Instance: discovery.Instance{ID: id, Address: e.Address}}
		at, known := slices.BinarySearchFunc(s.entries, &want, func(a entry, b *entry) int { return compareEntries(&a, b) })
		if known {
			return &s.entries[at]
		}
	}
	return nil
}

// gather takes each address once, from the registry that comes first.
func (s *service) gather(now time.Time) []entry {
	watches, most := make([]*watch, 0, len(s.from)), 0
	for w := range s.from {
		watches = append(watches, w)
		most += len(w.groups[s.name])
	}
	slices.SortFunc(watches, func(a, b *watch) int {
		return cmp.Or(cmp.Compare(a.registry.order, b.registry.order), strings.Compare(a.name, b.name))
	})
	entries := make([]entry, 0, most)
	place := make(map[discovery.Address]int, most)
	for _, vanished := range []bool{false, true} { // what any registry has comes first
		for _, w := range watches {
			if vanished && len(w.vanished) == 0 {
				continue
			}
			for _, in := range w.groups[s.name] {
				if w.vanished[in.Address] != vanished {
					continue
				}
				as := registered{id: in.ID, name: w.name, started: plainTime(in.Started)}
				at, known := place[in.Address]
				if !known {
					in.Service, in.Source, in.Started = s.name, w.registry.Name, as.started
					place[in.Address] = len(entries)
					entries = append(entries, entry{Instance: in, self: as, sources: w.registry.own, since: now, vanished: vanished})
					continue
				}
				if vanished {
					continue
				}
				e := &entries[at]
				e.others = append(e.others, as)
				if name := w.registry.Name; !slices.Contains(e.sources, name) {
					e.sources = append(slices.Clip(e.sources), name)
				}
			}
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return compareEntries(&a, &b) })
	tellApart(entries)
	return entries
}

// tellApart adds the address to IDs that several entries have. An agent of Consul
// keeps its own IDs, so one service often has one ID on every machine.
func tellApart(entries []entry) {
	again := false
	for i := 0; i < len(entries); {
		end := i + 1
		for end < len(entries) && entries[end].self.id == entries[i].self.id {
			end++
		}
		if end-i > 1 {
			again = true
			for j := i; j < end; j++ {
				entries[j].ID = listedID(entries[j].self.id, entries[j].Address)
			}
		}
		i = end
	}
	if again {
		slices.SortFunc(entries, func(a, b entry) int { return compareEntries(&a, &b) })
	}
}

// listedID is the ID of one of several entries with the same.
func listedID(id string, a discovery.Address) string { return id + "@" + a.String() }

func compareEntries(a, b *entry) int {
	if c := strings.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Address.Host, b.Address.Host), cmp.Compare(a.Address.Port, b.Address.Port))
}

// newList joins what the entries say into one list of about size bytes.
func newList(entries []entry, size int) *list {
	l := &list{}
	text := bytes.NewBuffer(make([]byte, 0, size))
	text.WriteByte('[')
	for i := range entries {
		if i > 0 {
			text.WriteByte(',')
		}
		from := text.Len()
		text.Write(entries[i].json)
		entries[i].json = text.Bytes()[from:text.Len():text.Len()] // lets go of the list before
	}
	text.WriteByte(']')
	l.json = text.Bytes()
	sum := sha256.Sum256(l.json)
	l.digest = hex.EncodeToString(sum[:16])
	return l
}

// sameTime compares starts as registries and databases keep them: to the
// millisecond. A zero time is unknown and differs from a known one here.
func sameTime(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }

// plainTime is a time that equals itself after a journey as JSON; what no calendar
// has is unknown.
func plainTime(t time.Time) time.Time {
	if t = t.UTC().Round(0); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
