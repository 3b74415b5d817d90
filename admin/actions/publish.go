package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// Publication is a document to publish.
type Publication struct {
	File          string            // for messages
	Document      []byte            // YAML or JSON
	Base          uint64            // the release it was made from; 0: there is none yet
	Tables        map[string]string // digests of tables uploaded for it, where the document states none
	DryRun        bool
	ReleaseHolds  bool // the document may undo operational state
	BigMove       bool // more than a tenth of an app's users may move
	RegionRemoved bool // a region may go
	AllowEmpty    bool // an app may lose all its policies, and a list all its ids
}

// Publish makes a release of a document. What the document leaves out of lists
// and tables stays as it is; operational state stays too, and a document that
// contradicts it is the conflict held. A base that is no longer the newest
// release is the conflict stale_base, whose Data has what changed on both sides.
//
// What needs a second person (needs.go) is refused with needs_approval, unless a
// draft with the same base, document and flags was approved.
func (a *Actions) Publish(ctx context.Context, w Write, p Publication) (Outcome, error) {
	out, err := remembered(ctx, a, w, asked{"publish", p}, func(w Write) (out Outcome, err error) {
		doc, source, err := release.ParseSource(p.File, p.Document)
		if err != nil {
			return Outcome{}, err
		}
		normal, err := json.Marshal(doc)
		if err != nil {
			return Outcome{}, fmt.Errorf("write document as JSON: %w", err)
		}
		var dry *draft
		err = a.alone(ctx, func(ctx context.Context) error {
			h, err := a.startingAt(ctx, p.Base, doc)
			if err != nil {
				return err
			}
			d := draft{action: "publish", target: p.File, head: h,
				details: map[string]any{"release_holds": p.ReleaseHolds, "big_move": p.BigMove, "region_removed": p.RegionRemoved, "allow_empty": p.AllowEmpty}}
			if err := a.fill(ctx, &d, doc, source, p); err != nil {
				return err
			}
			d.change.Cause = release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}
			d.change.Approve = release.Approval{BigMove: p.BigMove, RegionRemoved: p.RegionRemoved}
			if p.DryRun {
				dry = &d
				return nil
			}
			if err := a.secondPerson(ctx, &d, digestOf(p.Base, release.DigestOf(h.newest.Manifest), normal, p)); err != nil {
				return err
			}
			if out, err = a.commitAt(ctx, w, d, p.Base, doc); err == nil && d.paper != nil {
				out.Warnings = append(out.Warnings, a.finish(ctx, w, *d.paper, out.Release)...)
			}
			return err
		})
		if err == nil && dry != nil { // without the turn: replicas try it, and nobody waits behind them
			out, err = a.preview(ctx, *dry)
		}
		return out, err
	})
	if err == nil {
		a.acknowledge(ctx, &out, normalWait)
	}
	return out, err
}

// startingAt is the head, if a normal change can be made of it and it is base.
func (a *Actions) startingAt(ctx context.Context, base uint64, doc *release.Document) (head, error) {
	h, err := a.head(ctx)
	if err == nil {
		err = h.known()
	}
	if err == nil && h.newest.Number != base {
		err = a.stale(ctx, base, h.written, doc)
	}
	if err == nil {
		err = a.open(ctx, h)
	}
	return h, err
}

// commitAt commits, and says what changed since base when another control node was faster.
func (a *Actions) commitAt(ctx context.Context, w Write, d draft, base uint64, doc *release.Document) (Outcome, error) {
	out, err := a.commit(ctx, w, d)
	if fault.CodeOf(err) != "stale_base" {
		return out, err
	}
	h, err := a.head(ctx)
	if err == nil {
		err = a.stale(ctx, base, h.written, doc)
	}
	return out, err
}

