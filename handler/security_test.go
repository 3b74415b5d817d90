package handler

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"
)

// cache is a shared cache as careless as they come: it keeps what Cache-Control
// does not forbid, and what looks like a picture whatever is forbidden.
type cache struct {
	next *httputil.ReverseProxy

	mu   sync.Mutex
	kept map[string]*httptest.ResponseRecorder
	hits int
}

func newCache(t *testing.T, origin string) (*cache, string) {
	t.Helper()
	u, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	c := &cache{next: httputil.NewSingleHostReverseProxy(u), kept: map[string]*httptest.ResponseRecorder{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return c, s.URL
}

func (c *cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	kept := c.kept[r.URL.RequestURI()]
	c.mu.Unlock()
	if kept == nil {
		kept = httptest.NewRecorder()
		c.next.ServeHTTP(kept, r)
		control := kept.Header().Get("Cache-Control")
		forbidden := strings.Contains(control, "no-store") || strings.Contains(control, "private")
		picture := path.Ext(r.URL.Path) != "" || strings.Contains(r.URL.Path, ";")
		if kept.Code == http.StatusOK && (!forbidden || picture) {
			c.mu.Lock()
			c.kept[r.URL.RequestURI()] = kept
			c.mu.Unlock()
		}
	} else {
		c.mu.Lock()
		c.hits++
		c.mu.Unlock()
	}
	for name, values := range kept.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(kept.Code)
	_, _ = w.Write(kept.Body.Bytes())
}

// Two devices behind one shared cache never see each other's answer, also where
// the path is dressed up as a picture. The same cache in front of the same
// answers without their Cache-Control does mix them up.
func TestSEC24NoCacheSharesAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	careless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		f.handler.Public().ServeHTTP(got, r)
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	})
	for _, tc := range []struct {
		name   string
		origin http.Handler
		shared bool
	}{{"as it is", f.handler.Public(), false}, {"without Cache-Control", careless, true}} {
		origin := httptest.NewServer(tc.origin)
		t.Cleanup(origin.Close)
		c, through := newCache(t, origin.URL)
		// staff goes to Shanghai; a device of Hefei's half does not.
		staff := throughCache(t, through+"/route", "d-1001", "")
		other := throughCache(t, through+"/route", f.deviceOf(t, "hf"), "")
		if mixed := staff == other; mixed != tc.shared {
			t.Errorf("%s: the second device sees the first one's answer: %v, want %v (%d hits)", tc.name, mixed, tc.shared, c.hits)
		}
		for _, dressed := range []string{"/route/x.css", "/route;a.js", "/route.js", "/route%2fx.css", "/v1/route/a.png"} {
			if body := throughCache(t, through+dressed, "d-1001", ""); strings.Contains(body, "domain") {
				t.Errorf("%s: GET %s answers %s", tc.name, dressed, body)
			}
		}
	}
	// What a cache does not look at must not change the answer.
	c, through := newCache(t, startHTTP(t, f))
	plain := throughCache(t, through+"/route?app=mobile", "d-1001", "")
	poisoned := throughCache(t, through+"/route?app=mobile", "d-1001", "evil.example")
	if domainOf(plain) != domainOf(poisoned) || strings.Contains(poisoned, "evil") || c.hits != 0 {
		t.Errorf("X-Forwarded-Host turns %s into %s", plain, poisoned)
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

func throughCache(t *testing.T, target, device, forwardedHost string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Device-Id", device)
	if forwardedHost != "" {
		req.Header.Set("X-Forwarded-Host", forwardedHost)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
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
