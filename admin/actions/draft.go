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
)

// The states of a draft. Approved is none: a submitted draft is approved while the
// signature of a second person is under its digest, so no edit can keep it.
const (
	Drafted    = "draft"      // somebody works on it
	Submitted  = "submitted"  // it waits for a second person, or was approved
	Scheduled  = "scheduled"  // it is published when it is due
	Suspended  = "suspended"  // it was due and could not be published; Why says the reason
	Published  = "published"  //
	Withdrawn  = "withdrawn"  //
	Rejected   = "rejected"   // by a second person
	Superseded = "superseded" // late, and a newer schedule of the same parts was late, too
)

// DraftInput is what people write.
type DraftInput struct {
	Title        string            `json:"title" minLength:"3" maxLength:"200" example:"Gray 10.2 to 20 %"`
	Document     string            `json:"document" doc:"YAML, or JSON, which becomes YAML; without ids of lists"`
	Base         uint64            `json:"base" doc:"the release that it was made from"`
	Tables       map[string]string `json:"tables,omitempty" doc:"digests of tables uploaded for it, by key"`
	ReleaseHolds bool              `json:"release_holds,omitempty" doc:"the document may undo operational state"`
	AllowEmpty   bool              `json:"allow_empty,omitempty" doc:"an app may lose all its policies"`
}

// draftBody is what the paper of a draft holds.
type draftBody struct {
	DraftInput
	BaseDigest release.Digest `json:"base_digest"`    // of the base's manifest
	Digest     release.Digest `json:"digest"`         // what a second person signs
	Anew       bool           `json:"anew,omitempty"` // taking another base cost the text its comments and layout
	Reason     string         `json:"reason"`
	Authors    []string       `json:"authors"` // of any part, the first one first
	Due        time.Time      `json:"due,omitzero"`
	Zone       string         `json:"zone,omitempty"`
	Scheduler  string         `json:"scheduler,omitempty"` // who set the time
	Late       bool           `json:"late,omitempty"`      // it was published, or given up, later than it was due
	Why        string         `json:"why,omitempty"`
	Release    uint64         `json:"release,omitempty"`
}

// maxDraft bounds the text of a draft in bytes.
const maxDraft = 1 << 20

// draftFile is what messages call the text.
const draftFile = "document.yaml"

func draftTarget(id string) string { return "draft " + id }

// bodyOf reads what the paper of a draft holds. Papers from before JSON became YAML
// when it was sent are shown as if it had.
func bodyOf(p ledger.Paper) (b draftBody, err error) {
	if err := json.Unmarshal(p.Body, &b); err != nil {
		return b, fmt.Errorf("read draft %s: %w", p.ID, err)
	}
	b.Document = readable(b.Document)
	return b, nil
}

// readable is the text of a document as people read it. What cannot be read stays as
// it is, and so does what a draft could not hold as YAML.
func readable(document string) string {
	if text, err := release.AsYAML([]byte(document)); err == nil && len(text) <= maxDraft {
		return string(text)
	}
	return document
}

// draftPaper is the paper of a draft and what it holds.
func (a *Actions) draftPaper(ctx context.Context, id string) (ledger.Paper, draftBody, error) {
	p, err := a.Ledger.Paper(ctx, ledger.Draft, id)
	if err != nil {
		return p, draftBody{}, err
	}
	b, err := bodyOf(p)
	return p, b, err
}

// publication is the draft as Publish would take it.
func (b draftBody) publication() Publication {
	return Publication{File: draftFile, Document: []byte(b.Document), Base: b.Base, Tables: b.Tables, ReleaseHolds: b.ReleaseHolds, AllowEmpty: b.AllowEmpty}
}

// digestOf is what a second person signs: the base with its manifest's digest, the
// document in its normal form, the tables and the flags. Whatever is edited, and
// whatever it is made from, gives another one.
func digestOf(base uint64, manifest release.Digest, document []byte, p Publication) release.Digest {
	if len(p.Tables) == 0 {
		p.Tables = nil
	}
	text, _ := json.Marshal(map[string]any{"base": base, "manifest": manifest, "document": json.RawMessage(document), // all of it is text
		"tables": p.Tables, "release_holds": p.ReleaseHolds, "allow_empty": p.AllowEmpty})
	return release.DigestOf(text)
}

