package admin

import (
	"context"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

type loginInput struct {
	Browser
	Body struct {
		Login    string `json:"login" minLength:"1" maxLength:"200"`
		Password string `json:"password" minLength:"1" maxLength:"1000"`
		Code     string `json:"code,omitempty" maxLength:"16" doc:"of the second factor, if the account has one"`
	}
}

type loginOutput struct {
	Body struct {
		actions.Actor
		MustChange bool `json:"must_change,omitempty" doc:"nothing else works before the password is changed, or the second factor added, at /account"`
	}
}

func (a *API) login(ctx context.Context, in *loginInput) (*loginOutput, error) {
	if a.signin == nil {
		return nil, fault.New(fault.NotFound, "no_sign_in", "nobody signs in here").WithHint("use a token")
	}
	visitor, err := a.signin.In(in.w, in.r, actions.Credentials{Login: in.Body.Login, Password: in.Body.Password, Code: in.Body.Code})
	if err != nil {
		return nil, err
	}
	out := &loginOutput{}
	out.Body.Actor, out.Body.MustChange = visitor.Actor, visitor.MustChange
	return out, nil
}

type logoutInput struct{ Browser }

func (a *API) logout(ctx context.Context, in *logoutInput) (*struct{}, error) {
	if a.signin == nil {
		return nil, nil
	}
	return nil, a.signin.Out(in.w, in.r)
}
