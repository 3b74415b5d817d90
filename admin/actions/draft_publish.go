package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// PublishDraft makes a release of the draft as its digest has it. It is Publish in
// everything, and the marks that an edge wants for a move are those that a second
// person agreed to.
func (a *Actions) PublishDraft(ctx context.Context, w Write, id, digest string) (Outcome, error) {
	seen, err := readDigest(digest)
	if err != nil {
		return Outcome{}, err
	}
	out, err := remembered(ctx, a, w, asked{"draft_publish", []any{id, digest}}, func(w Write) (out Outcome, err error) {
		p, b, err := a.draftPaper(ctx, id)
		if err != nil {
			return Outcome{}, err
		}
		if !slices.Contains([]string{Drafted, Submitted, Scheduled, Suspended}, p.State) {
			return Outcome{}, wrongState(p, "it cannot be published", "edit it, which makes it a draft again")
		}
		if b.Digest != seen {
			return Outcome{}, fault.New(fault.Conflict, "stale_paper", "draft %s was changed since you looked; nothing was published", id).
				WithHint("look at it again, then publish what it says now")
		}
		doc, err := release.Parse(draftFile, []byte(b.Document))
		if err != nil {
			return Outcome{}, err
		}
		err = a.alone(ctx, func(ctx context.Context) error {
			if done, err := a.publishedAs(ctx, id); err != nil || done > 0 {
				out = Outcome{Release: done, Warnings: a.finish(ctx, w, p, done)}
				return err
			}
			h, err := a.startingAt(ctx, b.Base, doc)
			if err != nil {
				return err
			}
			if out, err = a.releaseDraft(ctx, w, h, p, b); err == nil {
				out.Warnings = append(out.Warnings, a.finish(ctx, w, p, out.Release)...)
			}
			return err
		})
		return out, err
	})
	if err == nil {
		a.acknowledge(ctx, &out, normalWait)
	}
	return out, err
}

// releaseDraft makes a release of a draft on the head. What takes two people must be
// signed under the draft's digest.
func (a *Actions) releaseDraft(ctx context.Context, w Write, h head, paper ledger.Paper, b draftBody) (Outcome, error) {
	p := b.publication()
	doc, source, err := release.ParseSource(p.File, p.Document)
	if err != nil {
		return Outcome{}, err
	}
	d := draft{action: "publish", target: draftTarget(paper.ID), head: h}
	if err := a.fill(ctx, &d, doc, source, p); err != nil {
		return Outcome{}, err
	}
	d.change.Cause = release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}
	weighed, err := a.weigh(ctx, d)
	if err != nil {
		return Outcome{}, err
	}
	signed, err := a.agreed(ctx, paper.ID, b.Digest, b.Authors)
	if err != nil {
		return Outcome{}, err
	}
	switch {
	case len(weighed.Needs) == 0 || len(signed) > 0:
	case a.FourEyes:
		return Outcome{}, needsApproval(weighed.Needs)
	default:
		d.warnings = append(d.warnings, byOne(weighed.Needs)...)
	}
	d.change.Approve = release.Approval{BigMove: hasNeed(weighed.Needs, bigMove), RegionRemoved: hasNeed(weighed.Needs, regionRemoved)}
	var approvers []string
	for _, s := range signed {
		approvers = append(approvers, s.Approver)
	}
	d.details = map[string]any{"draft": paper.ID, "digest": b.Digest, "authors": b.Authors, "approvers": approvers, "needs": weighed.Needs,
		"release_holds": p.ReleaseHolds, "allow_empty": p.AllowEmpty}
	return a.commitAt(ctx, w, d, h.newest.Number, doc)
}

