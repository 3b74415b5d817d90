package handler

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSEC25WhatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fits := "/route?app=mobile&x=" + strings.Repeat("y", maxQuery-len("app=mobile&x="))
	for _, tc := range []struct {
		name, method, target, body string
		status                     int
		code                       string
	}{
		{"query of 2 KiB", http.MethodGet, fits, "", 200, ""},
		{"query over 2 KiB", http.MethodGet, fits + "y", "", 414, "query_too_long"},
		{"100,000 parameters", http.MethodGet, "/route?" + strings.Repeat("a=&", 100_000), "", 414, "query_too_long"},
		{"body of 8 KiB", http.MethodPost, "/route", `{"app":"mobile"}` + strings.Repeat(" ", maxBody-16), 200, ""},
		{"body over 8 KiB", http.MethodPost, "/route", strings.Repeat(" ", maxBody+1), 413, "body_too_large"},
		{"deep body", http.MethodPost, "/route", `{"a":` + strings.Repeat("[", 8000), 400, "bad_body"},
	} {
		w := f.do(tc.method, tc.target, tc.body)
		if w.Code != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.name, w.Code, w.Body, tc.status)
			continue
		}
		if tc.code != "" && (!strings.Contains(w.Body.String(), `"code":"`+tc.code+`"`) || w.Header().Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s: %v %s, want problem %s", tc.name, w.Header(), w.Body, tc.code)
		}
	}
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="too_large"} 3`)
	f.wantMetric(t, `dispatch_requests_total{code="414"} 2`)
}

func TestMethods(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 200, "OPTIONS": 204,
		"PUT": 405, "PATCH": 405, "DELETE": 405, "TRACE": 405, "BREW": 405} {
		w := f.do(method, "/route?app=mobile", "")
		if w.Code != want {
			t.Errorf("%s: %d, want %d", method, w.Code, want)
		}
		if want == 405 {
			allowed := strings.Split(w.Header().Get("Allow"), ", ")
			slices.Sort(allowed)
			if !slices.Equal(allowed, []string{"GET", "HEAD", "OPTIONS", "POST"}) {
				t.Errorf("%s: Allow %v", method, allowed)
			}
		}
	}
}

func TestCORSOrigins(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"m.bank.example", "https://m.bank.example/", "https://m.bank.example/x", "null", "", "ftp://a", "https://u@a"} {
		if _, err := newCORS([]string{"https://ok.example", bad}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("origin %q: error %v", bad, err)
		}
	}
	for _, tc := range []struct{ allowed, origin, want, vary string }{
		{"https://a.example:8443", "https://a.example:8443", "https://a.example:8443", "Origin"},
		{"https://a.example", "https://a.example.evil.example", "", "Origin"},
		{"https://a.example", "null", "", "Origin"},
		{"https://a.example", "", "", "Origin"},
		{"*", "https://anything.example", "*", ""},
	} {
		f := newFixture(t, func(o *Options) { o.CORSOrigins = []string{tc.allowed} })
		w := f.get("/route", "Origin", tc.origin)
		h := w.Header()
		if h.Get("Access-Control-Allow-Origin") != tc.want || h.Get("Vary") != tc.vary || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%q asks where %q is allowed: %v", tc.origin, tc.allowed, h)
		}
	}
}

// start serves the public handler on loopback with the product's limits; most is
// how many connections it may have, 10,000 unless given.
func start(t *testing.T, f *fixture, log *slog.Logger, most ...int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Server(f.handler.Public(), log)
	connections, err := NewConnections(append(most, 10_000)[0], f.registry)
	if err != nil {
		t.Fatal(err)
	}
	l = connections.Bound(s, l)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		<-done
	})
	return l.Addr().String()
}

// exchange sends raw bytes on a connection of its own and reads one answer:
// status, body, and whether the server ends the connection. Err is of the answer.
func exchange(t *testing.T, addr, raw string) (answer *http.Response, body string, err error) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, raw) // the server may refuse before it has read all
	method, _, _ := strings.Cut(raw, " ")
	answer, err = http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, string(text), err
}

func TestOverTheWire(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var log lockedBuffer
	addr := start(t, f, slog.New(slog.NewJSONHandler(&log, nil)))
	const close = "\r\nConnection: close\r\n\r\n"
	for _, tc := range []struct {
		name, raw string
		status    int
		want      string
	}{
		{"a request", "GET /route?app=mobile HTTP/1.1\r\nHost: a" + close, 200, `"app":"mobile"`},
		{"15 KiB of cookies", "GET /route HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("c", 15<<10) + close, 200, `"session"`},
		{"17 KiB of cookies", "GET /route HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("c", 17<<10) + close, 431, ""},
		{"1 MiB header", "GET /route HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("c", 1<<20) + close, 431, ""},
		{"query too long", "GET /route?" + strings.Repeat("q", 3000) + " HTTP/1.1\r\nHost: a" + close, 414, "query_too_long"},
		{"semicolon in the query", "GET /route?app=corporate&user_id=a;b HTTP/1.1\r\nHost: a" + close, 200, `"app":"corporate"`},
		{"garbage", "\x16\x03\x01\x02\r\n\r\n", 400, ""},
		{"body on GET", "GET /route HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx", 400, "body_not_allowed"},
		{"chunked body over the limit", "POST /route HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2400\r\n" + strings.Repeat(" ", 0x2400) + "\r\n", 413, "body_too_large"},
		{"HEAD", "HEAD /route HTTP/1.1\r\nHost: a" + close, 200, ""},
		{"HEAD of the health page", "HEAD /healthz HTTP/1.1\r\nHost: a" + close, 200, ""},
		{"HEAD of the readiness page", "HEAD /readyz HTTP/1.1\r\nHost: a" + close, 200, ""},
		{"OPTIONS of the server", "OPTIONS * HTTP/1.1\r\nHost: a" + close, 200, ""},
	} {
		got, body, err := exchange(t, addr, tc.raw)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got.StatusCode != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %.200q, want %d %s", tc.name, got.StatusCode, body, tc.status, tc.want)
		}
		if !got.Close {
			t.Errorf("%s: the connection stays open", tc.name)
		}
		if strings.HasPrefix(tc.raw, "HEAD ") && (body != "" || got.ContentLength <= 0) {
			t.Errorf("%s: body %q, length %d; want none, and the length of GET's", tc.name, body, got.ContentLength)
		}
	}
	if log.String() != "" {
		t.Errorf("requests of strangers write log lines: %s", log.String())
	}
}

func TestServerLimits(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	s := Server(http.NotFoundHandler(), log)
	if s.ReadHeaderTimeout != 2*time.Second || s.ReadTimeout != 5*time.Second || s.WriteTimeout != 10*time.Second ||
		s.IdleTimeout != time.Minute || s.MaxHeaderBytes != 12<<10 || s.ErrorLog == nil || s.Handler == nil {
		t.Errorf("public server: %+v", s)
	}
	ops := OpsServer(http.NotFoundHandler(), log)
	if ops.ReadHeaderTimeout != s.ReadHeaderTimeout || ops.IdleTimeout != s.IdleTimeout || ops.MaxHeaderBytes != s.MaxHeaderBytes {
		t.Errorf("ops server: %+v", ops)
	}
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
