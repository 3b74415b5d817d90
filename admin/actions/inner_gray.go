package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// The actions on grays of internal versions, as they stand in causes and in the audit trail.
const (
	startedGray  = "rules_gray_start"
	steppedGray  = "rules_gray_step"
	abortedGray  = "rules_gray_abort"
	approvedGray = "rules_gray_approve"
)

// InnerRef is the service and the environment whose rule has a gray.
type InnerRef struct{ Service, Env string }

// String is SERVICE/ENV.
func (r InnerRef) String() string { return r.Service + "/" + r.Env }

// InnerGray is a gray of an internal version as it stands now.
type InnerGray struct {
	Region string `json:"region"`
	Number uint64 `json:"number" doc:"the newest release of rules"`
	rules.Gray
	From     string          `json:"from" doc:"the version that the rule in Git has, and that has the rest"`
	Step     int             `json:"step" doc:"how many of the steps were taken"`
	Next     int             `json:"next,omitempty" doc:"the share of the next step; 0: none is left"`
	Versions []MapVersion    `json:"versions" doc:"what callers make of it with the instances that there are now"`
	Problem  string          `json:"problem,omitempty" doc:"why calls fail now"`
	Direct   bool            `json:"direct,omitempty" doc:"the kill switch is thrown: shares do not count"`
	Back     []fault.Problem `json:"back,omitempty" doc:"what taking everything back would break now"`
	Confirm  string          `json:"confirm" doc:"what must be typed to abort"`
	File     string          `json:"file,omitempty" doc:"of the rule in Git"`
	Own      string          `json:"own_fallback,omitempty" doc:"the rule's own fallback, which Finish leaves out"`
	Finish   string          `json:"finish,omitempty" doc:"once it has everything: the rule that ends the gray, for Git"`
	Measure  string          `json:"measure" doc:"asks Prometheus what part of all calls the callers sent to the new version in the last minute"`
}

// InnerGrayInput is how a new version shall grow.
type InnerGrayInput struct {
	Version         string `json:"version" minLength:"1" maxLength:"128" doc:"the new version; the rule's main version has the rest"`
	Steps           []int  `json:"steps,omitempty" maxItems:"20" example:"[5,20,50,100]" doc:"percents, each above the one before; default 5, 20, 50, 100"`
	ByKey           bool   `json:"by_key,omitempty" doc:"only calls with a key take part, each by its key; without it every call does"`
	WithoutFallback bool   `json:"without_fallback,omitempty" doc:"the rule's own fallback may be left out while the gray runs"`
	Base            uint64 `json:"base,omitempty" doc:"the release of rules that the author saw; 0: whatever is newest"`
}

// InnerStart says whose version shall grow, and how.
type InnerStart struct {
	InnerRef
	InnerGrayInput
}

// InnerGrays are all grays that run, by service and environment.
func (a *Actions) InnerGrays(ctx context.Context, _ Actor) ([]InnerGray, error) {
	h, err := a.rulesHead(ctx)
	if err != nil {
		return nil, err
	}
	all := []InnerGray{}
	for _, g := range h.set().Grays {
		all = append(all, a.innerGray(h, g))
	}
	return all, nil
}

// InnerGray is the gray of one rule; 404 no_gray where none runs.
func (a *Actions) InnerGray(ctx context.Context, _ Actor, to InnerRef) (InnerGray, error) {
	h, err := a.rulesHead(ctx)
	if err != nil {
		return InnerGray{}, err
	}
	g, runs := h.set().Gray(to.Service, to.Env)
	if !runs {
		return InnerGray{}, noInnerGray(to)
	}
	return a.innerGray(h, g), nil
}

func noInnerGray(to InnerRef) error {
	return fault.New(fault.NotFound, "no_gray", "no version of %s grows in %s: callers follow the rule as Git has it", to.Service, to.Env).
		Hintf("dispatchctl gray inner lists those that run; dispatchctl gray inner start %s VERSION begins one", to)
}

// innerGray is what is known of a gray that runs.
func (a *Actions) innerGray(h rulesHead, g rules.Gray) InnerGray {
	set := h.set()
	rule := set.For(g.Service, g.Env)[0] // a set with a gray has its rule
	out := InnerGray{Region: a.Region, Number: h.number, Gray: g, From: rule.Strategy.Version, Step: g.Step(), Next: g.Next(),
		Versions: []MapVersion{}, Direct: set.Direct, Confirm: a.ConfirmInnerGray(g.Service), Measure: measured(g.Service)}
	if v, err := a.view(); err == nil {
		for _, cell := range h.cells(v.Region, g.Service, instancesOf(v, g.Service)) {
			if cell.Env == g.Env {
				out.Versions, out.Problem = cell.Versions, cell.Problem
			}
		}
	}
	out.Back, out.File = a.behind(h, g), rule.File
	if own := rule.Fallback; own != nil && own.Version != g.Version {
		out.Own = own.Version
	}
	if g.Next() == 0 {
		rule.Updated = a.second()
		rule.Strategy, rule.Fallback = rules.Strategy{Version: g.Version, Weight: 100}, &rules.Fallback{Version: rule.Strategy.Version}
		out.Finish = rule.Text()
	}
	return out
}

// second is the present one: rules have no parts of seconds.
func (a *Actions) second() time.Time { return a.now().UTC().Truncate(time.Second) }

// measured asks for the part of the last minute's calls that went to the new version.
func measured(service string) string {
	of := "dispatch_discovery_picks_total{service=" + strconv.Quote(service)
	return "sum(rate(" + of + `,reason="gray"}[1m])) / sum(rate(` + of + "}[1m]))"
}

// ConfirmInnerGray is what must be typed to abort a gray of the service.
func (a *Actions) ConfirmInnerGray(service string) string { return a.typed(service) }

