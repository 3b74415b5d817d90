package handler

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// Check is one more line of the ops listener's /readyz. It informs: what fails
// here never takes a replica that has a release out of service.
type Check struct {
	Name  string
	Probe func() error
}

func (h *Handler) alive(c echo.Context) error {
	return h.text(c, http.StatusOK, []byte("ok\n"))
}

// ready is 503 until a release is loaded. A release that grows old stays ready,
// and its age is shown: stale is not dead.
func (h *Handler) ready(checks ...Check) echo.HandlerFunc {
	return func(c echo.Context) error {
		status := http.StatusOK
		var out []byte
		if snap := h.releases.Current(); snap == nil {
			status = http.StatusServiceUnavailable
			c.Response().Header().Set("Retry-After", retryAfter)
			out = append(out, "[-]release: none loaded yet\n"...)
		} else {
			out = fmt.Appendf(out, "[+]release ok: number %d, age %s\n", snap.Number, ageOf(snap, h.now()).Round(time.Second))
		}
		for _, check := range checks {
			if err := check.Probe(); err != nil {
				out = fmt.Appendf(out, "[-]%s: %v\n", check.Name, err)
			} else {
				out = fmt.Appendf(out, "[+]%s ok\n", check.Name)
			}
		}
		return h.text(c, status, out)
	}
}

// keys shows the public keys of domain records, so that people can compare them.
// It is never a source of trust: clients pin theirs.
func (h *Handler) keys(c echo.Context) error {
	if h.recordKeys == nil {
		return echo.ErrNotFound
	}
	c.Response().Header().Set("Cache-Control", "public, max-age=300")
	h.metrics.ended(http.StatusOK)
	return c.Blob(http.StatusOK, "application/jwk-set+json", h.recordKeys())
}

func (h *Handler) text(c echo.Context, status int, body []byte) error {
	header := c.Response().Header()
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	return c.Blob(status, "text/plain; charset=utf-8", body)
}
