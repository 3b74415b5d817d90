package admin

import (
	"context"

	"dispatch.example/dispatch/export"
)

type envoyInput struct {
	Service string `query:"service" maxLength:"128" doc:"only this service; empty: all that have a rule"`
	Env     string `query:"env" maxLength:"128" doc:"only this environment; empty: all"`
	Region  string `query:"region" maxLength:"128" example:"cn-hangzhou" doc:"refused when the node keeps another one; empty: the node's own"`
}

func (a *API) exportEnvoy(ctx context.Context, in *envoyInput) (*struct{ Body export.Export }, error) {
	out, err := a.do.ExportEnvoy(ctx, actorOf(ctx), in.Service, in.Env, in.Region)
	if err != nil {
		return nil, err
	}
	return &struct{ Body export.Export }{out}, nil
}
