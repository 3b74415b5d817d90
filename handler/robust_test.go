package handler

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"dispatch.example/dispatch/release"
)

// exploding is a keeper with a bug.
type exploding struct{}

func (exploding) Current() *release.Snapshot { panic("a bug") }

func TestAPanicIsA500(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	f := newFixture(t)
	f.handler.releases = exploding{}
	f.handler.log = slog.New(slog.NewJSONHandler(&log, nil))
	w := f.get("/route")
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"internal"`) || strings.Contains(w.Body.String(), "bug") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if text := log.String(); !strings.Contains(text, "a bug") || !strings.Contains(text, "robust_test.go") || strings.Count(text, "\n") != 1 {
		t.Errorf("log: %s", text)
	}
	if w := f.get("/healthz"); w.Code != http.StatusOK {
		t.Errorf("the next request: %d", w.Code)
	}
	f.handler.releases = f.current
	f.wantMetric(t, "dispatch_panics_total 1")
	f.wantMetric(t, `dispatch_requests_total{code="500"} 1`)
}

// TestRequestsLeaveNothingBehind sends a rich request and then a poor one through
// the same pooled memory.
func TestRequestsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 50 {
		if a := f.ask(t, "/route?app=corporate&user_id=u-1&attr.tier=gold"); a.Region != "gz" {
			t.Fatalf("gold: %s", a.Region)
		}
		if a := f.ask(t, "/route?app=corporate"); a.Region != "bj" {
			t.Fatalf("the request after it: %s", a.Region)
		}
	}
}

// FuzzRoute holds that whatever a query, a header or a body says, the answer is
// a usable domain or a clear problem, and never the server's own failure.
func FuzzRoute(f *testing.F) {
	f.Add("app=mobile&device_id=d-1", "d-1001", "10.2", "t", "5.6.7.8", `{"app":"corporate"}`)
	f.Add("app=corporate&user_id=a;b%2&attr.tier=gold", "\xff\x00", "v", "AAAA", `for="[::1]"`, `{`)
	f.Add("%", strings.Repeat("x", 300), "1..2", "", ",,", "")
	fix := newFixture(f)
	f.Fuzz(func(t *testing.T, query, device, version, session, forwarded, body string) {
		r := httptest.NewRequest(http.MethodPost, "/route", strings.NewReader(body))
		r.URL = &url.URL{Path: "/route", RawQuery: query}
		r.RemoteAddr = "10.0.0.5:1"
		r.Header = http.Header{"X-Device-Id": {device}, "X-App-Version": {version}, "X-Session-Token": {session},
			"X-Forwarded-For": {forwarded}, "X-User-Id": {session}, recordKeys: {version}, "X-Origin-Region": {device}}
		w := httptest.NewRecorder()
		fix.handler.Public().ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
			if a := read(t, w); a.Domain == "" || a.TTL < 1 {
				t.Errorf("answer without a domain or ttl: %+v", a)
			}
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong:
			if a := read(t, w); a.Code == "" {
				t.Errorf("%d without a code", w.Code)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