// publishedAs is the release that carries the draft, 0 if none does. The release and
// its audit row are one transaction, so a process that died in between, or another
// control node, cannot make a second one.
func (a *Actions) publishedAs(ctx context.Context, id string) (uint64, error) {
	rows, err := a.Ledger.Audit(ctx, ledger.AuditFilter{Action: "publish", Target: draftTarget(id), Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("look up whether draft %s was published: %w", id, err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	return rows[0].Release, nil
}

// finish notes that the draft was published. The release stands whatever comes of it.
func (a *Actions) finish(ctx context.Context, w Write, p ledger.Paper, number uint64) []fault.Problem {
	b, err := bodyOf(p)
	if err == nil {
		p.State, b.Release, b.Why = Published, number, ""
		w.once = nil // it was the release's
		err = a.saveDraft(ctx, w, "draft_published", p, b)
	}
	if err != nil {
		return []fault.Problem{{Detail: fmt.Sprintf("release %d carries draft %s, which could not be noted in the draft", number, p.ID), Hint: "publish it again: that makes no second release"}}
	}
	return nil
}

// RebaseDraft gives a draft, seen at the revision, the newest release for its base.
// Parts that both changed are the conflict draft_conflict, whose problems name them.
func (a *Actions) RebaseDraft(ctx context.Context, w Write, id string, rev uint64) (DraftView, error) {
	_, err := remembered(ctx, a, w, asked{"draft_rebase", []any{id, rev}}, func(w Write) (string, error) {
		p, b, err := a.draftPaper(ctx, id)
		if err != nil {
			return "", err
		}
		if !slices.Contains([]string{Drafted, Submitted, Scheduled, Suspended, Rejected}, p.State) {
			return "", wrongState(p, "it takes no other base", "begin a new draft")
		}
		h, err := a.head(ctx)
		if err != nil {
			return "", err
		}
		if b.Base == h.newest.Number {
			return "", fault.New(fault.Conflict, "base_current", "release %d is the newest; draft %s needs no other base", b.Base, id)
		}
		moved, err := a.rebased(ctx, h, b)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(moved.Authors, func(name string) bool { return strings.EqualFold(name, w.Actor.Name) }) {
			moved.Authors = append(slices.Clone(moved.Authors), w.Actor.Name)
		}
		moved.Due, moved.Zone, moved.Why = b.Due, b.Zone, ""
		p.Rev, p.State = rev, Drafted
		return id, a.saveDraft(ctx, w, "draft_rebase", p, moved)
	})
	if err != nil {
		return DraftView{}, err
	}
	return a.Draft(ctx, id)
}

// rebased is the draft on the head.
func (a *Actions) rebased(ctx context.Context, h head, b draftBody) (draftBody, error) {
	if b.Base == h.all.Number || h.from == nil {
		return b, nil
	}
	at, err := a.headAt(ctx, h, b.Base)
	if err != nil {
		return b, err
	}
	doc, conflicts, err := b.onto(at.from, h.from)
	if err != nil {
		return b, err
	}
	if len(conflicts) == 0 {
		return b.with(doc, h)
	}
	refusal := fault.New(fault.Conflict, "draft_conflict", "the draft and release %d changed the same parts since release %d", h.all.Number, b.Base).
		WithHint("edit the draft: write what should hold now, and the new base")
	for _, path := range conflicts {
		refusal.Problems = append(refusal.Problems, fault.Problem{Path: path, Detail: "was changed on both sides"})
	}
	return b, refusal
}

// with is the draft with another document, on the head. Its author's text stays as it
// is but for what the document says otherwise.
func (b draftBody) with(doc *release.Document, h head) (draftBody, error) {
	text, anew, err := release.Revise([]byte(b.Document), doc)
	if err != nil {
		return b, err
	}
	b.Anew = anew
	b.Document, b.Base, b.BaseDigest, b.Tables = string(text), h.all.Number, release.DigestOf(h.all.Manifest), nil
	parsed, err := release.Parse(draftFile, text)
	if err != nil {
		return b, fmt.Errorf("read merged document: %w", err)
	}
	return b, b.sign(parsed)
}
