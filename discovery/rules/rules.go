// Package rules holds the rules of the inner layer: which version of a service
// callers of an environment reach, and where. People write them as YAML in Git, a
// pipeline checks and publishes them, callers use them as part of a signed release.
//
//	files ── Parse ──► []Rule ── Lint(Set, Directory) ──► problems with file and line
//	                     │
//	                     └─ Set, in a release of the stream rules/REGION ── Verify ──► Set
//
// A rule is for one service and one environment: callers whose lane is in that
// environment. It states all four coordinates; there are no wildcards. Of two
// rules for the same service and environment the one with the newest Updated
// counts, and the other is shadowed. A rule that matches no instance is an error
// of each call, never a wider search.
//
// It owns no goroutine and knows no registry, no transport and no database.
package rules

import (
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// Rule is one file.
type Rule struct {
	Service  string    `json:"service"`
	Updated  time.Time `json:"updated"`
	Selector Selector  `json:"selector"`
	Strategy Strategy  `json:"strategy"`
	Fallback *Fallback `json:"fallback,omitempty"`
	File     string    `json:"file,omitempty"` // its name in Git, for people
}

// ID names a rule in records and pages: SERVICE/ENV@UPDATED, Updated as RFC 3339.
func (r Rule) ID() string {
	return r.Service + "/" + r.Selector.Env + "@" + r.Updated.UTC().Format(time.RFC3339)
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

// Set is all that the callers of one region follow.
type Set struct {
	Rules  []Rule  `json:"rules"` // sorted by service, then env, then newest first
	Groups []Group `json:"groups,omitempty"`
	// Direct is the kill switch: callers skip rules, weights and versions, and keep
	// cluster and env equal to their own.
	Direct bool `json:"direct,omitempty"`
}

// Group is a family of services by the prefix of their names. Groups share no service.
type Group struct {
	Prefix string   `json:"prefix"`        // order-
	Owners []string `json:"owners"`        // names of tokens and logins that may change its rules
	Key    []string `json:"key,omitempty"` // services whose rules a second person must approve
}

// For returns the rules of the service for an environment: the one that counts
// first, then those that it shadows.
func (s Set) For(service, env string) []Rule { panic("unbuilt") }

// Directory is what Lint asks about the world.
type Directory interface {
	// Values are those that instances have now: of cluster, region, env or version.
	Values(coordinate string) []string
	// Match counts the instances of the service with these coordinates.
	Match(service string, s Selector, version string) int
	// Service says whether the service is known; names are all that are, for hints.
	Service(name string) (known bool, names []string)
}

// File is one file of rules.
type File struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Parse reads files: rules, and at most one groups.yaml. All mistakes of all files
// are listed, with file and line. *fault.Error invalid_rules.
func Parse(files []File) (Set, error) { panic("unbuilt") }

// Lint lists what is wrong with the meaning of a set for the callers of a region:
// values and services that do not exist, combinations that match no instance, groups
// that overlap. Problems name the rule's file.
func Lint(s Set, region string, d Directory) fault.Problems { panic("unbuilt") }

// Difference is one change between two sets.
type Difference struct {
	Service string `json:"service"`
	Env     string `json:"env"`
	Kind    string `json:"kind"` // added, removed, changed, switch, group
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
	Key     bool   `json:"key,omitempty"` // a second person must approve it
}

// Diff lists what b changes in a, by service.
func Diff(a, b Set) []Difference { panic("unbuilt") }

// streams is what the names of all streams of rules begin with.
const streams = "rules/"

// Stream is the stream of releases for the callers of a region.
func Stream(region string) string { return streams + region }

// IsStream says whether a stream's releases hold rules.
func IsStream(stream string) bool { return strings.HasPrefix(stream, streams) }

// Signed is a release of rules as it travels: exact bytes and their signature.
type Signed struct {
	Number    uint64 `json:"number"`
	Manifest  []byte `json:"manifest"`
	Signature string `json:"signature"`
}

// Verify reads the set of a release after checking signature, deployment and
// stream. Whether its number is newer is the caller's to check.
func Verify(s Signed, trust *signed.Trust, deployment, region string) (Set, error) {
	panic("unbuilt")
}
