package handler

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

func TestAnswerHasExactlyTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.get("/route?app=mobile", "X-Device-Id", "d-1001")
	text := w.Body.String()
	if w.Body.Len() > release.MaxAnswer {
		t.Errorf("answer has %d bytes", w.Body.Len())
	}
	a := read(t, w)
	if a.Session == "" || a.Record == "" || a.Release != 412 {
		t.Errorf("answer %+v lacks session, record or release", a)
	}
	if left := 30 * 60; a.TTL < left*60/100 || a.TTL > left*80/100 {
		t.Errorf("ttl %d is not 60 to 80 %% of %d s", a.TTL, left)
	}
	for _, secret := range []string{"staff", "policy", "POLICY", "reason", "list"} {
		if strings.Contains(text, secret) {
			t.Errorf("answer tells %q: %s", secret, text)
		}
	}
	for name, values := range w.Header() {
		switch name {
		case "Content-Type", "Cache-Control", "X-Content-Type-Options", "Vary":
		default:
			t.Errorf("unexpected header %s: %v", name, values)
		}
	}
}

// TestIDsThatCountAsAbsent is e18, e19, e20 and the long ids of e24: always an
// answer, never bucket 0 for want of an id, and counted.
func TestIDsThatCountAsAbsent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for raw, why := range map[string]string{
		"": "missing", "%20%20": "blank", "null": "placeholder", "undefined": "placeholder", "unknown": "placeholder",
		"(null)": "placeholder", "00000000-0000-0000-0000-000000000000": "placeholder", "000000000000000": "placeholder",
		strings.Repeat("x", 1500): "too_long", "%ff": "bad_utf8", "a%00b": "control",
	} {
		a := f.ask(t, "/route?app=corporate&user_id="+raw)
		if a.Region != "bj" { // the gray of 1 in 10,000 is not entered without an id
			t.Errorf("id %.20q: region %s", raw, a.Region)
		}
		if line := fmt.Sprintf(`dispatch_ids_absent_total{app="corporate",id="user",why=%q}`, why); !strings.Contains(f.exposition(t), line) {
			t.Errorf("id %.20q: no metric %s", raw, line)
		}
	}
	f.wantMetric(t, `dispatch_ids_absent_total{app="corporate",id="user",why="placeholder"} 6`)
	f.wantMetric(t, `dispatch_ids_absent_total{app="corporate",id="user",why="too_long"} 1`)
}

// TestAShareOfEverybodyTakesRequestsWithoutAnID is the other half of e18.
func TestAShareOfEverybodyTakesRequestsWithoutAnID(t *testing.T) {
	t.Parallel()
	for of, want := range map[int]string{0: "bj", 1: "bj", 9999: "bj", 10000: "gz"} {
		f := newFixture(t)
		f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[1].Policies[1].Then.Share.Of = &of }))
		if a := f.ask(t, "/route?app=corporate"); a.Region != want {
			t.Errorf("share %d: region %s, want %s", of, a.Region, want)
		}
	}
}

// TestIDsOfEveryShapeAreAnswered is e24: ids are opaque.
func TestIDsOfEveryShapeAreAnswered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"a b", "a/b", "100%", "😀", "用户-张三", strings.Repeat("x", 256), strings.Repeat("ü", 2000), "'; drop table--"} {
		if a := f.ask(t, "/route", "X-Device-Id", id); a.Domain == "" {
			t.Errorf("id %.20q: no domain", id)
		}
	}
}

// TestOneNormalFormServesListsAndBuckets is e23, e25 and e26 through the listener.
func TestOneNormalFormServesListsAndBuckets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) {
		ids := []string{"u1", "\u00fc"}
		d.Lists[0].IDs = &ids
		d.Apps[0].Otherwise = policy.Action{Region: "hf"}
	}))
	for _, raw := range []string{"u1", "u1%20", "%20u1", "u1%0A", "u1%09", "%EF%BB%BFu1", "%C3%BC", "u%CC%88"} {
		if a := f.ask(t, "/route?app=mobile&device_id="+raw); a.Region != "sh" {
			t.Errorf("id %q is not found in its list: region %s", raw, a.Region)
		}
	}
	if a := f.ask(t, "/route?app=mobile&device_id=U1"); a.Region != "hf" {
		t.Error("case was folded without being asked")
	}
}

