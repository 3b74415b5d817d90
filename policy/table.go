package policy

import (
	"slices"

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
	failover  []salt // by region
	endpoint  []salt // by region

	// The index: which rules can match, by lowered platform, and those that can
	// match any other or no platform.
	byPlatform  map[string][]int32
	anyPlatform []int32

	lists    *whitelist.Index
	geo      *Geo
	replica  Replica
	sessions []sealing // by key, current first
	warnings fault.Problems
}

// rule is one compiled policy.
type rule struct {
	key   string
	conds []cond
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

// maxPlatform is the longest platform in bytes that is looked up; a longer one
// counts as one that no policy names.
const maxPlatform = 64

// index sorts the rules by the platforms that they name.
func (t *Table) index() {
	t.byPlatform = map[string][]int32{}
	for i := range t.rules {
		for _, p := range t.rules[i].platforms() {
			t.byPlatform[p] = nil
		}
	}
	for i := range t.rules {
		platforms := t.rules[i].platforms()
		if platforms == nil {
			t.anyPlatform = append(t.anyPlatform, int32(i))
		}
		for p := range t.byPlatform {
			if platforms == nil || slices.Contains(platforms, p) {
				t.byPlatform[p] = append(t.byPlatform[p], int32(i))
			}
		}
	}
}

// platforms are those that the rule requires one of, nil if it requires none.
func (r *rule) platforms() []string {
	for i := range r.conds {
		if c := &r.conds[i]; c.kind == kindPlatform && !c.not {
			return c.values
		}
	}
	return nil
}

// candidates are the rules that the platform does not exclude, in order. An
// absent platform is noted as if each condition on it had been tried.
func (w *walker) candidates() []int32 {
	t, platform := w.t, w.req.Platform
	if len(t.byPlatform) == 0 || len(platform) > maxPlatform {
		return t.anyPlatform
	}
	if platform == "" {
		w.notes |= FactAbsent
		return t.anyPlatform
	}
	var buf [maxPlatform]byte
	for i := range len(platform) {
		buf[i] = lowerByte(platform[i], false)
	}
	if rules, ok := t.byPlatform[string(buf[:len(platform)])]; ok {
		return rules
	}
	return t.anyPlatform
}
