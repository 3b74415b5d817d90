package actions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// ListInfo is a list of the current release.
type ListInfo struct {
	Key     string       `json:"key"`
	Of      whitelist.Of `json:"of"`
	Owner   string       `json:"owner,omitempty"`
	Expires string       `json:"expires,omitempty"`
	Count   int          `json:"count"`
	Folds   bool         `json:"folds" doc:"whether ids are compared without letter case"`
}

// Lists are the lists of the release in use.
func (a *Actions) Lists() []ListInfo {
	infos := []ListInfo{}
	cur := a.Keeper.Current()
	if cur == nil {
		return infos
	}
	for _, l := range cur.Manifest.Document.Lists {
		folds, _ := cur.Manifest.Document.FoldsIDs(l.Key)
		infos = append(infos, ListInfo{Key: l.Key, Of: l.Of, Owner: l.Owner, Expires: l.Expires, Count: cur.Lists.Count(l.Key), Folds: folds})
	}
	return infos
}

// Import is the new content of a list.
type Import struct {
	List       string
	Body       io.Reader `json:"-"`
	Format     whitelist.Format
	Column     string
	MaxBad     int
	AllowEmpty bool // an import without ids empties the list instead of being refused
	DryRun     bool
}

// ImportOutcome is what an import read and did.
type ImportOutcome struct {
	Outcome
	Report whitelist.Report `json:"report"`
}

// ImportList replaces the ids of a list by those of a stream. More bad lines than
// MaxBad, or any other failure, changes nothing.
func (a *Actions) ImportList(ctx context.Context, w Write, in Import) (out ImportOutcome, err error) {
	// Reading and storing may take minutes. Both happen outside the turn: an
	// emergency must not wait for them.
	h, err := a.editable(ctx)
	if err != nil {
		return ImportOutcome{}, err
	}
	report, content, err := a.read(ctx, h.from, in)
	if err != nil || in.DryRun {
		return ImportOutcome{Report: report}, withReport(err, report)
	}
	ask := asked{"import", []any{in, release.DigestOf(content.Index().Bytes())}}
	out, err = remembered(ctx, a, w, ask, func(w Write) (ImportOutcome, error) {
		blobs := slices.Collect(content.Blobs())
		if err := a.Ledger.PutBlobs(ctx, slices.Values(blobs)); err != nil {
			return ImportOutcome{}, fmt.Errorf("store ids of list %s: %w", in.List, err)
		}
		answer := func(o Outcome) any { return ImportOutcome{Outcome: o, Report: report} }
		outcome, err := a.changeLists(ctx, w, listChange{action: "import", target: in.List, blobs: blobs,
			lists:   []newIndex{{in.List, h.from.Lists[in.List], content.Index()}},
			details: map[string]any{"added": report.Added, "removed": report.Removed, "bad_lines": report.Bad, "count": content.Len()}, answer: answer})
		return ImportOutcome{Outcome: outcome, Report: report}, err
	})
	if err == nil {
		a.acknowledge(ctx, &out.Outcome, normalWait)
	}
	return out, err
}

// read reads the new content of a list and compares it with what m has.
func (a *Actions) read(ctx context.Context, m *release.Manifest, in Import) (whitelist.Report, *whitelist.Content, error) {
	l, err := listOf(m, in.List)
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	old, err := a.stored(ctx, m, in.List)
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	ids, err := normalizer(&m.Document, in.List)
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	key, err := a.listKey()
	if err != nil {
		return whitelist.Report{}, nil, err
	}
	return whitelist.Import(in.Body, whitelist.ImportOptions{Key: key, Of: l.Of, IDs: ids, Format: in.Format,
		Column: in.Column, MaxBad: in.MaxBad, Old: old, AllowEmpty: in.AllowEmpty})
}

// withReport lets the caller of a refused import see what was read.
func withReport(err error, report whitelist.Report) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Data == nil {
		e.Data = report
	}
	return err
}

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
}

// PatchList adds and removes ids; all others are untouched. An id that is no id
// refuses the whole patch.
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
	answer := func(o Outcome) any {
		return PatchOutcome{Outcome: o, Added: patch.Added, Removed: patch.Removed, Already: patch.Already, Unknown: patch.Unknown}
	}
	var outcome Outcome
	switch {
	case in.DryRun:
	case patch.Added+patch.Removed == 0:
		outcome.Release = h.newest.Number
	default:
		outcome, err = a.changeLists(ctx, w, listChange{action: "patch", target: in.List, blobs: patch.Blobs,
			lists:   []newIndex{{in.List, h.from.Lists[in.List], patch.Index}},
			details: map[string]any{"added": patch.Added, "removed": patch.Removed, "count": patch.Index.Count}, answer: answer})
	}
	return answer(outcome).(PatchOutcome), err
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

// listChange is new content of lists on its way to a release.
type listChange struct {
	action, target string
	lists          []newIndex
	blobs          []whitelist.Blob // chunks
	details        map[string]any
	answer         func(Outcome) any
}

// newIndex is what a list becomes.
type newIndex struct {
	list  string
	seen  release.Digest // of the index that the change was made from
	index *whitelist.IndexBlob
}

