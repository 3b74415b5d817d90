package actions

import (
	"context"
	"fmt"
	"maps"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// ApplyImport makes a release of a kept import. One that removes more than one person
// may is submitted instead, which is the refusal needs_approval.
func (a *Actions) ApplyImport(ctx context.Context, w Write, list, id string) (ImportOutcome, error) {
	out, err := remembered(ctx, a, w, asked{"import_apply", []any{list, id}}, func(w Write) (out ImportOutcome, err error) {
		i, err := a.waitingImport(ctx, list, id, Kept)
		if err != nil {
			return out, err
		}
		if out.Needs, err = a.removal(ctx, list, i.body.Had, i.body.Removed); err != nil {
			return out, err
		}
		if len(out.Needs) > 0 {
			if err := w.confirmed(a.ConfirmList(list)); err != nil {
				return out, err
			}
		}
		h, err := a.editable(ctx)
		if err != nil {
			return out, err
		}
		e, err := a.edit(ctx, h.from, i)
		if err != nil {
			return out, err
		}
		if len(out.Needs) > 0 && a.FourEyes {
			w.once, i.paper.State = nil, Submitted
			if err := a.saveImport(ctx, w, "import_submit", i, nil); err != nil {
				return out, err
			}
			return out, a.importWaits(ctx, i.paper, i.body)
		}
		if out, err = a.useEdit(ctx, w, e, out); err == nil {
			out.Warnings = append(out.Warnings, a.finishImport(ctx, w, i, out.Release)...)
		}
		return out, err
	})
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

// ApproveImport signs a submitted import as its digest has it, and makes a release of
// it. Who brought it may not.
func (a *Actions) ApproveImport(ctx context.Context, w Write, list, digest string) (ImportOutcome, error) {
	signed, err := readDigest(digest)
	if err != nil {
		return ImportOutcome{}, err
	}
	out, err := remembered(ctx, a, w, asked{"import_approve", []any{list, digest}}, func(w Write) (out ImportOutcome, err error) {
		waiting, err := a.imports(ctx, list, Submitted)
		if err != nil {
			return out, err
		}
		for _, i := range waiting {
			if i.body.Digest == signed {
				return a.approveImport(ctx, w, i)
			}
		}
		return out, fault.New(fault.NotFound, "unknown_import", "nothing with this digest waits for list %s", list).
			Hintf("GET /api/v1/lists/%s/imports shows what waits; it may have been applied or withdrawn", list)
	})
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

func (a *Actions) approveImport(ctx context.Context, w Write, i waitingImport) (out ImportOutcome, err error) {
	if err := a.another(ctx, w.Actor, fault.Textf("import %s", i.paper.ID), i.paper.By); err != nil {
		return out, err
	}
	h, err := a.editable(ctx)
	if err != nil {
		return out, err
	}
	e, err := a.edit(ctx, h.from, i)
	if err != nil {
		return out, err
	}
	out.Needs = []Need{}
	// The signature comes first. Whoever signed and was cut off signs again.
	sign := Write{Actor: w.Actor, Reason: w.Reason}.change("import_approve", i.body.List)
	sign.Details = fmt.Appendf(nil, `{"import":%q,"digest":%q,"author":%q}`, i.paper.ID, i.body.Digest, i.paper.By)
	err = a.Ledger.Approve(ctx, ledger.Approval{Kind: ledger.OfList, ID: i.body.List, Digest: i.body.Digest, Author: i.paper.By}, sign)
	if err != nil && fault.CodeOf(err) != "already_approved" {
		return out, err
	}
	answer := func(o Outcome) any { return ImportOutcome{Outcome: o, Needs: out.Needs} }
	c := e.change(answer)
	maps.Copy(c.details, map[string]any{"import": i.paper.ID, "digest": i.body.Digest, "author": i.paper.By, "approver": w.Actor.Name})
	if out.Outcome, err = a.changeLists(ctx, w, c); err == nil {
		out.Warnings = append(out.Warnings, a.finishImport(ctx, w, i, out.Release)...)
	}
	return out, err
}

// WithdrawImport gives up an import that waits, or turns it down.
func (a *Actions) WithdrawImport(ctx context.Context, w Write, list, id string) (ListImport, error) {
	return remembered(ctx, a, w, asked{"import_withdraw", []any{list, id}}, func(w Write) (ListImport, error) {
		i, err := a.waitingImport(ctx, list, id, Kept, Submitted)
		if err != nil {
			return ListImport{}, err
		}
		i.paper.State = Withdrawn
		gone := *a.listImport(i.paper, i.body, []Need{}, false)
		return gone, a.saveImport(ctx, w, "import_withdraw", i, gone)
	})
}

// finishImport notes that an import is in use. The release stands whatever comes of it.
func (a *Actions) finishImport(ctx context.Context, w Write, i waitingImport, number uint64) []fault.Problem {
	w.once, i.paper.State, i.body.Release = nil, Published, number // the key was the release's
	if err := a.saveImport(ctx, w, "import_done", i, nil); err != nil {
		return []fault.Problem{{Detail: "import " + i.paper.ID + " is in use, which could not be noted in it", Hint: "withdraw it: the list stays as it is"}}
	}
	return nil
}
