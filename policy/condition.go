package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"dispatch.example/dispatch/whitelist"
)

// kind is the kind of a condition. Conditions are tried in this order: first
// those that the index answers, last the address databases and lists, which
// cost a cache miss each.
type kind uint8

const (
	kindHasDevice kind = iota
	kindHasUser
	kindPlatform
	kindChannel
	kindCarrier
	kindLocale
	kindAppVersion
	kindRegionOfReplica
	kindBetween
	kindAttr
	kindOrigin
	kindCIDR
	kindCountry
	kindSubdivision
	kindASN
	kindInList
)

// indexed are the kinds before it, which the index can answer for all rules at once.
const indexed = kindOrigin

// String is the condition's name in a document.
func (k kind) String() string {
	return [...]string{"has_device", "has_user", "platform", "channel", "carrier", "locale", "app_version",
		"region_of_replica", "between", "attr", "origin", "cidr", "country", "subdivision", "asn", "in_list"}[k]
}

// cond is one compiled condition. Which fields count depends on its kind.
type cond struct {
	kind     kind
	not      bool
	want     bool     // has_device, has_user
	attr     string   // attr: the name
	values   []string // the kinds that compare text; also how every kind is shown
	versions Range
	from, to time.Time
	nets     *bart.Lite
	asns     []uint32
	lists    []listRef
}

// listRef is a list by its number in the index.
type listRef struct {
	number int
	of     whitelist.Of
}

// verdict is what a condition finds. Not turns yes into no, never unknown into
// anything: a value that cannot be read holds neither way.
type verdict uint8

const (
	no verdict = iota
	yes
	unknown
)

func truth(b bool) verdict {
	if b {
		return yes
	}
	return no
}

func (c *cond) holds(v verdict) bool { return v == yes && !c.not || v == no && c.not }

// hold says whether all conditions hold. A trace sees every condition; the
// notes of those after the first that fails do not count, because without a
// trace they are never reached.
func (w *walker) hold(conds []cond) bool {
	all := true
	var notes Notes
	for i := range conds {
		c := &conds[i]
		v := w.try(c)
		holds := c.holds(v)
		if w.tr != nil {
			w.traceCheck(c, v, holds)
		}
		if all && !holds {
			all, notes = false, w.notes
			if w.tr == nil {
				return false
			}
		}
	}
	if !all {
		w.notes = notes
	}
	return all
}

func (w *walker) try(c *cond) verdict {
	switch c.kind {
	case kindHasDevice:
		return truth((w.req.Device != "") == c.want)
	case kindHasUser:
		return truth((w.req.User != "") == c.want)
	case kindPlatform, kindChannel, kindCarrier, kindLocale, kindAttr, kindOrigin, kindRegionOfReplica:
		return w.tryText(c)
	case kindAppVersion:
		v, ok := w.version()
		if !ok {
			w.notes |= BadVersion
			return unknown
		}
		return truth(c.versions.has(v))
	case kindBetween:
		return truth(!w.req.Now.Before(c.from) && w.req.Now.Before(c.to))
	case kindCIDR, kindCountry, kindSubdivision, kindASN:
		return w.tryAddress(c)
	default: // kindInList
		return w.tryLists(c)
	}
}

// tryText compares a text of the request with the condition's values.
func (w *walker) tryText(c *cond) verdict {
	got, missing := w.text(c.kind, c.attr)
	if got == "" {
		w.notes |= missing
		return unknown
	}
	return truth(c.kind.folding().contains(c.values, got))
}

// text is the value that conditions of a kind compare, and the note if it is empty.
func (w *walker) text(k kind, attr string) (got string, missing Notes) {
	switch k {
	case kindPlatform:
		return w.req.Platform, FactAbsent
	case kindChannel:
		return w.req.Channel, FactAbsent
	case kindCarrier:
		return w.req.Carrier, FactAbsent
	case kindLocale:
		return w.req.Locale, FactAbsent
	case kindOrigin:
		return w.origin().label, OriginAbsent
	case kindRegionOfReplica:
		return w.t.replica.Region, OriginAbsent
	default: // kindAttr
		got, _ = w.req.attr(attr)
		return got, FactAbsent
	}
}

func (w *walker) tryAddress(c *cond) verdict {
	if !w.addr.IsValid() {
		w.notes |= AddrAbsent
		return unknown
	}
	switch c.kind {
	case kindCIDR:
		return truth(c.nets.Lookup(w.addr))
	case kindASN:
		if asn := w.asn(); asn != 0 {
			return truth(slices.Contains(c.asns, asn))
		}
	case kindCountry:
		if p := w.place(); p.Country != "" {
			return truth(slices.Contains(c.values, p.Country))
		}
	default: // kindSubdivision
		if p := w.place(); p.Subdivision != "" {
			return truth(slices.ContainsFunc(c.values, p.in))
		}
	}
	w.notes |= GeoAbsent
	return unknown
}

// in says whether p lies in a subdivision written CN-SH, or SH in any country.
func (p Place) in(subdivision string) bool {
	country, part, both := strings.Cut(subdivision, "-")
	if !both {
		return subdivision == p.Subdivision
	}
	return country == p.Country && part == p.Subdivision
}

// tryLists is the one condition that an absent id answers: it is in no list.
func (w *walker) tryLists(c *cond) verdict {
	for _, l := range c.lists {
		if w.lists(l.of).Has(l.number) {
			return yes
		}
	}
	return no
}
