package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// The safety rules, in the order in which they are shown.
const (
	UsableRegion = "usable_region" // an app keeps regions that take new sessions
	DanglingName = "dangling_name" // nobody is sent to an alias of a name that does not exist
	ProbeFresh   = "probe_fresh"   // who takes the users over is seen up, now
	FlapWait     = "flap_wait"     // a region rests between two emergencies
	Rate         = "rate"          // a person does a few emergencies, then a second one goes on
	Capacity     = "capacity"      // who takes the users over has room; said, and stops nobody
)

// overridable are the rules that somebody with the role for it may go past by name.
func overridable() []string { return []string{ProbeFresh, FlapWait, Rate} }

// RuleResult is one safety rule and how it stands to a change.
type RuleResult struct {
	Rule       string `json:"rule" example:"probe_fresh"`
	OK         bool   `json:"ok"`
	Detail     string `json:"detail"`
	Satisfy    string `json:"satisfy,omitempty" doc:"what would satisfy it"`
	Overridden bool   `json:"overridden,omitempty"`
	Never      bool   `json:"never,omitempty" doc:"nobody can go past this one"`
	Warns      bool   `json:"warns,omitempty" doc:"read this; it stops nobody"`

	Said fault.Said `json:"-"` // Detail and Satisfy
}

// Texts are the detail and what would satisfy the rule, for other languages.
func (r RuleResult) Texts() (detail, satisfy fault.Text) { return r.Said.Texts(r.Detail, r.Satisfy) }

// says gives the rule its texts: how it stands, and what would satisfy it.
func (r *RuleResult) says(detail, satisfy fault.Text) {
	r.Detail, r.Satisfy, r.Said = detail.String(), satisfy.String(), fault.Said{Detail: detail, Hint: satisfy}
}

// EmergencyPreview is what an emergency would do, before anybody does it.
type EmergencyPreview struct {
	Outcome
	Confirm string       `json:"confirm,omitempty" doc:"of a dry run: what must be typed"`
	Rules   []RuleResult `json:"rules,omitempty" doc:"of a dry run: the safety rules and how they stand"`
}

// JudgeEmergency says how the safety rules stand to the emergency and what must be
// typed for it. It compiles nothing: whom the emergency would move PreviewEmergency
// says, for which 10,000 requests are answered.
func (a *Actions) JudgeEmergency(ctx context.Context, who Actor, e Emergency) (EmergencyPreview, error) {
	p, _, err := a.judged(ctx, who, e)
	return p, err
}

// PreviewEmergency says what the emergency would do and whether rules stand in its
// way. It waits for nobody's turn.
func (a *Actions) PreviewEmergency(ctx context.Context, who Actor, e Emergency) (EmergencyPreview, error) {
	p, d, err := a.judged(ctx, who, e)
	if err != nil || d == nil {
		return p, err
	}
	d.change.Cause = release.Cause{Action: d.action, By: who.Name, Reason: "preview"}
	if p.Outcome, err = a.preview(ctx, *d); err != nil {
		return p, err
	}
	p.Warnings = append(p.Warnings, warnings(p.Rules)...)
	return p, nil
}

// judged is the emergency with its rules, and the draft that it would be; nil where a
// rule that nobody goes past leaves none.
func (a *Actions) judged(ctx context.Context, who Actor, e Emergency) (EmergencyPreview, *draft, error) {
	p := EmergencyPreview{Confirm: a.Confirmation(e)}
	if err := e.check(); err != nil {
		return p, nil, err
	}
	h, err := a.head(ctx)
	if err != nil {
		return p, nil, err
	}
	if h.from == nil {
		return p, nil, noRelease()
	}
	ops, err := e.on(h.from)
	if code := fault.CodeOf(err); code == "last_region" || code == "region_empty" {
		p.Rules = []RuleResult{emptied(err)}
		return p, nil, nil
	}
	if err != nil {
		return p, nil, err
	}
	if p.Rules, err = a.rules(ctx, who, e, change{h.from, ops}); err != nil {
		return p, nil, err
	}
	d := e.draft(ops)
	d.head, d.emergency = h, true
	return p, &d, nil
}

// emptied is the rule that no lane and nobody goes past, as its refusal says it.
func emptied(err error) RuleResult {
	r := RuleResult{Rule: UsableRegion, Never: true, Detail: err.Error()}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		r.says(e.Texts())
	}
	return r
}

// change is a release and the operational state that would follow it.
type change struct {
	from *release.Manifest
	ops  release.Operational
}

func (c change) before() []release.App {
	return release.Apply(&c.from.Document, c.from.Operational)
}

func (c change) after() []release.App { return release.Apply(&c.from.Document, c.ops) }

// judge is what the rules look at.
type judge struct {
	safety  SafetySettings
	health  Health
	history []past
	who     Actor
	e       Emergency
	change
	now time.Time
}

// rules judges the emergency. Aborting a gray and freezing have none: they always win.
func (a *Actions) rules(ctx context.Context, who Actor, e Emergency, c change) ([]RuleResult, error) {
	if !moves(e.Action) {
		return []RuleResult{}, nil
	}
	s, err := a.settings(ctx)
	if err != nil {
		return nil, err
	}
	j := &judge{safety: s.Safety, who: who, e: e, change: c, now: a.now()}
	if j.health, err = a.health(ctx, s.Safety); err != nil {
		return nil, err
	}
	if j.history, err = a.history(ctx, s.Safety); err != nil {
		return nil, err
	}
	return []RuleResult{j.usableRegion(), j.danglingName(), j.probeFresh(), j.flapWait(), j.rate(), a.capacity(ctx, j)}, nil
}

