package actions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// DraftSummary is a draft in a list.
type DraftSummary struct {
	ID      string    `json:"id"`
	Rev     uint64    `json:"rev" doc:"of the draft, for If-Match"`
	State   string    `json:"state" enum:"draft,submitted,scheduled,suspended,published,withdrawn,rejected,superseded"`
	Title   string    `json:"title"`
	Reason  string    `json:"reason"`
	Authors []string  `json:"authors" doc:"of any part, the first one first; none of them may approve it"`
	Base    uint64    `json:"base"`
	Digest  string    `json:"digest" doc:"what a second person signs, and what publishing names"`
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	Due     time.Time `json:"due,omitzero" doc:"when it is published by itself"`
	Zone    string    `json:"zone,omitempty" doc:"in which due was written"`
	Late    bool      `json:"late,omitempty" doc:"the schedule ran later than it was due"`
	Why     string    `json:"why,omitempty" doc:"why it was suspended, rejected, withdrawn or superseded"`
	Release uint64    `json:"release,omitempty" doc:"that carries it"`
}

// DueLocal is when it is due, as it was written: 2027-02-05T02:30 Asia/Shanghai.
func (d DraftSummary) DueLocal() string {
	where, err := zoneOf(d.Zone)
	if err != nil || d.Due.IsZero() {
		return ""
	}
	return d.Due.In(where).Format("2006-01-02T15:04Z07:00") + " " + d.Zone
}

// DraftView is a draft as it stands now.
type DraftView struct {
	DraftSummary
	Document     string            `json:"document" doc:"YAML"`
	Anew         bool              `json:"anew,omitempty" doc:"the rebase found no place for a change in the text and wrote all of it anew: comments and layout of before are gone"`
	Tables       map[string]string `json:"tables,omitempty"`
	ReleaseHolds bool              `json:"release_holds,omitempty"`
	AllowEmpty   bool              `json:"allow_empty,omitempty"`

	Head      uint64               `json:"head" doc:"the release that everybody may serve"`
	Stale     bool                 `json:"stale" doc:"the base is no longer the newest release"`
	Problems  []fault.Problem      `json:"problems" doc:"why it cannot be published"`
	Warnings  []fault.Problem      `json:"warnings"`
	Since     []release.Difference `json:"since" doc:"what others changed since the base"`
	Conflicts []string             `json:"conflicts" doc:"parts that both changed; the draft can take the new base when there are none"`
	Preview   *Preview             `json:"preview,omitempty" doc:"against the base; none while it has problems"`
	Approvals []ledger.Approval    `json:"approvals" doc:"of second people for what it says now"`
	Approved  bool                 `json:"approved" doc:"a second person agreed to what it says now"`
	Ready     bool                 `json:"ready" doc:"it can be published now, as far as drafts go"`
}

func summaryOf(p ledger.Paper, b draftBody) DraftSummary {
	return DraftSummary{ID: p.ID, Rev: p.Rev, State: p.State, Title: b.Title, Reason: b.Reason, Authors: b.Authors, Base: b.Base, Digest: b.Digest.String(),
		Created: p.Created, Changed: p.Changed, Due: b.Due, Zone: b.Zone, Late: b.Late, Why: b.Why, Release: b.Release}
}

// Drafts are the drafts in one of the states, or all, the last changed first.
func (a *Actions) Drafts(ctx context.Context, states ...string) ([]DraftSummary, error) {
	all, err := a.Ledger.Papers(ctx, ledger.Draft, ledger.PaperFilter{States: states})
	if err != nil {
		return nil, fmt.Errorf("read drafts: %w", err)
	}
	list := make([]DraftSummary, 0, len(all))
	for _, p := range all {
		b, err := bodyOf(p)
		if err != nil {
			return nil, err
		}
		list = append(list, summaryOf(p, b))
	}
	return list, nil
}

