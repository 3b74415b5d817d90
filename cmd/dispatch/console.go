package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"dispatch.example/dispatch/admin"
	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/pages"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/handler"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/store"
)

// console is what the admin listener serves: the API, the pages, and who signs in.
// When ctx ends, so do the streams of events, which would hold the server up.
func (p *process) console(ctx context.Context, do *actions.Actions, st *store.Store) (http.Handler, error) {
	provider, err := p.provider()
	if err != nil {
		return nil, err
	}
	who, err := signin.New(signin.Options{Actions: do, Sessions: st, Log: p.log, Address: handler.ClientAddress(p.cfg.proxies),
		RequireTOTP: p.cfg.SignIn.RequireTOTP, Provider: provider, Now: p.now})
	if err != nil {
		return nil, err
	}
	shown, err := pages.New(do, pages.Options{Log: p.log, Visitors: who, SignIn: who, Env: p.cfg.Env, Now: p.now, Ending: ctx})
	if err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(p.adminL.Addr().String()); err == nil && !loopback(host) {
		p.log.Info("browsers keep the console's session only over https", "admin", p.adminL.Addr().String(),
			"try", "a proxy that ends TLS in front of --admin-listen, named in --trusted-proxies and --admin-hosts")
	}
	return admin.New(do, admin.Options{Log: p.log, SignIn: who, Pages: shown}), nil
}

// firstLogin is the account that is made at the first start.
const firstLogin = "admin"

// firstAccount makes an administrator's account if nobody has one at all; else the
// password is empty. In the demo it need not be changed.
func (p *process) firstAccount(ctx context.Context, st *store.Store) (password string, err error) {
	accounts, err := st.Accounts(ctx)
	if err != nil || len(accounts) > 0 {
		return "", err
	}
	password, err = makeAccount(ctx, st, ledger.Account{Login: firstLogin, MustChange: !p.cfg.Demo})
	if fault.KindOf(err) == fault.Conflict { // another control node was faster
		return "", nil
	}
	return password, err
}

// makeAccount gives a new or an old account every role and a one-time password. It
// holds until its first use: there may be nobody who could make another.
func makeAccount(ctx context.Context, st *store.Store, account ledger.Account) (password string, err error) {
	password = actions.OneTimePassword()
	account.Roles, account.Disabled, account.Secret = []string{actions.Administrator}, false, nil
	account.PasswordUntil = time.Time{}
	if account.Password, err = actions.Argon2id().Hash(ctx, password); err != nil {
		return "", err
	}
	if err := st.SaveAccount(ctx, account, ledger.Change{By: "dispatch", Reason: "first administrator", Action: "account_create"}); err != nil {
		return "", fmt.Errorf("make account %s: %w", account.Login, err)
	}
	return password, nil
}