// changeLists makes the release, unless somebody else changed one of the lists
// meanwhile. Other changes do not matter: the new release is made from the newest.
func (a *Actions) changeLists(ctx context.Context, w Write, c listChange) (out Outcome, err error) {
	err = a.alone(ctx, func(ctx context.Context) error {
		h, err := a.editable(ctx)
		if err != nil {
			return err
		}
		doc, lists, blobs := h.from.Document, maps.Clone(h.from.Lists), c.blobs
		doc.Lists = slices.Clone(doc.Lists)
		for _, n := range c.lists {
			if h.from.Lists[n.list] != n.seen {
				return fault.New(fault.Conflict, "list_changed", "somebody else changed list %s meanwhile", n.list).WithHint("try again")
			}
			data := n.index.Bytes()
			digest := release.DigestOf(data)
			for i := range doc.Lists {
				if doc.Lists[i].Key == n.list {
					doc.Lists[i].Digest, doc.Lists[i].Count = digest.String(), n.index.Count
				}
			}
			lists[n.list] = digest
			blobs = append(blobs, whitelist.Blob{Digest: digest, Bytes: data})
		}
		out, err = a.commit(ctx, w, draft{action: c.action, target: c.target, details: c.details, head: h, answer: c.answer, blobs: blobs,
			change: release.Change{Document: &doc, Lists: lists,
				Cause: release.Cause{Action: c.action, By: w.Actor.Name, Reason: w.Reason}}})
		return err
	})
	return out, err
}

// Contains says whether the release in use has the id in the list; absent is why
// the text counts as no id. Who asked is written down and bounded as for Explain.
func (a *Actions) Contains(ctx context.Context, who Actor, list, raw string) (contains bool, absent string, err error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return false, "", noRelease()
	}
	l, err := listOf(cur.Manifest, list)
	if err != nil {
		return false, "", err
	}
	ids, err := normalizer(&cur.Manifest.Document, list)
	if err != nil {
		return false, "", err
	}
	id, why := ids.Normalize(raw)
	if id == "" {
		return false, why.String(), nil
	}
	err = a.lookUp(ctx, who, func() (ledger.Change, map[whitelist.Of]string, error) {
		n, _ := cur.Lists.Number(list)
		contains = cur.Lists.Lookup(l.Of, id).Has(n)
		return Write{Actor: who}.change("contains", list), map[whitelist.Of]string{l.Of: id}, nil
	})
	return contains && err == nil, "", err
}

func listOf(m *release.Manifest, key string) (*release.List, error) {
	doc := document(m)
	for i := range doc.Lists {
		if doc.Lists[i].Key == key {
			return &doc.Lists[i], nil
		}
	}
	return nil, fault.New(fault.NotFound, "unknown_list", "the current document has no list %q", key).
		WithHint("publish a document that names it first, with ids: [] if there are none yet")
}

// normalizer gives the ids of a list the form that the apps using it look for.
func normalizer(doc *release.Document, list string) (*whitelist.Normalizer, error) {
	folds, mixed := doc.FoldsIDs(list)
	if mixed {
		return nil, fault.New(fault.Invalid, "mixed_id_case", "list %s is used by apps that fold ids and by apps that do not", list).
			WithHint("give those apps one id_case, or each its own list")
	}
	return whitelist.NewNormalizer(doc.AbsentIDs, folds)
}

// listKey is the key that new lists are hashed under.
func (a *Actions) listKey() (whitelist.Key, error) {
	k := a.Keys.List.Current()
	return whitelist.NewKey(k.ID(), k.Secret())
}

// stored is a list as m has it, with its raw ids at hand.
func (a *Actions) stored(ctx context.Context, m *release.Manifest, list string) (*whitelist.Stored, error) {
	l, err := listOf(m, list)
	if err != nil {
		return nil, err
	}
	data, err := a.Ledger.Blob(ctx, m.Lists[list])
	if err != nil {
		return nil, fmt.Errorf("read index of list %s: %w", list, err)
	}
	index, err := whitelist.ParseIndexBlob(data)
	if err != nil {
		return nil, fmt.Errorf("read index of list %s: %w", list, err)
	}
	for _, k := range a.Keys.List.All() {
		if k.ID() != index.KeyID {
			continue
		}
		key, err := whitelist.NewKey(k.ID(), k.Secret())
		if err != nil {
			return nil, err
		}
		return &whitelist.Stored{Key: key, Of: l.Of, Index: index, Raw: func(n int) ([]byte, error) {
			raw, err := a.Ledger.Raw(ctx, index.Digests[n])
			if fault.CodeOf(err) == "no_raw_ids" {
				err = fault.New(fault.Conflict, "no_raw_ids", "raw ids of list %s are not in the database: it was adopted from the fleet", list).
					WithHint("import the whole list again").Because(whitelist.ErrNoRaw)
			}
			return raw, err
		}}, nil
	}
	return nil, fault.New(fault.Unavailable, "missing_key", "list %s is hashed under the key %s, which is not here", list, index.KeyID).
		WithHint("bring the list key file that the other nodes use, --list-key-file")
}
