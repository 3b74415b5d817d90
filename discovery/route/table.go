package route

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// Table is the compiled view of one service for one caller.
type Table struct {
	in    Input
	cells map[string]*cell // by env; absent: nobody and no rule
	// nobody keeps errors, so that a lane without a match costs one allocation and
	// not one a call. Nothing else in a Table changes.
	nobody [16]atomic.Pointer[NoMatch]
}

// cell is one environment as the caller sees it. An instance sits in one cell, that
// of its env, and on one side of it: that is the grouping which makes the cost of a
// pick independent of the number of instances.
type cell struct {
	rule            *rules.Rule // nil: the home counts
	cluster, region string      // where its instances are; Direct looks at cluster alone
	main, second    pool        // second: of the rule's fallback
	own             map[string]pool
	cut             uint64  // points below it go to main, where both have somebody
	salt            uint64  // of the hash that makes a point of a key
	keyed           bool    // a gray by key: calls without one stay with the old version, the second
	reserve         reserve // of main and second that serves too, because nobody else does
}

// seat is where an instance sits in the cell of its env.
type seat int

const (
	nowhere seat = iota
	onMain
	onSecond
	onOwn // with Isolate: the version is a person's
)

// Compile builds a table. It keeps in.Instances and in.Rules, which must not change.
func Compile(in Input) *Table {
	t := &Table{in: in, cells: map[string]*cell{}}
	for i := range in.Rules {
		r := &in.Rules[i]
		if _, newer := t.cells[r.Selector.Env]; !newer && !in.Direct {
			t.cells[r.Selector.Env] = &cell{rule: r, cluster: r.Selector.Cluster, region: r.Selector.Region, keyed: r.Gray != nil && r.Gray.ByKey,
				salt: hashTexts(r.Service, r.Selector.Cluster, r.Selector.Region, r.Selector.Env, r.Strategy.Version)}
		}
	}
	b := builder{t: t, members: map[*cell]*members{}}
	for _, i := range ordered(in.Instances) {
		b.seat(i)
	}
	for c, m := range b.members {
		b.build(c, m)
	}
	return t
}

// Input is what the table was built from.
func (t *Table) Input() Input { return t.in }

// Pick chooses. draw is any uniform random number. The error is a *NoMatch, made
// once for each lane.
func (t *Table) Pick(q Query, draw uint64) (Choice, error) {
	env, base := t.envs(q)
	choice := t.pickIn(env, &q, draw)
	choice.Step = 1
	if choice.Instance == nil && base != "" {
		choice = t.pickIn(base, &q, draw)
		choice.Step = 2
	}
	if choice.Instance == nil {
		return choice, t.noMatch(q)
	}
	return choice, nil
}

// envs are those of the two steps; an empty base is not asked.
func (t *Table) envs(q Query) (env, base string) {
	env, base = q.Env, q.Base
	if env == "" {
		env = t.in.Home.Env
	}
	if base == env {
		base = ""
	}
	return env, base
}

// pickIn is one step. Without an Instance it found nobody.
func (t *Table) pickIn(env string, q *Query, draw uint64) Choice {
	c := t.cells[env]
	if c == nil {
		return Choice{Reason: ByNobody}
	}
	p, at := c.choose(q, draw)
	if at == nowhere {
		return Choice{Rule: c.rule, Reason: ByNobody}
	}
	return Choice{Instance: &t.in.Instances[p.draw(draw)], Rule: c.rule, Reason: t.reason(c, at)}
}

// choose gives the pool that the pick draws from.
func (c *cell) choose(q *Query, draw uint64) (pool, seat) {
	if own := c.own[q.Person]; len(own) > 0 {
		return own, onOwn
	}
	switch {
	case len(c.second) == 0 && len(c.main) == 0:
		return nil, nowhere
	case len(c.second) == 0:
		return c.main, onMain
	case len(c.main) == 0:
		return c.second, onSecond
	}
	point := draw
	switch {
	case q.Key != "":
		point = keyPoint(c.salt, q.Key)
	case c.keyed:
		return c.second, onSecond
	}
	if point < c.cut {
		return c.main, onMain
	}
	return c.second, onSecond
}

func (t *Table) reason(c *cell, at seat) Reason {
	switch {
	case t.in.Direct:
		return ByDirect
	case at == onOwn:
		return ByPerson
	case c.rule != nil && c.rule.Gray != nil:
		return ofGray(at, c.rule)
	case at == onSecond:
		return ByFallback
	case c.rule != nil:
		return ByRule
	case t.in.Isolate:
		return ByBase
	}
	return ByHome
}

