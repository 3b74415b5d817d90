package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

type adminCmd struct {
	Init adminInitCmd `cmd:"" help:"Make an administrator's token and account if there is none that works, and print them once."`
	Arm  adminArmCmd  `cmd:"" help:"Let a break-glass account sign in for 4 h, with the database alone."`
}

// adminDB is the database that a command works on by itself.
type adminDB struct {
	DB              string `name:"db" env:"DISPATCH_DB" required:"" placeholder:"sqlite:FILE|mysql:DSN" help:"The database."`
	ListSealKeyFile string `placeholder:"FILE" help:"Seals second factors too; needed once an account has one (default, with SQLite: keys/list-seal.jwks beside the database)."`
}

// open opens the database with the key that second factors are sealed with, if it is there.
func (c *adminDB) open(ctx context.Context) (*store.Store, error) {
	path := c.ListSealKeyFile
	if file, ok := strings.CutPrefix(c.DB, "sqlite:"); ok {
		if _, err := os.Stat(file); err != nil { // or a mistyped name would get a database and a token for nothing
			return nil, fmt.Errorf("look for the database: %w\ntry: dispatch migrate with the same --db makes a new one", err)
		}
		path = cmp.Or(path, filepath.Join(filepath.Dir(file), "keys", "list-seal.jwks"))
	}
	opt := store.Options{}
	if path != "" {
		keys, err := release.LoadKeys(release.KeyFiles{ListSeal: path}, false)
		if err != nil && (c.ListSealKeyFile != "" || !missing(path)) {
			return nil, fmt.Errorf("--list-seal-key-file: %w", err)
		}
		if err == nil {
			all := keys.ListSeal.All()
			opt.Seal.Current = all[0].Secret()
			if len(all) > 1 {
				opt.Seal.Previous = all[1].Secret()
			}
		}
	}
	return store.Open(ctx, c.DB, opt)
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

type adminInitCmd struct {
	adminDB
	Name  string `default:"administrator" help:"Name of the token, which stands in the audit trail."`
	Login string `default:"admin" help:"Login of the account."`
	Reset bool   `help:"Give the account a new one-time password, and take its second factor away, although it works."`
}

// Run refuses while an administrator's token and account work: their holders make
// the next ones. When the last is gone, this is the way back in.
func (c *adminInitCmd) Run(ctx context.Context, out streams) (err error) {
	st, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	tokens, err := st.Tokens(ctx)
	if err != nil {
		return err
	}
	held := slices.IndexFunc(tokens, administers)
	account, works, err := c.account(ctx, st)
	if err != nil {
		return err
	}
	if held >= 0 && works && !c.Reset {
		return fault.New(fault.Conflict, "token_exists", "%s has an administrator's token, and there is an administrator's account", tokens[held].Name).
			WithHint("ask its holder for one: POST /api/v1/tokens; or --reset for a new password of " + c.Login)
	}
	if held < 0 {
		secret, err := makeAdministrator(ctx, st, c.Name)
		if err != nil {
			return err
		}
		fmt.Fprintln(out.out, secret)
	}
	if works && !c.Reset {
		return nil
	}
	account.MustChange = true
	password, err := makeAccount(ctx, st, account)
	if err != nil {
		return err
	}
	fmt.Fprintf(out.out, "account %s password %s\n", account.Login, password)
	fmt.Fprintln(out.log, "The password holds until its first use, which changes it.") // not on stdout, which scripts read
	return nil
}

// account is the one to make or to reset, and whether any administrator can sign in.
func (c *adminInitCmd) account(ctx context.Context, st *store.Store) (account ledger.Account, works bool, err error) {
	all, err := st.Accounts(ctx)
	if err != nil {
		return account, false, fmt.Errorf("%w\ntry: --list-seal-key-file with the file that serve uses", err)
	}
	account.Login = c.Login
	for _, a := range all {
		if strings.EqualFold(a.Login, c.Login) {
			account = a
		}
		works = works || slices.Contains(a.Roles, actions.Administrator) && !a.Disabled && a.Password != "" && !a.BreakGlass
	}
	if account.Issuer != "" {
		return account, works, fault.New(fault.Conflict, "not_local", "%s belongs to %s", account.Login, account.Issuer).WithHint("give --login another name")
	}
	return account, works, nil
}

type adminArmCmd struct {
	adminDB
	Login  string `arg:"" help:"The break-glass account."`
	Reason string `required:"" help:"Why; stands in the audit trail."`
}

// Run arms the account. Whoever can write to the database can do this; the audit
// trail says that it was done.
func (c *adminArmCmd) Run(ctx context.Context, out streams) (err error) {
	st, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	account, err := st.Account(ctx, c.Login)
	if err != nil {
		return err
	}
	if !account.BreakGlass {
		return fault.New(fault.Conflict, "not_break_glass", "%s is no break-glass account", account.Login).
			WithHint("a user admin makes one: POST /api/v1/accounts with break_glass")
	}
	account.Armed = time.Now().Add(actions.ArmedFor)
	if err := st.SaveAccount(ctx, account, ledger.Change{By: "dispatch", Reason: c.Reason, Action: "account_arm"}); err != nil {
		return fmt.Errorf("arm %s: %w", account.Login, err)
	}
	fmt.Fprintf(out.out, "%s may sign in until %s\n", account.Login, account.Armed.UTC().Format(time.RFC3339))
	if account.PasswordExpired(time.Now()) {
		fmt.Fprintf(out.log, "Its one-time password expired on %s: a user admin resets the account first.\n", account.PasswordUntil.UTC().Format(time.RFC3339))
	}
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