// fill completes the document: lists and tables get their digests, operational
// state is carried over, everything is checked, and every host must be approved.
func (a *Actions) fill(ctx context.Context, d *draft, doc *release.Document, source *release.Source, p Publication) error {
	parts := &publishing{actions: a, doc: doc, from: d.from, uploaded: p.Tables}
	if err := parts.tables(ctx); err != nil {
		return err
	}
	was := release.Operational{}
	var old *release.Document
	if d.from != nil {
		was, old = d.from.Operational, &d.from.Document
	}
	ops, held := was.Carry(old, doc, p.ReleaseHolds)
	stored := map[string]int{}
	for _, l := range document(d.from).Lists {
		stored[l.Key] = l.Count
	}
	warnings, err := release.Check(doc, release.CheckContext{Source: source, Suffixes: a.Suffixes, Now: a.now(), Previous: old,
		Operational: &ops, Lists: stored, Tables: parts.prefixes, Geo: a.Geo})
	if e, ok := errors.AsType[*fault.Error](err); err != nil && !ok {
		return err
	} else if ok {
		parts.problems = append(parts.problems, e.Problems...)
	}
	if !p.AllowEmpty {
		parts.emptied()
	}
	if err := parts.lists(ctx); err != nil {
		return err
	}
	if err := parts.err(source); err != nil {
		return err
	}
	source.Locate(held)
	if len(held) > 0 && !p.ReleaseHolds {
		return release.Held(held)
	}
	if err := a.requireApproved(ctx, doc, source); err != nil {
		return err
	}
	if err := a.requireNames(ctx, doc, source); err != nil {
		return err
	}
	d.change.Document, d.change.Operational = doc, &ops
	d.change.Lists, d.change.Tables = parts.listDigests, parts.tableDigests
	d.blobs, d.warnings = parts.blobs, slices.Concat(warnings, undone(held), replaced(d.from, doc, parts.listDigests))
	return nil
}

// undone warns of what was set by hand and ends with the document, as it was asked to.
func undone(held []fault.Problem) []fault.Problem {
	warnings := slices.Clone(held)
	for i := range warnings {
		detail, _ := held[i].Texts()
		detail = fault.Textf("%s; the document has its way", detail)
		warnings[i].Detail, warnings[i].Hint, warnings[i].Said = detail.String(), "", &fault.Said{Detail: detail}
	}
	return warnings
}

// requireApproved names every host of the document that two people have not agreed on.
func (a *Actions) requireApproved(ctx context.Context, doc *release.Document, source *release.Source) error {
	approved, err := a.Ledger.ApprovedHosts(ctx)
	if err != nil {
		return fmt.Errorf("read approved hosts: %w", err)
	}
	var missing fault.Problems
	for host, path := range doc.Domains() {
		if !approved[host] {
			missing = append(missing, fault.ProblemOf(path, fault.Textf("%s is not an approved host", host),
				fault.Textf("POST /api/v1/hosts proposes it; somebody else approves it with POST /api/v1/approvals/%s", host)))
		}
	}
	slices.SortFunc(missing, func(x, y fault.Problem) int { return cmp.Compare(x.Path, y.Path) })
	source.Locate(missing)
	return missing.Err("host_not_approved", "some hosts are not approved")
}

// stale is the refusal of a document that was made from an older release: what
// its author changed, and what others have changed since.
func (a *Actions) stale(ctx context.Context, base uint64, head *release.Manifest, doc *release.Document) error {
	headNumber := uint64(0)
	if head != nil {
		headNumber = head.Number
	}
	refusal := fault.New(fault.Conflict, "stale_base", "the document was made from release %d and %d is the newest", base, headNumber).
		WithHint("look at what changed since, bring it into the document, and publish with the new number")
	conflict := Conflict{Base: base, Head: headNumber}
	if head == nil || base == 0 {
		refusal.Data = conflict
		return refusal
	}
	from, err := a.manifestOf(ctx, base)
	if fault.KindOf(err) == fault.NotFound {
		refusal.Data = conflict
		return refusal
	}
	if err != nil {
		return err
	}
	was := release.Configuration{Document: &from.Document, Operational: from.Operational}
	if conflict.Theirs, err = release.Diff(was, release.Configuration{Document: &head.Document, Operational: head.Operational}); err != nil {
		return err
	}
	if conflict.Yours, err = release.Diff(was, release.Configuration{Document: unchanged(doc, from), Operational: from.Operational}); err != nil {
		return err
	}
	refusal.Data = conflict
	return refusal
}

// unchanged is doc with what it leaves out of lists and tables as from has it, so
// that these are no differences.
func unchanged(doc *release.Document, from *release.Manifest) *release.Document {
	full := *doc
	full.Lists, full.Tables = slices.Clone(doc.Lists), slices.Clone(doc.Tables)
	for i := range full.Lists {
		if l := &full.Lists[i]; l.IDs == nil {
			if old, err := listOf(from, l.Key); err == nil {
				l.Digest, l.Count = old.Digest, old.Count
			}
		}
	}
	for i := range full.Tables {
		t := &full.Tables[i]
		if digest, ok := from.Tables[t.Key]; ok && t.Digest == "" {
			t.Digest = digest.String()
		}
	}
	return &full
}

// Conflict is the Data of stale_base: the three-way difference.
type Conflict struct {
	Base   uint64               `json:"base"`
	Head   uint64               `json:"head"`
	Theirs []release.Difference `json:"theirs,omitempty"` // base → head
	Yours  []release.Difference `json:"yours,omitempty"`  // base → the document
}