func TestAppsAreFoundAndNotGuessed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tc := range []struct{ target, host, want string }{
		{"/route?app=corporate", "mobile.bank.example", "corporate"},
		{"/route?app=%20corporate%20", "", "corporate"},
		{"/route", "corp.bank.example", "corporate"},
		{"/route", "CORP.bank.example:8443", "corporate"},
		{"/route", "corp.bank.example.", "corporate"},
		{"/route", "[::1]:8080", "mobile"},
		{"/route", "elsewhere.example", "mobile"},
		{"/route?app=", "corp.bank.example", "corporate"},
	} {
		r := newRequest(t, tc.target, tc.host)
		if a := f.serve(t, r); a.App != tc.want {
			t.Errorf("%s at %q: app %q, want %q", tc.target, tc.host, a.App, tc.want)
		}
	}
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[0].Default = false }))
	if w := f.get("/route"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"unknown_app"`) {
		t.Errorf("no app and no default: %d %s", w.Code, w.Body)
	}
}

// TestHeadersHaveNoAuthorityByTheirName is SEC6 and e44: what only a gateway may
// say changes nothing when anybody else says it.
func TestHeadersHaveNoAuthorityByTheirName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[0].Otherwise = policy.Action{Region: "sh"} }))
	forged := []string{"X-Origin-Region", "hf", "X-Forwarded-For", "198.51.100.7", "X-Forwarded-For", "198.51.100.8",
		"Forwarded", "for=198.51.100.7", "X-Real-Ip", "198.51.100.7", "X-Region", "hf", "X-User-Id", "vip-1",
		"X-Platform", "ios", "X-App-Version", "10.3"}
	if a := f.ask(t, "/route?ip=198.51.100.7&origin=hf&user_id=vip-1", forged...); a.Region != "sh" {
		t.Errorf("a stranger moved the decision to %s", a.Region)
	}
	for _, header := range [][]string{
		{"X-Origin-Region", "hf"}, {"X-Forwarded-For", "198.51.100.7"}, {"Forwarded", "for=198.51.100.7"},
		{"X-User-Id", "vip-1", "X-Platform", "ios", "X-App-Version", "10.3"},
	} {
		if a := f.ask(t, "/route", append(header, "peer", "10.0.0.5:1")...); a.Region != "hf" {
			t.Errorf("%v of a trusted proxy: region %s, want hf", header, a.Region)
		}
	}
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="untrusted_origin"} 1`)
	f.wantMetric(t, `dispatch_ids_absent_total{app="mobile",id="user",why="untrusted"} 1`)
}

// TestDeviceOfTrustedProxyOnly covers the stricter of the identity rules.
func TestDeviceOfTrustedProxyOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask(t, "/route?app=corporate&device_id=d-1")
	f.wantMetric(t, `dispatch_ids_absent_total{app="corporate",id="device",why="untrusted"} 1`)
	f.ask(t, "/route?app=corporate&device_id=d-1", "peer", "10.0.0.5:1")
	f.wantMetric(t, `dispatch_ids_absent_total{app="corporate",id="device",why="untrusted"} 1`)
}

// TestASessionStays is e61, and e22's login: 100 requests of one session, a new
// split, a login in between: one region.
func TestASessionStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.ask(t, "/route", "X-Device-Id", "session-device")
	other := map[string]string{"sh": "hf", "hf": "sh"}[first.Region]
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[0].Otherwise = policy.Action{Region: other} }))
	token := first.Session
	for i := range 100 {
		f.now.Add(int64(time.Minute))
		headers := []string{"X-Device-Id", "session-device", "X-Session-Token", token}
		if i > 50 {
			headers = append(headers, "X-User-Id", "u-1", "peer", "10.0.0.5:1")
		}
		a := f.ask(t, "/route", headers...)
		if a.Region != first.Region {
			t.Fatalf("request %d: region %s, the session began in %s", i, a.Region, first.Region)
		}
		token = a.Session
	}
	if a := f.ask(t, "/route", "X-Device-Id", "session-device"); a.Region != other {
		t.Errorf("a new session got %s, want %s", a.Region, other)
	}
}

