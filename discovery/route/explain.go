package route

import (
	"maps"
	"math"
	"slices"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// Explanation is a pick with every step. Sides and Candidates are those of the last
// step.
type Explanation struct {
	Service    string      `json:"service"`
	Reason     Reason      `json:"reason"`
	Steps      []Step      `json:"steps"` // one, or two where the lane's base was asked too
	Rule       *rules.Rule `json:"rule,omitempty"`
	Shadowed   []string    `json:"shadowed,omitempty"` // IDs of rules that a newer one hides
	Draw       uint64      `json:"draw,string"`
	Sides      []Side      `json:"sides,omitempty"`      // versions and their parts
	Candidates []Candidate `json:"candidates,omitempty"` // of the version that was drawn; of all if nobody serves
	Chosen     string      `json:"chosen,omitempty"`     // address; empty: none
	Shift      *Shift      `json:"shift,omitempty"`      // the condition of the rule holds, or did lately
	AllCold    bool        `json:"all_cold,omitempty"`   // every match was warming or had vanished, so they served
	Panic      bool        `json:"panic,omitempty"`      // every match was ejected, so they served
	Problem    string      `json:"problem,omitempty"`
}

// Step is one look-up: what was asked for, and who was left after each filter.
type Step struct {
	Env    string                `json:"env"`
	Want   discovery.Coordinates `json:"want"`           // an empty region or version: any
	Rule   string                `json:"rule,omitempty"` // its ID
	Known  int                   `json:"known"`
	Counts Counts                `json:"counts"`
}

// Side is a version's part of the traffic.
type Side struct {
	Version   string  `json:"version"`
	Weight    int     `json:"weight"`    // as the rule says; 0 without one
	Effective float64 `json:"effective"` // share of 1, after shift and scaling
	Instances int     `json:"instances"` // in the coordinates
	Serving   int     `json:"serving"`   // of these with any weight left
}

// Candidate is an instance that all filters left. Its score is its part, 0 if it
// takes no calls.
type Candidate struct {
	Address string  `json:"address"`
	ID      string  `json:"id"`
	Source  string  `json:"source,omitempty"`
	Weight  int     `json:"weight"`
	Stated  bool    `json:"stated"` // false: the default weight
	Scale   *Scale  `json:"scale,omitempty"`
	Score   float64 `json:"score"` // probability within the version, 0 to 1
}

// Explain is Pick with every step.
func (t *Table) Explain(q Query, draw uint64) Explanation {
	choice, err := t.Pick(q, draw)
	x := Explanation{Service: t.in.Service, Reason: choice.Reason, Rule: choice.Rule, Draw: draw}
	if err != nil {
		x.Problem = err.Error()
	} else {
		x.Chosen = choice.Instance.Address.String()
	}
	env, base := t.envs(q)
	x.Steps = []Step{t.step(env, q.Person)}
	if choice.Step == 2 {
		env = base
		x.Steps = append(x.Steps, t.step(base, q.Person))
	}
	x.Shadowed = t.shadowed(env)
	if c := t.cells[env]; c != nil {
		t.explainCell(&x, c, t.membersOf(c, env), q)
	}
	return x
}

func (t *Table) step(env, person string) Step {
	a := t.ask(env, person)
	s := Step{Env: env, Want: a.want, Known: len(t.in.Instances), Counts: t.count(a)}
	if a.rule != nil {
		s.Rule = a.rule.ID()
	}
	return s
}

func (t *Table) shadowed(env string) (ids []string) {
	if t.in.Direct {
		return nil
	}
	counts := false
	for i := range t.in.Rules {
		if r := &t.in.Rules[i]; r.Selector.Env == env {
			if counts {
				ids = append(ids, r.ID())
			}
			counts = true
		}
	}
	return ids
}

// membersOf seats the instances of a cell anew.
func (t *Table) membersOf(c *cell, env string) *members {
	m := &members{}
	for _, i := range ordered(t.in.Instances) {
		if in := &t.in.Instances[i]; in.Env == env {
			m.add(t.seatOf(c, in), in.Version, t.load(i))
		}
	}
	return m
}

func (t *Table) explainCell(x *Explanation, c *cell, m *members, q Query) {
	x.reserved(c.reserve)
	switch _, at := c.choose(&q, x.Draw); at {
	case onOwn:
		own := m.own[q.Person]
		r := ownReserve(own)
		x.reserved(r)
		side := sideOf(own, r, 1)
		side.Version = q.Person
		x.Sides, x.Candidates = []Side{side}, t.candidates(own, r)
		return
	case onMain:
		x.Candidates = t.candidates(m.main, c.reserve)
	case onSecond:
		x.Candidates = t.candidates(m.second, c.reserve)
	default:
		x.Candidates = t.candidates(slices.Concat(m.main, m.second), c.reserve)
		for i := range x.Candidates {
			x.Candidates[i].Score = 0
		}
	}
	x.Sides, x.Shift = t.sides(c, m), t.in.explainShift(c.rule)
}

// sides are the rule's versions, or all that there are without one.
func (t *Table) sides(c *cell, m *members) (sides []Side) {
	main, second := c.split()
	if r := c.rule; r != nil {
		side := sideOf(m.main, c.reserve, main)
		side.Version, side.Weight = r.Strategy.Version, r.Strategy.Weight
		sides = append(sides, side)
		if r.Fallback != nil {
			side := sideOf(m.second, c.reserve, second)
			side.Version, side.Weight = r.Fallback.Version, r.Fallback.Weight
			sides = append(sides, side)
		}
		return sides
	}
	versions := map[string]loads{}
	for _, one := range m.main {
		version := t.in.Instances[one.at].Version
		versions[version] = append(versions[version], one)
	}
	total := m.main.sum(c.reserve)
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		list := versions[version]
		side := sideOf(list, c.reserve, main*part(list.sum(c.reserve), total))
		side.Version = version
		sides = append(sides, side)
	}
	return sides
}

// split gives the shares of main and second.
func (c *cell) split() (main, second float64) {
	switch {
	case len(c.main) > 0 && len(c.second) > 0:
		main = math.Ldexp(float64(c.cut), -64)
		return main, 1 - main
	case len(c.main) > 0:
		return 1, 0
	case len(c.second) > 0:
		return 0, 1
	}
	return 0, 0
}

func sideOf(list loads, r reserve, share float64) Side {
	s := Side{Effective: rounded(share), Instances: len(list)}
	for _, one := range list {
		if one.takes(r) > 0 {
			s.Serving++
		}
	}
	return s
}

func (t *Table) candidates(list loads, r reserve) (all []Candidate) {
	total := list.sum(r)
	for _, one := range list {
		in := &t.in.Instances[one.at]
		c := Candidate{Address: in.Address.String(), ID: in.ID, Source: in.Source, Weight: in.Share(),
			Stated: in.Weight != nil, Score: rounded(part(one.takes(r), total))}
		if s, ok := t.in.Scale[in.ID]; ok {
			c.Scale = &s
		}
		all = append(all, c)
	}
	return all
}

func part(of, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return float64(of) / float64(all)
}

// rounded drops what floating point adds to a share that people read.
func rounded(share float64) float64 { return math.Round(share*1e9) / 1e9 }

// reserved says which reserve served.
func (x *Explanation) reserved(r reserve) { x.AllCold, x.Panic = r == fresh, r == ejected }
