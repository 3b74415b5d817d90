package actions

import (
	"context"
	"fmt"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// ListPatch adds and removes a few ids.
type ListPatch struct {
	List   string
	Add    []string
	Remove []string
	DryRun bool
}

// PatchOutcome is what a patch did.
type PatchOutcome struct {
	Outcome
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Already int `json:"already" doc:"to be added and in the list before"`
	Unknown int `json:"unknown" doc:"to be removed and not in the list"`

	Needs   []Need `json:"needs" doc:"why a second person must agree; empty: one is enough"`
	Confirm string `json:"confirm,omitempty" doc:"what must be typed before so many ids are removed"`
}

// PatchList adds and removes ids; all others are untouched. An id that is no id
// refuses the whole patch. One that removes more than one person may waits for a
// second one, as an import does.
func (a *Actions) PatchList(ctx context.Context, w Write, in ListPatch) (PatchOutcome, error) {
	out, err := remembered(ctx, a, w, asked{"patch", in}, func(w Write) (PatchOutcome, error) { return a.patchList(ctx, w, in) })
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

func (a *Actions) patchList(ctx context.Context, w Write, in ListPatch) (PatchOutcome, error) {
	h, err := a.editable(ctx)
	if err != nil {
		return PatchOutcome{}, err
	}
	if _, err := listOf(h.from, in.List); err != nil {
		return PatchOutcome{}, err
	}
	add, remove, err := normalForms(&h.from.Document, in)
	if err != nil {
		return PatchOutcome{}, err
	}
	old, err := a.stored(ctx, h.from, in.List)
	if err != nil {
		return PatchOutcome{}, err
	}
	patch, err := old.Patch(add, remove)
	if err != nil {
		return PatchOutcome{}, fmt.Errorf("patch list %s: %w", in.List, err)
	}
	out := PatchOutcome{Added: patch.Added, Removed: patch.Removed, Already: patch.Already, Unknown: patch.Unknown}
	if out.Needs, err = a.removal(ctx, in.List, old.Index.Count, patch.Removed); err != nil {
		return PatchOutcome{}, err
	}
	if len(out.Needs) > 0 {
		out.Confirm = a.ConfirmList(in.List)
	}
	switch {
	case in.DryRun:
		return out, nil
	case patch.Added+patch.Removed == 0:
		out.Release = h.newest.Number
		return out, nil
	}
	e := listEdit{action: "patch", list: in.List, of: old.Of, seen: h.from.Lists[in.List], had: old.Index.Count, index: patch.Index,
		added: patch.Added, removed: patch.Removed}
	if len(out.Needs) > 0 {
		if err := w.confirmed(out.Confirm); err != nil {
			return out, err
		}
	}
	if e.blobs, err = a.keepBlobs(ctx, e, old.Index, slices.Values(patch.Blobs), func(int) {}); err != nil {
		return out, err
	}
	if len(out.Needs) > 0 && a.FourEyes {
		return out, a.submitEdit(ctx, w, e)
	}
	answer := func(o Outcome) any {
		o.Warnings = append(o.Warnings, byOne(out.Needs)...)
		done := out
		done.Outcome, done.Confirm = o, ""
		return done
	}
	outcome, err := a.changeLists(ctx, w, e.change(answer))
	done, _ := answer(outcome).(PatchOutcome)
	return done, err
}

// normalForms are the ids of a patch as the list holds them. Problems never repeat an id.
func normalForms(doc *release.Document, in ListPatch) (add, remove []string, err error) {
	ids, err := normalizer(doc, in.List)
	if err != nil {
		return nil, nil, err
	}
	var p fault.Problems
	normal := func(path string, raw []string) []string {
		forms := make([]string, 0, len(raw))
		for i, text := range raw {
			id, why := ids.Normalize(text)
			if id == "" {
				p.Addf(fmt.Sprintf("%s[%d]", path, i), "is no id: %s", why)
				continue
			}
			forms = append(forms, id)
		}
		slices.Sort(forms)
		return slices.Compact(forms)
	}
	add, remove = normal("add", in.Add), normal("remove", in.Remove)
	if len(in.Add)+len(in.Remove) == 0 {
		p.Addf("add", "nothing to add or remove")
	}
	return add, remove, p.Err("bad_ids", "the patch is wrong; nothing was changed")
}
