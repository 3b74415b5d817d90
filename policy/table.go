package policy

import (
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

// Table is one app's rules, compiled. It is immutable.
type Table struct {
	app       string
	by        BucketBy // of the app: endpoint, failover and otherwise
	regions   []domain.Region
	plan      *domain.Plan
	epochs    map[string]uint32 // by policy key
	origins   []origin
	labels    map[string]bool // that a hint or replica may name
	rules     []rule
	otherwise action
	failover  []salt  // by region
	endpoint  []salt  // by region
	only      []int16 // by region: the endpoint that serves alone, else -1

	columns []column // the index over rules

	lists    *whitelist.Index
	asked    []whitelist.Of // the kinds of id that rules seek in lists
	geo      *Geo
	replica  Replica
	sessions []sealing // by key, current first
	warnings fault.Problems
}

// rule is one compiled policy.
type rule struct {
	key   string
	early []cond // the index answers these
	late  []cond // a walk tries these
	do    action
}

// Decide walks sessions, policies, otherwise and failover. It takes no lock, reads
// no clock and allocates nothing.
func (t *Table) Decide(req *Request) Decision { return t.walk(req, nil) }

// Explain is the same walk, written down.
func (t *Table) Explain(req *Request) (Decision, *Trace) {
	var tr Trace
	return t.walk(req, &tr), &tr
}

// Regions are the rules' regions, by the indexes that decisions carry.
func (t *Table) Regions() []domain.Region { return t.regions }

// PolicyKey is the key of policy n, empty for -1.
func (t *Table) PolicyKey(n int32) string {
	if n < 0 || int(n) >= len(t.rules) {
		return ""
	}
	return t.rules[n].key
}

// Salts are the salts in use, by the keys of Rules.Salts, for storing them.
func (t *Table) Salts() map[string]string {
	salts := map[string]string{saltOtherwise: t.otherwise.salt.text}
	for i := range t.rules {
		salts[t.rules[i].key] = t.rules[i].do.salt.text
	}
	for i := range t.regions {
		salts["failover/"+t.regions[i].Key] = t.failover[i].text
		salts["endpoint/"+t.regions[i].Key] = t.endpoint[i].text
	}
	return salts
}

// Warnings are what Compile allowed and yet is seldom meant, such as a condition
// on the country at a replica that has no city database.
func (t *Table) Warnings() fault.Problems { return t.warnings }
