package pages

import (
	"net/url"
	"strconv"
	"strings"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// changesPage is what is on its way, and what has been.
type changesPage struct {
	Tab      string // drafts, review, scheduled, history
	Waiting  int    // for a second person
	Held     int    // suspended schedules
	Drafts   []actions.DraftSummary
	Pending  []actions.Pending
	Releases []ledger.Summary
	Current  uint64
	Next     uint64 // the history goes on below this one; 0: it ends
}

// historyPage is how many releases the history shows at once.
const historyPage = 50

func (v *visit) changes() error {
	ctx := v.r.Context()
	p := changesPage{Tab: v.r.URL.Query().Get("tab")}
	pending, err := v.do.Pending(ctx)
	if err != nil {
		return err
	}
	p.Waiting, p.Pending = len(pending), pending
	held, err := v.do.Drafts(ctx, actions.Suspended)
	if err != nil {
		return err
	}
	p.Held = len(held)
	switch p.Tab {
	case "review":
	case "scheduled":
		p.Drafts, err = v.do.Drafts(ctx, actions.Scheduled)
		p.Drafts = append(held, p.Drafts...)
	case "history":
		before, _ := strconv.ParseUint(v.r.URL.Query().Get("before"), 10, 64) // anything else is the beginning
		p.Current, p.Releases, err = v.do.Releases(ctx, before, historyPage)
		if len(p.Releases) == historyPage {
			p.Next = p.Releases[historyPage-1].Number
		}
	default:
		p.Tab = "drafts"
		p.Drafts, err = v.do.Drafts(ctx)
	}
	if err != nil {
		return err
	}
	return v.show("changes", p)
}

// draftPage is one draft to read, and what was typed into its forms.
type draftPage struct {
	actions.DraftView
	At string
}

func (v *visit) draft() error {
	d, err := v.do.Draft(v.r.Context(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.show("draft", draftPage{DraftView: d})
}

// turned goes back to the draft after something was done to it, or shows it with
// what was wrong.
func (v *visit) turned(message string, err error) error {
	id := v.r.PathValue("id")
	if err == nil {
		return v.done("/changes/"+url.PathEscape(id), message)
	}
	d, unread := v.do.Draft(v.r.Context(), id)
	if unread != nil {
		return err
	}
	return v.refuse("draft", draftPage{DraftView: d, At: v.r.PostFormValue("at")}, err)
}

func (v *visit) submitDraft() error {
	_, err := v.do.SubmitDraft(v.r.Context(), v.write(), v.r.PathValue("id"))
	return v.turned("changes.said.submitted", err)
}

func (v *visit) withdrawDraft() error {
	_, err := v.do.WithdrawDraft(v.r.Context(), v.write(), v.r.PathValue("id"))
	return v.turned("changes.said.withdrawn", err)
}

func (v *visit) rejectDraft() error {
	_, err := v.do.RejectDraft(v.r.Context(), v.write(), v.r.PathValue("id"))
	return v.turned("changes.said.rejected", err)
}

func (v *visit) unscheduleDraft() error {
	_, err := v.do.UnscheduleDraft(v.r.Context(), v.write(), v.r.PathValue("id"))
	return v.turned("changes.said.unscheduled", err)
}

func (v *visit) approveDraft() error {
	_, err := v.do.ApproveDraft(v.r.Context(), v.write(), v.r.PathValue("id"), v.r.PostFormValue("digest"))
	return v.turned("changes.said.approved", err)
}

func (v *visit) scheduleDraft() error {
	_, err := v.do.ScheduleDraft(v.r.Context(), v.write(), v.r.PathValue("id"), v.r.PostFormValue("digest"), v.r.PostFormValue("at"))
	return v.turned("changes.said.scheduled", err)
}

func (v *visit) rebaseDraft() error {
	_, err := v.do.RebaseDraft(v.r.Context(), v.write(), v.r.PathValue("id"), v.revision())
	return v.turned("changes.said.rebased", err)
}

func (v *visit) publishDraft() error {
	out, err := v.do.PublishDraft(v.r.Context(), v.write(), v.r.PathValue("id"), v.r.PostFormValue("digest"))
	if err != nil {
		return v.turned("", err)
	}
	return v.done("/releases/"+strconv.FormatUint(out.Release, 10), "changes.said.published", "Release", out.Release)
}

// revision is the one that the form was made from. What is no number is none that
// anything has.
func (v *visit) revision() uint64 {
	rev, err := strconv.ParseUint(v.r.PostFormValue("rev"), 10, 64)
	if err != nil {
		return 0
	}
	return rev
}

// editPage is the editor of a draft.
type editPage struct {
	ID       string // empty: of a new one
	Rev      uint64
	Input    actions.DraftInput
	Reason   string
	Problems []fault.Problem // of the text as it was sent
}

// newDraft begins with the document in use.
func (v *visit) newDraft() error {
	number, text, err := v.do.DocumentText(v.r.Context())
	if err != nil {
		return err
	}
	return v.show("draft_edit", editPage{Input: actions.DraftInput{Document: text, Base: number}})
}

func (v *visit) editDraft() error {
	d, err := v.do.Draft(v.r.Context(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.show("draft_edit", editPage{ID: d.ID, Rev: d.Rev, Reason: d.Reason, Problems: d.Problems, Input: actions.DraftInput{
		Title: d.Title, Document: d.Document, Base: d.Base, Tables: d.Tables, ReleaseHolds: d.ReleaseHolds, AllowEmpty: d.AllowEmpty}})
}

// written is the draft as the form has it. Browsers end lines with CR LF.
func (v *visit) written() (actions.DraftInput, error) {
	base, err := strconv.ParseUint(v.r.PostFormValue("base"), 10, 64)
	if err != nil {
		return actions.DraftInput{}, fault.New(fault.Invalid, "bad_base", "%q is no number of a release", v.r.PostFormValue("base"))
	}
	return actions.DraftInput{Title: v.r.PostFormValue("title"), Document: strings.ReplaceAll(v.r.PostFormValue("document"), "\r\n", "\n"), Base: base,
		ReleaseHolds: v.r.PostFormValue("release_holds") != "", AllowEmpty: v.r.PostFormValue("allow_empty") != ""}, nil
}

func (v *visit) saveDraft() error {
	in, err := v.written()
	if err != nil {
		return err
	}
	id, rev := v.r.PathValue("id"), v.revision()
	var d actions.DraftView
	if id == "" {
		d, err = v.do.CreateDraft(v.r.Context(), v.write(), in)
	} else {
		if old, unread := v.do.Draft(v.r.Context(), id); unread == nil {
			in.Tables = old.Tables // no form has them
		}
		d, err = v.do.EditDraft(v.r.Context(), v.write(), id, rev, in)
	}
	if err != nil {
		return v.refuse("draft_edit", editPage{ID: id, Rev: rev, Input: in, Reason: v.r.PostFormValue("reason")}, err)
	}
	return v.done("/changes/"+url.PathEscape(d.ID), "changes.said.saved")
}

// releasePage is one release to read.
type releasePage struct {
	actions.ReleaseView
	Relive *actions.RelivePreview // what making it live again would do; nil: it is live, or cannot be
	Why    *fault.Body            // it cannot be
}

func (v *visit) releaseNumber(name string) (uint64, error) {
	n, err := strconv.ParseUint(v.r.PathValue(name), 10, 64)
	if err != nil {
		return 0, fault.New(fault.NotFound, "unknown_release", "no release %q", v.r.PathValue(name)).WithHint("the history of changes lists all")
	}
	return n, nil
}

func (v *visit) readRelease() (releasePage, error) {
	n, err := v.releaseNumber("n")
	if err != nil {
		return releasePage{}, err
	}
	r, err := v.do.ReleaseView(v.r.Context(), n)
	p := releasePage{ReleaseView: r}
	if err != nil || r.Number == r.Current {
		return p, err
	}
	preview, err := v.do.PreviewRelive(v.r.Context(), n)
	if err != nil {
		if fault.KindOf(err) == fault.Internal {
			return p, err
		}
		body := fault.BodyOf(err)
		p.Why = &body
		return p, nil
	}
	p.Relive = &preview
	return p, nil
}

func (v *visit) release() error {
	p, err := v.readRelease()
	if err != nil {
		return err
	}
	return v.show("release", p)
}

func (v *visit) relive() error {
	n, err := v.releaseNumber("n")
	if err != nil {
		return err
	}
	out, err := v.do.Relive(v.r.Context(), v.write(), n)
	if err == nil {
		return v.done("/releases/"+strconv.FormatUint(out.Release, 10), "changes.said.relived", "Of", n, "Release", out.Release)
	}
	p, unread := v.readRelease()
	if unread != nil {
		return err
	}
	return v.refuse("release", p, err)
}

func (v *visit) review() error {
	n, err := v.releaseNumber("n")
	if err == nil {
		err = v.do.ReviewRelease(v.r.Context(), v.write(), n)
	}
	if err == nil {
		return v.done("/releases/"+strconv.FormatUint(n, 10), "changes.said.reviewed", "Release", n)
	}
	p, unread := v.readRelease()
	if unread != nil {
		return err
	}
	return v.refuse("release", p, err)
}

// diffPage is what two releases differ in.
type diffPage struct {
	From, To uint64
	Changes  []release.Difference
}

func (v *visit) diff() error {
	from, err := v.releaseNumber("a")
	if err != nil {
		return err
	}
	to, err := v.releaseNumber("b")
	if err != nil {
		return err
	}
	changes, err := v.do.Diff(v.r.Context(), from, to)
	if err != nil {
		return err
	}
	return v.show("diff", diffPage{from, to, changes})
}
