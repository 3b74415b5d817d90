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
	blank  *state
	list   uint64             // counts what See was told
	ill    map[K]*Instance[K] // of these, suspects and those that are lowered
	groups map[Place]*group
}

// New returns a Watch of nobody.
func New[K comparable]() *Watch[K] {
	return &Watch[K]{share: defaultShare, always: true, blank: &state{},
		all: map[K]*Instance[K]{}, ill: map[K]*Instance[K]{}, groups: map[Place]*group{}}
}

// Place is where an instance stands: those of one place stand in for one another.
type Place struct {
	discovery.Coordinates
	Idle bool // it takes nothing: drained, isolated or suspicious. It is not dialled
}

// Listed is one of a list.
type Listed[K comparable] struct {
	Key K
	At  Place
}

// See takes over who is in the list, and returns them in its order.
func (w *Watch[K]) See(list []Listed[K], now time.Time) []*Instance[K] {
	w.list++
	w.regroup(now)
	all := make([]*Instance[K], len(list))
	var g *group
	for i := range list {
		k := &list[i]
		if i == 0 || k.At != list[i-1].At { // neighbours mostly stand together
			if g = w.groups[k.At]; g == nil {
				g = &group{idle: k.At.Idle}
				w.groups[k.At] = g
			}
		}
		s := w.all[k.Key]
		fresh := s == nil || s.group.idle && s.state == w.blank
		if s == nil {
			s = &Instance[K]{key: k.Key, state: w.blank}
			w.all[k.Key] = s
		}
		if all[i] = s; s.list == w.list {
			continue // it stands there twice
		}
		s.group, s.list = g, w.list
		if fresh && g.called && !g.idle {
			w.own(s)
			s.untried, s.rests = true, now.Add(rand.N(untriedFor))
		}
		if s.state != w.blank {
			s.left = time.Time{}
		}
		s.count(1)
		w.triage(s)
	}
	w.leave(now)
	return all
}

// regroup empties all groups. Of those that were called that is remembered: their
// instances may all be replaced, and a rule may tell versions apart for a while.
func (w *Watch[K]) regroup(now time.Time) {
	for at, g := range w.groups {
		if g.all > 0 {
			g.left = now
		}
		*g = group{idle: g.idle, called: g.called, left: g.left}
		if !g.called || now.Sub(g.left) >= rememberFor {
			delete(w.groups, at)
		}
	}
}

// leave lets those go that are not in the list, unless they are to be remembered.
func (w *Watch[K]) leave(now time.Time) {
	for k, s := range w.all {
		if s.list == w.list {
			continue
		}
		if s.state != w.blank && s.left.IsZero() {
			s.left, s.group = now, &group{}
			w.triage(s)
		}
		switch {
		case s.dialing: // two dials must not meet
		case s.phase == serving && now.Sub(s.back) >= quietFor, now.Sub(s.left) >= rememberFor:
			delete(w.all, k)
		}
	}
}

// own gives an instance a state to write to.
func (w *Watch[K]) own(s *Instance[K]) {
	if s.state == w.blank {
		s.state = &state{}
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

// Note takes how a call to an instance ended. Nothing comes of it if that one is nil
// or not in the list.
func (w *Watch[K]) Note(s *Instance[K], o Outcome, now time.Time) Change {
	if s == nil || o == Canceled || s.list != w.list {
		return Change{}
	}
	s.group.called = true
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
	w.own(s)
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
	*s.state = state{term: s.term, back: s.back, rests: s.rests}
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
	*s.state = state{phase: out, kind: kind, term: s.term, back: s.back, dialing: s.dialing, rests: s.rests,
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
	if s == nil || !s.dialing {
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
	if s := w.all[k]; s != nil && s.dialing {
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
		case s.dialing, s.phase == trial, s.group.idle:
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
