package actions

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// another is a refusal when the actor is one of the authors: nobody approves what
// they wrote a part of. A token is its maker's, too, who saw its secret.
func (a *Actions) another(ctx context.Context, who Actor, what fault.Text, authors ...string) error {
	if !a.FourEyes {
		return nil
	}
	people := []string{who.Name}
	made, err := a.Ledger.Audit(ctx, ledger.AuditFilter{Action: "token_create", Target: who.Name, Limit: 1000})
	if err != nil {
		return fmt.Errorf("look up who made the token %s: %w", who.Name, err)
	}
	for _, row := range made {
		people = append(people, row.Actor)
	}
	for _, author := range authors {
		i := slices.IndexFunc(people, func(name string) bool { return strings.EqualFold(name, author) })
		switch {
		case i == 0:
			return fault.New(fault.Denied, "self_approval", "%s wrote a part of %s; another person must approve it", author, what).
				WithHint("ask someone with the role approver")
		case i > 0:
			return fault.New(fault.Denied, "self_approval", "%s made the token %s and wrote a part of %s; another person must approve it", author, who.Name, what).
				WithHint("ask someone with the role approver, who uses an account or token of their own")
		}
	}
	return nil
}

// agreed are the signatures of others under the digest of a draft.
func (a *Actions) agreed(ctx context.Context, id string, digest release.Digest, authors []string) (valid []ledger.Approval, err error) {
	all, err := a.Ledger.Approvals(ctx, ledger.OfDraft, id)
	if err != nil {
		return nil, fmt.Errorf("read approvals of draft %s: %w", id, err)
	}
	for _, s := range all {
		own := slices.ContainsFunc(authors, func(author string) bool { return strings.EqualFold(author, s.Approver) })
		if s.Digest == digest && (!own || !a.FourEyes) {
			valid = append(valid, s)
		}
	}
	return valid, nil
}

// approvedAs is the draft with the digest that a second person agreed to.
func (a *Actions) approvedAs(ctx context.Context, digest release.Digest) (ledger.Paper, bool, error) {
	all, err := a.Ledger.Papers(ctx, ledger.Draft, ledger.PaperFilter{States: []string{Submitted, Scheduled, Suspended}, Limit: 1000})
	if err != nil {
		return ledger.Paper{}, false, fmt.Errorf("read drafts: %w", err)
	}
	for _, p := range all {
		body, err := bodyOf(p)
		if err != nil {
			return ledger.Paper{}, false, err
		}
		if body.Digest != digest {
			continue
		}
		valid, err := a.agreed(ctx, p.ID, digest, body.Authors)
		if err != nil || len(valid) > 0 {
			return p, err == nil, err
		}
	}
	return ledger.Paper{}, false, nil
}

// secondPerson lets a change by, weighs it, and refuses one that takes two people
// unless a draft with its digest was approved. The draft that was approved is in d.
func (a *Actions) secondPerson(ctx context.Context, d *draft, digest release.Digest) error {
	p, err := a.weigh(ctx, *d)
	if err != nil || len(p.Needs) == 0 {
		return err
	}
	if !a.FourEyes {
		d.warnings = append(d.warnings, byOne(p.Needs)...)
		return nil
	}
	paper, ok, err := a.approvedAs(ctx, digest)
	if err != nil {
		return err
	}
	if !ok {
		return needsApproval(p.Needs)
	}
	d.paper, d.target = &paper, draftTarget(paper.ID)
	return nil
}

// needsApproval refuses what takes two people.
func needsApproval(needs []Need) error {
	err := fault.New(fault.Denied, "needs_approval", "this takes a second person; nothing was changed").
		WithHint("save it as a draft (POST /api/v1/drafts), submit it, and let somebody else approve it; then publish the draft")
	for _, n := range needs {
		err.Problems = append(err.Problems, n.problem())
	}
	return err
}

// byOne warns of what one person did because four eyes are off.
func byOne(needs []Need) (warnings []fault.Problem) {
	for _, n := range needs {
		warnings = append(warnings, fault.ProblemOf(n.Path, fault.Textf("%s (%s); one person decided, for four eyes are off", n.Said, n.Code), fault.Text{}))
	}
	return warnings
}

// readDigest reads what a person signs.
func readDigest(text string) (d release.Digest, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(d) {
		return d, fault.New(fault.Invalid, "bad_digest", "%q is no digest", text).WithHint("send the digest that the draft shows")
	}
	return release.Digest(raw), nil
}
