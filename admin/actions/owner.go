package actions

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Proof is what somebody shows to change their own account.
type Proof struct {
	Login    string
	Password string // not needed where the account has none
	From     netip.Addr
}

// ownAccount is the account behind a proof. A session alone is not enough: it may be
// an unlocked screen.
func (a *Actions) ownAccount(ctx context.Context, p Proof) (ledger.Account, error) {
	for door, key := range map[*backoff]string{a.door.byAddress: network(p.From), a.door.byLogin: p.Login} {
		if wait := door.take(key, a.now()); wait > 0 {
			return ledger.Account{}, tooEarly(wait)
		}
	}
	account, err := a.Ledger.Account(ctx, p.Login)
	if err != nil {
		return account, err
	}
	if account.Password == "" { // a provider has it
		a.door.welcome(p.Login, p.From, a.now())
		return account, nil
	}
	same, err := a.Passwords.Matches(ctx, p.Password[:min(len(p.Password), maxPassword+1)], account.Password)
	if err != nil {
		return account, err
	}
	if !same {
		return account, fault.New(fault.Denied, "bad_password", "the present password is wrong")
	}
	a.door.welcome(p.Login, p.From, a.now())
	return account, nil
}

// ChangePassword takes a new password from its owner. All sessions end but the one
// that the caller begins anew.
func (a *Actions) ChangePassword(ctx context.Context, p Proof, password string) (ledger.Account, error) {
	account, err := a.ownAccount(ctx, p)
	if err != nil {
		return account, err
	}
	if account.Issuer != "" {
		return account, notLocal(account)
	}
	var problems fault.Problems
	if problem := passwordProblem(account.Login, password); problem != "" {
		problems.Addf("new", "%s", problem)
	} else if password == p.Password {
		problems.Addf("new", "is the present one")
	}
	if err := problems.Err("weak_password", "the new password cannot be taken"); err != nil {
		return account, err
	}
	if account.Password, err = a.Passwords.Hash(ctx, password); err != nil {
		return account, err
	}
	account.MustChange, account.PasswordUntil = false, time.Time{}
	account.Epoch++
	return a.keepOwn(ctx, account, "password_change")
}

// keepOwn writes what somebody changed of their own account.
func (a *Actions) keepOwn(ctx context.Context, account ledger.Account, action string) (ledger.Account, error) {
	if err := a.Ledger.SaveAccount(ctx, account, ledger.Change{By: account.Login, Reason: "own account", Action: action, Target: account.Login}); err != nil {
		return account, err
	}
	return a.Ledger.Account(ctx, account.Login)
}

// Enrolment is a second factor that nobody has yet.
type Enrolment struct {
	Secret string // base 32, as people type it
	URL    string // otpauth, as apps read it
}

// NewSecondFactor draws a secret for an authenticator. It is kept only when its
// first code comes back.
func (a *Actions) NewSecondFactor(login string) Enrolment {
	secret := make([]byte, totpSecret)
	_, _ = rand.Read(secret) // never fails
	return a.Enrolment(login, secretText(secret))
}

// Enrolment is what a secret that was drawn before looks like.
func (a *Actions) Enrolment(login, secret string) Enrolment {
	label := "dispatch"
	if a.Env != "" {
		label += " " + a.Env
	}
	query := url.Values{"secret": {secret}, "issuer": {label}}
	u := url.URL{Scheme: "otpauth", Host: "totp", Path: "/" + label + ":" + login, RawQuery: query.Encode()}
	return Enrolment{Secret: secret, URL: strings.ReplaceAll(u.String(), "+", "%20")}
}

// EnrolSecondFactor keeps the secret whose code the owner shows.
func (a *Actions) EnrolSecondFactor(ctx context.Context, p Proof, secret, code string) (ledger.Account, error) {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil || len(raw) != totpSecret || bytes.Count(raw, raw[:1]) == totpSecret {
		return ledger.Account{}, fault.New(fault.Invalid, "bad_secret", "this is no secret from here").WithHint("open the page again for a new one")
	}
	account, err := a.ownAccount(ctx, p)
	if err != nil {
		return account, err
	}
	step, ok := totpStep(raw, code, a.now())
	if !ok {
		return account, badCode()
	}
	account.Secret, account.Step = raw, step
	account.Epoch++
	return a.keepOwn(ctx, account, "second_factor_enrol")
}

// RemoveSecondFactor takes the owner's second factor away.
func (a *Actions) RemoveSecondFactor(ctx context.Context, p Proof, code string) (ledger.Account, error) {
	account, err := a.ownAccount(ctx, p)
	if err != nil {
		return account, err
	}
	if step, ok := totpStep(account.Secret, code, a.now()); !ok || step <= account.Step {
		return account, badCode()
	}
	account.Secret, account.Step = nil, 0
	account.Epoch++
	return a.keepOwn(ctx, account, "second_factor_remove")
}

// ShowSecondFactor takes a code of the account, to arm a session with.
func (a *Actions) ShowSecondFactor(ctx context.Context, login, code string, from netip.Addr) error {
	for door, key := range map[*backoff]string{a.door.byAddress: network(from), a.door.byLogin: login} {
		if wait := door.take(key, a.now()); wait > 0 {
			return tooEarly(wait)
		}
	}
	account, err := a.Ledger.Account(ctx, login)
	if err != nil {
		return err
	}
	if len(account.Secret) == 0 {
		return fault.New(fault.Conflict, "no_second_factor", "%s has no second factor", login).WithHint("add one at /account")
	}
	step, ok := totpStep(account.Secret, code, a.now())
	if !ok || step <= account.Step {
		return badCode()
	}
	if err := a.Ledger.SignedIn(ctx, login, step, a.now()); err != nil {
		if fault.CodeOf(err) == "code_used" {
			return badCode()
		}
		return err
	}
	a.door.welcome(login, from, a.now())
	return a.Ledger.Record(ctx, ledger.Change{By: login, Action: "session_arm", Target: login})
}

func badCode() error {
	return fault.New(fault.Denied, "bad_code", "the code is wrong or was used").WithHint("wait for the next one; the clock of the phone must be right")
}

// NeedsSecondFactor says whether the roles are worth a second factor: all that
// change what customers are sent to, and all that make accounts.
func NeedsSecondFactor(roles []string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return role != Viewer && role != ListManager })
}
