package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"dispatch.example/dispatch/internal/fault"
)

// Bounds of what a rule may say.
const (
	maxWeight = 10_000 // sums of any two stay far from overflow
	maxText   = 128    // bytes of a coordinate or a name, as instances have
	// defaultWeight is that of a version alone that states none.
	defaultWeight = 100
)

// targetLoad is the one metric of conditions.
const targetLoad = "target-load"

// finding is one thing wrong with a value; path is where it stands in the rule.
type finding struct{ path, detail, hint string }

// findings collects what is wrong.
type findings []finding

func (f *findings) add(path, hint, format string, args ...any) {
	*f = append(*f, finding{path, fmt.Sprintf(format, args...), hint})
}

// check lists what is wrong with a rule in itself, whatever instances there are.
func (r Rule) check() findings {
	var f findings
	f.service("service", r.Service)
	if r.Gray != nil {
		f.add("gray", "", "a gray stands beside the rules, not in one")
	}
	if r.Updated.IsZero() || r.Updated.Nanosecond() != 0 || r.Updated.Year() > 9999 {
		f.add("updated", hintUpdated, "must be an instant in whole seconds")
	}
	f.value("selector.cluster", r.Selector.Cluster)
	f.value("selector.region", r.Selector.Region)
	f.value("selector.env", r.Selector.Env)
	f.value("strategy.version", r.Strategy.Version)
	f.weight("strategy.weight", r.Strategy.Weight)
	if r.Fallback == nil {
		return f
	}
	f.value("fallback.version", r.Fallback.Version)
	f.weight("fallback.weight", r.Fallback.Weight)
	if r.Fallback.Version == r.Strategy.Version {
		f.add("fallback.version", "leave the fallback out, or name the version before", "%q is the version of the strategy too", r.Fallback.Version)
	}
	if c := r.Fallback.Condition; c != nil {
		f.condition("fallback.condition", *c)
	}
	return f
}

// value checks a coordinate: one value, written out.
func (f *findings) value(path, s string) {
	const noPatterns = "a rule states one value; write a rule for each, or make the instances equal"
	switch {
	case strings.TrimSpace(s) == "":
		f.add(path, "a rule states its service and all of cluster, region, env and version", "is empty")
	case len(s) > maxText:
		f.add(path, "", "has %d bytes, at most %d are allowed", len(s), maxText)
	case !utf8.ValidString(s):
		f.add(path, "save the file as UTF-8", "%q is not UTF-8", s)
	case strings.ContainsAny(s, "*?"):
		f.add(path, noPatterns, "%q: there are no wildcards", s)
	case strings.ContainsAny(s, `[](){}|^$\,!`) || strings.Contains(s, ".+"):
		f.add(path, noPatterns, "%q: there are no patterns and no lists", s)
	case strings.Contains(s, "/") || strings.Contains(s, ".."):
		f.add(path, "", "%q: / and .. are not allowed in a name", s)
	case strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.+:~", r)
	}):
		f.add(path, "", "%q: letters, digits and - _ . + : ~ are allowed", s)
	}
}

// service checks a name: NAME, or SERVER.NAME for one of several ports of a server.
func (f *findings) service(path, s string) {
	before := len(*f)
	if f.value(path, s); len(*f) > before {
		return
	}
	server, port, two := strings.Cut(s, ".")
	if !isWord(server) || two && !isWord(port) {
		f.add(path, "", "%q is not NAME or SERVER.NAME of letters, digits, - and _", s)
	}
}

func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

func (f *findings) weight(path string, w int) {
	if w < 0 || w > maxWeight {
		f.add(path, hintWeight, "%d is not from 0 to %d", w, maxWeight)
	}
}

func (f *findings) condition(path string, c Condition) {
	switch {
	case c.Metric != targetLoad:
		f.add(path, hintCondition, "%q is no metric", c.Metric)
	case c.Operator != ">" && c.Operator != ">=":
		f.add(path, hintCondition, "%q is no operator; > and >= are", c.Operator)
	case c.Number < 1:
		f.add(path, "write 1 or more: no load is far enough under it for what moved to come back", "%v is no percentage from 1 to 100", c.Number)
	case !(c.Number <= 100): // NaN, too
		f.add(path, hintCondition, "%v is no percentage from 1 to 100", c.Number)
	}
}

// check lists what is wrong with a group in itself.
func (g Group) check() findings {
	var f findings
	switch {
	case g.Prefix == "":
		f.add("prefix", "write how the names of its services begin, such as order-", "is empty")
	case !isWord(strings.Replace(g.Prefix, ".", "", 1)) || len(g.Prefix) > maxText:
		f.add("prefix", "write how the names of its services begin, such as order-", "%q is not the beginning of a name", g.Prefix)
	}
	if len(g.Owners) == 0 {
		f.add("owners", "name tokens or logins, as the audit trail shows them", "a group without owners could be changed by nobody")
	}
	for i, owner := range g.Owners {
		path := fmt.Sprintf("owners[%d]", i)
		if owner == "" || len(owner) > maxText || !utf8.ValidString(owner) || strings.ContainsFunc(owner, func(r rune) bool { return r <= ' ' || !unicode.IsPrint(r) || r == '*' }) {
			f.add(path, "name a token or a login, as the audit trail shows it", "%q is no name", owner)
		}
		if slices.Contains(g.Owners[:i], owner) {
			f.add(path, "", "%q is named twice", owner)
		}
	}
	for i, service := range g.Key {
		path := fmt.Sprintf("key[%d]", i)
		f.service(path, service)
		if slices.Contains(g.Key[:i], service) {
			f.add(path, "", "%q is named twice", service)
		}
	}
	return f
}

// check lists what is wrong with a set in itself. Parse lets nothing of it pass; a
// signed set is checked again by whoever will follow it.
func (s Set) check() error {
	var p fault.Problems
	add := func(prefix, file string, found findings) {
		for _, f := range found {
			p = append(p, fault.Problem{File: file, Path: prefix + f.path, Detail: f.detail, Hint: f.hint})
		}
	}
	type key struct {
		service, env, file string
		updated            time.Time
	}
	seen := map[key]bool{}
	for i, r := range s.Rules {
		at := fmt.Sprintf("rules[%d].", i)
		add(at, r.File, r.check())
		k := key{r.Service, r.Selector.Env, r.File, r.Updated.UTC()}
		if seen[k] {
			p = append(p, fault.Problem{File: r.File, Path: at + "service", Detail: r.ID() + " stands twice"})
		}
		seen[k] = true
	}
	for i, g := range s.Groups {
		add(fmt.Sprintf("groups[%d].", i), groupsFile, g.check())
		if slices.ContainsFunc(s.Groups[:i], func(other Group) bool { return other.Prefix == g.Prefix }) {
			p.Addf(fmt.Sprintf("groups[%d].prefix", i), "there is a group %s already", g.Prefix)
		}
	}
	for i, g := range s.Grays {
		at, rule := fmt.Sprintf("grays[%d].", i), s.counts(g.Service, g.Env)
		switch {
		case rule < 0:
			p.Addf(at+"service", "no rule of %s counts in %s", g.Service, g.Env)
		case slices.ContainsFunc(s.Grays[:i], func(other Gray) bool { return compareGrays(other, g) == 0 }):
			p.Addf(at+"service", "a gray of %s in %s stands twice", g.Service, g.Env)
		default:
			add(at, "", g.check(s.Rules[rule]))
		}
	}
	return p.Err("bad_rules", "the rules of the release cannot be followed")
}
