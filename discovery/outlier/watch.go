package outlier

import (
	"math/rand/v2"
	"time"

	"dispatch.example/dispatch/discovery"
)

// Watch has the instances of one service. K tells a process from the one before it at
// its address. It is for one goroutine at a time. Use New.
type Watch[K comparable] struct {
	share  int  // percent of a group that may be out as failing
	always bool // one may, whatever that makes
	all    map[K]*Instance[K]
	ill    map[K]*Instance[K] // of these, suspects and those that are lowered
	groups map[discovery.Coordinates]*group
	called bool // anybody was, ever
}

// New returns a Watch of nobody.
func New[K comparable]() *Watch[K] {
	return &Watch[K]{share: defaultShare, always: true,
		all: map[K]*Instance[K]{}, ill: map[K]*Instance[K]{}, groups: map[discovery.Coordinates]*group{}}
}

// group is the instances that stand in for one another.
type group struct{ all, unreachable, failing int }

// deserted says whether nobody of several takes a whole weight.
func (g *group) deserted() bool { return g.all > 1 && g.unreachable+g.failing == g.all }

// phase is where an instance is in its round.
type phase int

const (
	serving phase = iota
	out
	trial
)

// Instance is what is known of one. Keep it beside the list that it was in, so that
// Note need not look for it.
type Instance[K comparable] struct {
	key   K
	group *group
	left  time.Time // the list; zero: it is there

	phase phase
	kind  Kind
	since time.Time // when the term began
	until time.Time
	term  int       // how many in a row
	back  time.Time // when it was let back

	untried     bool // it came into the list of a service that is called, and awaits its first dial
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
func (s *Instance[K]) suspect() bool {
	return s.phase == serving && (s.untried || s.unconnected > 0 || s.silent >= silentOut && !s.accepts)
}

// ill says whether anything is the matter with one that is in the list.
func (s *Instance[K]) ill() bool { return s.left.IsZero() && (s.phase != serving || s.suspect()) }

// again is when one that is out may be dialled.
func (s *Instance[K]) again() time.Time {
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

// See takes over who is in the list, and in which group: those that stand in for one
// another.
func (w *Watch[K]) See(list map[K]discovery.Coordinates, now time.Time) {
	clear(w.groups)
	for k, at := range list {
		s := w.all[k]
		if s == nil {
			s = &Instance[K]{key: k, untried: w.called}
			if s.untried {
				s.rests = now.Add(rand.N(untriedFor))
			}
			w.all[k] = s
		}
		g := w.groups[at]
		if g == nil {
			g = &group{}
			w.groups[at] = g
		}
		s.group, s.left = g, time.Time{}
		s.count(1)
		w.triage(s)
	}
	for k, s := range w.all {
		if _, there := list[k]; there {
			continue
		}
		if s.left.IsZero() {
			s.left, s.group = now, &group{}
			w.triage(s)
		}
		switch {
		case s.dialing: // two dials must not meet
		case s.phase == serving && now.Sub(s.back) >= quietFor, now.Sub(s.left) >= rememberFor:
			delete(w.all, k)
			delete(w.ill, k)
		}
	}
}

// Empty says whether there is nothing to remember.
func (w *Watch[K]) Empty() bool { return len(w.all) == 0 }

// triage keeps the list of those that are ill.
func (w *Watch[K]) triage(s *Instance[K]) {
	if s.ill() {
		w.ill[s.key] = s
	} else {
		delete(w.ill, s.key)
	}
}

// Find gives an instance; nil if it is not remembered.
func (w *Watch[K]) Find(k K) *Instance[K] { return w.all[k] }

// Note takes how a call to an instance ended. Nothing comes of it if that one is nil
// or not in the list.
func (w *Watch[K]) Note(s *Instance[K], o Outcome, now time.Time) Change {
	if s == nil || o == Canceled || !s.left.IsZero() {
		return Change{}
	}
	switch s.phase {
	case out:
		if o == Answered && s.kind == NoConnection && !s.early && s.group.deserted() {
			s.early = true
			return Change{Step: Suspected}
		}
		return Change{}
	case trial:
		return w.try(s, o, now)
	}
	w.called = true
	s.calls.add(o != Answered, now)
	if o == Answered && s.silent == 0 {
		return Change{} // the way of nearly all calls
	}
	before := s.suspect()
	s.untried = false // calls know more
	switch o {
	case Answered, Failed:
		s.silent, s.accepts = 0, false
	case Unreachable:
		s.unconnected++
	case Silent:
		s.silent++
	}
	if s.suspect() {
		w.triage(s)
		if before {
			return Change{}
		}
		return Change{Step: Suspected}
	}
	w.triage(s)
	if o != Answered && (s.silent > silentOut || s.calls.failing(now)) {
		return w.putOut(s, Failing, now)
	}
	return Change{}
}

// try takes a call to an instance that is on trial.
func (w *Watch[K]) try(s *Instance[K], o Outcome, now time.Time) Change {
	switch {
	case o == Unreachable:
		return w.putOut(s, NoConnection, now)
	case o != Answered:
		s.well = 0
		return w.putOut(s, Failing, now)
	}
	if s.well++; s.well < trialCalls {
		return Change{}
	}
	kind := s.kind
	s.count(-1)
	*s = Instance[K]{key: s.key, group: s.group, term: s.term, back: s.back, rests: s.rests}
	s.count(1)
	w.triage(s)
	return Change{Step: Returned, Kind: kind}
}

// putOut begins a term, unless the group can spare nobody more.
func (w *Watch[K]) putOut(s *Instance[K], kind Kind, now time.Time) Change {
	s.count(-1)
	if kind == Failing && !w.spares(s.group) {
		s.count(1)
		return Change{}
	}
	if s.phase != out && now.Sub(s.back) >= quietFor {
		s.term = 0
	}
	s.term++
	stays := s.phase == out
	*s = Instance[K]{key: s.key, group: s.group, phase: out, kind: kind, term: s.term, back: s.back, dialing: s.dialing, rests: s.rests,
		since: now, until: now.Add(min(time.Duration(s.term)*termFor, longestTerm))}
	s.count(1)
	w.triage(s)
	return Change{Step: PutOut, Kind: kind, Until: s.until, Term: s.term, Stays: stays}
}

// spares says whether one more of a group may be out as failing. The group is
// without that one.
func (w *Watch[K]) spares(g *group) bool {
	reached := g.all + 1 - g.unreachable
	most := reached * w.share / 100
	if w.always {
		most = max(most, 1)
	}
	return g.failing+1 <= min(most, reached-1)
}

// Dialed takes how a dial ended that Due asked for.
func (w *Watch[K]) Dialed(k K, connected bool, now time.Time) Change {
	s := w.all[k]
	if s == nil {
		return Change{}
	}
	redials := s.redials
	s.dialing, s.redials, s.untried, s.rests = false, false, false, now.Add(dialEvery)
	switch {
	case !s.left.IsZero():
		return Change{}
	case s.phase == out && !redials:
		return Change{}
	case s.phase == out:
		return w.redialed(s, connected, now)
	case s.phase == trial:
		return Change{}
	case connected:
		s.unconnected = 0
		s.accepts = s.silent >= silentOut
		w.triage(s)
		if s.calls.failing(now) {
			return w.putOut(s, Failing, now)
		}
		return Change{}
	}
	s.unconnected++
	if s.unconnected >= failuresOut || s.silent >= silentOut {
		return w.putOut(s, NoConnection, now)
	}
	w.triage(s)
	return Change{}
}

// NotDialed takes back a dial that Due asked for and that could not be made, see
// OwnFault. It is due again after a second.
func (w *Watch[K]) NotDialed(k K, now time.Time) {
	if s := w.all[k]; s != nil {
		s.dialing, s.redials, s.rests = false, false, now.Add(faultFor)
	}
}

// redialed is Dialed for one that is out.
func (w *Watch[K]) redialed(s *Instance[K], connected bool, now time.Time) Change {
	s.early = false
	switch {
	case connected:
		s.phase, s.back = trial, now
		w.triage(s)
		return Change{Step: OnTrial, Kind: s.kind}
	case now.Before(s.until):
		return Change{}
	}
	return w.putOut(s, NoConnection, now)
}

// Due takes at most so many whom to dial now, each until its Dialed, and says when to
// ask again; zero: not before something changed.
func (w *Watch[K]) Due(most int, now time.Time) (keys []K, next time.Time) {
	for k, s := range w.ill {
		at := s.rests
		if s.phase == out {
			at = later(at, s.again())
		}
		switch {
		case s.dialing, s.phase == trial:
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case len(keys) < most:
			s.dialing, s.redials = true, s.phase == out
			keys = append(keys, k)
		}
	}
	return keys, next
}

// Lowered are the thousandths of those that do not take their whole weight.
func (w *Watch[K]) Lowered() map[K]int {
	lowered := map[K]int{}
	for k, s := range w.ill {
		switch s.phase {
		case out:
			lowered[k] = 0
		case trial:
			lowered[k] = trialShare
		}
	}
	return lowered
}

// Out counts those that take nothing.
func (w *Watch[K]) Out() map[Kind]int {
	counts := map[Kind]int{NoConnection: 0, Failing: 0}
	for _, s := range w.ill {
		if s.phase == out {
			counts[s.kind]++
		}
	}
	return counts
}
