package pages

import (
	"slices"
	"strconv"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/ledger"
)

// accessPage is who may do what.
type accessPage struct {
	Accounts []accountRow
	Tokens   []tokenRow
	Roles    []string
	Provider *signin.ProviderState // nil: none
	Days     int                   // the longest that a token may last

	Password, Login string // just made; shown this once
	Until           time.Time
	Secret, Token   string
}

type accountRow struct {
	ledger.Account
	Factor bool // it has a second one
	Late   bool // its one-time password has expired
	Lacks  bool // it should have one
	Open   bool // a break-glass account that may sign in now
	Mine   bool
}

// Has says whether the account has the role, for its check box.
func (r accountRow) Has(role string) bool { return slices.Contains(r.Roles, role) }

type tokenRow struct {
	ledger.Token
	State string // live, expired, revoked
}

func (v *visit) accessView() (accessPage, error) {
	page := accessPage{Roles: actions.AllRoles(), Days: int(actions.MaxTokenLife / (24 * time.Hour))}
	accounts, err := v.do.Accounts(v.r.Context())
	if err != nil {
		return page, err
	}
	tokens, err := v.do.Tokens(v.r.Context())
	if err != nil {
		return page, err
	}
	now := v.opt.Now()
	for _, a := range accounts {
		page.Accounts = append(page.Accounts, accountRow{Account: a, Factor: len(a.Secret) > 0, Late: a.PasswordExpired(now), Mine: a.Login == v.Name,
			Lacks: a.Issuer == "" && len(a.Secret) == 0 && actions.NeedsSecondFactor(a.Roles), Open: a.BreakGlass && a.Armed.After(now)})
	}
	for _, t := range tokens {
		row := tokenRow{t, "live"}
		switch {
		case !t.Revoked.IsZero():
			row.State = "revoked"
		case !t.Expires.IsZero() && !t.Expires.After(now):
			row.State = "expired"
		}
		page.Tokens = append(page.Tokens, row)
	}
	if v.opt.SignIn != nil {
		if state, ok := v.opt.SignIn.ProviderState(); ok {
			page.Provider = &state
		}
	}
	return page, nil
}

func (v *visit) access() error { return v.accessWith(func(*accessPage) {}) }

// accessWith shows the page with what was just made.
func (v *visit) accessWith(made func(*accessPage)) error {
	page, err := v.accessView()
	if err != nil {
		return err
	}
	made(&page)
	return v.show("access", page)
}

func (v *visit) accessRefused(cause error) error {
	page, err := v.accessView()
	if err != nil {
		return err
	}
	return v.refuse("access", page, cause)
}

func (v *visit) createAccount() error {
	form := v.r.PostForm
	account, password, err := v.do.CreateAccount(v.r.Context(), v.write(), actions.NewAccount{
		Login: form.Get("login"), Name: form.Get("name"), Roles: form["roles"], BreakGlass: form.Get("break_glass") == "true"})
	if err != nil {
		return v.accessRefused(err)
	}
	return v.accessWith(func(p *accessPage) { p.Login, p.Password, p.Until = account.Login, password, account.PasswordUntil })
}

func (v *visit) resetAccount() error {
	account, password, err := v.do.ResetAccount(v.r.Context(), v.write(), v.r.PathValue("login"))
	if err != nil {
		return v.accessRefused(err)
	}
	return v.accessWith(func(p *accessPage) { p.Login, p.Password, p.Until = account.Login, password, account.PasswordUntil })
}

// editAccount does what the button says that was pressed.
func (v *visit) editAccount() error {
	form, yes, no := v.r.PostForm, true, false
	var e actions.AccountEdit
	switch form.Get("do") {
	case "disable":
		e.Disabled = &yes
	case "enable":
		e.Disabled = &no
	case "signout":
		e.SignOut = true
	default:
		roles, name := form["roles"], form.Get("name")
		e.Roles, e.Name = &roles, &name
	}
	account, err := v.do.EditAccount(v.r.Context(), v.write(), v.r.PathValue("login"), e)
	if err != nil {
		return v.accessRefused(err)
	}
	return v.done("/access", "access.edited", "Login", account.Login)
}

func (v *visit) armAccount() error {
	account, err := v.do.ArmAccount(v.r.Context(), v.write(), v.r.PathValue("login"))
	if err != nil {
		return v.accessRefused(err)
	}
	return v.done("/access", "access.armed", "Login", account.Login)
}

func (v *visit) createToken() error {
	form := v.r.PostForm
	days, _ := strconv.Atoi(form.Get("days")) // not a number: the action refuses 0
	token, secret, err := v.do.CreateToken(v.r.Context(), v.write(), actions.NewToken{Name: form.Get("name"), Role: form.Get("role"), Life: time.Duration(days) * 24 * time.Hour})
	if err != nil {
		return v.accessRefused(err)
	}
	return v.accessWith(func(p *accessPage) { p.Token, p.Secret = token.Name, secret })
}

func (v *visit) revokeToken() error {
	if err := v.do.RevokeToken(v.r.Context(), v.write(), v.r.PathValue("id")); err != nil {
		return v.accessRefused(err)
	}
	return v.done("/access", "access.revoked")
}