// StartInnerGray lets a new version take its first step. For a key service a second
// person signs that before.
func (a *Actions) StartInnerGray(ctx context.Context, w Write, in InnerStart) (RulesApplied, error) {
	out, err := remembered(ctx, a, w, asked{startedGray, in}, func(w Write) (RulesApplied, error) {
		return a.publishGray(ctx, w, rulesChange{startedGray, in.InnerRef.String()}, func(h rulesHead) (proposal, error) {
			p, err := a.proposeGray(ctx, h, w.Actor, in)
			if err == nil {
				err = a.mayChange(w.Actor, &p)
			}
			if err == nil {
				err = a.signedByAnother(ctx, w.Actor, &p, p.approveGray(in.InnerRef))
			}
			return p, err
		})
	})
	a.noteStranger(ctx, w.Actor, err)
	return out, err
}

// noteStranger writes down who wanted to move a gray of somebody else's group.
func (a *Actions) noteStranger(ctx context.Context, actor Actor, err error) {
	if fault.CodeOf(err) == "not_your_group" {
		a.RulesRefused(ctx, actor, err)
	}
}

// approveGray is the command by which a second person signs the start that is proposed.
func (p *proposal) approveGray(to InnerRef) string {
	g, _ := p.set.Gray(to.Service, to.Env)
	var steps []string
	for _, step := range g.Steps {
		steps = append(steps, strconv.Itoa(step))
	}
	text := "dispatchctl gray inner approve " + to.String() + " " + g.Version + " --steps " + strings.Join(steps, ",")
	if g.ByKey {
		text += " --by-key"
	}
	if g.WithoutFallback {
		text += " --without-fallback"
	}
	return text + " --digest " + p.Digest
}

// proposeGray is what starting a gray would change, with the digest that a second
// person signs: of what was asked and of the release it is on.
func (a *Actions) proposeGray(ctx context.Context, h rulesHead, actor Actor, in InnerStart) (proposal, error) {
	to := in.InnerRef
	if in.Base != 0 && in.Base != h.number {
		return proposal{}, staleRules(in.Base, h.number)
	}
	if g, runs := h.set().Gray(to.Service, to.Env); runs {
		return proposal{}, fault.New(fault.Conflict, "gray_running", "%s of %s takes %d %% already, since %s by %s", g.Version, to, g.Share, stamp(g.Since), g.By).
			Hintf("go on with it (dispatchctl gray inner step %[1]s), or end it first (dispatchctl gray inner abort %[1]s)", to)
	}
	if len(in.Steps) == 0 {
		in.Steps = rules.DefaultSteps()
	}
	g := rules.Gray{Service: to.Service, Env: to.Env, Version: in.Version, Share: in.Steps[0], Steps: in.Steps, ByKey: in.ByKey, WithoutFallback: in.WithoutFallback}
	text, err := json.Marshal([]any{"rules-gray-1", a.Region, h.number, g})
	if err != nil {
		return proposal{}, fmt.Errorf("digest gray of %s: %w", to, err)
	}
	p, err := a.withGray(h, actor, g)
	if err != nil {
		return p, err
	}
	p.digest = release.DigestOf(text)
	p.Digest = p.digest.String()
	return p, a.needsAnother(ctx, &p)
}

// withGray proposes the newest rules with a gray as it shall be now.
func (a *Actions) withGray(h rulesHead, actor Actor, g rules.Gray) (proposal, error) {
	g.Since, g.By = a.second(), actor.Name
	set, err := h.set().WithGray(g)
	if err != nil {
		return proposal{}, err
	}
	was, _ := h.set().Gray(g.Service, g.Env)
	p := a.proposalOf(h, set)
	if set.Direct {
		p.Warnings = append(p.Warnings, underSwitch())
	}
	if g.Share <= was.Share { // on the way back nobody asks who is there
		return p, nil
	}
	v, err := a.view()
	if err != nil {
		return p, err
	}
	found := rules.LintGray(set, g, a.Region, v)
	if err := withAway(found.Err("invalid_rules", fmt.Sprintf("%s cannot take calls; nothing was changed", g.Version)), v); err != nil {
		return p, err
	}
	return p, nil
}

// proposalOf is a set that shall follow the newest one.
func (a *Actions) proposalOf(h rulesHead, set rules.Set) proposal {
	return proposal{head: h, set: set, RulesCheck: RulesCheck{Region: a.Region, Base: h.number, Changes: orNone(rules.Diff(h.set(), set))}}
}

// publishGray publishes what propose makes of the newest rules, and tries again when
// others came first: what a gray takes does not depend on them.
func (a *Actions) publishGray(ctx context.Context, w Write, by rulesChange, propose func(rulesHead) (proposal, error)) (out RulesApplied, err error) {
	for range emergencyTries {
		var h rulesHead
		if h, err = a.rulesHead(ctx); err != nil {
			return out, err
		}
		var p proposal
		if p, err = propose(h); err != nil {
			return out, err
		}
		if out, err = a.commitRules(ctx, w, by, p); fault.CodeOf(err) != "stale_base" {
			return out, err
		}
	}
	return out, err
}

// ApproveInnerGray signs the start of a gray, for StartInnerGray by somebody else.
func (a *Actions) ApproveInnerGray(ctx context.Context, w Write, in InnerStart, digest string) (RulesCheck, error) {
	return remembered(ctx, a, w, asked{approvedGray, []any{in, digest}}, func(w Write) (RulesCheck, error) {
		h, err := a.rulesHead(ctx)
		if err != nil {
			return RulesCheck{}, err
		}
		p, err := a.proposeGray(ctx, h, w.Actor, in)
		if err != nil {
			return RulesCheck{}, err
		}
		return a.signRules(ctx, w, p, signature{approvedGray, digest})
	})
}
