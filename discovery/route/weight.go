package route

import "math/bits"

// What Scale.Why says. Isolated and suspicious instances take nothing, whatever
// their Thousandths; those that warm, or vanished from their registry together with
// most others and still accept connections, serve when nobody else would.
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
	waits             bool // warming or vanished
}

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
	return load{at, uint32(weight * whole), uint32(weight * scale), s.Why == Warming || s.Why == Vanished}
}

// takes is the weight that counts in a pick.
func (l load) takes(cold bool) uint64 {
	if cold && l.waits {
		return uint64(l.stated)
	}
	return uint64(l.effective)
}

type loads []load

func (l loads) sum(cold bool) (total uint64) {
	for _, one := range l {
		total += one.takes(cold)
	}
	return total
}

// cold says that nobody in the lists would serve but some who wait. Then these do,
// all at once: late answers are better than none.
func cold(lists ...loads) bool {
	waits := false
	for _, list := range lists {
		for _, one := range list {
			if one.effective > 0 && !one.waits {
				return false
			}
			waits = waits || one.waits && one.stated > 0
		}
	}
	return waits
}

// health is what is left of a version's weight, as a part of 2^32, at least 1 while
// anything is. Instances that wait are left out while others of the version serve:
// a version that grows loses nothing to its fallback. One that is all new is led in
// slowly.
func (l loads) health(cold bool) uint64 {
	var settled, all struct{ stated, takes uint64 }
	for _, one := range l {
		all.stated += uint64(one.stated)
		all.takes += one.takes(cold)
		if !one.waits {
			settled.stated += uint64(one.stated)
			settled.takes += one.takes(cold)
		}
	}
	if settled.takes > 0 {
		all = settled
	}
	if all.takes == 0 {
		return 0
	}
	hi, lo := bits.Mul64(all.takes, 1<<32)
	part, _ := bits.Div64(hi, lo, all.stated)
	return max(part, 1)
}
