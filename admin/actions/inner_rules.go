package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// RulesView is the set that callers of the region follow.
type RulesView struct {
	Region  string    `json:"region"`
	Number  uint64    `json:"number" doc:"0: nothing was published yet"`
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Set     rules.Set `json:"set"`
}

// RulesInput is a folder of rules.
type RulesInput struct {
	Files []rules.File `json:"files" maxItems:"5000" doc:"all rules of the region: what is absent is gone"`
	Base  uint64       `json:"base,omitempty" doc:"the release that the author saw; 0: whatever is newest"`
	// Delete says that rules may go: a folder that lost files by accident takes none away.
	Delete bool `json:"delete,omitempty" doc:"rules that the files lack are taken away; without it that is an error"`
}

// RulesCheck is what publishing would do.
type RulesCheck struct {
	Region   string             `json:"region"`
	Base     uint64             `json:"base" doc:"the newest release, which the changes are against"`
	Changes  []rules.Difference `json:"changes"`
	Digest   string             `json:"digest" doc:"of set and base: what a second person signs"`
	Needs    []string           `json:"needs,omitempty" doc:"key services among the changes, which a second person must approve"`
	Approved string             `json:"approved,omitempty" doc:"who signed this digest"`
	Warnings []fault.Problem    `json:"warnings,omitempty"`
}

// rulesHead is where the region's stream of rules stands.
type rulesHead struct {
	number uint64
	from   *release.Manifest // nil: nothing was published yet
}

// set is what callers follow.
func (h rulesHead) set() rules.Set {
	if h.from == nil {
		return rules.Set{}
	}
	return *h.from.Rules
}

// stream is that of the region's rules.
func (a *Actions) stream() (string, error) {
	if a.Region == "" {
		return "", fault.New(fault.NotFound, "no_region", "this node keeps no region's rules").
			WithHint("start control nodes with --region, or with --inner-region if their services are in another one")
	}
	return rules.Stream(a.Region), nil
}

// rulesHead reads where the region's rules stand.
func (a *Actions) rulesHead(ctx context.Context) (rulesHead, error) {
	stream, err := a.stream()
	if err != nil {
		return rulesHead{}, err
	}
	rollout, err := a.Ledger.Rollout(ctx, stream)
	if err != nil {
		return rulesHead{}, fmt.Errorf("read where %s stands: %w", stream, err)
	}
	if rollout.Head == 0 {
		return rulesHead{}, nil
	}
	m, err := a.rulesRelease(ctx, rollout.Head)
	return rulesHead{rollout.Head, m}, err
}

// rulesRelease is release n of the region's rules.
func (a *Actions) rulesRelease(ctx context.Context, n uint64) (*release.Manifest, error) {
	stream, err := a.stream()
	if err != nil {
		return nil, err
	}
	s, err := a.Ledger.Release(ctx, stream, n)
	if err != nil {
		return nil, fmt.Errorf("read release %d of %s: %w", n, stream, err)
	}
	m, err := release.DecodeManifest(s.Manifest)
	if err != nil {
		return nil, fmt.Errorf("read release %d of %s: %w", n, stream, err)
	}
	return m, nil
}

// RegionRules are those that callers of the region follow now.
func (a *Actions) RegionRules(ctx context.Context, _ Actor) (RulesView, error) {
	h, err := a.rulesHead(ctx)
	if err != nil {
		return RulesView{}, err
	}
	v := RulesView{Region: a.Region, Number: h.number, Set: h.set()}
	v.Set.Rules = orNone(v.Set.Rules)
	if h.from != nil {
		v.By, v.Created, v.Reason = h.from.Cause.By, h.from.Created, h.from.Cause.Reason
	}
	return v, nil
}

// proposal is a folder of rules that has no mistakes.
type proposal struct {
	head    rulesHead
	set     rules.Set
	digest  release.Digest
	running error // a gray that runs by a rule that would change; nil: none stands in the way
	RulesCheck
}

// LintRules checks files against form and directory and says what they would change.
// Problems are an error that lists all of them.
func (a *Actions) LintRules(ctx context.Context, _ Actor, in RulesInput) (RulesCheck, error) {
	p, err := a.propose(ctx, in)
	return p.RulesCheck, err
}

