package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// The actions on rules, as they stand in causes and in the audit trail.
const (
	applyRules    = "rules_apply"
	approvedRules = "rules_approve"
	switchedRules = "rules_switch"
	refusedRules  = "rules_refused"
)

// RulesApplied says what publishing did. Number is 0 when nothing differs.
type RulesApplied struct {
	Number   uint64             `json:"number" doc:"0: nothing differs"`
	Changes  []rules.Difference `json:"changes"`
	Warnings []fault.Problem    `json:"warnings,omitempty"`
}

// ApplyRules publishes files for the region, for all callers at once. A refusal for
// want of a right is written down too.
func (a *Actions) ApplyRules(ctx context.Context, w Write, in RulesInput) (RulesApplied, error) {
	out, err := remembered(ctx, a, w, asked{applyRules, in}, func(w Write) (RulesApplied, error) {
		p, err := a.propose(ctx, in)
		if err != nil {
			return RulesApplied{}, err
		}
		if err := a.mayApply(ctx, w.Actor, in, &p); err != nil {
			return RulesApplied{}, err
		}
		return a.commitRules(ctx, w, rulesChange{action: applyRules}, p)
	})
	if fault.KindOf(err) == fault.Denied {
		a.RulesRefused(ctx, w.Actor, err)
	}
	return out, err
}

// mayApply is an error unless the actor may publish exactly this.
func (a *Actions) mayApply(ctx context.Context, actor Actor, in RulesInput, p *proposal) error {
	if err := a.mayChange(actor, p); err != nil {
		return err
	}
	if err := removed(in, p.head.set(), p.set, p.Changes); err != nil {
		return err
	}
	if p.running != nil {
		return p.running
	}
	return a.signedByAnother(ctx, actor, p, "dispatchctl rules approve DIR --digest "+p.Digest)
}

// removed is an error when rules or groups would go and nobody said that they may:
// also one that shadows another, which would then count.
func removed(in RulesInput, before, after rules.Set, changes []rules.Difference) error {
	if in.Delete {
		return nil
	}
	var gone fault.Problems
	for _, d := range changes {
		fewer := d.Kind == rules.Changed && len(after.For(d.Service, d.Env)) < len(before.For(d.Service, d.Env))
		if fewer || d.Kind == rules.Removed || d.Kind == rules.Regrouped && d.After == "" {
			gone.Addf(strings.TrimSuffix(d.Service+"/"+d.Env, "/"), "would be taken away: %s", d.Before)
		}
	}
	err := gone.Err("rules_removed", fmt.Sprintf("the files lack %d of the rules that callers follow; nothing was changed", len(gone)))
	if e, ok := errors.AsType[*fault.Error](err); ok {
		e.Hint = "bring all files, or say delete (dispatchctl rules apply --delete) if these shall go"
	}
	return err
}

// above is what the next number of rules must pass: a database that was restored from
// a backup stands below what callers follow, and they take nothing lower. Numbers
// that no release can have jumped to are not believed.
func (a *Actions) above(head uint64) uint64 {
	if a.RulesHeard == nil {
		return head
	}
	heard := a.RulesHeard()
	if heard > head+signed.MaxJump {
		a.Log.Warn("a caller says that it follows rules of a number that was never given; look who has the fleet token", "number", heard, "newest", head)
		return head
	}
	return max(head, heard)
}

// rulesChange is the action that changes rules, and of what; empty: of the whole region.
type rulesChange struct{ action, of string }

