package main

import (
	"net/http"

	"dispatch.example/dispatch/admin"
	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/pages"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/handler"
	"dispatch.example/dispatch/store"
)

// console is what the admin listener serves: the API, the pages, and who signs in.
func (p *process) console(do *actions.Actions, st *store.Store) (http.Handler, error) {
	who, err := signin.New(signin.Options{Actions: do, Sessions: st, Log: p.log, Address: handler.ClientAddress(p.cfg.proxies), Now: p.now})
	if err != nil {
		return nil, err
	}
	shown, err := pages.New(do, pages.Options{Log: p.log, Visitors: who, SignIn: who, Env: p.cfg.Env})
	if err != nil {
		return nil, err
	}
	return admin.New(do, admin.Options{Log: p.log, SignIn: who, Pages: shown}), nil
}
