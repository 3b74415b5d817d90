package route

import "math/bits"

// pool is an alias table: a slot for each instance, of which the instance itself has
// cut/2^32 and another one the rest. A draw costs one look at one slot, whatever the
// weights. All arithmetic is on whole numbers, so every machine makes the same table.
type pool []slot

type slot struct{ cut, self, alias uint32 }

// draw gives the index of an instance. It takes the lower half of the number first,
// because the upper half has chosen the version.
func (p pool) draw(number uint64) uint32 {
	at, coin := bits.Mul64(bits.RotateLeft64(number, 32), uint64(len(p)))
	s := &p[at]
	if uint32(coin>>32) < s.cut {
		return s.self
	}
	return s.alias
}

// vose makes pools, one after another, in the same memory.
type vose struct {
	self         []uint32
	weight       []uint64
	total        uint64
	small, large []uint32 // slots with less than the mean, and the others
}

func (v *vose) reset() {
	*v = vose{self: v.self[:0], weight: v.weight[:0], small: v.small[:0], large: v.large[:0]}
}

// add leaves out what has no weight, so that it has no chance rather than a small one.
func (v *vose) add(self uint32, weight uint64) {
	if weight > 0 {
		v.self, v.weight, v.total = append(v.self, self), append(v.weight, weight), v.total+weight
	}
}

// pool is Vose's method: a slot with less than the mean is filled up from one with
// more. Weights are times the number of slots, so that the mean is total.
func (v *vose) pool() pool {
	if len(v.self) == 0 {
		return nil
	}
	p := make(pool, len(v.self))
	for i := range p {
		v.weight[i] *= uint64(len(p))
		p[i] = slot{self: v.self[i], alias: v.self[i]}
		if v.weight[i] < v.total {
			v.small = append(v.small, uint32(i))
		} else {
			v.large = append(v.large, uint32(i))
		}
	}
	for len(v.small) > 0 && len(v.large) > 0 {
		s, l := pop(&v.small), v.large[len(v.large)-1]
		hi, lo := bits.Mul64(v.weight[s], 1<<32)
		cut, _ := bits.Div64(hi, lo, v.total)
		p[s].cut, p[s].alias = uint32(cut), v.self[l]
		v.weight[l] -= v.total - v.weight[s]
		if v.weight[l] < v.total {
			v.small = append(v.small, pop(&v.large))
		}
	}
	return p // what is left has exactly the mean: it is its own alias
}

func pop(stack *[]uint32) uint32 {
	last := len(*stack) - 1
	top := (*stack)[last]
	*stack = (*stack)[:last]
	return top
}
