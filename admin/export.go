package admin

import (
	"context"

	"dispatch.example/dispatch/export"
)

type exportInput struct {
	App  string `path:"app" doc:"key of an app"`
	Form string `path:"form" enum:"ranges,haproxy,nginx" doc:"ranges: CSV of every rule's buckets; haproxy, nginx: a configuration"`
	Dir  string `query:"dir" maxLength:"200" pattern:"^[A-Za-z0-9._/-]*$" default:"/etc/dispatch" doc:"folder where the proxy will find the lists"`
}

func (a *API) exportRules(ctx context.Context, in *exportInput) (*struct{ Body export.Export }, error) {
	out, err := a.do.ExportRules(ctx, actorOf(ctx), in.App, in.Form, in.Dir)
	if err != nil {
		return nil, err
	}
	return &struct{ Body export.Export }{out}, nil
}
