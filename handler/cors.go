package handler

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/internal/fault"
)

// cors says which web pages may read answers. No page may send credentials.
type cors struct {
	any     bool
	origins map[string]bool
}

func newCORS(origins []string) (cors, error) {
	c := cors{origins: make(map[string]bool, len(origins))}
	var problems fault.Problems
	for _, o := range origins {
		if o == "*" {
			c.any = true
			continue
		}
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.Scheme+"://"+u.Host != o {
			problems.Addf("cors-origins", "%q is not an origin; write scheme://host or scheme://host:port, in lower case and without a path", o)
			continue
		}
		c.origins[o] = true
	}
	return c, problems.Err("bad_cors_origins", "an allowed origin cannot be used")
}

// allow lets the page read the answer if its origin is allowed, and says whether it is.
func (c *cors) allow(r *http.Request, answer http.Header) bool {
	if c.any {
		answer["Access-Control-Allow-Origin"] = anyOrigin
		return true
	}
	if len(c.origins) == 0 {
		return false
	}
	answer["Vary"] = varyOrigin
	if o := r.Header["Origin"]; len(o) == 1 && c.origins[o[0]] {
		answer["Access-Control-Allow-Origin"] = o
		return true
	}
	return false
}

// expose lets a page that may read the answer read a header of it, too.
func expose(answer http.Header, names []string) {
	if answer["Access-Control-Allow-Origin"] != nil {
		answer["Access-Control-Expose-Headers"] = names
	}
}

// preflight answers OPTIONS /route.
func (h *Handler) preflight(c echo.Context) error {
	header := c.Response().Header()
	header.Set("Allow", "GET, HEAD, OPTIONS, POST")
	header.Set("Cache-Control", "private, no-store")
	if h.cors.allow(c.Request(), header) {
		header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
		header.Set("Access-Control-Allow-Headers", allowedHeaders)
		header.Set("Access-Control-Max-Age", "86400") // a day; browsers cap it on their own
	}
	h.metrics.ended(http.StatusNoContent)
	return c.NoContent(http.StatusNoContent)
}

// allowedHeaders are those that a page may send; X-Origin-Region never counts from one.
// Traceparent and Tracestate are what tracing of pages adds to all that they ask.
const allowedHeaders = "Content-Type, Traceparent, Tracestate, X-App, X-App-Version, X-Carrier, X-Channel, X-Device-Id, " +
	"X-Fallback-Reason, X-Locale, X-Platform, X-Record-Keys, X-Session-Token, X-User-Id"

// Header values that are the same in every answer. Nothing changes them.
var (
	anyOrigin    = []string{"*"}
	varyOrigin   = []string{"Origin"}
	exposedTrace = []string{responseHeader}
	jsonType     = []string{"application/json"}
	noStore      = []string{"private, no-store"}
	noSniff      = []string{"nosniff"}
)
