package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// NoMatch says that a call has nowhere to go, with the counts after each filter. A
// table gives the same one to every call of a lane: copy it before changing it.
type NoMatch struct {
	Service string
	Want    discovery.Coordinates // what the filters of the last step asked for; Version may name several, joined by " or "; empty: any
	Lane    Query                 // without the Key, which never decides whether anybody is there
	Rule    string                // its ID; empty: none
	Counts  Counts
	Known   int      // instances of the service, before all filters
	Direct  bool     // rules are skipped
	Idle    string   // why those that all filters leave take no calls; empty: none are left
	Names   []string // full names SERVER.NAME where a short one was asked for
	First   *NoMatch // of the lane's env, where its base was asked too
}

// Counts are the candidates that are left after each filter, in order.
type Counts struct {
	Cluster int `json:"cluster"`
	Region  int `json:"region"`
	Env     int `json:"env"`
	Version int `json:"version"`
}

// Error names the service, the four coordinates, the four counts, the rule and the
// next step.
func (e *NoMatch) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no instance of %s for %s", e.Service, e.asked())
	if e.First != nil {
		fmt.Fprintf(&b, ", nor before that for %s", e.First.asked())
	}
	return b.String() + "; try: " + e.Hint()
}

// asked is one step: what was asked for and what was left.
func (e *NoMatch) asked() string {
	rule, idle := "no rule", ""
	if e.Direct {
		rule = "rules are skipped"
	} else if e.Rule != "" {
		rule = "rule " + e.Rule
	}
	if e.Idle != "" {
		idle = ", who take no calls: " + e.Idle
	}
	return fmt.Sprintf("cluster %s, region %s, env %s, version %s (%s; %d known, left after each filter: %d, %d, %d, %d%s)",
		cmp.Or(e.Want.Cluster, "none"), cmp.Or(e.Want.Region, "any"), cmp.Or(e.Want.Env, "none"), cmp.Or(e.Want.Version, "any"),
		rule, e.Known, e.Counts.Cluster, e.Counts.Region, e.Counts.Env, e.Counts.Version, idle)
}

// Hint is the operator's next step.
func (e *NoMatch) Hint() string {
	switch {
	case len(e.Names) > 0:
		return "call it by a full name: " + strings.Join(e.Names, ", ")
	case e.Known == 0:
		return "register an instance, or correct the name"
	case e.Idle != "":
		return "give an instance a weight above 0, or end what keeps it out"
	}
	filter := "version"
	switch {
	case e.Counts.Cluster == 0:
		filter = "cluster"
	case e.Counts.Region == 0:
		filter = "region"
	case e.Counts.Env == 0:
		filter = "env"
	}
	if e.Direct {
		return "let rules count again (dispatchctl rules switch rules, or bring the control nodes back), or register an instance in the caller's cluster"
	}
	if e.Rule != "" {
		return fmt.Sprintf("correct %s in the rule, or register an instance there", filter)
	}
	return fmt.Sprintf("register an instance with this %s, or publish a rule for env %s", filter, e.Want.Env)
}

// noMatch is the error of the lane, made when it is first met.
func (t *Table) noMatch(q Query) *NoMatch {
	q.Key = ""
	if !t.in.Isolate {
		q.Person = ""
	}
	kept := &t.nobody[keyPoint(hashTexts(q.Env, q.Base), q.Person)%uint64(len(t.nobody))]
	if e := kept.Load(); e != nil && e.Lane == q {
		return e
	}
	env, base := t.envs(q)
	e := t.noMatchIn(env, q)
	if base != "" {
		first := e
		e = t.noMatchIn(base, q)
		e.First = first
	}
	kept.Store(e)
	return e
}

func (t *Table) noMatchIn(env string, q Query) *NoMatch {
	a := t.ask(env, q.Person)
	e := &NoMatch{Service: t.in.Service, Want: a.want, Lane: q, Known: len(t.in.Instances), Counts: t.count(a), Direct: t.in.Direct}
	if a.rule != nil {
		e.Rule = a.rule.ID()
	}
	if e.Counts.Version > 0 {
		e.Idle = t.idle(a)
	}
	return e
}

// ask is what one step looks for: four filters, in order.
type ask struct {
	rule      *rules.Rule
	want      discovery.Coordinates
	anyRegion bool
	versions  []string // nil: any
}

func (t *Table) ask(env, person string) ask {
	c := t.cells[env]
	if c == nil {
		c = &cell{cluster: t.in.Home.Cluster, region: t.in.Home.Region}
	}
	a := ask{rule: c.rule, anyRegion: t.in.Direct}
	a.want = discovery.Coordinates{Cluster: c.cluster, Region: c.region, Env: env}
	if t.in.Direct {
		a.want.Region = ""
	}
	switch {
	case c.rule != nil:
		a.versions = []string{c.rule.Strategy.Version}
		if f := c.rule.Fallback; f != nil && f.Version != c.rule.Strategy.Version {
			a.versions = append(a.versions, f.Version)
		}
	case t.in.Isolate:
		a.versions = []string{Base}
	}
	if t.in.Isolate && person != "" && !slices.Contains(a.versions, person) {
		a.versions = append([]string{person}, a.versions...)
	}
	a.want.Version = strings.Join(a.versions, " or ")
	return a
}

// count asks every instance, apart from what Compile made of them.
func (t *Table) count(a ask) (left Counts) {
	for i := range t.in.Instances {
		t.passes(a, &t.in.Instances[i], &left)
	}
	return left
}

// passes says whether the instance gets through all filters, and counts it after
// each that it passes.
func (t *Table) passes(a ask, in *discovery.Instance, left *Counts) bool {
	if !stated(in.Cluster) || in.Cluster != a.want.Cluster {
		return false
	}
	left.Cluster++
	if !stated(in.Region) || !a.anyRegion && in.Region != a.want.Region {
		return false
	}
	left.Region++
	if !stated(in.Env) || in.Env != a.want.Env {
		return false
	}
	left.Env++
	if !stated(in.Version) || a.versions != nil && !slices.Contains(a.versions, in.Version) {
		return false
	}
	left.Version++
	return true
}

// idle says why those that pass take no calls, as "isolated (1), weight 0 (2)".
func (t *Table) idle(a ask) string {
	var reasons []string
	counts := map[string]int{}
	for i := range t.in.Instances {
		in := &t.in.Instances[i]
		if !t.passes(a, in, &Counts{}) {
			continue
		}
		why := "the rule gives " + in.Version + " weight 0"
		if l := t.load(uint32(i)); l.stated == 0 {
			why = "weight 0"
		} else if l.effective == 0 {
			why = t.in.Scale[in.ID].Why
		}
		if counts[why] == 0 {
			reasons = append(reasons, why)
		}
		counts[why]++
	}
	slices.Sort(reasons)
	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("%s (%d)", why, counts[why])
	}
	return strings.Join(reasons, ", ")
}
