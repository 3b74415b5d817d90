// Package route chooses an instance: the compiled view of one service, and a pick
// from it that costs no lock, no allocation and no look at anything else.
//
//	Input{service, home, instances, rules, scale} ── Compile ──► *Table   (immutable)
//	Table.Pick(Query, draw) ──► Choice                                    (a hundred ns)
//	Table.Explain(Query, draw) ──► the same choice, with every step
//
// A pick walks: lane env, then lane base → the rule of that env, or the caller's own
// cluster and region if the service has none → filter by cluster, region, env,
// version → version by weight → instance by alias table. Compile does the filters
// ahead, so their number and that of the instances cost a pick nothing.
//
// The draw is an argument: with equal inputs and an equal draw the choice is the
// same, today and from the records of last month.
//
// It owns no goroutine. Nothing here fails but a pick without a match, which is a
// *NoMatch and never a wider search.
package route

import (
	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// Base is the version of the pool that everybody shares where developers have
// instances of their own.
const Base = "base"

// Input is everything that a table depends on.
type Input struct {
	Service   string                `json:"service"`
	Home      discovery.Coordinates `json:"home"` // of the caller
	Instances []discovery.Instance  `json:"instances"`
	Rules     []rules.Rule          `json:"rules,omitempty"` // of this service, as in a rules.Set
	Number    uint64                `json:"number"`          // of the release of rules; 0: none could ever be loaded
	Direct    bool                  `json:"direct,omitempty"`
	Isolate   bool                  `json:"isolate,omitempty"` // developers' instances are their own
	// Scale lowers weights, by instance ID, in thousandths: 0 takes no traffic, 1000 (or
	// no entry) is the whole weight. Nobody is scaled up.
	Scale map[string]Scale `json:"scale,omitempty"`
}

// Scale is how much of its weight an instance has for one caller, and why not all.
type Scale struct {
	Thousandths int    `json:"thousandths"`
	Why         string `json:"why"` // warming, isolated, suspicious, ejected, hot
}

// Query is what differs from call to call.
type Query struct {
	Env    string // of the traffic's lane; empty: the home's
	Base   string // second candidate when Env has nobody; empty: none
	Person string // whose instances come first, with Isolate; empty: nobody's
	// Key keeps calls with the same key on the same version; empty: by draw.
	Key string
}

// Choice is a pick. Strings and Instance point into the table.
type Choice struct {
	Instance *discovery.Instance
	Rule     *rules.Rule // nil: the caller's own coordinates counted
	Reason   Reason
	Step     int // 1: the lane's env; 2: its base
}

// Reason is why a pick went where it went.
type Reason string

// The reasons.
const (
	ByRule     Reason = "rule"     // the rule's main version
	ByFallback Reason = "fallback" // the rule's fallback version
	ByHome     Reason = "home"     // no rule: the caller's own coordinates
	ByPerson   Reason = "person"   // an instance of the person in the lane
	ByBase     Reason = "base"     // the shared pool, with Isolate
	ByOverride Reason = "override" // an address that the caller's configuration names
	ByDirect   Reason = "direct"   // degraded: no rules, cluster and env kept
	ByNobody   Reason = "nobody"   // an error
)

// NoMatch says that a call has nowhere to go, with the counts after each filter.
type NoMatch struct {
	Service string
	Want    discovery.Coordinates // what the filters asked for; Version may name several, joined by " or "
	Lane    Query
	Rule    string // its ID; empty: none
	Counts  Counts
	Known   int      // instances of the service, before all filters
	Names   []string // full names SERVER.NAME where a short one was asked for
}

// Counts are the candidates that are left after each filter, in order.
type Counts struct {
	Cluster int `json:"cluster"`
	Region  int `json:"region"`
	Env     int `json:"env"`
	Version int `json:"version"`
}

// Error names the service, the four coordinates and the four counts.
func (e *NoMatch) Error() string { panic("unbuilt") }

// Table is the compiled view of one service for one caller.
type Table struct{ in Input }

// Compile builds a table. It keeps in.Instances and in.Rules, which must not change.
func Compile(in Input) *Table { panic("unbuilt") }

// Input is what the table was built from.
func (t *Table) Input() Input { return t.in }

// Pick chooses. draw is any uniform random number. The error is a *NoMatch that was
// made by Compile where possible.
func (t *Table) Pick(q Query, draw uint64) (Choice, error) { panic("unbuilt") }

// Explanation is a pick with every step.
type Explanation struct {
	Service    string      `json:"service"`
	Reason     Reason      `json:"reason"`
	Steps      []Step      `json:"steps"` // one, or two where the lane's base was asked too
	Rule       *rules.Rule `json:"rule,omitempty"`
	Shadowed   []string    `json:"shadowed,omitempty"` // IDs of rules that a newer one hides
	Draw       uint64      `json:"draw,string"`
	Sides      []Side      `json:"sides,omitempty"`      // versions and their parts
	Candidates []Candidate `json:"candidates,omitempty"` // of the version that was drawn
	Chosen     string      `json:"chosen,omitempty"`     // address; empty: none
	AllCold    bool        `json:"all_cold,omitempty"`   // every match was warming, so they served
	Problem    string      `json:"problem,omitempty"`
}

// Step is one look-up: what was asked for, and who was left after each filter.
type Step struct {
	Env    string                `json:"env"`
	Want   discovery.Coordinates `json:"want"`
	Known  int                   `json:"known"`
	Counts Counts                `json:"counts"`
}

// Side is a version's part of the traffic.
type Side struct {
	Version   string  `json:"version"`
	Weight    int     `json:"weight"`    // as the rule says
	Effective float64 `json:"effective"` // share of 1, after scaling
}

// Candidate is an instance that could have been chosen. Its score is its part.
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
func (t *Table) Explain(q Query, draw uint64) Explanation { panic("unbuilt") }
