package handler

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
)

// sink is a ResponseWriter that costs nothing, so that what is measured is ours.
type sink struct {
	header http.Header
	status int
	body   []byte
}

func (s *sink) Header() http.Header    { return s.header }
func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(p []byte) (int, error) {
	s.body = append(s.body[:0], p...)
	return len(p), nil
}

// routeRequest is what an app's first call looks like.
func routeRequest() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/route?app=mobile", nil)
	r.RemoteAddr = "203.0.113.9:40000"
	r.Header = http.Header{"X-Device-Id": {"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}, "X-App-Version": {"10.2.1"}, "X-Platform": {"ios"},
		"X-Channel": {"appstore"}, "X-Locale": {"zh-CN"}, "User-Agent": {"MobileBank/10.2.1"}, "Accept": {"application/json"}}
	return r
}

// bareEcho writes a constant of the same length.
func bareEcho(body string) http.Handler {
	e := echo.New()
	constant := []byte(body)
	e.GET("/route", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/json", constant)
	})
	return e
}

// measured is a fixture with the real clock, metrics and a decision log that is drained.
func measured(tb testing.TB) *fixture {
	f := newFixture(tb, func(o *Options) { o.Decisions, o.Now = discard{}, time.Now })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.handler.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	return f
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

func serveOnce(h http.Handler, w *sink, r *http.Request) {
	clear(w.header)
	h.ServeHTTP(w, r)
}

func BenchmarkRoute(b *testing.B) {
	f := measured(b)
	w := &sink{header: http.Header{}}
	b.Run("new session", func(b *testing.B) {
		r := routeRequest()
		b.ReportAllocs()
		for b.Loop() {
			serveOnce(f.handler.Public(), w, r)
		}
	})
	b.Run("sticky", func(b *testing.B) {
		r := routeRequest()
		r.Header["X-Session-Token"] = []string{f.ask(b, "/route", "X-Device-Id", r.Header["X-Device-Id"][0]).Session}
		b.ReportAllocs()
		for b.Loop() {
			serveOnce(f.handler.Public(), w, r)
		}
	})
}

func BenchmarkBareEcho(b *testing.B) {
	w, r := &sink{header: http.Header{}}, routeRequest()
	bare := bareEcho(strings.Repeat("x", 900))
	b.ReportAllocs()
	for b.Loop() {
		serveOnce(bare, w, r)
	}
}
