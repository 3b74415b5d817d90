package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/internal/fault"
)

// problem is a fault.Body as huma wants an error: with a status and a content type.
type problem struct{ fault.Body }

func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) Error() string             { return p.Detail }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// refuse is what a handler returns for err. Internal errors are logged here and nowhere else.
func (a *API) refuse(ctx context.Context, operation string, err error) error {
	if fault.KindOf(err) == fault.Internal {
		a.log.ErrorContext(ctx, "admin request failed", "operation", operation, "err", err)
	}
	return &problem{fault.BodyOf(err)}
}

// fail answers what echo itself refuses: unknown paths, wrong methods, panics.
func (a *API) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	if he, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch he.Code {
		case http.StatusNotFound:
			err = fault.New(fault.NotFound, "unknown_path", "no such path").WithHint("GET /api/v1/openapi.json lists them")
		case http.StatusMethodNotAllowed:
			err = fault.New(fault.NotFound, "unknown_method", "no such method on this path").WithHint("GET /api/v1/openapi.json lists them")
		}
	}
	if fault.KindOf(err) == fault.Internal {
		a.log.ErrorContext(c.Request().Context(), "admin request failed", "operation", c.Path(), "err", err)
	}
	fault.Write(c.Response(), err)
}

// asProblem rewrites huma's own refusals (a missing field, a wrong type) so that
// every error of the API has the same shape and a code.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	body := fault.Body{Title: http.StatusText(m.Status), Status: m.Status, Code: "bad_request", Detail: m.Detail}
	for _, e := range m.Errors {
		body.Problems = append(body.Problems, fault.Problem{Path: e.Location, Detail: e.Message})
	}
	return &problem{body}, nil
}