// CreateDraft begins a draft. Base 0 in the input, once something was published, is
// the release that everybody may serve.
func (a *Actions) CreateDraft(ctx context.Context, w Write, in DraftInput) (DraftView, error) {
	id, err := remembered(ctx, a, w, asked{"draft_create", in}, func(w Write) (string, error) {
		id := strings.ToLower(rand.Text()[:8])
		body, err := a.writtenDraft(ctx, w, in, nil)
		if err != nil {
			return "", err
		}
		return id, a.saveDraft(ctx, w, "draft_create", ledger.Paper{Kind: ledger.Draft, ID: id, State: Drafted}, body)
	})
	if err != nil {
		return DraftView{}, err
	}
	return a.Draft(ctx, id)
}

// EditDraft changes a draft that its author saw at the revision. Every edit ends a
// schedule, and what was approved is approved no more.
func (a *Actions) EditDraft(ctx context.Context, w Write, id string, rev uint64, in DraftInput) (DraftView, error) {
	_, err := remembered(ctx, a, w, asked{"draft_edit", []any{id, rev, in}}, func(w Write) (string, error) {
		p, old, err := a.draftPaper(ctx, id)
		if err != nil {
			return "", err
		}
		if p.State == Published || p.State == Superseded {
			return "", wrongState(p, "it cannot be edited", "begin a new draft")
		}
		body, err := a.writtenDraft(ctx, w, in, old.Authors)
		if err != nil {
			return "", err
		}
		p.Rev, p.State = rev, Drafted
		return id, a.saveDraft(ctx, w, "draft_edit", p, body)
	})
	if err != nil {
		return DraftView{}, err
	}
	return a.Draft(ctx, id)
}

// writtenDraft reads what somebody wrote. Mistakes of form are refused with their
// lines; those of meaning are kept, and the view of the draft shows them.
func (a *Actions) writtenDraft(ctx context.Context, w Write, in DraftInput, authors []string) (draftBody, error) {
	var p fault.Problems
	if title := strings.TrimSpace(in.Title); len(title) < 3 || len(title) > 200 {
		p.Addf("title", "must say in 3 to 200 characters what the change does")
	}
	if err := p.Err("bad_draft", "the draft is incomplete"); err != nil {
		return draftBody{}, err
	}
	if len(in.Document) > maxDraft {
		return draftBody{}, fault.New(fault.TooLarge, "draft_too_large", "the document has %d bytes, more than a draft may have, %d", len(in.Document), maxDraft).
			WithHint("import lists by themselves; a document of rules is smaller")
	}
	doc, source, err := release.ParseSource(draftFile, []byte(in.Document))
	if err != nil {
		return draftBody{}, err
	}
	if err := release.NoIDs(doc); err != nil {
		source.Locate(err.(*fault.Error).Problems)
		return draftBody{}, err
	}
	in.Document = readable(in.Document)
	body := draftBody{DraftInput: in, Reason: w.Reason, Authors: authors}
	if !slices.ContainsFunc(authors, func(name string) bool { return strings.EqualFold(name, w.Actor.Name) }) {
		body.Authors = append(slices.Clone(authors), w.Actor.Name)
	}
	h, err := a.head(ctx)
	if err != nil {
		return draftBody{}, err
	}
	if body.Base == 0 {
		body.Base = h.all.Number
	}
	if body.Base > 0 {
		from, err := a.Ledger.Release(ctx, release.StreamEdge, body.Base)
		if err != nil {
			return draftBody{}, err
		}
		body.BaseDigest = release.DigestOf(from.Manifest)
	}
	return body, body.sign(doc)
}

// sign gives the draft the digest of what stands in it.
func (b *draftBody) sign(doc *release.Document) error {
	normal, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write document as JSON: %w", err)
	}
	b.Digest = digestOf(b.Base, b.BaseDigest, normal, b.publication())
	return nil
}

// saveDraft writes the paper. A caller with a key will hear its id.
func (a *Actions) saveDraft(ctx context.Context, w Write, action string, p ledger.Paper, b draftBody) (err error) {
	if p.Body, err = json.Marshal(b); err != nil {
		return fmt.Errorf("write draft %s: %w", p.ID, err)
	}
	if err := w.remember(p.ID); err != nil {
		return err
	}
	c := w.change(action, draftTarget(p.ID))
	if c.Details, err = json.Marshal(map[string]any{"title": b.Title, "state": p.State, "base": b.Base, "digest": b.Digest}); err != nil {
		return fmt.Errorf("write audit details of draft %s: %w", p.ID, err)
	}
	if _, err = a.Ledger.SavePaper(ctx, p, c); err == nil {
		a.ring()
	}
	return err
}