// commitRules publishes what is proposed: for everybody at once, for rules skip the
// canary. When nothing differs nothing is published.
func (a *Actions) commitRules(ctx context.Context, w Write, by rulesChange, p proposal) (RulesApplied, error) {
	out := RulesApplied{Changes: p.Changes, Warnings: p.Warnings}
	if len(p.Changes) == 0 {
		return out, nil
	}
	stream := rules.Stream(a.Region)
	c := release.Change{Rules: &p.set, Created: a.now(), Above: a.above(p.head.number), Cause: release.Cause{Action: by.action, By: w.Actor.Name, Reason: w.Reason}}
	next, err := release.First(a.Deployment, stream, c)
	if p.head.from != nil {
		next, err = p.head.from.Next(c)
	}
	if err != nil {
		return RulesApplied{}, err
	}
	s, err := release.Sign(next, a.Keys, a.now())
	if err != nil {
		return RulesApplied{}, err
	}
	out.Number = next.Number
	entry := w.change(by.action, clip(cmp.Or(by.of, stream)))
	if entry.Details, err = json.Marshal(map[string]any{"changes": p.Changes}); err != nil {
		return RulesApplied{}, fmt.Errorf("write audit details of %s: %w", by.action, err)
	}
	if err := w.remember(out); err != nil {
		return RulesApplied{}, err
	}
	if err := a.Ledger.Append(ctx, ledger.Write{Base: p.head.number, Signed: s, Change: entry}); err != nil {
		if e, ok := errors.AsType[*fault.Error](err); ok {
			if at, ok := e.Data.(ledger.StaleBase); ok {
				return RulesApplied{}, staleRules(at.Base, at.Head)
			}
		}
		return RulesApplied{}, err
	}
	if a.RulesMade != nil {
		a.RulesMade()
	}
	return out, nil
}

// ApproveRules signs what LintRules showed, for ApplyRules by somebody else.
func (a *Actions) ApproveRules(ctx context.Context, w Write, in RulesInput, digest string) (RulesCheck, error) {
	return remembered(ctx, a, w, asked{approvedRules, []any{in, digest}}, func(w Write) (RulesCheck, error) {
		p, err := a.propose(ctx, in)
		if err == nil {
			err = p.running
		}
		if err != nil {
			return RulesCheck{}, err
		}
		return a.signRules(ctx, w, p, signature{approvedRules, digest})
	})
}

// ConfirmSwitch is what must be typed to throw the kill switch or to take it back.
func (a *Actions) ConfirmSwitch() string { return a.typed(a.Region) }

// SwitchRules throws the kill switch of the region, or takes it back. It is an
// emergency: when other rules come first it is tried again on top of them.
func (a *Actions) SwitchRules(ctx context.Context, w Write, direct bool) (out RulesApplied, err error) {
	if _, err := a.stream(); err != nil {
		return out, err
	}
	if err := w.confirmed(a.ConfirmSwitch()); err != nil {
		return out, err
	}
	return remembered(ctx, a, w, asked{switchedRules, direct}, func(w Write) (out RulesApplied, err error) {
		for range emergencyTries {
			h, err := a.rulesHead(ctx)
			if err != nil {
				return out, err
			}
			p := proposal{head: h, set: h.set()}
			p.set.Direct = direct
			if p.Changes = orNone(rules.Diff(h.set(), p.set)); direct {
				p.Warnings = a.grown(p.set)
			}
			if out, err = a.commitRules(ctx, w, rulesChange{action: switchedRules}, p); fault.CodeOf(err) != "stale_base" {
				return out, err
			}
		}
		return out, err
	})
}

// refusalsAMinute of one actor are written down. A script that tries for ever must not
// fill the trail.
const refusalsAMinute = 10

// RulesRefused writes down that somebody who may not wanted to publish rules.
func (a *Actions) RulesRefused(ctx context.Context, actor Actor, why error) {
	earlier, err := a.Ledger.Audit(ctx, ledger.AuditFilter{Actor: actor.Name, Action: refusedRules, Since: a.now().Add(-time.Minute), Limit: refusalsAMinute})
	if err == nil && len(earlier) >= refusalsAMinute {
		return
	}
	c := Write{Actor: actor, Reason: "refused"}.change(refusedRules, rules.Stream(a.Region))
	if err == nil {
		c.Details, err = json.Marshal(map[string]any{"code": fault.CodeOf(why), "roles": actor.Roles})
	}
	if err == nil {
		err = a.Ledger.Record(ctx, c)
	}
	if err != nil { // what was asked for is refused either way
		a.Log.WarnContext(ctx, "a refusal is not in the audit trail", "actor", actor.Name, "action", refusedRules, "err", err)
	}
}
