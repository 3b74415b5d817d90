package actions

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
)

// InnerStep is the step that shall be taken.
type InnerStep struct {
	Expect  int    `json:"expect" minimum:"1" maximum:"100" doc:"the share that the author saw"`
	Version string `json:"version,omitempty" maxLength:"128" doc:"the version that the author saw; a gray of another one, started since, is not moved"`
	To      int    `json:"to,omitempty" minimum:"0" maximum:"100" doc:"one of the steps, also one below; default the next one"`
}

// StepInnerGray takes the next step, or the one that is named.
func (a *Actions) StepInnerGray(ctx context.Context, w Write, to InnerRef, in InnerStep) (RulesApplied, error) {
	out, err := remembered(ctx, a, w, asked{steppedGray, []any{to, in}}, func(w Write) (RulesApplied, error) {
		return a.publishGray(ctx, w, rulesChange{steppedGray, to.String()}, func(h rulesHead) (proposal, error) {
			g, next, err := in.of(h.set(), to)
			if err != nil {
				return proposal{}, err
			}
			if next == g.Share { // nothing differs, and the audit trail has no row of it
				return a.proposalOf(h, h.set()), nil
			}
			g.Share = next
			p, err := a.withGray(h, w.Actor, g)
			if err != nil {
				return p, err
			}
			return p, a.mayChange(w.Actor, &p)
		})
	})
	a.noteStranger(ctx, w.Actor, err)
	return out, err
}

// of is the gray that shall take the step, and the share that it then has. It is an
// error unless the gray is the one that the author saw.
func (in InnerStep) of(set rules.Set, to InnerRef) (g rules.Gray, next int, err error) {
	g, runs := set.Gray(to.Service, to.Env)
	const again = "look at it again: dispatchctl gray inner show %s"
	switch next = cmp.Or(in.To, g.Next()); {
	case !runs:
		return g, 0, noInnerGray(to)
	case in.Version != "" && in.Version != g.Version:
		return g, 0, fault.New(fault.Conflict, "changed", "%s grows in %s now, not %s: by %s, %s", g.Version, to, in.Version, g.By, stamp(g.Since)).Hintf(again, to)
	case g.Share != in.Expect:
		return g, 0, fault.New(fault.Conflict, "changed", "%s takes %d %% now, not %d: by %s, %s", g.Version, g.Share, in.Expect, g.By, stamp(g.Since)).Hintf(again, to)
	case next == 0:
		return g, 0, fault.New(fault.Conflict, "last_step", "%s took its last step, %d %%", g.Version, g.Share).
			Hintf("put it into Git as the main version of the rule: dispatchctl gray inner finish %s prints the file", to)
	}
	return g, next, nil
}

// AbortInnerGray takes everything back from the new version at once: callers follow
// the rule as Git has it. Whoever owns the rule, and whether registries answer, does
// not count; what it breaks is a warning. Aborting twice is aborting once.
func (a *Actions) AbortInnerGray(ctx context.Context, w Write, to InnerRef) (RulesApplied, error) {
	if err := w.confirmed(a.ConfirmInnerGray(to.Service)); err != nil {
		return RulesApplied{}, err
	}
	return remembered(ctx, a, w, asked{abortedGray, to}, func(w Write) (RulesApplied, error) {
		return a.publishGray(ctx, w, rulesChange{abortedGray, to.String()}, func(h rulesHead) (proposal, error) {
			if len(h.set().For(to.Service, to.Env)) == 0 {
				return proposal{}, noInnerGray(to)
			}
			p := a.proposalOf(h, h.set().WithoutGray(to.Service, to.Env))
			if g, runs := h.set().Gray(to.Service, to.Env); runs {
				p.Warnings = a.behind(h, g)
				if h.set().Direct {
					p.Warnings = append(p.Warnings, underSwitch())
				}
			}
			return p, nil
		})
	})
}

// underSwitch is the warning of every move of a gray while callers follow no rule.
func underSwitch() fault.Problem {
	return fault.Problem{Detail: "the kill switch is thrown, so shares do not count: callers follow this when it is taken back",
		Hint: "dispatchctl rules switch rules takes it back"}
}

// behind is a warning where nobody stands behind a gray: an abort would leave callers
// with a rule whose versions are gone.
func (a *Actions) behind(h rulesHead, g rules.Gray) (warnings []fault.Problem) {
	v, err := a.view()
	if err != nil {
		return warnings // a way back asks nobody
	}
	set := h.set().WithoutGray(g.Service, g.Env)
	set.Direct = false
	m := *h.from // a gray has its release
	m.Rules = &set
	for _, cell := range (rulesHead{h.number, &m}).cells(v.Region, g.Service, instancesOf(v, g.Service)) {
		if cell.Env != g.Env || cell.Problem == "" {
			continue
		}
		name := InnerRef{g.Service, g.Env}.String()
		warnings = append(warnings, fault.ProblemOf("", fault.Textf("nobody has %s: without the gray every call of %s fails", strings.Join(versionsOf(*cell.Rule), " or "), name),
			fault.Textf("bring it back first, or step down: dispatchctl gray inner step %s --to %d; where it is aborted already, start it again", name, g.Steps[0])))
	}
	return warnings
}

// versionsOf are those that a rule gives calls.
func versionsOf(r rules.Rule) (names []string) {
	if r.Strategy.Weight > 0 {
		names = append(names, r.Strategy.Version)
	}
	if f := r.Fallback; f != nil && (f.Weight > 0 || f.Condition != nil) {
		names = append(names, f.Version)
	}
	return names
}

// Growing is a version that grows, as who throws the kill switch has to see it: then it
// takes what its instances are of all.
type Growing struct {
	InnerRef
	Version string
	Share   int // of 100
	Its, Of int // instances that take calls; Of is 0 while no registry says so
}

// Growing are the versions that grow by a set of rules.
func (a *Actions) Growing(set rules.Set) (all []Growing) {
	v, _ := a.view() // an emergency asks nobody: without one the numbers are missing
	for _, g := range set.Grays {
		one := Growing{InnerRef: InnerRef{g.Service, g.Env}, Version: g.Version, Share: g.Share}
		if v != nil {
			cluster := set.For(g.Service, g.Env)[0].Selector.Cluster // a set with a gray has its rule
			for _, in := range instancesOf(v, g.Service) {
				if in.Env != g.Env || in.Cluster != cluster || in.Share() == 0 || in.Scale != nil && in.Scale.Thousandths == 0 {
					continue
				}
				if one.Of++; in.Version == g.Version {
					one.Its++
				}
			}
		}
		all = append(all, one)
	}
	return all
}

// grown are the warnings of who throws the kill switch while versions grow.
func (a *Actions) grown(set rules.Set) (warnings []fault.Problem) {
	for _, g := range a.Growing(set) {
		text := fmt.Sprintf("%s grows by %s and takes %d %%; while the switch is thrown it takes what its instances are of all", g.Version, g.InnerRef, g.Share)
		if g.Of > 0 {
			text += fmt.Sprintf(", %d of %d", g.Its, g.Of)
		}
		warnings = append(warnings, fault.Problem{Detail: text, Hint: "an abort counts when the switch is taken back; dispatchctl services isolate takes instances out now"})
	}
	return warnings
}