// propose reads and checks the files, and compares them with the newest release.
func (a *Actions) propose(ctx context.Context, in RulesInput) (proposal, error) {
	h, err := a.rulesHead(ctx)
	if err != nil {
		return proposal{}, err
	}
	if in.Base != 0 && in.Base != h.number {
		return proposal{}, staleRules(in.Base, h.number)
	}
	v, err := a.view()
	if err != nil {
		return proposal{}, err
	}
	set, err := rules.Parse(in.Files)
	if err != nil {
		return proposal{}, err
	}
	set.Direct = h.set().Direct // files say nothing of the switch, nor of grays
	set, running := set.Carry(h.set())
	older, err := a.lint(h.set(), set, v)
	if err != nil {
		return proposal{}, err
	}
	p := a.proposalOf(h, set)
	p.running, p.Warnings = running, slices.Concat(inTheWay(running), doubts(set, v), older)
	if p.digest, err = digestOfRules(a.Region, h.number, set); err != nil {
		return proposal{}, err
	}
	p.Digest = p.digest.String()
	return p, a.needsAnother(ctx, &p)
}

// inTheWay are the grays that keep rules from being published, for who only looks.
func inTheWay(running error) []fault.Problem {
	e, ok := errors.AsType[*fault.Error](running)
	if !ok {
		return nil
	}
	all := slices.Clone(e.Problems)
	for i := range all {
		all[i].Hint = e.Hint
	}
	return all
}

// lint is what is wrong with the meaning of a set. What is wrong with a rule that
// callers follow already is a warning: a version that died must not keep others from
// publishing, least of all a way back.
func (a *Actions) lint(before, set rules.Set, v *directory.View) (warnings []fault.Problem, err error) {
	var problems fault.Problems
	for _, p := range rules.Lint(set, a.Region, v) {
		if follows(before, set, p.File) {
			warnings = append(warnings, p)
			continue
		}
		problems = append(problems, p)
	}
	return warnings, withAway(problems.Err("invalid_rules", "the rules have mistakes; nothing was changed"), v)
}

// withAway adds which registries are away to what was compared with the others.
func withAway(err error, v *directory.View) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && len(away(v)) > 0 {
		e.Hint = "registries are away, and what they hold is not known now: " + strings.Join(named(away(v)), "; ")
	}
	return err
}

// follows says whether callers follow already what a file says.
func follows(before, set rules.Set, file string) bool {
	found := false
	for _, r := range set.Rules {
		if r.File != file {
			continue
		}
		if found = slices.ContainsFunc(before.Rules, func(b rules.Rule) bool { return b.File == r.File && b.ID() == r.ID() && sameRule(b, r) }); !found {
			return false
		}
	}
	return found
}

// sameRule says whether two rules of one time say the same.
func sameRule(a, b rules.Rule) bool {
	return a.Selector == b.Selector && a.Strategy == b.Strategy && reflect.DeepEqual(a.Fallback, b.Fallback)
}

// doubts are what is seldom meant, and what could not be looked at.
func doubts(set rules.Set, v *directory.View) (warnings []fault.Problem) {
	for _, why := range named(away(v)) {
		warnings = append(warnings, fault.Problem{Detail: "a registry is away, so what it holds was not compared: " + why})
	}
	for _, r := range set.Rules {
		if first := set.For(r.Service, r.Selector.Env)[0]; first.ID() != r.ID() || first.File != r.File {
			warnings = append(warnings, fault.Problem{File: r.File, Path: "updated", Detail: fmt.Sprintf("%s counts for nobody: %s is newer", r.ID(), first.ID()),
				Hint: "remove the file " + r.File})
		}
	}
	return warnings
}

// named are the registries that are away, in order.
func named(away map[string]string) (list []string) {
	for name, why := range away {
		list = append(list, name+" ("+why+")")
	}
	slices.Sort(list)
	return list
}

// digestOfRules is what a second person signs: the rules, and what they follow.
func digestOfRules(region string, base uint64, set rules.Set) (release.Digest, error) {
	text, err := json.Marshal([]any{"rules-1", region, base, set})
	if err != nil {
		return release.Digest{}, fmt.Errorf("digest rules: %w", err)
	}
	return release.DigestOf(text), nil
}

// rulesSigned are those who signed the digest.
func (a *Actions) rulesSigned(ctx context.Context, digest release.Digest) (who []string, err error) {
	all, err := a.Ledger.Approvals(ctx, ledger.OfRules, rules.Stream(a.Region))
	if err != nil {
		return nil, fmt.Errorf("read approvals of rules: %w", err)
	}
	for _, s := range all {
		if s.Digest == digest {
			who = append(who, s.Approver)
		}
	}
	return who, nil
}

func staleRules(base, head uint64) error {
	e := fault.New(fault.Conflict, "stale_base", "the rules are at release %d, the change was made on %d", head, base).
		WithHint("look at what changed since (dispatchctl rules diff), bring the files up to date, and publish again; an approval was for the other base and is needed anew")
	e.Data = ledger.StaleBase{Base: base, Head: head}
	return e
}
