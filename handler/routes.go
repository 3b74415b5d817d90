package handler

import (
	"net/http"
	"net/http/pprof"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// getOrHead are the methods of a page: load balancers probe with HEAD, whose body net/http leaves out.
var getOrHead = []string{http.MethodGet, http.MethodHead}

// publicRoutes is everything that the internet can ask. Any other path is 404,
// so that no cache takes /route/x.css for a picture.
func (h *Handler) publicRoutes(e *echo.Echo) {
	for _, path := range []string{"/route", "/v1/route"} {
		e.GET(path, h.safe(h.route))
		e.HEAD(path, h.safe(h.route))
		e.POST(path, h.safe(h.route))
		e.OPTIONS(path, h.safe(h.preflight))
	}
	e.Match(getOrHead, "/.well-known/dispatch-keys", h.safe(h.keys))
	e.Match(getOrHead, "/healthz", h.safe(h.alive))
	e.Match(getOrHead, "/readyz", h.safe(h.ready()))
}

// opsRoutes is for operators and their Prometheus: loopback by default. There is
// no pprof/cmdline: a command line may hold the password of a database.
func (h *Handler) opsRoutes(e *echo.Echo) {
	e.Match(getOrHead, "/healthz", h.safe(h.alive))
	e.Match(getOrHead, "/readyz", h.safe(h.ready(h.checks...)))
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})))
	e.GET("/debug/pprof/*", echo.WrapHandler(http.HandlerFunc(pprof.Index)))
	e.GET("/debug/pprof/profile", echo.WrapHandler(http.HandlerFunc(pprof.Profile)))
	e.GET("/debug/pprof/symbol", echo.WrapHandler(http.HandlerFunc(pprof.Symbol)))
	e.GET("/debug/pprof/trace", echo.WrapHandler(http.HandlerFunc(pprof.Trace)))
}
