// Package admin is everything an operator does, over HTTP: the JSON API under
// /api/v1 with its OpenAPI document.
//
// A request passes one route table (routes.go), which says who may call what,
// and ends in one function of admin/actions, which does the checks, the audit
// and the release. Nothing here changes anything by itself, so a page, a
// command and a script that do the same thing cannot differ.
//
// The package owns no goroutine. It answers errors as RFC 9457 problems from
// the one table in internal/fault; an internal error is logged here, once, and
// its text stays here.
package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"
	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
)

// Options are optional.
type Options struct {
	Log    *slog.Logger   // default: discard
	SignIn *signin.SignIn // who a browser is; nil: tokens alone are taken
	Pages  http.Handler   // everything outside /api; nil: nothing is there
}

// API is the admin listener's handler and what it needs.
type API struct {
	do     *actions.Actions
	log    *slog.Logger
	echo   *echo.Echo
	signin *signin.SignIn
}

// New builds the API over the actions. It starts nothing.
func New(do *actions.Actions, opt Options) *API {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{do: do, log: opt.Log, echo: echo.New(), signin: opt.SignIn}
	a.echo.HTTPErrorHandler = a.fail
	a.echo.Pre(a.recovered, neverCached, a.crossOrigin)

	config := huma.DefaultConfig("dispatch admin API", "1")
	config.OpenAPIPath = "/api/v1/openapi"
	config.DocsPath = ""     // its page loads scripts from elsewhere
	config.SchemasPath = ""  // the OpenAPI document has them
	config.CreateHooks = nil // no $schema member in answers
	config.Transformers = []huma.Transformer{asProblem}
	config.Components.Schemas = schemas()
	config.RejectUnknownQueryParameters = true // dryrun=true must not publish
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "a token from POST /api/v1/tokens"},
		"session": {Type: "apiKey", In: "cookie", Name: "__Host-dispatch", Description: "from POST /api/v1/login; writes need Origin or Sec-Fetch-Site too"},
	}
	api := humaecho.New(a.echo, config)
	api.UseMiddleware(a.admit(api))
	a.routes(api)
	if opt.Pages != nil {
		a.echo.Pre(beside(opt.Pages))
	}
	describe(api.OpenAPI())
	return a
}

// beside sends what is not the API's to the pages, before echo looks for a route: a
// path of the API with a wrong method is not theirs either.
func beside(pages http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if strings.HasPrefix(c.Request().URL.Path, "/api/") {
				return next(c)
			}
			pages.ServeHTTP(c.Response(), c.Request())
			return nil
		}
	}
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.echo.ServeHTTP(w, r) }

// recovered turns a panic into an internal error, so that one request cannot end the process.
func (a *API) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if r := recover(); r != nil {
				if r == http.ErrAbortHandler {
					panic(r)
				}
				err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		return next(c)
	}
}

func neverCached(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		return next(c)
	}
}
