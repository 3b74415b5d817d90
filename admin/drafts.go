package admin

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"dispatch.example/dispatch/admin/actions"
)

// draftRoutes are what happens before a change is a release, and what waits for a second person.
func (a *API) draftRoutes(api huma.API) {
	route(api, a, endpoint{http.MethodGet, "/drafts", "list-drafts", "", "Changes that nobody serves yet, the last changed first"}, a.drafts)
	route(api, a, endpoint{http.MethodPost, "/drafts", "create-draft", "", "Begin a draft"}, a.createDraft)
	route(api, a, endpoint{http.MethodGet, "/drafts/{id}", "show-draft", "", "A draft: problems, difference, impact, approvals"}, a.draft)
	route(api, a, endpoint{http.MethodPut, "/drafts/{id}", "edit-draft", "", "Edit a draft; approvals count no more"}, a.editDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/submit", "submit-draft", "", "Ask for a second person"}, a.submitDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/rebase", "rebase-draft", "", "Bring a draft onto the newest release"}, a.rebaseDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/withdraw", "withdraw-draft", "", "Give a draft up"}, a.withdrawDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/approve", "approve-draft", "", "Sign a draft that somebody else wrote"}, a.approveDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/reject", "reject-draft", "", "Send a draft back, with the reason"}, a.rejectDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/schedule", "schedule-draft", "", "Publish a draft by itself at a time"}, a.scheduleDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/unschedule", "unschedule-draft", "", "Take the time from a draft"}, a.unscheduleDraft)
	route(api, a, endpoint{http.MethodPost, "/drafts/{id}/publish", "publish-draft", "", "Publish a draft"}, a.publishDraft)
	route(api, a, endpoint{http.MethodGet, "/pending", "list-pending", "", "What waits for a second person"}, a.pending)
	route(api, a, endpoint{http.MethodPost, "/releases/{n}/review", "review", "", "Sign an emergency that somebody else made"}, a.review)
	route(api, a, endpoint{http.MethodGet, "/releases/{n}/relive", "preview-relive", "", "What making a release live again would do"}, a.previewRelive)
	route(api, a, endpoint{http.MethodGet, "/settings", "show-settings", "", "The numbers of the safety rules, and freeze windows"}, a.settings)
	route(api, a, endpoint{http.MethodPut, "/settings", "edit-settings", "", "Change settings; what loosens a rule waits for a second person"}, a.saveSettings)
	route(api, a, endpoint{http.MethodPost, "/settings/approve", "approve-settings", "", "Put settings in force that somebody else proposed"}, a.approveSettings)
}

type draftListInput struct {
	State string `query:"state" enum:"draft,submitted,scheduled,suspended,published,withdrawn,rejected,superseded" doc:"only drafts in this state"`
}

type draftListOutput struct {
	Body struct {
		Drafts []actions.DraftSummary `json:"drafts"`
	}
}

func (a *API) drafts(ctx context.Context, in *draftListInput) (*draftListOutput, error) {
	var states []string
	if in.State != "" {
		states = []string{in.State}
	}
	list, err := a.do.Drafts(ctx, states...)
	if err != nil {
		return nil, err
	}
	out := &draftListOutput{}
	out.Body.Drafts = list
	return out, nil
}

// OfDraft names a draft.
type OfDraft struct {
	ID string `path:"id" doc:"of a draft"`
}

// draftOutput is a draft as it stands after whatever was done to it.
type draftOutput struct {
	ETag string `header:"ETag" doc:"revision of the draft, for If-Match"`
	Body actions.DraftView
}

func draftOf(v actions.DraftView, err error) (*draftOutput, error) {
	if err != nil {
		return nil, err
	}
	return &draftOutput{ETag: etag(v.Rev), Body: v}, nil
}

func (a *API) draft(ctx context.Context, in *OfDraft) (*draftOutput, error) {
	return draftOf(a.do.Draft(ctx, in.ID))
}

// DraftWrite is a draft as somebody wrote it.
type DraftWrite struct {
	Keyed
	Body struct {
		Reasoned
		actions.DraftInput
	}
}

func (a *API) createDraft(ctx context.Context, in *DraftWrite) (*draftOutput, error) {
	return draftOf(a.do.CreateDraft(ctx, in.by(ctx, in.Body.Reasoned), in.Body.DraftInput))
}

