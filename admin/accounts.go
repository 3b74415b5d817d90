package admin

import (
	"context"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

type accountsOutput struct {
	Body struct {
		Accounts []ledger.Account `json:"accounts"`
	}
}

func (a *API) accounts(ctx context.Context, _ *struct{}) (*accountsOutput, error) {
	accounts, err := a.do.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	out := &accountsOutput{}
	out.Body.Accounts = accounts
	return out, nil
}

type createAccountInput struct {
	Keyed
	Body struct {
		Reasoned
		Login      string   `json:"login" minLength:"2" maxLength:"64" example:"li.wei" doc:"stands in the audit trail; compared without case"`
		Name       string   `json:"name,omitempty" maxLength:"100" doc:"for people"`
		Roles      []string `json:"roles" minItems:"1" maxItems:"9" doc:"any of viewer, list-manager, release-engineer, on-call, approver, user-admin, break-glass, pipeline, administrator"`
		BreakGlass bool     `json:"break_glass,omitempty" doc:"may sign in only while it is armed"`
	}
}

type passwordOutput struct {
	Body struct {
		Account  ledger.Account `json:"account"`
		Password string         `json:"password" doc:"for the next sign-in, which changes it; shown this once"`
		Expires  time.Time      `json:"expires" doc:"24 h after it was made: from then on it opens nothing, and a reset makes another"`
	}
}

func passwordOf(account ledger.Account, password string) *passwordOutput {
	out := &passwordOutput{}
	out.Body.Account, out.Body.Password, out.Body.Expires = account, password, account.PasswordUntil
	return out
}

func (a *API) createAccount(ctx context.Context, in *createAccountInput) (*passwordOutput, error) {
	account, password, err := a.do.CreateAccount(ctx, in.by(ctx, in.Body.Reasoned), actions.NewAccount{
		Login: in.Body.Login, Name: in.Body.Name, Roles: in.Body.Roles, BreakGlass: in.Body.BreakGlass})
	if err != nil {
		return nil, err
	}
	return passwordOf(account, password), nil
}

type accountOutput struct{ Body ledger.Account }

type editAccountInput struct {
	Keyed
	Login string `path:"login"`
	Body  struct {
		Reasoned
		Name     *string   `json:"name,omitempty" maxLength:"100"`
		Roles    *[]string `json:"roles,omitempty" minItems:"1" maxItems:"9" doc:"of a local account; those of others come from their provider"`
		Disabled *bool     `json:"disabled,omitempty"`
		SignOut  bool      `json:"sign_out,omitempty" doc:"end all its sessions"`
	}
}

func (a *API) editAccount(ctx context.Context, in *editAccountInput) (*accountOutput, error) {
	account, err := a.do.EditAccount(ctx, in.by(ctx, in.Body.Reasoned), in.Login, actions.AccountEdit{
		Name: in.Body.Name, Roles: in.Body.Roles, Disabled: in.Body.Disabled, SignOut: in.Body.SignOut})
	if err != nil {
		return nil, err
	}
	return &accountOutput{Body: account}, nil
}

type oneAccountInput struct {
	Keyed
	Login string `path:"login"`
	Body  Reasoned
}

func (a *API) resetAccount(ctx context.Context, in *oneAccountInput) (*passwordOutput, error) {
	account, password, err := a.do.ResetAccount(ctx, in.by(ctx, in.Body), in.Login)
	if err != nil {
		return nil, err
	}
	return passwordOf(account, password), nil
}

func (a *API) armAccount(ctx context.Context, in *oneAccountInput) (*accountOutput, error) {
	account, err := a.do.ArmAccount(ctx, in.by(ctx, in.Body), in.Login)
	if err != nil {
		return nil, err
	}
	return &accountOutput{Body: account}, nil
}
