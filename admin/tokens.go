package admin

import (
	"context"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

type meOutput struct{ Body actions.Actor }

func (a *API) me(ctx context.Context, _ *struct{}) (*meOutput, error) {
	return &meOutput{Body: actorOf(ctx)}, nil
}

type tokensOutput struct {
	Body struct {
		Tokens []ledger.Token `json:"tokens"`
	}
}

func (a *API) tokens(ctx context.Context, _ *struct{}) (*tokensOutput, error) {
	tokens, err := a.do.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	out := &tokensOutput{}
	out.Body.Tokens = tokens
	return out, nil
}

type createTokenInput struct {
	Keyed
	Body struct {
		Reasoned
		Name string `json:"name" minLength:"1" maxLength:"64" doc:"the person or pipeline that holds it; stands in the audit trail"`
		Role string `json:"role" enum:"viewer,list-manager,release-engineer,on-call,approver,user-admin,break-glass,pipeline,administrator"`
		Days int    `json:"days,omitempty" minimum:"1" maximum:"90" default:"90" doc:"until it expires"`
	}
}

type createTokenOutput struct {
	Body struct {
		Token  ledger.Token `json:"token"`
		Secret string       `json:"secret" doc:"shown this once"`
	}
}

func (a *API) createToken(ctx context.Context, in *createTokenInput) (*createTokenOutput, error) {
	life := time.Duration(in.Body.Days) * 24 * time.Hour
	token, secret, err := a.do.CreateToken(ctx, in.by(ctx, in.Body.Reasoned), actions.NewToken{
		Name: in.Body.Name, Role: in.Body.Role, Life: life,
	})
	if err != nil {
		return nil, err
	}
	out := &createTokenOutput{}
	out.Body.Token, out.Body.Secret = token, secret
	return out, nil
}

type revokeTokenInput struct {
	ReasonQuery
	ID string `path:"id"`
}

func (a *API) revokeToken(ctx context.Context, in *revokeTokenInput) (*struct{}, error) {
	return nil, a.do.RevokeToken(ctx, in.by(ctx), in.ID)
}