// ofGray is the reason while a gray runs. What the old version still has is its part
// of the rule; once it has none it only stands by.
func ofGray(at seat, r *rules.Rule) Reason {
	switch {
	case at == onMain:
		return ByGray
	case r.Fallback.Weight > 0:
		return ByRule
	}
	return ByFallback
}

// seatOf says where an instance sits in the cell of its env. A version that the rule
// names is nobody's own, so that nobody walks around its weights.
func (t *Table) seatOf(c *cell, in *discovery.Instance) seat {
	switch {
	case !complete(in.Coordinates), in.Cluster != c.cluster, in.Region != c.region && !t.in.Direct:
		return nowhere
	case c.rule != nil && in.Version == c.rule.Strategy.Version:
		return onMain
	case c.rule != nil && c.rule.Fallback != nil && in.Version == c.rule.Fallback.Version:
		return onSecond
	case t.in.Isolate && in.Version != Base:
		return onOwn
	case c.rule != nil:
		return nowhere
	}
	return onMain
}

// complete says whether all four coordinates are stated. What lacks one is in no
// set: an empty value is never a wildcard.
func complete(c discovery.Coordinates) bool {
	return stated(c.Cluster) && stated(c.Region) && stated(c.Env) && stated(c.Version)
}

func stated(value string) bool { return strings.TrimSpace(value) != "" }

// ordered gives the indices of all in an order that depends on nothing but them.
func ordered(all []discovery.Instance) []uint32 {
	order := make([]uint32, len(all))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int {
		a, b := &all[i], &all[j]
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(a.Address.Host, b.Address.Host), cmp.Compare(a.Address.Port, b.Address.Port), cmp.Compare(i, j))
	})
	return order
}

// builder fills the cells of a table.
type builder struct {
	t       *Table
	members map[*cell]*members
	vose    vose
}

// members are those that sit in a cell, in order.
type members struct {
	main, second loads
	own          map[string]loads
}

func (m *members) add(at seat, version string, l load) {
	switch at {
	case onMain:
		m.main = append(m.main, l)
	case onSecond:
		m.second = append(m.second, l)
	case onOwn:
		if m.own == nil {
			m.own = map[string]loads{}
		}
		m.own[version] = append(m.own[version], l)
	}
}

// seat puts the instance into the cell of its env, and makes that cell if the home
// reaches the instance.
func (b *builder) seat(i uint32) {
	in := &b.t.in.Instances[i]
	c := b.t.cells[in.Env]
	fresh := c == nil
	if fresh {
		c = &cell{cluster: b.t.in.Home.Cluster, region: b.t.in.Home.Region}
	}
	at := b.t.seatOf(c, in)
	if at == nowhere {
		return
	}
	if fresh {
		b.t.cells[in.Env] = c
	}
	m := b.members[c]
	if m == nil {
		m = &members{}
		b.members[c] = m
	}
	m.add(at, in.Version, b.t.load(i))
}

func (b *builder) build(c *cell, m *members) {
	main, second := b.t.in.shifted(c.rule)
	if main == 0 {
		m.main = nil // a main version of weight 0 never serves
	}
	c.reserve = reserveOf(m.main, m.second)
	c.main, c.second = b.vose.pool(m.main, c.reserve), b.vose.pool(m.second, c.reserve)
	if len(c.main) > 0 && len(c.second) > 0 {
		a, z := main*m.main.health(c.reserve), second*m.second.health(c.reserve)
		if z == 0 {
			c.second = nil // a fallback of weight 0 only stands by
		} else {
			c.cut, _ = bits.Div64(a, 0, a+z)
		}
	}
	for version, list := range m.own {
		if c.own == nil {
			c.own = map[string]pool{}
		}
		c.own[version] = b.vose.pool(list, ownReserve(list))
	}
}

// parts are those of the traffic as the rule has them.
func parts(r *rules.Rule) (main, second uint64) {
	switch {
	case r == nil:
		return 1, 0
	case r.Fallback == nil:
		return bounded(r.Strategy.Weight), 0
	}
	return bounded(r.Strategy.Weight), bounded(r.Fallback.Weight)
}

// Candidates are the instances that some pick from this table may choose, in
// whatever lane.
func (t *Table) Candidates() []*discovery.Instance {
	reached := make([]bool, len(t.in.Instances))
	mark := func(p pool) {
		for _, s := range p {
			reached[s.self] = true
		}
	}
	for _, c := range t.cells {
		mark(c.main)
		mark(c.second)
		for _, own := range c.own {
			mark(own)
		}
	}
	var all []*discovery.Instance
	for _, i := range ordered(t.in.Instances) {
		if reached[i] {
			all = append(all, &t.in.Instances[i])
		}
	}
	return all
}
