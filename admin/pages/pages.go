// Package pages is the console: what an operator sees in a browser.
//
// A request passes one table (routes.go), which names the operation that the page
// does, as the API does; who may do it stands in actions. Pages are Go templates,
// work without JavaScript, and change things only by functions of admin/actions.
// A small script of our own posts forms in place and follows server-sent events.
//
// A page is four files of its name: home.go, templates/home.html and
// locale/en/home.yaml, locale/zh/home.yaml. Nothing else has to know it beside its
// rows in the table.
package pages

import (
	"log/slog"
	"net/http"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
)

// Visitors say who sends a request.
type Visitors interface {
	Visitor(r *http.Request) (signin.Visitor, error)
}

// Options are what pages need beside the actions.
type Options struct {
	Log      *slog.Logger
	Visitors Visitors
	Env      string // shown on every page
}

// Pages is the console's handler.
type Pages struct {
	do  *actions.Actions
	opt Options
	mux *http.ServeMux
}

// New parses the templates and the catalogue.
func New(do *actions.Actions, opt Options) (*Pages, error) {
	p := &Pages{do: do, opt: opt, mux: http.NewServeMux()}
	return p, nil // unbuilt
}

// ServeHTTP answers one request.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }
