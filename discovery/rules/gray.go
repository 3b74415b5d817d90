package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// Gray is how much of its rule a new version takes at the moment. It stands beside
// the rules of a release, as a swap stands beside a document: the rule in Git stays
// as it is until the new version has everything.
type Gray struct {
	Service string `json:"service"`
	Env     string `json:"env"`
	Version string `json:"version"` // the new one
	Share   int    `json:"share"`   // percent, one of Steps
	Steps   []int  `json:"steps"`   // percent, each above the one before
	// ByKey lets only calls with a key take part, each by the place of its key. Without
	// it every call does: by its key if it has one, else by chance.
	ByKey bool `json:"by_key,omitempty"`
	// WithoutFallback leaves a fallback that serves out of the rule while the gray runs.
	WithoutFallback bool      `json:"without_fallback,omitempty"`
	Since           time.Time `json:"since"` // when the step was taken
	By              string    `json:"by"`    // who took it
}

// DefaultSteps are those of a gray whose author names none.
func DefaultSteps() []int { return []int{5, 20, 50, 100} }

// Bounds of a gray.
const (
	maxSteps = 20
	allOf    = 100 // percent
)

// Step is how many of the steps were taken.
func (g Gray) Step() int { return slices.Index(g.Steps, g.Share) + 1 }

// Next is the share of the next step, 0 after the last.
func (g Gray) Next() int {
	if at := g.Step(); at < len(g.Steps) {
		return g.Steps[at]
	}
	return 0
}

// String is the gray in one line, for people.
func (g Gray) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s takes %d %% of", g.Version, g.Share)
	for i, step := range g.Steps {
		if i > 0 {
			b.WriteString(" →")
		}
		fmt.Fprintf(&b, " %d", step)
	}
	if g.ByKey {
		b.WriteString(", by key")
	}
	if g.WithoutFallback {
		b.WriteString(", without the fallback")
	}
	fmt.Fprintf(&b, ", since %s by %s", g.Since.UTC().Format(time.RFC3339Nano), g.By)
	return b.String()
}

// Effective is the rule that callers compile while a gray of it runs: the new version
// stands where the next rule will have it, and the old one has what is left. So a
// larger share only adds keys, the next rule moves none back, and each version stands
// by for the other. The rule's own fallback is in neither.
func Effective(r Rule, g Gray) Rule {
	r.Gray = &g
	r.Strategy, r.Fallback = Strategy{g.Version, g.Share}, &Fallback{Version: r.Strategy.Version, Weight: allOf - g.Share}
	return r
}

// Effective is the set with its grays put into the rules that count, as callers
// follow it.
func (s Set) Effective() Set {
	if len(s.Grays) == 0 {
		return s
	}
	rules := slices.Clone(s.Rules)
	for _, g := range s.Grays {
		if at := s.counts(g.Service, g.Env); at >= 0 {
			rules[at] = Effective(rules[at], g)
		}
	}
	s.Rules, s.Grays = rules, nil
	return s
}

// counts is the index of the rule that counts, -1 if there is none.
func (s Set) counts(service, env string) int {
	best := -1
	for i, r := range s.Rules {
		if r.Service == service && r.Selector.Env == env && (best < 0 || compareRules(r, s.Rules[best]) < 0) {
			best = i
		}
	}
	return best
}

// Gray is the gray that runs for a service in an environment.
func (s Set) Gray(service, env string) (g Gray, runs bool) {
	at := slices.IndexFunc(s.Grays, func(g Gray) bool { return g.Service == service && g.Env == env })
	if at < 0 {
		return Gray{}, false
	}
	return s.Grays[at], true
}

// WithoutGray is the set as it is when the gray of a service and environment is over.
func (s Set) WithoutGray(service, env string) Set {
	s.Grays = slices.DeleteFunc(slices.Clone(s.Grays), func(g Gray) bool { return g.Service == service && g.Env == env })
	return s
}

// WithGray is the set with this gray in place of any other of its service and
// environment. What does not fit its rule is 422 bad_gray.
func (s Set) WithGray(g Gray) (Set, error) {
	s = s.WithoutGray(g.Service, g.Env)
	at := s.counts(g.Service, g.Env)
	if at < 0 {
		return s, fault.New(fault.NotFound, "no_rule", "no rule of %s counts in %s, and a gray is a part of one", g.Service, g.Env).
			WithHint("write the rule first (dispatchctl rules apply), or correct the name: dispatchctl rules show lists them")
	}
	var p fault.Problems
	for _, f := range g.check(s.Rules[at]) {
		p = append(p, fault.Problem{Path: f.path, Detail: f.detail, Hint: f.hint})
	}
	if err := p.Err("bad_gray", fmt.Sprintf("%s cannot grow by the rule %s; nothing was changed", g.Version, s.Rules[at].ID())); err != nil {
		return s, err
	}
	s.Grays = append(s.Grays, g)
	return s, nil
}

