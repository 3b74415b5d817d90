package caller

import (
	"reflect"
	"slices"

	"dispatch.example/dispatch/discovery/rules"
)

// book is the rules in use, by service.
type book struct {
	known  bool // a set was loaded, or whoever has the rules says that there are none
	number uint64
	direct bool
	since  uint64 // the number that changed the rules of all services last
	of     map[string]chapter
	signed *rules.Signed // as it came, for the copy
}

// chapter is the rules of one service. Publishing rules of another service leaves
// its number as it is, and with it the connections of the callers: releases of
// both numbers make the same table.
type chapter struct {
	rules []rules.Rule
	since uint64
}

// turn takes a set into use. It returns the services whose rules differ, or all.
func (b *book) turn(set rules.Set, number uint64) (changed []string, all bool) {
	next := map[string][]rules.Rule{}
	for _, r := range set.Rules {
		next[r.Service] = append(next[r.Service], r)
	}
	all = !b.known || b.direct != set.Direct
	if b.of == nil || all {
		b.of, b.since = map[string]chapter{}, number
	}
	for name, list := range next {
		if old, known := b.of[name]; !known || !reflect.DeepEqual(old.rules, list) {
			b.of[name] = chapter{list, number}
			changed = append(changed, name)
		}
	}
	for name, old := range b.of {
		if len(next[name]) == 0 && len(old.rules) > 0 {
			b.of[name] = chapter{since: number} // its number must not go back
			changed = append(changed, name)
		}
	}
	b.known, b.number, b.direct = true, number, set.Direct
	slices.Sort(changed)
	return changed, all
}

// chapter is what counts for a service.
func (b *book) chapter(name string) chapter {
	if c, ok := b.of[name]; ok {
		return c
	}
	return chapter{since: b.since}
}
