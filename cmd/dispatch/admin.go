package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/store"
)

type adminCmd struct {
	Init adminInitCmd `cmd:"" help:"Make an administrator's token if there is none that works, and print it once."`
}

type adminInitCmd struct {
	DB   string `name:"db" env:"DISPATCH_DB" required:"" placeholder:"sqlite:FILE|mysql:DSN" help:"The database."`
	Name string `default:"administrator" help:"Name that stands in the audit trail."`
}

// Run refuses while an administrator's token works: its holder makes the next
// ones. When the last has expired or is revoked, this is the way back in.
func (c *adminInitCmd) Run(ctx context.Context, out streams) (err error) {
	if file, ok := strings.CutPrefix(c.DB, "sqlite:"); ok {
		if _, err := os.Stat(file); err != nil { // or a mistyped name would get a database and a token for nothing
			return fmt.Errorf("look for the database: %w\ntry: dispatch migrate with the same --db makes a new one", err)
		}
	}
	st, err := store.Open(ctx, c.DB, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	tokens, err := st.Tokens(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(tokens, administers); i >= 0 {
		return fault.New(fault.Conflict, "token_exists", "%s has an administrator's token", tokens[i].Name).
			WithHint("ask its holder for one: POST /api/v1/tokens")
	}
	secret, err := makeAdministrator(ctx, st, c.Name)
	if err != nil {
		return err
	}
	fmt.Fprintln(out.out, secret)
	return nil
}

// firstTokenLife is how long the first administrator has to make tokens for people.
const firstTokenLife = 90 * 24 * time.Hour

// firstToken makes an administrator's token if there never was one at all; else it is empty.
func firstToken(ctx context.Context, st *store.Store, name string) (secret string, err error) {
	tokens, err := st.Tokens(ctx)
	if err != nil || len(tokens) > 0 {
		return "", err
	}
	return makeAdministrator(ctx, st, name)
}

// administers says whether the token can make others.
func administers(t ledger.Token) bool {
	return t.Role == actions.Administrator && t.Revoked.IsZero() && (t.Expires.IsZero() || t.Expires.After(time.Now()))
}

func makeAdministrator(ctx context.Context, st *store.Store, name string) (secret string, err error) {
	_, secret, err = st.CreateToken(ctx, ledger.NewToken{Type: "adm", Name: name, Role: actions.Administrator,
		Expires: time.Now().Add(firstTokenLife)}, ledger.Change{By: "dispatch", Reason: "first administrator"})
	if err != nil {
		return "", fmt.Errorf("make administrator's token: %w", err)
	}
	return secret, nil
}
