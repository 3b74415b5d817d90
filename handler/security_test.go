package handler

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// careless is nginx as a shared cache that keeps what Cache-Control does not
// forbid, and what looks like a picture whatever is forbidden.
const careless = `
proxy_cache_path cache keys_zone=shared:1m;
proxy_cache shared;
proxy_cache_key $request_uri;
proxy_cache_valid 200 1m;
add_header X-Cache $upstream_cache_status always;
server {
  listen %[1]s;
  location / { proxy_pass %[2]s; }
  location ~ "\.(css|js|png)$|;" {
    proxy_ignore_headers Cache-Control Expires Set-Cookie Vary;
    proxy_pass %[2]s;
  }
}
`

// cacheBefore is such a cache, and counts what it answers by itself.
type cacheBefore struct {
	t    *testing.T
	url  string
	hits int
}

func newCache(t *testing.T, origin string) *cacheBefore {
	t.Helper()
	addr, err := testenv.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	testenv.StartNginx(t, addr, fmt.Sprintf(careless, addr, origin))
	return &cacheBefore{t: t, url: "http://" + addr}
}

// ask sends one request of a device, and returns the answer's status, what it
// says about caching, and its body.
func (c *cacheBefore) ask(method, target, device string, headers ...string) (status int, header http.Header, body string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+target, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-Device-Id", device)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.Header.Get("X-Cache") == "HIT" {
		c.hits++
	}
	return resp.StatusCode, resp.Header, string(text)
}

// e69: two people behind one shared cache, a real one, never see each other's
// answer, also where the path is dressed up as a picture, the first one asks with
// HEAD, or a header that the cache does not look at lies. The same cache in front
// of the same answers without their Cache-Control does mix them up.
func TestSEC24NoCacheSharesAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	staff, other := "d-1001", f.deviceOf(t, "hf") // staff goes to Shanghai
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		f.handler.Public().ServeHTTP(got, r)
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	}))
	t.Cleanup(bare.Close)
	mixing := newCache(t, bare.URL)
	_, _, first := mixing.ask(http.MethodGet, "/route", staff)
	if _, _, second := mixing.ask(http.MethodGet, "/route", other); domainOf(first) == "" || first != second || mixing.hits != 1 {
		t.Fatalf("a cache that keeps everything answers %s after %s: it shows nothing", second, first)
	}

	c := newCache(t, startHTTP(t, f))
	for _, target := range []string{"/route", "/v1/route", "/route?app=mobile"} {
		for range 2 {
			for device, region := range map[string]string{staff: "sh", other: "hf"} {
				for _, method := range []string{http.MethodHead, http.MethodGet} {
					_, header, body := c.ask(method, target, device, "If-None-Match", "*")
					if method == http.MethodGet && !strings.Contains(body, `"region":"`+region+`"`) || header.Get("Etag")+header.Get("Last-Modified") != "" {
						t.Errorf("%s %s of %s: %v %s, want region %s", method, target, device, header, body, region)
					}
				}
			}
		}
	}
	for _, dressed := range []string{"/route/x.css", "/route;a.js", "/route.js", "/route%2fx.css", "/v1/route/a.png", "/route/..;/x.js"} {
		if status, _, body := c.ask(http.MethodGet, dressed, staff); status != http.StatusNotFound || strings.Contains(body, "domain") {
			t.Errorf("GET %s: %d %s, want 404", dressed, status, body)
		}
	}
	_, _, plain := c.ask(http.MethodGet, "/route?app=mobile", staff)
	for _, name := range []string{"X-Forwarded-Host", "X-Host", "Forwarded", "X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Scheme"} {
		value := "evil.example"
		if name == "Forwarded" {
			value = "host=evil.example"
		}
		if _, header, poisoned := c.ask(http.MethodGet, "/route?app=mobile", staff, name, value); domainOf(plain) != domainOf(poisoned) || strings.Contains(fmt.Sprint(header, poisoned), "evil") {
			t.Errorf("%s turns %s into %v %s", name, plain, header, poisoned)
		}
	}
	if c.hits != 0 {
		t.Errorf("%d answers came from the cache", c.hits)
	}
}

func startHTTP(t *testing.T, f *fixture) string {
	t.Helper()
	return "http://" + start(t, f, slog.New(slog.DiscardHandler))
}

