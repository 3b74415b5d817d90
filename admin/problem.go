package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

// failure is a fault.Body as huma wants an error: with a status, a content type
// and headers. The OpenAPI document knows it as Failure.
type failure struct{ fault.Body }

const problemType = "application/problem+json"

func (f *failure) GetStatus() int            { return f.Status }
func (f *failure) Error() string             { return f.Detail }
func (f *failure) ContentType(string) string { return problemType }

// GetHeaders are what a status asks for beside the body.
func (f *failure) GetHeaders() http.Header {
	switch f.Status {
	case http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {`Bearer realm="dispatch"`}}
	case http.StatusServiceUnavailable:
		return http.Header{"Retry-After": {"5"}}
	case http.StatusTooManyRequests:
		if again, ok := f.Data.(actions.RetryAfter); ok {
			return http.Header{"Retry-After": {strconv.Itoa(again.Seconds)}}
		}
		return nil
	default:
		return nil
	}
}

// refuse is what the caller hears of err. Internal errors are logged here and
// nowhere else, unless the caller has gone and that is all that went wrong.
func (a *API) refuse(ctx context.Context, operation string, err error) *failure {
	gone := errors.Is(err, context.Canceled) && ctx.Err() != nil
	if fault.KindOf(err) == fault.Internal && !gone {
		a.log.ErrorContext(ctx, "admin request failed", "operation", operation, "err", err)
	}
	return &failure{fault.BodyOf(err)}
}

// fail answers what echo itself refuses: unknown paths, wrong methods, panics.
func (a *API) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	var f *failure
	switch he, _ := errors.AsType[*echo.HTTPError](err); {
	case he != nil && he.Code == http.StatusNotFound:
		f = plain(he.Code, "unknown_path", "no such path")
	case he != nil && he.Code == http.StatusMethodNotAllowed:
		f = plain(he.Code, "unknown_method", "no such method on this path")
	default:
		f = a.refuse(c.Request().Context(), c.Path(), err)
	}
	c.Response().Header().Set("Content-Type", problemType)
	_ = c.JSON(f.Status, f) // the caller has gone
}

// plain is a failure whose status no kind of fault has.
func plain(status int, code, detail string) *failure {
	return &failure{fault.Body{Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
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
	f := plain(m.Status, code, m.Detail)
	for _, e := range m.Errors {
		f.Problems = append(f.Problems, fault.Problem{Path: strings.TrimPrefix(e.Location, "body."), Detail: e.Message})
	}
	return f, nil
}