// Draft is one draft: what is wrong with it, what it changes, what changed since its
// base, and why it takes two people.
func (a *Actions) Draft(ctx context.Context, id string) (DraftView, error) {
	p, b, err := a.draftPaper(ctx, id)
	if err != nil {
		return DraftView{}, err
	}
	v := DraftView{DraftSummary: summaryOf(p, b), Document: b.Document, Anew: b.Anew, Tables: b.Tables, ReleaseHolds: b.ReleaseHolds, AllowEmpty: b.AllowEmpty, Problems: []fault.Problem{}, Warnings: []fault.Problem{},
		Since: []release.Difference{}, Conflicts: []string{}, Approvals: []ledger.Approval{}}
	h, err := a.head(ctx)
	if err != nil {
		return DraftView{}, err
	}
	v.Head = h.all.Number
	valid, err := a.agreed(ctx, id, b.Digest, b.Authors)
	if err != nil {
		return DraftView{}, err
	}
	v.Approvals, v.Approved = slices.Concat(v.Approvals, valid), len(valid) > 0
	if p.State == Published || p.State == Superseded || p.State == Withdrawn {
		return v, nil
	}
	v.Stale = b.Base != h.newest.Number
	if err := a.compareDraft(ctx, &v, h, b); err != nil {
		return DraftView{}, err
	}
	v.Ready = !v.Stale && len(v.Problems) == 0 && (v.Approved || !a.FourEyes || v.Preview != nil && len(v.Preview.Needs) == 0)
	return v, nil
}

// compareDraft fills in what comes of comparing a draft with its base, and the base
// with what everybody serves.
func (a *Actions) compareDraft(ctx context.Context, v *DraftView, h head, b draftBody) error {
	at, err := a.headAt(ctx, h, b.Base)
	if err != nil {
		return err
	}
	err = a.weighDraft(ctx, v, at, b)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind != fault.Internal && e.Kind != fault.Unavailable {
		v.Problems, err = problemsOf(e), nil
	}
	if err != nil || at.from == nil || h.from == nil || at.all.Number == h.all.Number {
		return err
	}
	v.Since, err = difference(release.Configuration{Document: &at.from.Document, Operational: at.from.Operational},
		release.Configuration{Document: &h.from.Document, Operational: h.from.Operational})
	if err != nil {
		return err
	}
	_, conflicts, err := b.onto(at.from, h.from)
	v.Conflicts = append(v.Conflicts, conflicts...)
	return err
}

// headAt is the head as it was when the draft's base was the newest release.
func (a *Actions) headAt(ctx context.Context, h head, base uint64) (head, error) {
	if base == 0 || base == h.all.Number {
		return h, nil
	}
	var err error
	at := head{numbered: base}
	if at.all, at.from, err = a.released(ctx, base); err != nil {
		return head{}, fmt.Errorf("read the base of the draft: %w", err)
	}
	at.newest, at.written = at.all, at.from
	return at, nil
}

// weighDraft previews the draft on its base. What only a second person may allow is
// no refusal of a draft: that is what drafts are for.
func (a *Actions) weighDraft(ctx context.Context, v *DraftView, at head, b draftBody) error {
	p := b.publication()
	doc, source, err := release.ParseSource(p.File, p.Document)
	if err != nil {
		return err
	}
	d := draft{action: "publish", target: draftTarget(v.ID), head: at}
	if err := a.fill(ctx, &d, doc, source, p); err != nil {
		return err
	}
	d.change.Cause = release.Cause{Action: d.action, By: b.Authors[0], Reason: b.Reason}
	out, err := a.preview(ctx, d)
	if err != nil {
		return err
	}
	v.Preview = out.Preview
	v.Warnings = append(v.Warnings, out.Warnings...)
	if r := v.Preview.Refused; r != nil && hasNeed(v.Preview.Needs, r.Code) {
		v.Preview.Refused = nil
	}
	return nil
}

// problemsOf lists what a refusal says.
func problemsOf(e *fault.Error) []fault.Problem {
	if len(e.Problems) > 0 {
		return e.Problems
	}
	return []fault.Problem{{Detail: e.Detail, Hint: e.Hint}}
}

// onto is the draft's document laid over head, or the parts that both changed since base.
func (b draftBody) onto(base, head *release.Manifest) (*release.Document, []string, error) {
	doc, err := release.Parse(draftFile, []byte(b.Document))
	if err != nil {
		return nil, nil, err
	}
	return release.Merge(&base.Document, b.whole(doc, base), &head.Document)
}

// whole is the draft's document with what it leaves out of lists and tables as its
// base has it, and the tables that were uploaded for it.
func (b draftBody) whole(doc *release.Document, base *release.Manifest) *release.Document {
	full := *doc
	full.Tables = slices.Clone(doc.Tables)
	for i := range full.Tables {
		if t := &full.Tables[i]; t.Digest == "" {
			t.Digest = b.Tables[t.Key]
		}
	}
	return unchanged(&full, base)
}