// TestASessionEndsByRule is e62: the share went to 0 and the token keeps its
// region until it expires, or until the region is off.
func TestASessionEndsByRule(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gold := []string{"peer", "10.0.0.5:1"}
	first := f.ask(t, "/route?app=corporate&user_id=u-1&attr.tier=gold", gold...)
	if first.Region != "gz" {
		t.Fatalf("region %s", first.Region)
	}
	again := func() answer { return f.ask(t, "/route?app=corporate&user_id=u-1&session="+first.Session, gold...) }
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[1].Policies = nil }))
	if a := again(); a.Region != "gz" {
		t.Errorf("policy gone: region %s, want gz until the token ends", a.Region)
	}
	if a := f.ask(t, "/route?app=corporate&user_id=u-2&session="+first.Session, gold...); a.Region != "bj" {
		t.Errorf("another user's token counted: region %s", a.Region)
	}
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} 1`)
	f.current.Store(f.snapshotOf(t, 414, func(d *release.Document) {
		d.Apps[1].Policies, d.Apps[1].Regions[1].State = nil, domain.Off
	}))
	if a := again(); a.Region != "bj" {
		t.Errorf("region off: %s", a.Region)
	}
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="stale_session"} 1`)
	f.current.Store(f.snapshotOf(t, 415, func(d *release.Document) { d.Apps[1].Policies = nil }))
	f.now.Store(int64(2 * time.Hour))
	if a := again(); a.Region != "bj" {
		t.Errorf("expired token: region %s", a.Region)
	}
}

func TestNobodyLeftIsTheFallback(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) {
		d.Apps[0].Regions[0].State, d.Apps[0].Regions[0].Failover = domain.Off, nil
	}))
	a := f.ask(t, "/route", "X-Device-Id", "d-1001")
	if a.Region != "" || a.Domain != "wap.bank.example" || a.Session != "" || a.TTL <= 0 {
		t.Errorf("fallback answer %+v", a)
	}
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="FALLBACK",region=""} 1`)
}

// TestNoRelease is e49 by the contract: alive, not ready, 503 with a time to come back.
func TestNoRelease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.current.Store(nil)
	w := f.get("/route?app=mobile")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"no_release"`) {
		t.Errorf("route: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := f.get("/readyz"); w.Code != http.StatusServiceUnavailable || !strings.HasPrefix(w.Body.String(), "[-]release") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	if w := f.get("/healthz"); w.Code != http.StatusOK {
		t.Errorf("healthz: %d", w.Code)
	}
	f.wantMetric(t, "dispatch_release_number 0")
	f.wantMetric(t, "dispatch_release_age_seconds NaN")
	f.wantMetric(t, `dispatch_requests_total{code="503"} 1`)
}

// TestAnswersAreNobodyElses is e69 and SEC24: no cache may keep one, no answer has a validator.
func TestAnswersAreNobodyElses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, w := range []*http.Response{
		f.get("/route", "X-Device-Id", "d-1001").Result(),
		f.do(http.MethodHead, "/route", "", "X-Device-Id", "d-1001").Result(),
		f.do(http.MethodPost, "/route", `{"device_id":"d-1001"}`).Result(),
		f.get("/route?app=nothing").Result(),
		f.get("/route/x.css").Result(),
		f.do(http.MethodOptions, "/route", "").Result(),
	} {
		if got := w.Header.Get("Cache-Control"); got != "private, no-store" {
			t.Errorf("%d: Cache-Control %q", w.StatusCode, got)
		}
		if w.Header.Get("ETag") != "" || w.Header.Get("Last-Modified") != "" {
			t.Errorf("%d: has a validator: %v", w.StatusCode, w.Header)
		}
	}
}

func TestRecordKeyThatTheClientKnows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	snap := f.snapshotOf(t, 412, nil)
	a := &snap.Apps["mobile"].Answer[0][0]
	a.Kids = []string{"r2", "r1"}
	a.Bodies = [][]byte{[]byte(`{"record":"by-r2"`), []byte(`{"record":"by-r1"`)}
	f.current.Store(snap)
	for known, want := range map[string]string{"": "by-r2", "r1": "by-r1", "r0, r1": "by-r1", "r9": "by-r2"} {
		if a := f.ask(t, "/route", "X-Device-Id", "d-1001", recordKeys, known); a.Record != want {
			t.Errorf("keys %q: record %s, want %s", known, a.Record, want)
		}
	}
}
