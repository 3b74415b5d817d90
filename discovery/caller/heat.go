package caller

import (
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

const (
	// hotOver is the CPU load, in percent, over which an instance gets less.
	hotOver = 85
	// A step down leaves 7 tenths of the part before it: 2 % after eleven reports, so a
	// version whose machines are all at 100 % is left within two minutes.
	stepNumerator, stepDenominator = 7, 10
	wholePart                      = 1000 // thousandths
	// leastPart is never 0: without calls nobody would see that it is well again.
	leastPart = 10
	// unknownAfter is how long a load counts without another report.
	unknownAfter = 60 * time.Second
	// stepEvery is the least time between two steps. Reports come every 10 s, and up to
	// 1.8 s closer together, because a question that waits brings them.
	stepEvery = wire.ReportEvery - 2*time.Second
	// easeBy is how far a load must be under the number of its condition for the shift
	// to go back: one tenth that goes back adds less. Of numbers under 20 it is half:
	// no load is under 10 − 10.
	easeBy = 10
	// maxShift of ten tenths, as route has it.
	maxShift = 9
	// relapse is how soon after a step back a load that is too high means that the step
	// was one too many. The effect of a step is in the reports of the next 30 s.
	relapse = time.Minute
	// The way back waits from the last load that was too high, after each relapse twice
	// as long.
	leastWait, mostWait = 30 * time.Second, 5 * time.Minute
	// quietFor keeps an instance around hotOver from filling the log.
	quietFor = 10 * time.Minute
)

// heat is what the loads that instances report do to their weights, and to the parts
// of the versions that a rule names. It is stepped by reports, and where those stay
// away by time.
type heat struct {
	of     map[fingerprint]reading
	shifts map[string]shift // by env, of rules with a condition
}

// reading is what an instance said last, and what it keeps of its weight.
type reading struct {
	last   wire.Load
	at     time.Time // when last came; zero: never
	part   int       // thousandths
	turned time.Time // when part was last looked at
	noted  time.Time // when the log last said that it is lowered
	loud   bool      // and has not said yet that it is whole
}

// cpu is its load, unless that is unknown.
func (r reading) cpu(now time.Time) (percent float64, known bool) {
	if r.last.CPU == nil || now.Sub(r.at) >= unknownAfter {
		return 0, false
	}
	return *r.last.CPU, true
}

// turn makes a step: down when the load is known and high, else up.
func (r *reading) turn(now time.Time) {
	r.turned = now
	if cpu, known := r.cpu(now); known && cpu > hotOver {
		r.part = max(r.part*stepNumerator/stepDenominator, leastPart)
		return
	}
	r.part = min(r.part*stepDenominator/stepNumerator, wholePart)
}

// shift is how much a fallback takes besides its own part.
type shift struct {
	of     target
	tenths int
	load   float64   // percent, when tenths last changed; -1: unknown
	turned time.Time // when tenths was last looked at
	high   time.Time // the last load over the number
	back   time.Time // the last step back
	wait   time.Duration
}

// target is whose load a shift goes by. A rule with another one begins at 0.
type target struct {
	at        discovery.Coordinates
	condition rules.Condition
}

// targetOf is that of a rule with a condition.
func targetOf(r *rules.Rule) (t target, ok bool) {
	if r.Fallback == nil || r.Fallback.Condition == nil {
		return t, false
	}
	at := discovery.Coordinates{Cluster: r.Selector.Cluster, Region: r.Selector.Region, Env: r.Selector.Env, Version: r.Strategy.Version}
	return target{at, *r.Fallback.Condition}, true
}

// strain notes a load over the number. Where load follows traffic the way back may
// lead there again, and nothing but patience ends that.
func (s *shift) strain(now time.Time) {
	switch {
	case now.Sub(s.back) > relapse+s.wait:
		s.wait = 0
	case s.back.After(s.high):
		s.wait = min(max(2*s.wait, leastWait), mostWait)
	}
	s.high = now
}

// ease says whether a step back may be made now.
func (s *shift) ease(now time.Time) bool {
	if now.Sub(s.high) < s.wait {
		return false
	}
	s.back = now
	return true
}

// turn makes a step, at a new report or when there was none for long.
func (s *shift) turn(load float64, known bool, now time.Time) {
	before, c := s.tenths, s.of.condition
	switch {
	case known && (load > c.Number || c.Operator == ">=" && load == c.Number):
		s.strain(now)
		s.tenths = min(s.tenths+1, maxShift)
	case s.tenths > 0 && (!known || load < max(c.Number-easeBy, c.Number/2)) && s.ease(now):
		s.tenths--
	}
	if s.turned = now; s.tenths != before {
		if s.load = load; !known {
			s.load = -1
		}
	}
}

// scale is how much of its weight an instance keeps.
func (h *heat) scale(f fingerprint) route.Scale {
	part := wholePart
	if r, known := h.of[f]; known {
		part = r.part
	}
	return route.Scale{Thousandths: part, Why: route.Hot}
}

// shift is what Input.Shift and Input.Load have of the rules' conditions.
func (h *heat) shift(list []rules.Rule) (tenths map[string]int, load map[string]float64) {
	for env, t := range targets(list) {
		s := h.shifts[env]
		if s.of != t || s.tenths == 0 {
			continue
		}
		if tenths == nil {
			tenths, load = map[string]int{}, map[string]float64{}
		}
		if tenths[env] = s.tenths; s.load >= 0 {
			load[env] = s.load
		}
	}
	return tenths, load
}

// targets are those of the rules that count, by env: the first of each.
func targets(list []rules.Rule) map[string]target {
	var all map[string]target
	seen := map[string]bool{}
	for i := range list {
		env := list[i].Selector.Env
		if t, ok := targetOf(&list[i]); ok && !seen[env] {
			if all == nil {
				all = map[string]target{}
			}
			all[env] = t
		}
		seen[env] = true
	}
	return all
}

// active says whether something is lowered or shifted, which time alone ends.
func (h *heat) active() bool {
	for _, r := range h.of {
		if r.part < wholePart {
			return true
		}
	}
	for _, s := range h.shifts {
		if s.tenths > 0 {
			return true
		}
	}
	return false
}

// hear takes over what instances said, by ID, and makes the steps that are due. It
// returns whose report is new. Instances that are gone are forgotten.
func (h *heat) hear(list []discovery.Instance, said map[string]wire.Load, now time.Time) (fresh map[fingerprint]bool) {
	next := make(map[fingerprint]reading, len(h.of))
	for i := range list {
		f := fingerprintOf(&list[i])
		r, known := h.of[f]
		if !known {
			r.part = wholePart
		}
		l, told := said[list[i].ID]
		isNew := told && !sameReport(l, r.last)
		if isNew {
			if fresh == nil {
				fresh = map[fingerprint]bool{}
			}
			r.last, r.at, fresh[f] = l, now, true
		}
		_, sure := r.cpu(now)
		if gap := now.Sub(r.turned); isNew && gap >= stepEvery || !sure && gap >= wire.ReportEvery {
			r.turn(now)
		}
		if !r.at.IsZero() {
			next[f] = r
		}
	}
	h.of = next
	return fresh
}

// move makes the steps of shifts that are due.
func (h *heat) move(list []discovery.Instance, of map[string]target, fresh map[fingerprint]bool, now time.Time) {
	next := make(map[string]shift, len(of))
	for env, t := range of {
		s := h.shifts[env]
		if s.of != t {
			s = shift{of: t}
		}
		load, known, isNew := h.mean(list, t.at, fresh, now)
		if gap := now.Sub(s.turned); isNew && gap >= stepEvery || !known && gap >= wire.ReportEvery {
			s.turn(load, known, now)
		}
		next[env] = s
	}
	h.shifts = next
}

// mean is the mean of the known loads at the coordinates, and whether one of them is new.
func (h *heat) mean(list []discovery.Instance, at discovery.Coordinates, fresh map[fingerprint]bool, now time.Time) (mean float64, known, isNew bool) {
	count := 0.0
	for i := range list {
		if list[i].Coordinates != at {
			continue
		}
		f := fingerprintOf(&list[i])
		isNew = isNew || fresh[f]
		if cpu, sure := h.of[f].cpu(now); sure {
			mean, count = mean+cpu, count+1
		}
	}
	if count == 0 {
		return 0, false, isNew
	}
	return mean / count, true, isNew
}

// sameReport says whether two loads are one report: nodes stamp each, and older nodes
// tell loads only when they differ.
func sameReport(a, b wire.Load) bool {
	return a.Heard.Equal(b.Heard) && same(a.CPU, b.CPU) && same(a.Memory, b.Memory) && same(a.Connections, b.Connections)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// feel takes over the loads of a service, nil for none, and says what that changes.
// c.mu is held.
func (c *Caller) feel(name string, l *list, said map[string]wire.Load) {
	now, before := time.Now(), l.heat
	of := targets(c.book.chapter(name).rules)
	if len(said) == 0 && !before.active() && len(before.shifts) == 0 && len(of) == 0 {
		return
	}
	fresh := l.heat.hear(l.instances, said, now)
	l.heat.move(l.instances, of, fresh, now)
	parts, shifts := c.noteParts(name, l, before), c.noteShifts(name, before.shifts, l.heat.shifts)
	if parts || shifts {
		c.soil(name)
	}
}

// noteParts shows whose part changed, and says whether any did. c.mu is held.
func (c *Caller) noteParts(name string, l *list, before heat) (changed bool) {
	lowest, now := wholePart, time.Now()
	for i := range l.instances {
		in := &l.instances[i]
		f := fingerprintOf(in)
		r, known := l.heat.of[f]
		if !known {
			continue
		}
		was := before.scale(f).Thousandths
		lowest, changed = min(lowest, r.part), changed || was != r.part
		switch {
		case was == wholePart && r.part < wholePart && now.Sub(r.noted) >= quietFor:
			r.noted, r.loud = now, true
			c.log.Warn("an instance is hot and gets less, by a step for each report", "of", name, "instance", in.ID, "address", in.Address.String(), "cpu", *r.last.CPU)
		case r.loud && r.part == wholePart:
			r.loud = false
			c.log.Info("an instance has its whole weight again", "of", name, "instance", in.ID, "address", in.Address.String())
		}
		l.heat.of[f] = r
	}
	if len(l.heat.of)+len(before.of) > 0 {
		c.metrics.heat.WithLabelValues(name).Set(float64(lowest) / wholePart)
	}
	return changed
}

// noteShifts shows which shifts changed, and says whether any did.
func (c *Caller) noteShifts(name string, before, now map[string]shift) (changed bool) {
	for env, was := range before {
		is, there := now[env]
		if !there {
			c.metrics.shift.DeleteLabelValues(name, env)
		}
		if was.tenths > 0 && (is.tenths == 0 || is.of != was.of) {
			c.log.Info("the fallback takes its own part alone again", "of", name, "env", env)
		}
		changed = changed || was.tenths != is.tenths
	}
	for env, is := range now {
		was := before[env]
		if is.tenths > 0 && (was.tenths == 0 || is.of != was.of) {
			c.log.Warn("the fallback takes more than its own part", "of", name, "env", env, "condition", is.of.condition.String(), "load", is.load)
		}
		changed = changed || was.tenths != is.tenths
		c.metrics.shift.WithLabelValues(name, env).Set(float64(is.tenths) / 10)
	}
	return changed
}
