package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Difference is one change between two sets. Before and After are one line each,
// for people.
type Difference struct {
	Service string `json:"service"` // of a group: its prefix
	Env     string `json:"env"`
	Kind    string `json:"kind"` // added, removed, changed, switch, group, gray
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
	Key     bool   `json:"key,omitempty"` // a second person must approve it
}

// The kinds of differences.
const (
	Added     = "added"
	Removed   = "removed"
	Changed   = "changed"
	Switched  = "switch" // the kill switch
	Regrouped = "group"  // owners and key services of a group
	Grayed    = "gray"   // what a new version takes
)

// Diff lists what b changes in a: the switch, then groups, then grays, then rules by
// service and env. It is empty if and only if the sets are equal.
func Diff(a, b Set) []Difference {
	var all []Difference
	if a.Direct != b.Direct {
		all = append(all, Difference{Kind: Switched, Before: direct(a.Direct), After: direct(b.Direct)})
	}
	all = append(all, diffGroups(a, b)...)
	all = append(all, diffGrays(a, b)...)
	before, after := byTarget(a), byTarget(b)
	for _, t := range sortedKeys(before, after, target.compare) {
		d := Difference{Service: t.service, Env: t.env, Kind: Changed, Before: ruleText(before[t]), After: ruleText(after[t]),
			Key: a.isKey(t.service) || b.isKey(t.service)}
		switch {
		case d.Before == d.After:
			continue
		case d.Before == "":
			d.Kind = Added
		case d.After == "":
			d.Kind = Removed
		}
		all = append(all, d)
	}
	return all
}

func direct(on bool) string {
	if on {
		return "direct: rules, weights and versions do not count"
	}
	return "by rules"
}

// target is what rules compete for.
type target struct{ service, env string }

func (t target) compare(other target) int {
	return cmp.Or(cmp.Compare(t.service, other.service), cmp.Compare(t.env, other.env))
}

func byTarget(s Set) map[target][]Rule {
	m := map[target][]Rule{}
	for _, r := range s.sorted().Rules {
		t := target{r.Service, r.Selector.Env}
		m[t] = append(m[t], r)
	}
	return m
}

// ruleText is the rule that counts and those that it shadows, in one line.
func ruleText(all []Rule) string {
	var b strings.Builder
	for i, r := range all {
		if i > 0 {
			b.WriteString("; shadowed: ")
		}
		fmt.Fprintf(&b, "%s %s, %s %d", r.Selector.Cluster, r.Selector.Region, r.Strategy.Version, r.Strategy.Weight)
		if f := r.Fallback; f != nil {
			fmt.Fprintf(&b, " : %s %d", f.Version, f.Weight)
			if f.Condition != nil {
				fmt.Fprintf(&b, " (more while %s)", f.Condition)
			}
		}
		fmt.Fprintf(&b, ", of %s", r.Updated.UTC().Format(time.RFC3339Nano))
		if r.File != "" {
			fmt.Fprintf(&b, " in %s", r.File)
		}
	}
	return b.String()
}

// diffGrays: the start of one takes a second person where a rule does; its steps were
// a part of what that person saw, and its end takes nobody.
func diffGrays(a, b Set) (all []Difference) {
	before, after := byGray(a), byGray(b)
	for _, t := range sortedKeys(before, after, target.compare) {
		d := Difference{Service: t.service, Env: t.env, Kind: Grayed, Before: before[t], After: after[t]}
		d.Key = d.Before == "" && (a.isKey(t.service) || b.isKey(t.service))
		if d.Before != d.After {
			all = append(all, d)
		}
	}
	return all
}

func byGray(s Set) map[target]string {
	m := map[target]string{}
	for _, g := range s.sorted().Grays {
		m[target{g.Service, g.Env}] = g.String()
	}
	return m
}

func diffGroups(a, b Set) (all []Difference) {
	before, after := byPrefix(a), byPrefix(b)
	for _, prefix := range sortedKeys(before, after, strings.Compare) {
		was, is := before[prefix], after[prefix]
		// Who could take a service off the list of key services could change its rules next.
		d := Difference{Service: prefix, Kind: Regrouped, Before: groupText(was), After: groupText(is), Key: len(was.Key)+len(is.Key) > 0}
		if d.Before != d.After {
			all = append(all, d)
		}
	}
	return all
}

func byPrefix(s Set) map[string]Group {
	m := map[string]Group{}
	for _, g := range s.sorted().Groups {
		m[g.Prefix] = g
	}
	return m
}

func groupText(g Group) string {
	if g.Prefix == "" {
		return ""
	}
	text := "owners " + strings.Join(g.Owners, ", ")
	if len(g.Key) > 0 {
		text += "; key services " + strings.Join(g.Key, ", ")
	}
	return text
}

// sortedKeys are the keys of either map.
func sortedKeys[K comparable, V any](a, b map[K]V, compare func(x, y K) int) []K {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.SortedFunc(maps.Keys(both), compare)
}
