package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/internal/fault"
)

// problem is a fault.Body as huma wants an error: with a status, a content type
// and headers.
type problem struct{ fault.Body }

const problemType = "application/problem+json"

func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) Error() string             { return p.Detail }
func (p *problem) ContentType(string) string { return problemType }

// GetHeaders are what a status asks for beside the body.
func (p *problem) GetHeaders() http.Header {
	switch p.Status {
	case http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {`Bearer realm="dispatch"`}}
	case http.StatusServiceUnavailable:
		return http.Header{"Retry-After": {"5"}}
	default:
		return nil
	}
}

// refuse is what the caller hears of err. Internal errors are logged here and
// nowhere else, unless the caller has gone and that is all that went wrong.
func (a *API) refuse(ctx context.Context, operation string, err error) *problem {
	gone := errors.Is(err, context.Canceled) && ctx.Err() != nil
	if fault.KindOf(err) == fault.Internal && !gone {
		a.log.ErrorContext(ctx, "admin request failed", "operation", operation, "err", err)
	}
	return &problem{fault.BodyOf(err)}
}

// fail answers what echo itself refuses: unknown paths, wrong methods, panics.
func (a *API) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	var p *problem
	switch he, _ := errors.AsType[*echo.HTTPError](err); {
	case he != nil && he.Code == http.StatusNotFound:
		p = plain(he.Code, "unknown_path", "no such path")
	case he != nil && he.Code == http.StatusMethodNotAllowed:
		p = plain(he.Code, "unknown_method", "no such method on this path")
	default:
		p = a.refuse(c.Request().Context(), c.Path(), err)
	}
	c.Response().Header().Set("Content-Type", problemType)
	_ = c.JSON(p.Status, p) // the caller has gone
}

// plain is a problem whose status no kind of fault has.
func plain(status int, code, detail string) *problem {
	return &problem{fault.Body{Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
		Hint: "GET /api/v1/openapi.json lists all paths and what they take"}}
}

// asProblem rewrites huma's own refusals (a missing field, a wrong type) so that
// every error of the API has the same shape and a code. It leaves out the values
// that huma repeats: one may be an id.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	code := "bad_request"
	switch m.Status {
	case http.StatusRequestEntityTooLarge:
		code = "too_large"
	case http.StatusRequestTimeout:
		code = "too_slow"
	case http.StatusUnsupportedMediaType:
		code = "bad_content_type"
	}
	p := plain(m.Status, code, m.Detail)
	for _, e := range m.Errors {
		p.Problems = append(p.Problems, fault.Problem{Path: strings.TrimPrefix(e.Location, "body."), Detail: e.Message})
	}
	return p, nil
}
