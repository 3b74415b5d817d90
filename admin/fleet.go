package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
)

type fleetOutput struct{ Body actions.FleetView }

func (a *API) fleet(ctx context.Context, _ *struct{}) (*fleetOutput, error) {
	view, err := a.do.Members(ctx)
	if err != nil {
		return nil, err
	}
	return &fleetOutput{Body: view}, nil
}

type adoptInput struct {
	Keyed
	Body Reasoned
}

func (a *API) adopt(ctx context.Context, in *adoptInput) (*outcome, error) {
	out, err := a.do.Adopt(ctx, in.by(ctx, in.Body))
	if err != nil {
		return nil, err
	}
	return outcomeOf(out), nil
}

type reconcileInput struct {
	Keyed
	Body struct {
		Reasoned
		Replica string `json:"replica" minLength:"1" maxLength:"200" doc:"whose override, as GET /api/v1/fleet shows it"`
	}
}

func (a *API) reconcile(ctx context.Context, in *reconcileInput) (*outcome, error) {
	out, err := a.do.Reconcile(ctx, in.by(ctx, in.Body.Reasoned), in.Body.Replica)
	if err != nil {
		return nil, err
	}
	return outcomeOf(out), nil
}

type rehashInput struct {
	Keyed
	Body Reasoned
}

type retireInput struct {
	Keyed
	Body Reasoned
}

func (a *API) retire(ctx context.Context, in *retireInput) (*outcome, error) {
	out, err := a.do.Retire(ctx, in.by(ctx, in.Body))
	if err != nil {
		return nil, err
	}
	return outcomeOf(out), nil
}

type rehashOutput struct {
	ETag string `header:"ETag"`
	Body actions.RehashOutcome
}

func (a *API) rehash(ctx context.Context, in *rehashInput) (*rehashOutput, error) {
	out, err := a.do.Rehash(ctx, in.by(ctx, in.Body))
	if err != nil {
		return nil, err
	}
	return &rehashOutput{ETag: etag(out.Release), Body: out}, nil
}
