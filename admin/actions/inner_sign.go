package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// mayChange is an error unless all that would change is the actor's.
func (a *Actions) mayChange(actor Actor, p *proposal) error {
	author := rules.Actor{Name: actor.Name, Administrator: slices.Contains(actor.Roles, Administrator)}
	return rules.MayChange(author, p.head.set(), p.set)
}

// signedByAnother is an error unless somebody else signed what takes two people. command
// is how they do it.
func (a *Actions) signedByAnother(ctx context.Context, actor Actor, p *proposal, command string) error {
	if len(p.Needs) == 0 {
		return nil
	}
	if !a.FourEyes {
		p.Warnings = append(p.Warnings, fault.ProblemOf("", fault.Textf("%s take a second person; one decided, for four eyes are off", strings.Join(p.Needs, ", ")), fault.Text{}))
		return nil
	}
	signed, err := a.rulesSigned(ctx, p.digest)
	if err != nil {
		return err
	}
	for _, who := range signed {
		if err = a.another(ctx, actor, fault.Textf("this change"), who); err == nil {
			err = a.another(ctx, Actor{Name: who}, fault.Textf("this change"), actor.Name)
		}
		if err == nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	refusal := fault.New(fault.Denied, "approval_required", "the rules of %s take a second person; nothing was changed", strings.Join(p.Needs, ", ")).
		Hintf("somebody with the role approver looks at the same change and signs it: %s; then publish again", command)
	refusal.Data = p.RulesCheck
	return refusal
}

// needsAnother notes the key services among the changes, and who signed them.
func (a *Actions) needsAnother(ctx context.Context, p *proposal) error {
	for _, d := range p.Changes {
		if d.Key && !slices.Contains(p.Needs, d.Service) {
			p.Needs = append(p.Needs, d.Service)
		}
	}
	if len(p.Needs) == 0 {
		return nil
	}
	signed, err := a.rulesSigned(ctx, p.digest)
	if err == nil && len(signed) > 0 {
		p.Approved = signed[0]
	}
	return err
}

// signature is what somebody says to have seen, and by which action.
type signature struct{ action, digest string }

// signRules notes that the actor saw exactly this proposal and agrees.
func (a *Actions) signRules(ctx context.Context, w Write, p proposal, by signature) (RulesCheck, error) {
	seen, err := readDigest(by.digest)
	if err != nil {
		return RulesCheck{}, err
	}
	switch {
	case seen != p.digest:
		e := fault.New(fault.Conflict, "other_digest", "this after release %d has the digest %s, not the one that was seen", p.Base, p.digest).
			WithHint("look at the difference, then sign the digest that it shows")
		e.Data = p.RulesCheck
		return RulesCheck{}, e
	case len(p.Needs) == 0:
		return RulesCheck{}, fault.New(fault.Conflict, "no_approval_needed", "no key service is among the changes").
			WithHint("publish them without a signature")
	}
	stream := rules.Stream(a.Region)
	p.Approved = w.Actor.Name
	c := w.change(by.action, stream)
	if c.Details, err = json.Marshal(map[string]any{"digest": p.Digest, "base": p.Base, "needs": p.Needs, "changes": p.Changes}); err != nil {
		return RulesCheck{}, fmt.Errorf("write audit details of %s: %w", by.action, err)
	}
	if err := w.remember(p.RulesCheck); err != nil {
		return RulesCheck{}, err
	}
	return p.RulesCheck, a.Ledger.Approve(ctx, ledger.Approval{Kind: ledger.OfRules, ID: stream, Digest: p.digest, Author: stream}, c)
}
