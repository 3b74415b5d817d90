package discovery

import "time"

const (
	// flapsFree is how often an instance may leave and come back without a pause.
	flapsFree = 1
	// firstFlap is how long one that leaves again stays away; it doubles up to mostFlap.
	firstFlap = 5 * time.Second
	mostFlap  = time.Minute
	// flapMemory is how long an instance must have stayed for its flaps to be forgotten.
	flapMemory = 5 * time.Minute
)

// flaps are the instances that a registry lists and drops in turn. One that left
// twice comes back after a pause, so that callers are not woken, and do not send it
// calls that fail, each time its health check changes its mind. It leaves at once.
type flaps map[Address]flap

type flap struct {
	times int       // it left, without staying for flapMemory in between
	left  time.Time // the last time
	out   time.Time // until when it stays away
}

// steady takes out of the answer who must stay away. Where that would be more than
// half of the list nobody must: then it is the registry that flaps.
func (f flaps) steady(known, answer []Instance, now time.Time) []Instance {
	listed := make(map[Address]bool, len(answer))
	for _, in := range answer {
		listed[in.Address] = true
	}
	was := make(map[Address]bool, len(known))
	for _, in := range known {
		was[in.Address] = true
		if !listed[in.Address] {
			f.note(in.Address, now)
		}
	}
	if len(f) == 0 {
		return answer
	}
	steady := make([]Instance, 0, len(answer))
	for _, in := range answer {
		if was[in.Address] || !now.Before(f[in.Address].out) {
			steady = append(steady, in)
		}
	}
	if 2*len(steady) < len(answer) {
		return answer
	}
	return steady
}

// note is told that an instance left.
func (f flaps) note(a Address, now time.Time) {
	for other, one := range f { // who stayed, or stayed away, long enough is forgotten
		if now.Sub(one.left) > flapMemory {
			delete(f, other)
		}
	}
	one := f[a]
	one.times++
	one.left, one.out = now, now
	if again := one.times - flapsFree; again > 0 {
		one.out = now.Add(min(firstFlap<<min(again-1, 8), mostFlap))
	}
	f[a] = one
}