// Carry takes the running grays of the set before along. One whose rule keeps its
// main version goes on; one whose version is the main version now is over, as was
// meant. Any other is left out and named by the error, 409 gray_running.
func (s Set) Carry(before Set) (Set, error) {
	s.Grays = nil
	var p fault.Problems
	for _, g := range before.Grays {
		at, was := s.counts(g.Service, g.Env), before.counts(g.Service, g.Env)
		switch name := g.Service + "/" + g.Env; {
		case at < 0 || was < 0:
			p.Addf(name, "%s takes %d %%, and its rule would go", g.Version, g.Share)
		case s.Rules[at].Strategy.Version == g.Version: // finished by Git
		case s.Rules[at].Strategy.Version != before.Rules[was].Strategy.Version:
			p.Addf(name, "%s takes %d %% of what %s had, and the rule's main version would be %s", g.Version, g.Share,
				before.Rules[was].Strategy.Version, s.Rules[at].Strategy.Version)
		default:
			if found := g.check(s.Rules[at]); len(found) > 0 {
				p.Addf(name, "%s takes %d %%, and could not by the rule as it would be: %s %s", g.Version, g.Share, found[0].path, found[0].detail)
				continue
			}
			s.Grays = append(s.Grays, g)
		}
	}
	if len(p) == 0 {
		return s, nil
	}
	e := fault.New(fault.Conflict, "gray_running", "a gray runs by %d of the rules that would change; nothing was changed", len(p)).
		WithHint("end it first: dispatchctl gray inner abort " + p[0].Path + "; or make its version the main version of the rule")
	e.Problems = p
	return s, e
}

// check lists what is wrong with a gray by its rule.
func (g Gray) check(r Rule) findings {
	var f findings
	f.value("version", g.Version)
	const steps = "write percents that rise up to 100, such as 5,20,50,100"
	if len(g.Steps) == 0 || len(g.Steps) > maxSteps {
		f.add("steps", steps, "are %d, from 1 to %d are allowed", len(g.Steps), maxSteps)
	}
	last := 0
	for i, step := range g.Steps {
		if step <= last || step > allOf {
			f.add("steps["+strconv.Itoa(i)+"]", steps, "%d is not above %d and at most %d", step, last, allOf)
		}
		last = step
	}
	if len(f) == 0 && last != allOf {
		f.add("steps", steps, "end at %d, and a gray ends with everything or with nothing", last)
	}
	if len(f) == 0 && !slices.Contains(g.Steps, g.Share) {
		f.add("share", "the shares of a gray are its steps", "%d %% is none of the steps %v", g.Share, g.Steps)
	}
	switch own := r.Fallback; {
	case g.Version == r.Strategy.Version:
		f.add("version", "name the new version", "%s is the main version of the rule already", g.Version)
	case r.Strategy.Weight == 0:
		f.add("version", "let the rule give its main version a weight first", "the rule gives its main version %s no traffic, and a gray would", r.Strategy.Version)
	case own == nil:
	case own.Version == g.Version && own.Weight > 0:
		f.add("version", "let the rule give it weight 0 first: an abort shall leave it nothing", "the rule gives %s %d already, as its fallback", g.Version, own.Weight)
	case (own.Weight > 0 || own.Condition != nil) && !g.WithoutFallback:
		f.add("without_fallback", "say so if "+own.Version+" may be left out meanwhile (--without-fallback); an abort brings it back",
			"the rule has the fallback %s, and there is room for two versions", own.Version)
	}
	return f
}

// LintGray compares a gray with the directory: somebody must have its version in the
// coordinates of its rule.
func LintGray(s Set, g Gray, region string, d Directory) fault.Problems {
	l := newLinter(s, region, d)
	if at := s.counts(g.Service, g.Env); at >= 0 {
		l.gray(g, s.Rules[at])
	}
	return l.problems
}

func (l *linter) gray(g Gray, r Rule) { l.version("gray.version", r, g.Version, true) }

func compareGrays(a, b Gray) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Env, b.Env))
}
