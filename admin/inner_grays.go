package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
)

type innerGrayList struct {
	Body struct {
		Grays []actions.InnerGray `json:"grays"`
	}
}

func (a *API) innerGrays(ctx context.Context, _ *struct{}) (*innerGrayList, error) {
	all, err := a.do.InnerGrays(ctx, actorOf(ctx))
	if err != nil {
		return nil, err
	}
	out := new(innerGrayList)
	out.Body.Grays = all
	return out, nil
}

// InnerGrayPath is the path of the gray of one rule.
type InnerGrayPath struct {
	Service string `path:"service" maxLength:"128"`
	Env     string `path:"env" maxLength:"128" doc:"whose rule it is"`
}

func (p InnerGrayPath) ref() actions.InnerRef {
	return actions.InnerRef{Service: p.Service, Env: p.Env}
}

type innerGrayOutput struct{ Body actions.InnerGray }

func (a *API) innerGray(ctx context.Context, in *InnerGrayPath) (*innerGrayOutput, error) {
	g, err := a.do.InnerGray(ctx, actorOf(ctx), in.ref())
	return &innerGrayOutput{g}, err
}

type startInnerGrayInput struct {
	Keyed
	InnerGrayPath
	Body struct {
		Reasoned
		actions.InnerGrayInput
	}
}

func (a *API) startInnerGray(ctx context.Context, in *startInnerGrayInput) (*rulesAppliedOutput, error) {
	out, err := a.do.StartInnerGray(ctx, in.by(ctx, in.Body.Reasoned), actions.InnerStart{InnerRef: in.ref(), InnerGrayInput: in.Body.InnerGrayInput})
	return &rulesAppliedOutput{Body: out}, err
}

type stepInnerGrayInput struct {
	Keyed
	InnerGrayPath
	Body struct {
		Reasoned
		actions.InnerStep
	}
}

func (a *API) stepInnerGray(ctx context.Context, in *stepInnerGrayInput) (*rulesAppliedOutput, error) {
	out, err := a.do.StepInnerGray(ctx, in.by(ctx, in.Body.Reasoned), in.ref(), in.Body.InnerStep)
	return &rulesAppliedOutput{Body: out}, err
}

type approveInnerGrayInput struct {
	Keyed
	InnerGrayPath
	Body struct {
		Reasoned
		actions.InnerGrayInput
		Digest string `json:"digest" maxLength:"64" doc:"that the refusal of the start showed"`
	}
}

func (a *API) approveInnerGray(ctx context.Context, in *approveInnerGrayInput) (*rulesCheckOutput, error) {
	check, err := a.do.ApproveInnerGray(ctx, in.by(ctx, in.Body.Reasoned), actions.InnerStart{InnerRef: in.ref(), InnerGrayInput: in.Body.InnerGrayInput}, in.Body.Digest)
	return &rulesCheckOutput{Body: check}, err
}

type abortInnerGrayInput struct {
	Keyed
	InnerGrayPath
	Body struct {
		Reasoned
		Confirm string `json:"confirm,omitempty" maxLength:"200" example:"order-core" doc:"typed by a person: the service; with --env the environment and a slash before it. A refusal says what is wanted"`
	}
}

func (a *API) abortInnerGray(ctx context.Context, in *abortInnerGrayInput) (*rulesAppliedOutput, error) {
	w := in.by(ctx, in.Body.Reasoned)
	w.Confirm = in.Body.Confirm
	out, err := a.do.AbortInnerGray(ctx, w, in.ref())
	return &rulesAppliedOutput{Body: out}, err
}
