package admin

import (
	"context"

	"dispatch.example/dispatch/ledger"
)

type hostsOutput struct {
	Body struct {
		Hosts []ledger.Host `json:"hosts"`
	}
}

func (a *API) hosts(ctx context.Context, _ *struct{}) (*hostsOutput, error) {
	hosts, err := a.do.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	out := &hostsOutput{}
	out.Body.Hosts = hosts
	return out, nil
}

type proposeHostInput struct {
	Keyed
	Body struct {
		Reasoned
		Host string `json:"host" maxLength:"300" example:"wapabst3.a.com.cn" doc:"kept in normal form, which the answer shows"`
	}
}

type hostOutput struct{ Body ledger.Host }

func (a *API) proposeHost(ctx context.Context, in *proposeHostInput) (*hostOutput, error) {
	host, err := a.do.ProposeHost(ctx, in.by(ctx, in.Body.Reasoned), in.Body.Host)
	if err != nil {
		return nil, err
	}
	return &hostOutput{Body: host}, nil
}

type approveInput struct {
	Keyed
	ID   string `path:"id" doc:"the host"`
	Body Reasoned
}

func (a *API) approve(ctx context.Context, in *approveInput) (*hostOutput, error) {
	host, err := a.do.ApproveHost(ctx, in.by(ctx, in.Body), in.ID)
	if err != nil {
		return nil, err
	}
	return &hostOutput{Body: host}, nil
}
