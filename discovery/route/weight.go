package route

import (
	"math/bits"

	"dispatch.example/dispatch/discovery"
)

// What Scale.Why says. Isolated and suspicious instances take nothing, whatever
// their Thousandths; warming ones serve when everybody warms.
const (
	Warming    = "warming"
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

// weigh gives an instance's weight and what is left of it, both in thousandths.
func (t *Table) weigh(in *discovery.Instance, cold bool) (stated, effective uint64) {
	weight := bounded(in.Share())
	scale := uint64(whole)
	if s, ok := t.in.Scale[in.ID]; ok {
		scale = uint64(min(max(s.Thousandths, 0), whole))
		switch {
		case s.Why == Isolated || s.Why == Suspicious:
			scale = 0
		case s.Why == Warming && cold:
			scale = whole
		}
	}
	if t.in.Direct { // all or nothing
		weight, scale = min(weight, 1), min(scale, 1)*whole
	}
	return weight * whole, weight * scale
}

func (t *Table) warms(in *discovery.Instance) bool { return t.in.Scale[in.ID].Why == Warming }

// cold says that nobody in the lists would serve but some who are warming. Then
// these do: late answers are better than none.
func (t *Table) cold(lists ...[]uint32) bool {
	warming := false
	for _, list := range lists {
		for _, i := range list {
			in := &t.in.Instances[i]
			stated, effective := t.weigh(in, false)
			if w := t.warms(in); effective > 0 && !w {
				return false
			} else if w && stated > 0 {
				warming = true
			}
		}
	}
	return warming
}

// health is what is left of a version's weight, as a part of 2^32, at least 1 while
// anything is. Instances that warm are left out while others serve: a version that
// grows would lose traffic to its fallback, and one that is all new would not be led
// in slowly.
func (t *Table) health(list []uint32, cold bool) uint64 {
	var settled, all struct{ stated, effective uint64 }
	for _, i := range list {
		in := &t.in.Instances[i]
		stated, effective := t.weigh(in, cold)
		all.stated += stated
		all.effective += effective
		if !t.warms(in) {
			settled.stated += stated
			settled.effective += effective
		}
	}
	if settled.effective > 0 {
		all = settled
	}
	if all.effective == 0 {
		return 0
	}
	hi, lo := bits.Mul64(all.effective, 1<<32)
	part, _ := bits.Div64(hi, lo, all.stated)
	return max(part, 1)
}
