package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
)

type grayList struct {
	Body struct {
		Grays []actions.GrayStatus `json:"grays"`
	}
}

func (a *API) grays(ctx context.Context, _ *struct{}) (*grayList, error) {
	all, err := a.do.Grays(ctx)
	if err != nil {
		return nil, err
	}
	out := new(grayList)
	out.Body.Grays = all
	return out, nil
}

// GrayPath is the path of one gray.
type GrayPath struct {
	App    string `path:"app" maxLength:"64"`
	Policy string `path:"policy" maxLength:"64" doc:"whose share it is"`
}

func (p GrayPath) ref() actions.GrayRef { return actions.GrayRef{App: p.App, Policy: p.Policy} }

type grayOutput struct{ Body actions.Gray }

func (a *API) gray(ctx context.Context, in *GrayPath) (*grayOutput, error) {
	g, err := a.do.GrayOf(ctx, in.App, in.Policy)
	return &grayOutput{g}, err
}

type grayPreviewInput struct {
	GrayPath
	To int `query:"to" minimum:"0" maximum:"10000" doc:"the share to look at; default the next step"`
}

type grayPreviewOutput struct{ Body actions.GrayPreview }

func (a *API) previewGray(ctx context.Context, in *grayPreviewInput) (*grayPreviewOutput, error) {
	p, err := a.do.PreviewGray(ctx, in.ref(), in.To)
	return &grayPreviewOutput{p}, err
}

type grayPlanInput struct {
	Keyed
	GrayPath
	Body struct {
		Reasoned
		Rev uint64 `json:"rev" doc:"of the plan that the author saw; 0: there was none"`
		actions.GrayPlan
	}
}

func (a *API) planGray(ctx context.Context, in *grayPlanInput) (*grayOutput, error) {
	to := in.ref()
	to.Rev = in.Body.Rev
	g, err := a.do.PlanGray(ctx, in.Keyed.by(ctx, in.Body.Reasoned), to, in.Body.GrayPlan)
	return &grayOutput{g}, err
}

type grayApproveInput struct {
	Keyed
	GrayPath
	Body struct {
		Reasoned
		Digest string `json:"digest" minLength:"64" maxLength:"64" doc:"of the plan that was read"`
	}
}

func (a *API) approveGray(ctx context.Context, in *grayApproveInput) (*grayOutput, error) {
	g, err := a.do.ApproveGray(ctx, in.Keyed.by(ctx, in.Body.Reasoned), in.ref(), in.Body.Digest)
	return &grayOutput{g}, err
}

type grayTurnInput struct {
	Keyed
	GrayPath
	Body struct {
		Reasoned
		Confirmed
		Action string `json:"action" enum:"start,next,pause,resume,abort,finish,default" doc:"default opens a draft that makes the region of a finished gray the default of its app"`
		Expect string `json:"expect,omitempty" maxLength:"500" doc:"start and next: the share that the screen shows"`
		Hard   bool   `json:"hard,omitempty" doc:"abort: void the sessions that the policy gave, too"`
	}
}

type grayTurnOutput struct{ Body actions.GrayOutcome }

func (a *API) turnGray(ctx context.Context, in *grayTurnInput) (*grayTurnOutput, error) {
	w := in.Body.Confirmed.by(in.Keyed.by(ctx, in.Body.Reasoned))
	out, err := a.do.TurnGray(ctx, w, in.ref(), actions.GrayTurn{Action: in.Body.Action, Expect: in.Body.Expect, Hard: in.Body.Hard})
	return &grayTurnOutput{out}, err
}
