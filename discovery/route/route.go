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
// *NoMatch and never a wider search. DESIGN.md has the formula of shares and what is
// decided where two wishes meet.
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
	Rules     []rules.Rule          `json:"rules,omitempty"` // of this service in all envs, as in a rules.Set: of two for one env the first counts
	Number    uint64                `json:"number"`          // of the release of rules; 0: none could ever be loaded
	// Direct skips rules, weights and versions, and keeps cluster and env: all that take
	// calls at all get equal parts.
	Direct bool `json:"direct,omitempty"`
	// Isolate makes every version but Base and those that a rule names a person's own:
	// only that person's calls go there.
	Isolate bool `json:"isolate,omitempty"`
	// Scale lowers weights, by instance ID, in thousandths: 0 takes no traffic, 1000 (or
	// no entry) is the whole weight. Nobody is scaled up.
	Scale map[string]Scale `json:"scale,omitempty"`
	// Shift is, by env, how many tenths of the part of the rule's main version its
	// fallback takes besides its own, 0 to 9: its condition holds.
	Shift map[string]int `json:"shift,omitempty"`
	// Load is, by env, the load in percent that the shift last moved by, for people.
	Load map[string]float64 `json:"load,omitempty"`
}

// Scale is how much of its weight an instance has for one caller, and why not all.
type Scale struct {
	Thousandths int    `json:"thousandths"`
	Why         string `json:"why"` // Warming, Vanished, Isolated, Suspicious, Ejected or Hot
}

// Query is what differs from call to call.
type Query struct {
	Env    string `json:"env,omitempty"`    // of the traffic's lane; empty: the home's
	Base   string `json:"base,omitempty"`   // second candidate when Env has nobody; empty: none
	Person string `json:"person,omitempty"` // whose instances come first, with Isolate; empty: nobody's
	// Key keeps calls with the same key on the same version of a rule; empty: by draw.
	Key string `json:"key,omitempty"`
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
	ByRule     Reason = "rule"     // the rule's main version; while a gray runs, the one it had
	ByFallback Reason = "fallback" // the rule's fallback version
	ByGray     Reason = "gray"     // the new version of a gray, which runs by the rule
	ByHome     Reason = "home"     // no rule: the caller's own coordinates
	ByPerson   Reason = "person"   // an instance of the person in the lane
	ByBase     Reason = "base"     // the shared pool, with Isolate
	ByOverride Reason = "override" // an address that the caller's configuration names
	ByDirect   Reason = "direct"   // degraded: no rules, cluster and env kept
	ByNobody   Reason = "nobody"   // an error
	ByBreaker  Reason = "breaker"  // an error: the breaker of the service is open, so nobody was asked for
)
