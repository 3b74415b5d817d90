package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// Directory is what Lint asks about the world.
type Directory interface {
	// Values are those that instances have now: of cluster, region, env or version.
	Values(coordinate string) []string
	// Match counts the instances of the service with these coordinates.
	Match(service string, s Selector, version string) int
	// Service says whether the service is known; names are all that are, for hints.
	Service(name string) (known bool, names []string)
}

// maxAhead is how far a rule's time may lie ahead of the clock here. A rule of next
// year would shadow every correction until then.
const maxAhead = 24 * time.Hour

// Lint lists what is wrong with the meaning of a set for the callers of a region:
// values and services that do not exist, combinations that match no instance, rules
// of one time or of a time to come, groups that overlap. Only rules that count are
// compared with the directory; a shadowed one moves no call. Problems name the
// rule's file, and its line where the set comes from Parse.
func Lint(s Set, region string, d Directory) fault.Problems {
	l := newLinter(s, region, d)
	rules := s.sorted().Rules
	for i, r := range rules {
		l.file = r.File
		shadowed := i > 0 && sameTarget(rules[i-1], r)
		if shadowed && rules[i-1].Updated.Equal(r.Updated) {
			l.add("updated", "the file whose name sorts first counts; give the newer rule a newer time, or remove one",
				"%s has a rule for %s in %s of the same time", rules[i-1].File, r.Service, r.Selector.Env)
		}
		if r.Updated.After(l.now.Add(maxAhead)) {
			l.add("updated", "a rule that is newer than the clock shadows every later one", "%s lies more than a day ahead", r.Updated.Format(time.RFC3339))
		}
		if !shadowed {
			l.rule(r)
			if g, runs := s.Gray(r.Service, r.Selector.Env); runs {
				l.gray(g, r)
			}
		}
	}
	l.file = groupsFile
	l.groups()
	return l.problems
}

// sameTarget says whether two rules are for the same service and environment.
func sameTarget(a, b Rule) bool { return a.Service == b.Service && a.Selector.Env == b.Selector.Env }

func newLinter(s Set, region string, d Directory) *linter {
	l := &linter{set: s, region: region, dir: d, now: time.Now(), values: map[string][]string{}}
	for _, c := range []string{"cluster", "region", "env", "version"} {
		l.values[c] = d.Values(c)
	}
	return l
}

type linter struct {
	set      Set
	region   string
	dir      Directory
	now      time.Time
	values   map[string][]string // by coordinate
	file     string              // of the rule that is looked at
	problems fault.Problems
}

func (l *linter) add(path, hint, format string, args ...any) {
	line := 0
	for at := path; line == 0 && at != ""; at = parent(at) {
		line = l.set.lines[place{l.file, at}]
	}
	l.problems = append(l.problems, fault.Problem{File: l.file, Line: line, Path: path, Hint: hint, Detail: fmt.Sprintf(format, args...)})
}

// rule compares a rule with the directory. What one problem explains is not reported again.
func (l *linter) rule(r Rule) {
	if r.Strategy.Weight == 0 && (r.Fallback == nil || r.Fallback.Weight == 0) {
		l.add("strategy.weight", "give a version of the strategy or the fallback a weight", "no version takes traffic: every call would be an error")
	}
	exists := l.service(r.Service)
	for _, c := range []struct{ name, value string }{{"cluster", r.Selector.Cluster}, {"region", r.Selector.Region}, {"env", r.Selector.Env}} {
		exists = l.value("selector."+c.name, c.name, c.value) && exists
	}
	// A version with weight 0 may be yet to come, or have gone.
	if r.Strategy.Weight > 0 {
		l.version("strategy.version", r, r.Strategy.Version, exists)
	}
	if r.Fallback != nil {
		l.version("fallback.version", r, r.Fallback.Version, exists)
	}
}

func (l *linter) service(name string) bool {
	known, names := l.dir.Service(name)
	if known {
		return true
	}
	hint := "it must run somewhere before it has a rule"
	full := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return !strings.HasSuffix(n, "."+name) && !strings.HasPrefix(n, name+".")
	})
	if len(full) > 0 {
		hint = "write the full name: " + strings.Join(full, ", ")
	} else if near := nearest(name, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	l.add("service", hint, "no service is named %s", name)
	return false
}

// value says whether a value exists. The region must also be that of the callers.
func (l *linter) value(path, coordinate, value string) bool {
	known := l.values[coordinate]
	const gateway = "another region is reached through its gateway; a rule names the region of its callers"
	switch here := slices.Contains(known, value); {
	case coordinate == "region" && here && value != l.region:
		l.add(path, gateway, "%s is not the region of these callers, %s", value, l.region)
	case here:
		return true
	case coordinate == "region" && value != l.region && nearest(value, []string{l.region}) == "":
		l.add(path, gateway, "no instance here has the region %s; the callers are in %s", value, l.region)
	default:
		l.add(path, among(value, known), "no instance has the %s %s", coordinate, value)
	}
	return false
}

// version says whether a version exists, and whether anybody has it together with
// the other coordinates. exists: each of those exists.
func (l *linter) version(path string, r Rule, version string, exists bool) {
	if !l.value(path, "version", version) || !exists || l.dir.Match(r.Service, r.Selector, version) > 0 {
		return
	}
	l.add(path, l.instead(r, version), "matches 0 instances: every value exists, but no instance of %s has %s, %s, %s and %s together",
		r.Service, r.Selector.Cluster, r.Selector.Region, r.Selector.Env, version)
}

// instead is what would match: the rule with one other value.
func (l *linter) instead(r Rule, version string) string {
	var would []string
	for _, c := range []string{"cluster", "region", "env", "version"} {
		for _, value := range l.values[c] {
			s, v := r.Selector, version
			switch c {
			case "cluster":
				s.Cluster = value
			case "region":
				s.Region = value
			case "env":
				s.Env = value
			default:
				v = value
			}
			if n := l.dir.Match(r.Service, s, v); n > 0 {
				would = append(would, fmt.Sprintf("%s %s would match %d", c, value, n))
			}
		}
	}
	return some(would)
}

// among is a hint: the known value that was probably meant, or those there are.
func among(value string, known []string) string {
	if near := nearest(value, known); near != "" {
		return "did you mean " + near + "?"
	}
	if len(known) == 0 {
		return "no instance is known here; is a registry away?"
	}
	return "there are " + some(known)
}

// some joins the first few words.
func some(words []string) string {
	const few = 8
	if len(words) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:few], ", "), len(words)-few)
	}
	return strings.Join(words, ", ")
}

// groups reports services that two groups claim, and key services of nobody.
func (l *linter) groups() {
	for i, g := range l.set.Groups {
		for _, other := range l.set.Groups[:i] {
			if strings.HasPrefix(g.Prefix, other.Prefix) || strings.HasPrefix(other.Prefix, g.Prefix) {
				l.add(groupPath(g), "groups share no service; write prefixes of which none begins with another", "overlaps the group %s", other.Prefix)
			}
		}
		for _, service := range g.Key {
			if !strings.HasPrefix(service, g.Prefix) {
				l.add(groupPath(g), "move it to the group that it belongs to", "the key service %s is not in this group", service)
			}
		}
	}
}
