package outlier

import "time"

// group is the instances that stand in for one another.
type group struct {
	all, unreachable, failing int

	idle   bool
	called bool      // anybody of it was
	left   time.Time // when the last one did
}

// deserted says whether nobody of several takes a whole weight.
func (g *group) deserted() bool { return g.all > 1 && g.unreachable+g.failing == g.all }

// phase is where an instance is in its round.
type phase int

const (
	serving phase = iota
	out
	trial
)

// Instance is one of a list. Keep it beside that list, so that Note need not look
// for it.
type Instance[K comparable] struct {
	key   K
	group *group
	list  uint64 // the last one that it was in, as Watch counts them
	*state
}

// state is what is known of an instance. Those that nothing happened to share one,
// that of their Watch, which nobody writes to: most of a list are never called from here.
type state struct {
	left  time.Time // the list; zero: it is there
	phase phase
	kind  Kind
	since time.Time // when the term began
	until time.Time
	term  int       // how many in a row
	back  time.Time // when it was let back

	untried     bool // it came into a group that is called, and awaits its first dial
	unconnected int  // connections that failed in a row
	silent      int  // calls in a row
	accepts     bool // a dial succeeded since they are silent
	well        int  // calls of the trial in a row

	early   bool // it answered while it was out
	dialing bool
	redials bool      // since the term began; a dial from before says nothing about its end
	rests   time.Time // no dial before

	calls window
}

// suspect says whether a dial has the next word.
func (s *state) suspect() bool {
	return s.phase == serving && (s.untried || s.unconnected > 0 || s.silent >= silentOut && !s.accepts)
}

// ill says whether anything is the matter with one that is in the list.
func (s *state) ill() bool { return s.left.IsZero() && (s.phase != serving || s.suspect()) }

// again is when one that is out may be dialled.
func (s *state) again() time.Time {
	if s.early {
		return s.since.Add(earliest)
	}
	return s.until
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// count adds the instance to its group, or takes it out of it.
func (s *Instance[K]) count(by int) {
	s.group.all += by
	switch {
	case s.phase == serving:
	case s.kind == Failing:
		s.group.failing += by
	default:
		s.group.unreachable += by
	}
}
