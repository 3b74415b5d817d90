package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
)

type explainInput struct {
	Body struct {
		actions.Question
	}
}

type explainOutput struct{ Body actions.Explanation }

func (a *API) explain(ctx context.Context, in *explainInput) (*explainOutput, error) {
	answer, err := a.do.Explain(ctx, actorOf(ctx), in.Body.Question)
	if err != nil {
		return nil, err
	}
	return &explainOutput{Body: answer}, nil
}

type appsOutput struct {
	Body struct {
		Release uint64            `json:"release"`
		Apps    []actions.AppView `json:"apps"`
	}
}

func (a *API) apps(context.Context, *struct{}) (*appsOutput, error) {
	out := &appsOutput{}
	out.Body.Release, out.Body.Apps = a.do.Apps()
	return out, nil
}

type appInput struct {
	App string `path:"app"`
}

type appOutput struct{ Body actions.AppView }

func (a *API) app(_ context.Context, in *appInput) (*appOutput, error) {
	app, err := a.do.App(in.App)
	if err != nil {
		return nil, err
	}
	return &appOutput{Body: app}, nil
}
