package actions

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Kept is the state of an import whose content is stored and that nobody applied
// yet. One that needs a second person is then Submitted, and in the end Published or
// Withdrawn.
const Kept = "kept"

// ListImport is content of a list that is stored and not in use.
type ListImport struct {
	ID      string    `json:"id"`
	List    string    `json:"list"`
	State   string    `json:"state" enum:"kept,submitted,published,withdrawn"`
	Action  string    `json:"action" enum:"import,patch"`
	By      string    `json:"by" doc:"who brought it, and may not approve it"`
	Reason  string    `json:"reason"`
	Digest  string    `json:"digest" doc:"what a second person signs"`
	Count   int       `json:"count" doc:"ids that the list would hold"`
	Added   int       `json:"added"`
	Removed int       `json:"removed"`
	Bad     int       `json:"bad" doc:"lines that were left out"`
	Created time.Time `json:"created"`
	Stale   bool      `json:"stale" doc:"somebody changed the list since; it can only be withdrawn"`
	Needs   []Need    `json:"needs" doc:"why a second person must agree; empty: one is enough"`
	Confirm string    `json:"confirm,omitempty" doc:"what must be typed to apply it"`
}

// importBody is what the paper of an import holds.
type importBody struct {
	List    string         `json:"list"`
	Action  string         `json:"action"`
	Reason  string         `json:"reason"`
	From    release.Digest `json:"from"`   // the index that it was made from
	To      release.Digest `json:"to"`     // its own
	Digest  release.Digest `json:"digest"` // of all that makes it what it is
	Had     int            `json:"had"`
	Count   int            `json:"count"`
	Added   int            `json:"added"`
	Removed int            `json:"removed"`
	Bad     int            `json:"bad"`
	Release uint64         `json:"release,omitempty"`
}

// importDigest is what a second person signs. The id of the paper is in it, so that a
// signature of last month does not serve for the same content today.
func importDigest(id string, b importBody) release.Digest {
	return release.DigestOf([]byte(strings.Join([]string{"list-import-1", id, b.List, b.From.String(), b.To.String()}, "\n")))
}

// importBodyOf reads what the paper of an import holds.
func importBodyOf(p ledger.Paper) (b importBody, err error) {
	if err := json.Unmarshal(p.Body, &b); err != nil {
		return b, fmt.Errorf("read import %s: %w", p.ID, err)
	}
	return b, nil
}

// saveImport writes the paper of an import, and with it the answer under the caller's key.
func (a *Actions) saveImport(ctx context.Context, w Write, action string, i waitingImport, answer any) (err error) {
	p, b := i.paper, i.body
	if p.Body, err = json.Marshal(b); err != nil {
		return fmt.Errorf("write import %s: %w", p.ID, err)
	}
	if err := w.remember(answer); err != nil {
		return err
	}
	c := w.change(action, b.List)
	if c.Details, err = json.Marshal(map[string]any{"import": p.ID, "digest": b.Digest, "state": p.State,
		"added": b.Added, "removed": b.Removed, "bad_lines": b.Bad, "count": b.Count}); err != nil {
		return fmt.Errorf("write audit details of import %s: %w", p.ID, err)
	}
	_, err = a.Ledger.SavePaper(ctx, p, c)
	return err
}

// newImport is the paper of an edit, without a place yet.
func newImport(w Write, e listEdit) (ledger.Paper, importBody) {
	p := ledger.Paper{Kind: ledger.Import, ID: strings.ToLower(rand.Text()[:8]), State: Kept, By: w.Actor.Name}
	b := importBody{List: e.list, Action: e.action, Reason: w.Reason, From: e.seen, To: release.DigestOf(e.index.Bytes()), Had: e.had,
		Count: e.index.Count, Added: e.added, Removed: e.removed, Bad: e.bad}
	b.Digest = importDigest(p.ID, b)
	return p, b
}

// keepImport keeps an edit whose chunks are stored, for ApplyImport.
func (a *Actions) keepImport(ctx context.Context, w Write, e listEdit, out ImportOutcome) (ImportOutcome, error) {
	p, b := newImport(w, e)
	p.Created = a.now()
	out.Kept = a.listImport(p, b, out.Needs, false)
	return out, a.saveImport(ctx, w, "import_keep", waitingImport{p, b}, out)
}

// submitEdit keeps an edit for a second person, and is the refusal that says so. The
// same edit by the same author, sent again, waits once.
func (a *Actions) submitEdit(ctx context.Context, w Write, e listEdit) error {
	w.once = nil // a refusal is not remembered
	p, b := newImport(w, e)
	waiting, err := a.imports(ctx, e.list, Submitted)
	if err != nil {
		return err
	}
	for _, old := range waiting {
		if old.paper.By == p.By && old.body.From == b.From && old.body.To == b.To {
			return a.importWaits(ctx, old.paper, old.body)
		}
	}
	p.State = Submitted
	if err := a.saveImport(ctx, w, "import_submit", waitingImport{p, b}, nil); err != nil {
		return err
	}
	p.Created = a.now()
	return a.importWaits(ctx, p, b)
}

