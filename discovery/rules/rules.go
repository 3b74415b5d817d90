// Package rules holds the rules of the inner layer: which version of a service
// callers of an environment reach, and where. People write them as YAML in Git, a
// pipeline checks and publishes them, callers use them as part of a signed release.
//
//	files ── Parse ──► Set ── Lint(Set, region, Directory) ──► problems with file and line
//	                    │
//	                    ├─ Diff, MayChange: what is new, and whether its author may
//	                    ├─ WithGray, WithoutGray, Carry: how much a new version takes meanwhile
//	                    └─ in a signed release of the stream rules/REGION ── Verify ──► Set, grays put in
//
// A rule is for one service and one environment: callers whose lane is in that
// environment. It states all four coordinates; there are no wildcards. Of two
// rules for the same service and environment the one with the newest Updated
// counts, and the other is shadowed. A rule that matches no instance is an error
// of each call, never a wider search.
//
// It owns no goroutine and knows no registry, no transport and no database. What a
// failure does: files with a mistake are refused whole, with every mistake of every
// file; a release that Verify refuses changes nothing, and callers keep the rules
// that they have. DESIGN.md says why.
package rules

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rule is one file.
type Rule struct {
	Service  string    `json:"service"`
	Updated  time.Time `json:"updated"` // whole seconds
	Selector Selector  `json:"selector"`
	Strategy Strategy  `json:"strategy"`
	Fallback *Fallback `json:"fallback,omitempty"`
	File     string    `json:"file,omitempty"` // its name in Git, for people
	// Gray is the one that Effective put into the rule. No file has one.
	Gray *Gray `json:"gray,omitempty"`
}

// ID names a rule in records and pages: SERVICE/ENV@UPDATED, Updated as RFC 3339, and
// +SHARE% while a gray runs.
func (r Rule) ID() string {
	id := r.Service + "/" + r.Selector.Env + "@" + r.Updated.UTC().Format(time.RFC3339)
	if r.Gray != nil {
		id += "+" + strconv.Itoa(r.Gray.Share) + "%"
	}
	return id
}

// Selector says where candidates are. All three are required.
type Selector struct {
	Cluster string `json:"cluster"`
	Region  string `json:"region"`
	Env     string `json:"env"`
}

// Strategy is the main version and its part of the traffic. The parts of strategy
// and fallback are relative to each other; a version alone takes everything unless
// its weight is 0.
type Strategy struct {
	Version string `json:"version"`
	Weight  int    `json:"weight"` // 0 to 10,000; 0: none, at once
}

// Fallback is the version that is mixed in, in the same coordinates. Condition
// raises its part while it holds.
type Fallback struct {
	Version   string     `json:"version"`
	Weight    int        `json:"weight"`
	Condition *Condition `json:"condition,omitempty"`
}

// Condition is METRIC OPERATOR NUMBER: target-load > 80. Metrics are target-load
// (percent, the mean of the version's known CPU loads); operators are > and >=.
type Condition struct {
	Metric   string  `json:"metric"`
	Operator string  `json:"operator"`
	Number   float64 `json:"number"`
}

// String is the condition as a file has it.
func (c Condition) String() string {
	return c.Metric + " " + c.Operator + " " + strconv.FormatFloat(c.Number, 'f', -1, 64)
}

// Group is a family of services by the prefix of their names. Groups share no service.
type Group struct {
	Prefix string   `json:"prefix"`        // order-
	Owners []string `json:"owners"`        // names of tokens and logins that may change its rules
	Key    []string `json:"key,omitempty"` // services whose rules a second person must approve
}

// Set is all that the callers of one region follow.
type Set struct {
	Rules  []Rule  `json:"rules"` // sorted by service, then env, then newest first
	Groups []Group `json:"groups,omitempty"`
	Grays  []Gray  `json:"grays,omitempty"` // at most one for a service and env; no file has any
	// Direct is the kill switch: callers skip rules, weights and versions, and keep
	// cluster and env equal to their own.
	Direct bool `json:"direct,omitempty"`

	lines map[place]int // where Parse found things, for Lint
}

// place is a part of a file.
type place struct{ file, path string }

// For returns the rules of the service for an environment: the one that counts
// first, then those that it shadows.
func (s Set) For(service, env string) []Rule {
	var found []Rule
	for _, r := range s.Rules {
		if r.Service == service && r.Selector.Env == env {
			found = append(found, r)
		}
	}
	slices.SortStableFunc(found, compareRules)
	return found
}

// Owner is the group of a service; the longest prefix counts.
func (s Set) Owner(service string) (g Group, ok bool) {
	for _, other := range s.Groups {
		if strings.HasPrefix(service, other.Prefix) && (!ok || len(other.Prefix) > len(g.Prefix)) {
			g, ok = other, true
		}
	}
	return g, ok
}

// isKey says whether a second person must approve the rules of a service.
func (s Set) isKey(service string) bool {
	return slices.ContainsFunc(s.Groups, func(g Group) bool { return slices.Contains(g.Key, service) })
}

// MarshalJSON gives equal sets equal bytes, in whatever order they were put together.
func (s Set) MarshalJSON() ([]byte, error) {
	type plain Set // without this method
	return json.Marshal(plain(s.sorted()))
}

// sorted is the set in its one form.
func (s Set) sorted() Set {
	s.Rules = append([]Rule{}, s.Rules...) // never nil: no rules are a list, too
	for i := range s.Rules {
		s.Rules[i].Updated = s.Rules[i].Updated.UTC()
	}
	slices.SortStableFunc(s.Rules, compareRules)
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		s.Groups[i].Owners = sortedNames(s.Groups[i].Owners)
		s.Groups[i].Key = sortedNames(s.Groups[i].Key)
	}
	slices.SortStableFunc(s.Groups, func(a, b Group) int { return cmp.Compare(a.Prefix, b.Prefix) })
	s.Grays = slices.Clone(s.Grays)
	for i := range s.Grays {
		s.Grays[i].Since = s.Grays[i].Since.UTC()
	}
	slices.SortStableFunc(s.Grays, compareGrays)
	return s
}

func sortedNames(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// compareRules sorts by service and env, the rule that counts first. Of two rules
// of one second that whose file sorts first counts; Lint reports both.
func compareRules(a, b Rule) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Selector.Env, b.Selector.Env),
		b.Updated.Compare(a.Updated), cmp.Compare(a.File, b.File))
}

// streams is what the names of all streams of rules begin with.
const streams = "rules/"

// Stream is the stream of releases for the callers of a region.
func Stream(region string) string { return streams + region }

// IsStream says whether a stream's releases hold rules.
func IsStream(stream string) bool { return strings.HasPrefix(stream, streams) }
