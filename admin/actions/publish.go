package actions

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
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
}

// Publish makes a release of a document. What the document leaves out of lists
// and tables stays as it is; operational state stays too, and a document that
// contradicts it is the conflict held. A base that is no longer the newest
// release is the conflict stale_base, whose Data has what changed on both sides.
func (a *Actions) Publish(ctx context.Context, w Write, p Publication) (out Outcome, err error) {
	earlier, once, err := a.replay(ctx, w, "publish", p)
	if err != nil || earlier != nil {
		return valueOf(earlier), err
	}
	doc, source, err := release.ParseSource(p.File, p.Document)
	if err != nil {
		return Outcome{}, err
	}
	err = a.alone(ctx, func() error {
		parent, from, err := a.latest(ctx)
		if err != nil {
			return err
		}
		if parent.Number != p.Base {
			return a.stale(ctx, p.Base, from, doc)
		}
		d := draft{action: "publish", target: p.File, parent: parent, from: from, once: once}
		if err := a.fill(ctx, &d, doc, source, p); err != nil {
			return err
		}
		d.change.Cause = release.Cause{Action: d.action, By: w.Actor.Name, Reason: w.Reason}
		d.change.Approve = release.Approval{BigMove: p.BigMove, RegionRemoved: p.RegionRemoved}
		d.details = map[string]any{"release_holds": p.ReleaseHolds, "big_move": p.BigMove, "region_removed": p.RegionRemoved}
		if p.DryRun {
			out, err = a.preview(ctx, d)
		} else {
			out, err = a.commit(ctx, w, d)
		}
		return err
	})
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
	warnings, err := release.Check(doc, release.CheckContext{Source: source, Suffixes: a.Suffixes, Now: now(), Previous: old,
		Operational: &ops, Lists: stored, Tables: parts.prefixes, Geo: a.Geo})
	if err != nil {
		return err
	}
	if len(held) > 0 && !p.ReleaseHolds {
		source.Locate(held)
		return release.Held(held)
	}
	if err := a.requireApproved(ctx, doc, source); err != nil {
		return err
	}
	if err := parts.lists(ctx); err != nil {
		return err
	}
	d.change.Document, d.change.Operational = doc, &ops
	d.change.Lists, d.change.Tables = parts.listDigests, parts.tableDigests
	d.blobs, d.warnings = parts.blobs, warnings
	return nil
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
			missing = append(missing, fault.Problem{Path: path, Detail: host + " is not an approved host",
				Hint: "POST /api/v1/hosts proposes it; somebody else approves it with POST /api/v1/approvals/" + host})
		}
	}
	slices.SortFunc(missing, func(x, y fault.Problem) int { return cmp.Compare(x.Path, y.Path) })
	source.Locate(missing)
	return missing.Err("host_not_approved", "some hosts are not approved")
}

// publishing collects what a document's lists and tables become.
type publishing struct {
	actions      *Actions
	doc          *release.Document
	from         *release.Manifest
	uploaded     map[string]string
	listDigests  map[string]release.Digest
	tableDigests map[string]release.Digest
	prefixes     map[string]*policy.Prefixes
	blobs        []whitelist.Blob
}

// tables gives each table the digest that the document states, or the one it had.
func (p *publishing) tables(ctx context.Context) error {
	p.tableDigests, p.prefixes = map[string]release.Digest{}, map[string]*policy.Prefixes{}
	var problems fault.Problems
	for i := range p.doc.Tables {
		t, path := &p.doc.Tables[i], fmt.Sprintf("tables[%d]", i)
		digest, known := release.Digest{}, false
		if p.from != nil {
			digest, known = p.from.Tables[t.Key]
		}
		if raw, err := hex.DecodeString(cmp.Or(t.Digest, p.uploaded[t.Key])); err == nil && len(raw) == len(digest) {
			digest, known = release.Digest(raw), true
		}
		if !known {
			problems = append(problems, fault.Problem{Path: path, Detail: "table " + t.Key + " was never uploaded",
				Hint: "POST /api/v1/tables/" + t.Key + ", then write the digest that it answers"})
			continue
		}
		table, err := p.actions.table(ctx, digest)
		if fault.KindOf(err) == fault.NotFound {
			problems = append(problems, fault.Problem{Path: path + ".digest", Detail: "no table with this digest was uploaded",
				Hint: "POST /api/v1/tables/" + t.Key + ", then write the digest that it answers"})
			continue
		}
		if err != nil {
			return err
		}
		t.Digest = digest.String()
		p.tableDigests[t.Key], p.prefixes[t.Key] = digest, table
	}
	return problems.Err("unknown_table", "some tables are not here")
}

// lists imports the ids that the document brings and keeps the other lists.
func (p *publishing) lists(ctx context.Context) error {
	p.listDigests = map[string]release.Digest{}
	for i := range p.doc.Lists {
		l := &p.doc.Lists[i]
		index, err := p.list(ctx, l)
		if err != nil {
			return fmt.Errorf("list %s: %w", l.Key, err)
		}
		digest := release.DigestOf(index.Bytes())
		p.blobs = append(p.blobs, whitelist.Blob{Digest: digest, Bytes: index.Bytes()})
		p.listDigests[l.Key] = digest
		l.IDs, l.Digest, l.Count = nil, digest.String(), index.Count
	}
	return nil
}

func (p *publishing) list(ctx context.Context, l *release.List) (*whitelist.IndexBlob, error) {
	if l.IDs == nil {
		stored, err := p.actions.stored(ctx, p.from, l.Key)
		if err != nil {
			return nil, err
		}
		if p.folds(p.from, l.Key) != p.folds(&release.Manifest{Document: *p.doc}, l.Key) {
			return nil, fault.New(fault.Invalid, "id_case_changed", "the apps that use list %s now spell ids another way", l.Key).
				WithHint("publish the list's ids with this document, so that they are read anew")
		}
		return stored.Index, nil
	}
	content, err := p.actions.contentOf(p.doc, l.Key, l.Of, *l.IDs)
	if err != nil {
		return nil, err
	}
	p.blobs = appendContent(p.blobs, content)
	return content.Index(), nil
}

func (p *publishing) folds(m *release.Manifest, list string) bool {
	folds, _ := m.Document.FoldsIDs(list)
	return folds
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
	if conflict.Yours, err = release.Diff(was, release.Configuration{Document: doc, Operational: from.Operational}); err != nil {
		return err
	}
	refusal.Data = conflict
	return refusal
}

// Conflict is the Data of stale_base: the three-way difference.
type Conflict struct {
	Base   uint64               `json:"base"`
	Head   uint64               `json:"head"`
	Theirs []release.Difference `json:"theirs,omitempty"` // base → head
	Yours  []release.Difference `json:"yours,omitempty"`  // base → the document
}

func valueOf(o *Outcome) Outcome {
	if o == nil {
		return Outcome{}
	}
	return *o
}