// SubmitDraft asks for a second person. A draft with mistakes is not submitted.
func (a *Actions) SubmitDraft(ctx context.Context, w Write, id string) (DraftView, error) {
	view, err := a.Draft(ctx, id)
	if err != nil {
		return view, err
	}
	if len(view.Problems) > 0 {
		refusal := fault.New(fault.Invalid, "bad_document", "the draft has mistakes and was not submitted").WithHint("mend them first")
		refusal.Problems = view.Problems
		return view, refusal
	}
	return a.moveDraft(ctx, w, id, draftMove{action: "draft_submit", from: []string{Drafted}, to: Submitted})
}

// WithdrawDraft gives a draft up.
func (a *Actions) WithdrawDraft(ctx context.Context, w Write, id string) (DraftView, error) {
	return a.moveDraft(ctx, w, id, draftMove{action: "draft_withdraw", from: []string{Drafted, Submitted, Scheduled, Suspended, Rejected}, to: Withdrawn, why: true})
}

// RejectDraft sends a draft back to its author, with the reason.
func (a *Actions) RejectDraft(ctx context.Context, w Write, id string) (DraftView, error) {
	return a.moveDraft(ctx, w, id, draftMove{action: "draft_reject", from: []string{Submitted, Scheduled, Suspended}, to: Rejected, why: true})
}

// draftMove takes a draft from one state to another; why: with the reason.
type draftMove struct {
	action string
	from   []string
	to     string
	why    bool
}

func (a *Actions) moveDraft(ctx context.Context, w Write, id string, m draftMove) (DraftView, error) {
	_, err := remembered(ctx, a, w, asked{m.action, id}, func(w Write) (string, error) {
		p, b, err := a.draftPaper(ctx, id)
		if err != nil {
			return "", err
		}
		if !slices.Contains(m.from, p.State) {
			return "", fault.New(fault.Conflict, "draft_state", "draft %s is %s: it is not %s", p.ID, fault.Word(p.State), strings.Join(m.from, " or ")).
				Hintf("GET /api/v1/drafts/%s shows where it stands", id)
		}
		p.State, b.Due, b.Zone, b.Why = m.to, time.Time{}, "", ""
		if m.why {
			b.Why = w.Actor.Name + ": " + w.Reason
		}
		return id, a.saveDraft(ctx, w, m.action, p, b)
	})
	if err != nil {
		return DraftView{}, err
	}
	return a.Draft(ctx, id)
}

func wrongState(p ledger.Paper, what, hint string) error {
	return fault.New(fault.Conflict, "draft_state", "draft %s is %s: %s", p.ID, fault.Word(p.State), fault.Word(what)).WithHint(hint)
}

// ApproveDraft signs the draft as its digest has it. Who wrote a part of it may not.
func (a *Actions) ApproveDraft(ctx context.Context, w Write, id, digest string) (DraftView, error) {
	signed, err := readDigest(digest)
	if err != nil {
		return DraftView{}, err
	}
	_, err = remembered(ctx, a, w, asked{"draft_approve", []any{id, digest}}, func(w Write) (string, error) {
		p, b, err := a.draftPaper(ctx, id)
		if err != nil {
			return "", err
		}
		if p.State != Submitted {
			return "", wrongState(p, "only a submitted draft can be approved", "its author submits it first")
		}
		if b.Digest != signed {
			return "", fault.New(fault.Conflict, "stale_approval", "draft %s was changed since you looked; nothing was approved", id).
				WithHint("look at it again, then approve what it says now")
		}
		if err := a.another(ctx, w.Actor, fault.Textf("draft %s", id), b.Authors...); err != nil {
			return "", err
		}
		if err := w.remember(id); err != nil {
			return "", err
		}
		c := w.change("draft_approve", draftTarget(id))
		c.Details = fmt.Appendf(nil, `{"digest":%q,"base":%d}`, signed, b.Base)
		return id, a.Ledger.Approve(ctx, ledger.Approval{Kind: ledger.OfDraft, ID: id, Digest: signed, Author: p.By}, c)
	})
	if err != nil {
		return DraftView{}, err
	}
	return a.Draft(ctx, id)
}