// importWaits is the refusal of an import that waits for a second person.
func (a *Actions) importWaits(ctx context.Context, p ledger.Paper, b importBody) error {
	needs, err := a.removal(ctx, b.List, b.Had, b.Removed)
	if err != nil {
		return err
	}
	refusal := fault.New(fault.Denied, "needs_approval", "this takes a second person; list %s is unchanged, and the content waits as import %s", b.List, p.ID).
		Hintf("somebody else approves it: POST /api/v1/lists/%s/approve with the digest, or the list's page", b.List)
	for _, n := range needs {
		refusal.Problems = append(refusal.Problems, n.problem())
	}
	refusal.Data = a.listImport(p, b, needs, false)
	return refusal
}

type waitingImport struct {
	paper ledger.Paper
	body  importBody
}

// imports are those of a list, or of all, in one of the states, the last changed first.
func (a *Actions) imports(ctx context.Context, list string, states ...string) (found []waitingImport, err error) {
	all, err := a.Ledger.Papers(ctx, ledger.Import, ledger.PaperFilter{States: states, Limit: 1000})
	if err != nil {
		return nil, fmt.Errorf("read imports of list %s: %w", list, err)
	}
	for _, p := range all {
		b, err := importBodyOf(p)
		if err != nil {
			return nil, err
		}
		if list == "" || b.List == list {
			found = append(found, waitingImport{p, b})
		}
	}
	return found, nil
}

func (a *Actions) listImport(p ledger.Paper, b importBody, needs []Need, stale bool) *ListImport {
	l := &ListImport{ID: p.ID, List: b.List, State: p.State, Action: b.Action, By: p.By, Reason: b.Reason, Digest: b.Digest.String(),
		Count: b.Count, Added: b.Added, Removed: b.Removed, Bad: b.Bad, Created: p.Created, Stale: stale, Needs: needs}
	if len(needs) > 0 {
		l.Confirm = a.ConfirmList(b.List)
	}
	return l
}

// ListImports is what waits to become the content of a list, the newest first.
func (a *Actions) ListImports(ctx context.Context, list string) ([]ListImport, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return nil, noRelease()
	}
	if _, err := listOf(cur.Manifest, list); err != nil {
		return nil, err
	}
	waiting, err := a.imports(ctx, list, Kept, Submitted)
	if err != nil {
		return nil, err
	}
	s, err := a.settings(ctx)
	if err != nil {
		return nil, err
	}
	shown := []ListImport{}
	for _, i := range waiting {
		shown = append(shown, *a.listImport(i.paper, i.body, s.removal(list, i.body.Had, i.body.Removed), cur.Manifest.Lists[list] != i.body.From))
	}
	return shown, nil
}

// WaitingImports is how many imports wait, by list.
func (a *Actions) WaitingImports(ctx context.Context) (map[string]int, error) {
	waiting, err := a.imports(ctx, "", Kept, Submitted)
	n := map[string]int{}
	for _, i := range waiting {
		n[i.body.List]++
	}
	return n, err
}

// waitingImport is one import of the list in one of the states.
func (a *Actions) waitingImport(ctx context.Context, list, id string, states ...string) (waitingImport, error) {
	p, err := a.Ledger.Paper(ctx, ledger.Import, id)
	if err != nil {
		return waitingImport{}, err
	}
	b, err := importBodyOf(p)
	switch {
	case err != nil:
		return waitingImport{}, err
	case b.List != list:
		return waitingImport{}, fault.New(fault.NotFound, "unknown_import", "list %s has no import %s", list, id)
	case !slices.Contains(states, p.State):
		return waitingImport{}, fault.New(fault.Conflict, "import_state", "import %s is %s", id, fault.Word(p.State)).
			Hintf("GET /api/v1/lists/%s/imports shows what waits", list)
	}
	return waitingImport{p, b}, nil
}

// edit is the import as it came, with the chunks that the list does not have.
func (a *Actions) edit(ctx context.Context, m *release.Manifest, i waitingImport) (listEdit, error) {
	e := listEdit{action: i.body.Action, list: i.body.List, seen: i.body.From, had: i.body.Had, added: i.body.Added, removed: i.body.Removed, bad: i.body.Bad}
	if m.Lists[e.list] != e.seen {
		return e, listChanged(e.list)
	}
	old, err := a.stored(ctx, m, e.list)
	if err != nil {
		return e, err
	}
	data, err := a.Ledger.Blob(ctx, i.body.To)
	if err != nil {
		return e, fmt.Errorf("read import %s: %w", i.paper.ID, err)
	}
	if e.index, err = whitelist.ParseIndexBlob(data); err != nil {
		return e, fmt.Errorf("read import %s: %w", i.paper.ID, err)
	}
	e.of = old.Of
	e.blobs, err = a.chunks(ctx, e.index, old.Index)
	return e, err
}