type draftEditInput struct {
	OfDraft
	DraftWrite
	IfMatch string `header:"If-Match" example:"3" doc:"revision of the draft that the edit was made from"`
}

func (a *API) editDraft(ctx context.Context, in *draftEditInput) (*draftOutput, error) {
	rev, err := ifMatch(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return draftOf(a.do.EditDraft(ctx, in.by(ctx, in.Body.Reasoned), in.ID, rev, in.Body.DraftInput))
}

// DraftMove takes a draft somewhere.
type DraftMove struct {
	OfDraft
	Keyed
	Body Reasoned
}

func (a *API) submitDraft(ctx context.Context, in *DraftMove) (*draftOutput, error) {
	return draftOf(a.do.SubmitDraft(ctx, in.by(ctx, in.Body), in.ID))
}

func (a *API) withdrawDraft(ctx context.Context, in *DraftMove) (*draftOutput, error) {
	return draftOf(a.do.WithdrawDraft(ctx, in.by(ctx, in.Body), in.ID))
}

func (a *API) rejectDraft(ctx context.Context, in *DraftMove) (*draftOutput, error) {
	return draftOf(a.do.RejectDraft(ctx, in.by(ctx, in.Body), in.ID))
}

func (a *API) unscheduleDraft(ctx context.Context, in *DraftMove) (*draftOutput, error) {
	return draftOf(a.do.UnscheduleDraft(ctx, in.by(ctx, in.Body), in.ID))
}

type draftRebaseInput struct {
	DraftMove
	IfMatch string `header:"If-Match" example:"3" doc:"revision of the draft"`
}

func (a *API) rebaseDraft(ctx context.Context, in *draftRebaseInput) (*draftOutput, error) {
	rev, err := ifMatch(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return draftOf(a.do.RebaseDraft(ctx, in.by(ctx, in.Body), in.ID, rev))
}

// Signed names what the caller saw: whatever was edited since has another digest.
type Signed struct {
	Digest string `json:"digest" minLength:"64" maxLength:"64" doc:"of the draft as you saw it"`
}

type draftSignInput struct {
	OfDraft
	Keyed
	Body struct {
		Reasoned
		Signed
	}
}

func (a *API) approveDraft(ctx context.Context, in *draftSignInput) (*draftOutput, error) {
	return draftOf(a.do.ApproveDraft(ctx, in.by(ctx, in.Body.Reasoned), in.ID, in.Body.Digest))
}

func (a *API) publishDraft(ctx context.Context, in *draftSignInput) (*outcome, error) {
	out, err := a.do.PublishDraft(ctx, in.by(ctx, in.Body.Reasoned), in.ID, in.Body.Digest)
	if err != nil {
		return nil, err
	}
	return outcomeOf(out), nil
}

type draftScheduleInput struct {
	OfDraft
	Keyed
	Body struct {
		Reasoned
		Signed
		At string `json:"at" minLength:"1" maxLength:"100" example:"2027-02-05T02:30 Asia/Shanghai" doc:"local time and its IANA zone"`
	}
}

func (a *API) scheduleDraft(ctx context.Context, in *draftScheduleInput) (*draftOutput, error) {
	return draftOf(a.do.ScheduleDraft(ctx, in.by(ctx, in.Body.Reasoned), in.ID, in.Body.Digest, in.Body.At))
}

type reviewInput struct {
	Keyed
	N    uint64 `path:"n" doc:"number of an emergency's release"`
	Body Reasoned
}

func (a *API) review(ctx context.Context, in *reviewInput) (*struct{}, error) {
	return nil, a.do.ReviewRelease(ctx, in.by(ctx, in.Body), in.N)
}

type pendingOutput struct {
	Body struct {
		Pending []actions.Pending `json:"pending"`
	}
}

func (a *API) pending(ctx context.Context, _ *struct{}) (*pendingOutput, error) {
	list, err := a.do.Pending(ctx)
	if err != nil {
		return nil, err
	}
	out := &pendingOutput{}
	out.Body.Pending = list
	return out, nil
}

type relivePreviewOutput struct {
	Body actions.RelivePreview
}

func (a *API) previewRelive(ctx context.Context, in *releaseInput) (*relivePreviewOutput, error) {
	p, err := a.do.PreviewRelive(ctx, in.N)
	if err != nil {
		return nil, err
	}
	return &relivePreviewOutput{Body: p}, nil
}
