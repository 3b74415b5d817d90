package handler

import (
	"encoding/json"
	"fmt"
	"net"
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

// TestIDsThatCountAsAbsent is e20 and the unusable ids of e24 and e26: always an
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

	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.AbsentIDs = []string{"guest"} }))
	f.ask(t, "/route?app=corporate&user_id=Guest")
	f.ask(t, "/route?app=corporate&user_id=null")
	f.wantMetric(t, `dispatch_ids_absent_total{app="corporate",id="user",why="placeholder"} 7`)
}

// TestSharesWithoutAnID is e18 and e19 by the contract: without the id, a share of
// everybody takes the request and any other passes it on, the smallest 1,000 times
// out of 1,000; a split draws by the client's prefix instead and says NO_ID.
func TestSharesWithoutAnID(t *testing.T) {
	t.Parallel()
	for of, want := range map[int]string{0: "bj", 1: "bj", 9999: "bj", 10000: "gz"} {
		f := newFixture(t)
		f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) { d.Apps[1].Policies[1].Then.Share.Of = &of }))
		for _, id := range []string{"", "&user_id=", "&user_id=%20%20%20"} {
			times := 1
			if of == 1 {
				times = 1000
			}
			for range times {
				if a := f.ask(t, "/route?app=corporate"+id); a.Region != want {
					t.Fatalf("share %d, id %q: region %s, want %s", of, id, a.Region, want)
				}
			}
		}
	}
	f := newFixture(t)
	region := f.ask(t, "/route").Region
	f.ask(t, "/route?device_id=%20")
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="NO_ID",region="`+region+`"} 2`)
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

// drawn is what a decision record says of the draw.
type drawn struct {
	Policy string
	Bucket int
}

// draws asks /route as each device and returns what the records say.
func draws(t *testing.T, edit func(*release.Document), devices []string) map[string]drawn {
	t.Helper()
	lines, _ := logged(t, func(f *fixture) {
		f.current.Store(f.snapshotOf(t, 413, edit))
		for _, raw := range devices {
			f.ask(t, "/route?app=mobile&device_id="+raw)
		}
	})
	out := make(map[string]drawn, len(lines))
	for i, line := range lines {
		var d drawn
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out[devices[i]] = d
	}
	return out
}

// TestOneNormalFormServesListsAndBuckets is e23 and e26 through the listener; how
// a list is uploaded is whitelist's to test.
func TestOneNormalFormServesListsAndBuckets(t *testing.T) {
	t.Parallel()
	const fullWidth = "%EF%BC%91%EF%BC%92" // digits one and two
	inList := []string{"u1", "u1%20", "%20u1", "u1%0A", "u1%09", "%EF%BB%BFu1", "%C3%BC", "u%CC%88", fullWidth}
	notIn := []string{"12", "b1", "%20b1%0A", "b%C3%BC", "bu%CC%88"}
	got := draws(t, func(d *release.Document) {
		ids := []string{"u1", "\u00fc", "\uff11\uff12"}
		d.Lists[0].IDs = &ids
	}, append(inList, notIn...))
	for _, raw := range inList {
		if got[raw].Policy != "staff" {
			t.Errorf("id %q is not found in its list", raw)
		}
	}
	for _, raw := range notIn {
		if got[raw].Policy != "" || got[raw].Bucket < 0 {
			t.Errorf("id %q: %+v, want a bucket and no policy", raw, got[raw])
		}
	}
	if got["b1"] != got["%20b1%0A"] || got["b%C3%BC"] != got["bu%CC%88"] || got["b1"] == got["b%C3%BC"] {
		t.Errorf("two forms of one id have different buckets: %v", got)
	}
}

// TestCaseCountsUnlessFolded is e25 through the listener.
func TestCaseCountsUnlessFolded(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"", release.CaseExact, release.CaseFold} {
		got := draws(t, func(d *release.Document) {
			ids := []string{"AbC"}
			d.Lists[0].IDs, d.Apps[0].IDCase = &ids, setting
		}, []string{"AbC", "abc", "XyZ", "xyz"})
		folds := setting == release.CaseFold
		if got["AbC"].Policy != "staff" || (got["abc"].Policy == "staff") != folds {
			t.Errorf("id_case %q: the list with AbC says %+v to AbC and %+v to abc", setting, got["AbC"], got["abc"])
		}
		if got["XyZ"].Bucket < 0 || (got["XyZ"].Bucket == got["xyz"].Bucket) != folds {
			t.Errorf("id_case %q: XyZ falls into %d, xyz into %d", setting, got["XyZ"].Bucket, got["xyz"].Bucket)
		}
	}
}

// TestAddressRulesMeetEverySpelling is e43 through the listener.
func TestAddressRulesMeetEverySpelling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) {
		d.Apps[0].Policies[3].When.CIDR = []string{"172.16.0.0/12", "2001:db8::/32"}
		d.Apps[0].Otherwise = policy.Action{Region: "sh"}
	}))
	for _, tc := range []struct{ addr, want string }{
		{"172.23.0.7", "hf"}, {"::ffff:172.23.0.7", "hf"}, {"::ffff:172.32.0.7", "sh"},
		{"2001:db8::1", "hf"}, {"2001:0DB8:0:0::1", "hf"}, {"2001:db9::1", "sh"}, {"fe80::1%eth0", "sh"}, {"::", "sh"},
	} {
		for _, from := range [][]string{{"peer", net.JoinHostPort(tc.addr, "1")}, {"X-Forwarded-For", tc.addr, "peer", "10.0.0.5:1"}} {
			if a := f.ask(t, "/route", from...); a.Region != tc.want {
				t.Errorf("%v: region %s, want %s", from, a.Region, tc.want)
			}
		}
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

// TestSEC06HeadersHaveNoAuthorityByTheirName is the first half of e44: what only
// a gateway may say changes nothing when anybody else says it.
// TestTheRecordSaysWhichAddressWon has the other half.
func TestSEC06HeadersHaveNoAuthorityByTheirName(t *testing.T) {
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

// TestASessionStays renews one session 100 times, over an hour and a half, with a
// rule against it and a login in between: one region.
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

// TestASessionEndsByRule is e62: the share goes to 0 and the token keeps its
// region, also for who logs out and in again, until it expires or the region is off.
func TestASessionEndsByRule(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gray := func(number uint64, of int, gz domain.RegionState) {
		f.current.Store(f.snapshotOf(t, number, func(d *release.Document) {
			d.Apps[1].Policies[1].Then.Share.Of, d.Apps[1].Regions[1].State = &of, gz
		}))
	}
	gray(413, policy.Whole, domain.Active)
	token := f.ask(t, "/route?app=corporate&user_id=u-1").Session
	want := func(user, region, why string) {
		t.Helper()
		if a := f.ask(t, "/route?app=corporate&user_id="+user+"&session="+token); a.Region != region {
			t.Errorf("%s: %s is in %s, want %s", why, user, a.Region, region)
		}
	}
	want("u-1", "gz", "share of everybody")
	gray(414, 0, domain.Active)
	want("u-1", "gz", "share 0")
	want("u-2", "bj", "somebody else's token")
	want("u-1", "gz", "logged in again")
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} 1`)
	gray(415, 0, domain.Draining)
	want("u-1", "gz", "region draining")
	gray(416, 0, domain.Off)
	want("u-1", "bj", "region off")
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="stale_session"} 1`)
	gray(417, 0, domain.Active)
	f.now.Store(int64(2 * time.Hour))
	want("u-1", "bj", "token expired")
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} 2`)
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

// TestSEC24AnswersAreNobodyElses is the headers of e69 too: no cache may keep an
// answer, and none has a validator.
func TestSEC24AnswersAreNobodyElses(t *testing.T) {
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
