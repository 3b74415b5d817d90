// Package pages is the console: what an operator sees in a browser.
//
// A request passes one table (routes.go), which names the operation that the page
// does, as the API does; who may do it stands in actions. Pages are Go templates,
// work without JavaScript, and change things only by functions of admin/actions.
// A small script of our own posts forms in place and follows server-sent events.
//
// A page is four files of its name: home.go, templates/home.html and
// locale/en/home.yaml, locale/zh/home.yaml. Nothing else has to know it beside its
// rows in the table. What all pages share are layout.html and parts.html, and the
// messages in locale/*/layout.yaml.
//
// That a form comes from this console and not from another site is checked before
// the pages, for them and for the API alike (package admin).
//
// A refusal is shown on the page where it happened, with its code, its problems and
// the next step; a page that panics is logged and answers 500, and the process goes
// on. A database that does not answer costs the top bar its figures, never the page.
//
// The package starts no goroutine. Server-sent events (events.go) run in those of
// net/http, are bounded in number, and end with the request or with Options.Ending.
package pages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
)

// Visitors say who sends a request.
type Visitors interface {
	Visitor(r *http.Request) (signin.Visitor, error)
}

// Options are what pages need beside the actions.
type Options struct {
	Log      *slog.Logger   // default: discard
	Visitors Visitors       // required
	SignIn   *signin.SignIn // what the pages of signing in do; nil: nobody can sign in here
	Env      string         // shown on every page

	Ending context.Context  // done when the process ends, which ends streams of events; nil: never
	Now    func() time.Time // default time.Now
}

// Pages is the console's handler.
type Pages struct {
	do        *actions.Actions
	opt       Options
	mux       *http.ServeMux
	catalogue *catalogue
	templates *templates
	assets    assets
	imports   *imports      // that run now
	streams   chan struct{} // one token for each stream of events that may still open
}

// New parses the templates and the catalogue.
func New(do *actions.Actions, opt Options) (*Pages, error) {
	if do == nil || opt.Visitors == nil {
		return nil, errors.New("pages: actions and visitors are both needed")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	p := &Pages{do: do, opt: opt, mux: http.NewServeMux(), imports: new(imports), streams: make(chan struct{}, maxStreams)}
	var err error
	if p.catalogue, err = readCatalogue(files); err != nil {
		return nil, fmt.Errorf("read the console's catalogue: %w", err)
	}
	if p.assets, err = readAssets(files); err != nil {
		return nil, fmt.Errorf("read the console's assets: %w", err)
	}
	if p.templates, err = parseTemplates(files, p.catalogue, p.assets, opt.Now); err != nil {
		return nil, fmt.Errorf("parse the console's templates: %w", err)
	}
	p.mux.Handle("GET /static/{name}", p.assets)
	for _, row := range table() {
		p.mux.Handle(row.pattern, p.answer(row))
	}
	return p, nil
}
