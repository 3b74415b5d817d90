package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/internal/fault"
)

// refusal is an answer about the HTTP message itself, which fault's kinds do not
// speak of.
type refusal struct {
	status       int
	code, detail string
	kind         badInput // counted as, when counted is set
	counted      bool
}

func (r *refusal) Error() string { return r.code + ": " + r.detail }

// The refusals of /route. They repeat nothing that the client sent.
var (
	errBadBody = &refusal{http.StatusBadRequest, "bad_body",
		"the body is not one JSON object", badBody, true}
	errBodyOnGet = &refusal{http.StatusBadRequest, "body_not_allowed",
		"only POST takes a body", badBody, true}
	errBodyTooLarge = &refusal{http.StatusRequestEntityTooLarge, "body_too_large",
		fmt.Sprintf("the body is longer than %d bytes", maxBody), badTooLarge, true}
	errQueryTooLong = &refusal{http.StatusRequestURITooLong, "query_too_long",
		fmt.Sprintf("the query is longer than %d bytes", maxQuery), badTooLarge, true}
	errUnknownApp = &refusal{status: http.StatusNotFound, code: "unknown_app",
		detail: "no app has the key or host that this request names"}
	errNoRelease = &refusal{status: http.StatusServiceUnavailable, code: "no_release",
		detail: "no release has been loaded yet"}
	errPanicked = errors.New("a request panicked")
)

// retryAfter is how long a client waits after 503, in seconds: the polling
// interval of an edge.
const retryAfter = "5"

// problemOf is what the client may see of err.
func problemOf(err error) fault.Body {
	body := fault.Body{Code: "internal", Detail: "internal error", Status: http.StatusInternalServerError}
	if r, ok := errors.AsType[*refusal](err); ok {
		body = fault.Body{Status: r.status, Code: r.code, Detail: r.detail}
	} else if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch e.Code {
		case http.StatusNotFound:
			body = fault.Body{Status: e.Code, Code: "not_found", Detail: "there is nothing at this path"}
		case http.StatusMethodNotAllowed:
			body = fault.Body{Status: e.Code, Code: "method_not_allowed", Detail: "this path does not answer this method"}
		}
	}
	body.Title = http.StatusText(body.Status)
	return body
}

// fail is the one place where an error becomes an answer.
func (h *Handler) fail(err error, c echo.Context) {
	body := problemOf(err)
	if r, ok := errors.AsType[*refusal](err); ok && r.counted {
		h.metrics.bad[r.kind].Inc()
	}
	h.metrics.ended(body.Status)
	h.debug(c, body.Status, body.Code)
	if c.Response().Committed {
		return
	}
	text, err := json.Marshal(body)
	if err != nil {
		h.log.ErrorContext(c.Request().Context(), "problem not rendered", "code", body.Code, "err", err)
	}
	header := c.Response().Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "private, no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if body.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	if hasBody(c.Request()) {
		header.Set("Connection", "close") // what is left of the body is not worth reading
	}
	c.Response().WriteHeader(body.Status)
	_, _ = c.Response().Write(append(text, '\n')) // the client has gone; nobody is left to tell
}

// safe turns a panic into a 500, counted and logged with its stack.
func (h *Handler) safe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			h.metrics.panics.Inc()
			h.log.ErrorContext(c.Request().Context(), "request panicked",
				"route", c.Path(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = errPanicked
		}()
		return next(c)
	}
}
