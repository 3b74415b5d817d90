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

// vose makes pools by the method of that name, one after another in the same memory.
type vose struct {
	weight       []uint64
	small, large []uint32 // slots with less than the mean, and the others
}

// pool leaves out who takes nothing, so that they have no chance rather than a small
// one. Then a slot with less than the mean is filled up from one with more. Weights
// are times the number of slots, so that their mean is the total.
func (v *vose) pool(list loads, r reserve) pool {
	var p pool
	var total uint64
	v.weight, v.small, v.large = v.weight[:0], v.small[:0], v.large[:0]
	for _, one := range list {
		if takes := one.takes(r); takes > 0 {
			if p == nil {
				p = make(pool, 0, len(list))
			}
			p = append(p, slot{self: one.at, alias: one.at})
			v.weight = append(v.weight, takes)
			total += takes
		}
	}
	for i := range p {
		v.weight[i] *= uint64(len(p))
		if v.weight[i] < total {
			v.small = append(v.small, uint32(i))
		} else {
			v.large = append(v.large, uint32(i))
		}
	}
	for len(v.small) > 0 && len(v.large) > 0 {
		s, l := pop(&v.small), v.large[len(v.large)-1]
		hi, lo := bits.Mul64(v.weight[s], 1<<32)
		cut, _ := bits.Div64(hi, lo, total)
		p[s].cut, p[s].alias = uint32(cut), p[l].self
		v.weight[l] -= total - v.weight[s]
		if v.weight[l] < total {
			v.small = append(v.small, pop(&v.large))
		}
	}
	return p // who is left has exactly the mean: its own alias
}

func pop(stack *[]uint32) uint32 {
	last := len(*stack) - 1
	top := (*stack)[last]
	*stack = (*stack)[:last]
	return top
}
