package route

import "math/bits"

// What Scale.Why says. Isolated and suspicious instances take nothing, whatever
// their Thousandths; those that warm, are ejected, or vanished from their registry
// together with most others and still accept connections, serve when nobody else would.
const (
	Warming    = "warming"
	Vanished   = "vanished"
	Isolated   = "isolated"
	Suspicious = "suspicious"
	Ejected    = "ejected"
	Hot        = "hot"
)

const (
	whole     = 1000   // thousandths of a weight
	maxWeight = 10_000 // of instances and of rules; sums over any list stay below 2^64
)

func bounded(weight int) uint64 { return uint64(min(max(weight, 0), maxWeight)) }

// load is an instance and what it takes, in thousandths of its weight.
type load struct {
	at                uint32 // index in the input
	stated, effective uint32
	waits             reserve // the lists it serves with when nobody else would; settled: always
}

// reserve is who serves with its whole weight although it is lowered, because nobody
// better is left. The order counts: who is new is asked before who is ejected.
type reserve uint8

const (
	settled reserve = iota
	fresh           // warming or vanished
	ejected
)

func (t *Table) load(at uint32) load {
	in := &t.in.Instances[at]
	weight, scale := bounded(in.Share()), uint64(whole)
	s, scaled := t.in.Scale[in.ID]
	switch {
	case !scaled:
	case s.Why == Isolated || s.Why == Suspicious:
		scale = 0
	default:
		scale = uint64(min(max(s.Thousandths, 0), whole))
	}
	if t.in.Direct { // all or nothing
		weight, scale = min(weight, 1), min(scale, 1)*whole
	}
	l := load{at: at, stated: uint32(weight * whole), effective: uint32(weight * scale)}
	switch s.Why {
	case Warming, Vanished:
		l.waits = fresh
	case Ejected:
		l.waits = ejected
	}
	return l
}

// takes is the weight that counts in a pick from which a reserve serves too.
func (l load) takes(r reserve) uint64 {
	if l.waits > settled && l.waits == r {
		return uint64(l.stated)
	}
	return uint64(l.effective)
}

type loads []load

func (l loads) sum(r reserve) (total uint64) {
	for _, one := range l {
		total += one.takes(r)
	}
	return total
}

// reserveOf says which reserve the lists need: settled, which is none, while anybody
// who is settled serves. A reserve serves all at once: late answers are better than
// none, and the first one over its window would get everything.
func reserveOf(lists ...loads) reserve {
	best := reserve(0)
	for _, list := range lists {
		for _, one := range list {
			switch {
			case one.waits == settled && one.effective > 0:
				return settled
			case one.waits > settled && one.stated > 0 && (best == settled || one.waits < best):
				best = one.waits
			}
		}
	}
	return best
}

// ownReserve is reserveOf for a person's instances, behind which the shared pool
// stands: who is ejected does not serve.
func ownReserve(own loads) reserve {
	if r := reserveOf(own); r != ejected {
		return r
	}
	return settled
}

// health is what is left of a version's weight, as a part of 2^32, at least 1 while
// anything is. New instances are left out while others of the version serve:
// a version that grows loses nothing to its fallback. One that is all new is led in
// slowly.
func (l loads) health(r reserve) uint64 {
	var old, all struct{ stated, takes uint64 }
	for _, one := range l {
		all.stated += uint64(one.stated)
		all.takes += one.takes(r)
		if one.waits != fresh {
			old.stated += uint64(one.stated)
			old.takes += one.takes(r)
		}
	}
	if old.takes > 0 {
		all = old
	}
	if all.takes == 0 {
		return 0
	}
	hi, lo := bits.Mul64(all.takes, 1<<32)
	part, _ := bits.Div64(hi, lo, all.stated)
	return max(part, 1)
}