func domainOf(answer string) string {
	_, rest, _ := strings.Cut(answer, `"domain":"`)
	domain, _, _ := strings.Cut(rest, `"`)
	return domain
}

// deviceOf is a device whom the default sends to a region.
func (f *fixture) deviceOf(t *testing.T, region string) string {
	t.Helper()
	for i := range 1000 {
		device := fmt.Sprint("d-any-", i)
		if f.ask(t, "/route", "X-Device-Id", device).Region == region {
			return device
		}
	}
	t.Fatalf("no device goes to %s", region)
	return ""
}

// HTTP/2 has limits of its own that the public listener does not set, so it is
// not spoken: neither by prior knowledge nor by upgrade.
func TestSEC25HTTP2IsNotOffered(t *testing.T) {
	t.Parallel()
	addr := start(t, newFixture(t), slog.New(slog.DiscardHandler))
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The preface and an empty SETTINGS frame.
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	if !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.1 505 ") {
		t.Errorf("the preface of HTTP/2 is answered with %q", line)
	}
	upgrade := "GET /route HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	if got, _, err := exchange(t, addr, upgrade); err != nil || got.StatusCode != http.StatusOK || got.ProtoMajor != 1 {
		t.Errorf("an upgrade to h2c: %v %v, want an answer over HTTP/1.1", got, err)
	}
}

// Shares can be predicted, so anybody may choose the id of the bucket they like.
// It gains them nothing: whatever the id, the answer is one of those that the
// split gives to everybody, and no list believes it.
func TestSEC26AChosenIDGainsNoRight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	regions := map[string]int{}
	for i := range 20_000 { // every bucket about twice
		regions[f.ask(t, "/route", "X-Device-Id", fmt.Sprint("chosen-", i), "X-User-Id", fmt.Sprint("chosen-", i)).Region]++
	}
	if regions["sh"] < 11_000 || regions["sh"] > 13_000 || regions["sh"]+regions["hf"] != 20_000 {
		t.Errorf("20,000 chosen ids went to %v, want 6,000 of 10,000 to sh and the rest to hf", regions)
	}
	f.wantMetric(t, `dispatch_policy_decisions_total{app="mobile",policy="staff"} 0`)
	f.wantMetric(t, `dispatch_policy_decisions_total{app="mobile",policy="vip"} 0`)
	listed := f.ask(t, "/route", "X-Device-Id", "d-1001")
	f.wantMetric(t, `dispatch_policy_decisions_total{app="mobile",policy="staff"} 1`)
	if listed.Region != "sh" {
		t.Errorf("a listed device went to %s", listed.Region)
	}
}

// What two readers of one connection could take apart differently is refused, or
// ends the connection, so that nothing is smuggled behind it.
func TestSEC27NothingIsSmuggled(t *testing.T) {
	t.Parallel()
	addr := start(t, newFixture(t), slog.New(slog.DiscardHandler))
	const smuggled = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tc := range []struct {
		name, raw string
		status    int
		want      string
	}{
		{"two lengths", "POST /route HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + smuggled, 400, ""},
		{"length and chunks", "POST /route HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 200, `"session"`},
		{"chunks and length", "POST /route HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + smuggled, 200, `"session"`},
		{"chunks twice", "POST /route HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled, 501, ""},
		{"unknown coding", "POST /route HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, 501, ""},
		{"blank before the colon", "POST /route HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\n0\r\n\r\n" + smuggled, 400, ""},
		{"two hosts", "GET /route HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, ""},
		{"no host", "GET /route HTTP/1.1\r\n\r\n", 400, ""},
		{"host with a path", "GET /route HTTP/1.1\r\nHost: a/../b\r\n\r\n", 400, ""},
		{"absolute form", "GET http://corp.bank.example/route HTTP/1.1\r\nHost: mobile.bank.example\r\nConnection: close\r\n\r\n", 200, `"app":"corporate"`},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, tc.raw) // the server may refuse before it has read all
		all, _ := io.ReadAll(c)          // to the end of the connection, or of the deadline
		text := string(all)
		if !strings.HasPrefix(text, fmt.Sprintf("HTTP/1.1 %d ", tc.status)) || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %.300q, want %d %s", tc.name, text, tc.status, tc.want)
		}
		if n := strings.Count(text, "HTTP/1.1 "); n != 1 {
			t.Errorf("%s: %d answers: %q", tc.name, n, text)
		}
		_ = c.Close()
	}
}
