package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/store"
)

type adminCmd struct {
	Init adminInitCmd `cmd:"" help:"Make the first administrator's token, and print it once."`
}

type adminInitCmd struct {
	DB   string `name:"db" env:"DISPATCH_DB" required:"" placeholder:"sqlite:FILE|mysql:DSN" help:"The database."`
	Name string `default:"administrator" help:"Name that stands in the audit trail."`
}

// Run refuses when there is a token already: its holder makes the next ones.
func (c *adminInitCmd) Run(ctx context.Context, out streams) (err error) {
	st, err := store.Open(ctx, c.DB, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	secret, err := firstToken(ctx, st, c.Name)
	if err != nil {
		return err
	}
	if secret == "" {
		return fault.New(fault.Conflict, "token_exists", "there is a token already").
			WithHint("ask its holder for one: POST /api/v1/tokens")
	}
	fmt.Fprintln(out.out, secret)
	return nil
}

// firstTokenLife is how long the first administrator has to make tokens for people.
const firstTokenLife = 90 * 24 * time.Hour

// firstToken makes an administrator's token if there is none at all; else it is empty.
func firstToken(ctx context.Context, st *store.Store, name string) (secret string, err error) {
	tokens, err := st.Tokens(ctx)
	if err != nil || len(tokens) > 0 {
		return "", err
	}
	_, secret, err = st.CreateToken(ctx, ledger.NewToken{Type: "adm", Name: name, Role: actions.Administrator,
		Expires: time.Now().Add(firstTokenLife)}, ledger.Change{By: "dispatch", Reason: "first administrator"})
	if err != nil {
		return "", fmt.Errorf("make first token: %w", err)
	}
	return secret, nil
}