// reliveRules are those of making an earlier document live again: it is chosen by
// its number and was judged when it was published.
func (a *Actions) reliveRules(ctx context.Context, who Actor) ([]RuleResult, error) {
	s, err := a.settings(ctx)
	if err != nil {
		return nil, err
	}
	j := &judge{safety: s.Safety, who: who, now: a.now()}
	j.history, err = a.history(ctx, s.Safety)
	return []RuleResult{j.rate()}, err
}

// moves says whether the action sends people elsewhere, so that rules hold for it.
func moves(action string) bool {
	return slices.Contains([]string{SwapEndpoints, SetRegionState, SetClusterState, relive}, action)
}

// past is an emergency that was done.
type past struct {
	at      time.Time
	by      string
	action  string
	targets []Target
}

// details stand in the audit row of an emergency.
type details struct {
	Targets    []Target `json:"targets,omitempty"`
	Of         uint64   `json:"of,omitempty"`         // relive: the release whose document serves again
	Overridden []string `json:"overridden,omitempty"` // the rules that were gone past
}

// history is the emergencies that rules still remember, newest first, by whichever
// control node.
func (a *Actions) history(ctx context.Context, s SafetySettings, least ...time.Duration) ([]past, error) {
	const enough = 1000 // of one window; more than people do
	const clockSkew = time.Minute
	now, window := a.now(), max(s.FlapWindow, s.FlapWaitAfterTwo, s.FlapWait, s.EmergencyWindow)
	for _, d := range least {
		window = max(window, release.Duration(d))
	}
	rows, err := a.Ledger.Audit(ctx, ledger.AuditFilter{Stream: release.StreamEdge, Since: now.Add(-time.Duration(window)), Limit: enough})
	if err != nil {
		return nil, fmt.Errorf("read what was done lately: %w", err)
	}
	var list []past
	for _, r := range rows {
		// A clock that was set back leaves rows of the future: nobody waits for those.
		if !moves(r.Action) || r.At.Sub(now) > clockSkew {
			continue
		}
		p := past{at: r.At, by: r.Actor, action: r.Action}
		var said details
		if json.Unmarshal(r.Details, &said) == nil { // else it is a row of an earlier version
			p.targets = said.Targets
		}
		list = append(list, p)
	}
	return list, nil
}

// settle lets the change through, or refuses it with every rule that stands in its
// way. What was overridden is marked in the rules.
func (a *Actions) settle(ctx context.Context, w Write, e Emergency, rules []RuleResult) (details, []fault.Problem, error) {
	said := details{Targets: e.Targets}
	for _, name := range w.Override {
		if !slices.Contains(overridable(), name) {
			return said, nil, fault.New(fault.Invalid, "bad_override", "%q is no rule that can be overridden", name).
				Hintf("rules that can be: %s", strings.Join(overridable(), ", "))
		}
	}
	if len(w.Override) > 0 {
		if err := w.Actor.May("override-rule"); err != nil {
			return said, nil, err
		}
	}
	var broken []RuleResult
	for i := range rules {
		r := &rules[i]
		switch {
		case r.OK:
		case !r.Never && slices.Contains(w.Override, r.Rule):
			r.Overridden = true
			said.Overridden = append(said.Overridden, r.Rule)
		default:
			broken = append(broken, *r)
		}
	}
	if len(broken) > 0 {
		return said, nil, refusal(broken)
	}
	if len(said.Overridden) > 0 {
		a.Log.WarnContext(ctx, "safety rules are overridden", "rules", said.Overridden, "by", w.Actor.Name, "action", e.Action, "target", e.target(), "reason", w.Reason)
	}
	return said, warnings(rules), nil
}

// refusal names every rule in the way and what would satisfy each.
func refusal(broken []RuleResult) error {
	err := fault.New(fault.Conflict, "safety_rule", "rule %s: %s", broken[0].Rule, broken[0].Said.Detail)
	var names []string
	for _, r := range broken {
		err.Problems = append(err.Problems, fault.ProblemOf(r.Rule, r.Said.Detail, r.Said.Hint))
		names = append(names, `"`+r.Rule+`"`)
	}
	if slices.ContainsFunc(broken, func(r RuleResult) bool { return r.Never }) {
		return err.Hintf("%s", broken[0].Said.Hint)
	}
	return err.Hintf("%s; override: [%s] goes past it and needs the role %s", broken[0].Said.Hint, strings.Join(names, ","), BreakGlass)
}

// warnings are the rules that say something and stop nobody, or were gone past.
func warnings(rules []RuleResult) (list []fault.Problem) {
	for _, r := range rules {
		if r.Warns || r.Overridden {
			detail := r.Said.Detail
			if r.Overridden {
				detail = fault.Textf("overridden: %s", detail)
			}
			list = append(list, fault.ProblemOf(r.Rule, detail, r.Said.Hint))
		}
	}
	return list
}
