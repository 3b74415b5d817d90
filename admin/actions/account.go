package actions

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// ArmedFor is how long a break-glass account may be used once it is armed.
const ArmedFor = 4 * time.Hour

// NewAccount describes a local account to make.
type NewAccount struct {
	Login      string
	Name       string
	Roles      []string
	BreakGlass bool // may sign in only while armed
}

// AccountEdit is what changes of an account; nil stays.
type AccountEdit struct {
	Name     *string
	Roles    *[]string
	Disabled *bool
	SignOut  bool // end all its sessions
}

// normalLogin is a login as it is compared.
func normalLogin(login string) string { return strings.ToLower(strings.TrimSpace(login)) }

// loginProblem says why a login cannot be had, empty if it can. Local ones have no
// @: that is what people of an identity provider are known by.
func loginProblem(login string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	switch {
	case len(login) < 2 || len(login) > 64:
		return "must have 2 to 64 characters"
	case strings.Trim(login, letters+"._-") != "" || !strings.ContainsAny(login[:1], letters):
		return "must be letters, digits, dots, dashes and underscores, and begin with a letter or digit"
	case slices.Contains([]string{"dispatch", "bootstrap"}, login):
		return "is what the audit trail calls this program"
	default:
		return ""
	}
}

// issuerHost is how people of a provider are told from others.
func issuerHost(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// Accounts are all accounts by login.
func (a *Actions) Accounts(ctx context.Context) ([]ledger.Account, error) {
	return a.Ledger.Accounts(ctx)
}

// Account is one account.
func (a *Actions) Account(ctx context.Context, login string) (ledger.Account, error) {
	return a.Ledger.Account(ctx, normalLogin(login))
}

// CreateAccount makes a local account. Its one-time password is in the answer and
// nowhere else; it holds for OneTimeFor, and at the first sign-in it is changed.
func (a *Actions) CreateAccount(ctx context.Context, w Write, n NewAccount) (ledger.Account, string, error) {
	n.Login = normalLogin(n.Login)
	account := ledger.Account{Login: n.Login, Name: n.Name, BreakGlass: n.BreakGlass, MustChange: true}
	var p fault.Problems
	if problem := loginProblem(n.Login); problem != "" {
		p.Addf("login", "%s", problem)
	}
	account.Roles = checkRoles(&p, n.Roles)
	if err := p.Err("bad_account", "the account cannot be made"); err != nil {
		return ledger.Account{}, "", err
	}
	if err := mayGive(w.Actor, ledger.Account{Login: n.Login}, account.Roles); err != nil {
		return ledger.Account{}, "", err
	}
	return a.withPassword(ctx, w, asked{"account_create", n}, account)
}

// ResetAccount gives a local account a new one-time password and takes its second
// factor away: for somebody who lost either. All its sessions end.
func (a *Actions) ResetAccount(ctx context.Context, w Write, login string) (ledger.Account, string, error) {
	account, err := a.managed(ctx, w, login)
	if err != nil {
		return account, "", err
	}
	if account.Issuer != "" {
		return account, "", notLocal(account)
	}
	account.Secret, account.Step, account.MustChange = nil, 0, true
	account.Epoch++
	return a.withPassword(ctx, w, asked{"account_reset", account.Login}, account)
}

// madeAccount is an account with its one-time password, which is not remembered.
type madeAccount struct {
	Login    string
	password string
}

// withPassword writes an account with a new one-time password.
func (a *Actions) withPassword(ctx context.Context, w Write, ask asked, account ledger.Account) (ledger.Account, string, error) {
	made, err := remembered(ctx, a, w, ask, func(w Write) (m madeAccount, err error) {
		m = madeAccount{account.Login, OneTimePassword()}
		if account.Password, err = a.Passwords.Hash(ctx, m.password); err != nil {
			return m, err
		}
		account.PasswordUntil = a.now().Add(OneTimeFor)
		if err := w.remember(m); err != nil {
			return m, err
		}
		return m, a.Ledger.SaveAccount(ctx, account, w.change(ask.action, account.Login))
	})
	if err == nil && made.password == "" {
		err = fault.New(fault.Conflict, "password_made", "this request has made its one-time password; it was in the first answer only").
			WithHint("if that is lost, reset the account under a new idempotency key")
	}
	if err != nil {
		return ledger.Account{}, "", err
	}
	a.door.byLogin.forget(account.Login)
	account, err = a.Ledger.Account(ctx, made.Login)
	return account, made.password, err
}

// EditAccount changes an account. Its sessions end when its roles change or it is
// disabled.
func (a *Actions) EditAccount(ctx context.Context, w Write, login string, e AccountEdit) (ledger.Account, error) {
	account, err := a.managed(ctx, w, login)
	if err != nil {
		return account, err
	}
	before := account
	if e.Name != nil {
		account.Name = *e.Name
	}
	if e.Disabled != nil {
		account.Disabled = *e.Disabled
	}
	if e.Roles != nil {
		var p fault.Problems
		account.Roles = checkRoles(&p, *e.Roles)
		if err := p.Err("bad_account", "the account cannot have these roles"); err != nil {
			return account, err
		}
		if account.Issuer != "" {
			return account, notLocal(account)
		}
		if err := mayGive(w.Actor, before, account.Roles); err != nil {
			return account, err
		}
	}
	if err := a.keepsAdministrator(ctx, before, account); err != nil {
		return account, err
	}
	if e.SignOut || account.Disabled != before.Disabled || !slices.Equal(account.Roles, before.Roles) {
		account.Epoch++
	}
	return a.save(ctx, w, asked{"account_edit", []any{account.Login, e}}, account)
}

// ArmAccount lets a break-glass account sign in for ArmedFor.
func (a *Actions) ArmAccount(ctx context.Context, w Write, login string) (ledger.Account, error) {
	account, err := a.managed(ctx, w, login)
	if err != nil {
		return account, err
	}
	if !account.BreakGlass {
		return account, notBreakGlass(account)
	}
	account.Armed = a.now().Add(ArmedFor)
	return a.save(ctx, w, asked{"account_arm", account.Login}, account)
}

// save writes an account and answers it as it then is.
func (a *Actions) save(ctx context.Context, w Write, ask asked, account ledger.Account) (ledger.Account, error) {
	login, err := remembered(ctx, a, w, ask, func(w Write) (string, error) {
		if err := w.remember(account.Login); err != nil {
			return "", err
		}
		return account.Login, a.Ledger.SaveAccount(ctx, account, w.change(ask.action, account.Login))
	})
	if err != nil {
		return ledger.Account{}, err
	}
	return a.Ledger.Account(ctx, login)
}

// managed is an account that the actor may manage: one of an administrator, whose
// password opens everything, is for administrators.
func (a *Actions) managed(ctx context.Context, w Write, login string) (ledger.Account, error) {
	account, err := a.Ledger.Account(ctx, normalLogin(login))
	if err != nil {
		return account, err
	}
	return account, mayGive(w.Actor, account, account.Roles)
}

// mayGive refuses roles that the actor may not give: those of an administrator
// unless they are one, and any new one to themselves.
func mayGive(actor Actor, account ledger.Account, roles []string) error {
	if slices.Contains(append(slices.Clone(roles), account.Roles...), Administrator) && !actor.Is(Administrator) {
		return fault.New(fault.Denied, "administrators_only", "only an administrator may manage administrators").WithHint("ask one")
	}
	if !strings.EqualFold(actor.Name, account.Login) || actor.Is(Administrator) {
		return nil
	}
	for _, role := range roles {
		if !slices.Contains(actor.Roles, role) {
			return fault.New(fault.Denied, "own_roles", "nobody gives themselves a role").Hintf("ask another user admin for %s", role)
		}
	}
	return nil
}

// keepsAdministrator refuses a change that leaves nobody who can do everything.
func (a *Actions) keepsAdministrator(ctx context.Context, before, after ledger.Account) error {
	if !administers(before) || administers(after) {
		return nil
	}
	all, err := a.Ledger.Accounts(ctx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Login != after.Login && administers(other) {
			return nil
		}
	}
	return fault.New(fault.Conflict, "last_administrator", "%s is the last administrator", after.Login).WithHint("make another one first")
}

func administers(a ledger.Account) bool {
	return !a.Disabled && !a.BreakGlass && slices.Contains(a.Roles, Administrator)
}

// checkRoles are the roles in their order, each once.
func checkRoles(p *fault.Problems, roles []string) []string {
	out := []string{}
	for _, role := range AllRoles() {
		if slices.Contains(roles, role) {
			out = append(out, role)
		}
	}
	for _, role := range roles {
		if !slices.Contains(out, role) {
			p.Addf("roles", "%q is no role", role)
		}
	}
	return out
}

func notLocal(account ledger.Account) error {
	return fault.New(fault.Denied, "not_local", "%s belongs to %s", account.Login, account.Issuer).
		WithHint("password and roles come from there; here it can be disabled")
}

func notBreakGlass(account ledger.Account) error {
	return fault.New(fault.Conflict, "not_break_glass", "%s is no break-glass account and needs no arming", account.Login).
		WithHint("POST /api/v1/accounts makes one with break_glass")
}
