package handler

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
)

const (
	abroad = "198.51.100.7:40000" // policy abroad sends it to hf
	atHome = "203.0.113.9:40000"  // without an id its prefix is in sh
)

// newMapped is a fixture whose sessions are kept in server. A busy machine may
// need more than the 5 ms that are waited where wait is 0.
func newMapped(t *testing.T, server *testenv.Redis, wait time.Duration) *fixture {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := fleet.NewSessionMap(fleet.SessionMapOptions{URL: server.URL(), Deployment: "test", Wait: wait, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newFixture(t, func(o *Options) { o.Sessions, o.Registry, o.Now = m, registry, time.Now })
	f.registry = registry
	return f
}

// written waits until n sessions are in Redis.
func (f *fixture) written(t *testing.T, n int) {
	t.Helper()
	f.eventually(t, fmt.Sprintf(`dispatch_session_map_puts_total{result="written"} %d`, n))
}

func (f *fixture) eventually(t *testing.T, line string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if strings.Contains(f.exposition(t), line+"\n") {
			return
		}
		<-tick.C
	}
	f.wantMetric(t, line)
}

func TestSessionIDKeepsItsRegion(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	f := newMapped(t, server, 2*time.Second)
	if got := f.ask(t, "/route", "peer", atHome); got.Region != "sh" {
		t.Fatalf("at home is in %s; the test needs sh", got.Region)
	}
	first := f.ask(t, "/route?session_id=secret-7", "peer", abroad)
	if first.Region != "hf" {
		t.Fatalf("first = %+v", first)
	}
	f.written(t, 1)
	for _, again := range [][]string{
		{"/route?session_id=secret-7"},
		{"/route?session_id=%20secret-7%20"}, // the normal form of every id
		{"/route?session_id=other", sessionIDHeader, "secret-7"},
	} {
		if got := f.ask(t, again[0], append(again[1:], "peer", atHome)...); got.Region != "hf" {
			t.Errorf("%v is in %s, its session is in hf", again, got.Region)
		}
	}
	w := f.do(http.MethodPost, "/route", `{"session_id":"secret-7"}`, "peer", atHome)
	if a := read(t, w); a.Region != "hf" {
		t.Errorf("POST = %+v", a)
	}
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="STICKY",region="hf"} 4`)
	f.wantMetric(t, `dispatch_session_map_requests_total{result="hit"} 4`)

	for name, target := range map[string]string{
		"another session":         "/route?session_id=secret-8",
		"another app's":           "/route?app=corporate&session_id=secret-7",
		"a token that is no good": "/route?session_id=secret-7&session=x",
	} {
		if got := f.ask(t, target, "peer", atHome); got.App == "mobile" && got.Region != "sh" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f.wantMetric(t, `dispatch_session_map_requests_total{result="hit"} 4`)
}

// The key is a keyed hash and the token ends with the session; the id itself is nowhere.
func TestSessionMapHoldsNoRawID(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	f := newMapped(t, server, 2*time.Second)
	a := f.ask(t, "/route?session_id=secret-7", "peer", abroad)
	f.written(t, 1)
	keys := redisText(t, server, "KEYS", "*")
	want := "dispatch:test:session:" + f.key.Hash("session/mobile", "secret-7").String()
	if keys != "["+want+"]" {
		t.Fatalf("keys = %s, want %s", keys, want)
	}
	if got := redisText(t, server, "GET", want); got != a.Session {
		t.Errorf("value = %s, want the token %s", got, a.Session)
	}
	var left int64
	if _, err := fmt.Sscan(redisText(t, server, "PTTL", want), &left); err != nil {
		t.Fatal(err)
	}
	if life := time.Duration(left) * time.Millisecond; life <= 29*time.Minute || life > 30*time.Minute {
		t.Errorf("it is kept for %s, the session has 30m", life)
	}
}

// A forged value is a bad token: counted, and the request is decided plainly.
func TestForgedSessionDecidesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	f := newMapped(t, server, 2*time.Second)
	redisText(t, server, "SET", "dispatch:test:session:"+f.key.Hash("session/mobile", "s").String(), strings.Repeat("A", 1<<20))
	if got := f.ask(t, "/route?session_id=s", "peer", atHome); got.Region != "sh" {
		t.Errorf("region = %s", got.Region)
	}
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} 1`)
}

// Redis freezes and comes back: every request is answered, and at once. The
// session is where it was.
func TestRouteDoesWithoutRedis(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	f := newMapped(t, server, 0)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	// On a busy machine some look-ups are too late, and nothing is kept then.
	target, tries := "", 0
	kept := func() bool { return f.ask(t, target, "peer", atHome).Region == "hf" }
	for ; target == "" || !kept(); tries++ {
		if tries == 200 {
			t.Fatal("no session was kept")
		}
		target = fmt.Sprintf("/route?session_id=a%d", tries)
		f.ask(t, target, "peer", abroad)
		<-tick.C
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for i := range 200 {
		start := time.Now()
		got := f.ask(t, target, "peer", atHome)
		took = append(took, time.Since(start))
		if got.Region != "sh" || got.Session == "" {
			t.Fatalf("request %d without Redis: %+v", i, got)
		}
	}
	slices.Sort(took)
	if took[100] > 5*time.Millisecond {
		t.Errorf("half of the requests took more than %s, the breaker should have spared them", took[100])
	}
	if took[195] > 200*time.Millisecond { // 5 ms, and what a busy machine adds
		t.Errorf("some requests took %s", took[195:])
	}
	f.wantMetric(t, "dispatch_session_map_open 1")
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	for range 500 { // the breaker tries again after a second
		if kept() {
			return
		}
		<-tick.C
	}
	t.Error("the session was not found again")
}

// Without the option a session id is not read, and whoever sends one is told nothing else.
func TestSessionIDWithoutAMapIsIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask(t, "/route?session_id=a", "peer", abroad, sessionIDHeader, "a")
	if got := f.ask(t, "/route?session_id=a", "peer", atHome, sessionIDHeader, "a"); got.Region != "sh" {
		t.Errorf("region = %s", got.Region)
	}
}

func TestSessionMapNeedsAKey(t *testing.T) {
	t.Parallel()
	m, err := fleet.NewSessionMap(fleet.SessionMapOptions{URL: "redis://127.0.0.1:1", Deployment: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	_, err = New(Options{Releases: new(current), Registry: prometheus.NewRegistry(), Sessions: m})
	if err == nil || !strings.Contains(err.Error(), "hash ids") {
		t.Errorf("New = %v", err)
	}
}

// A fallback is no session: nothing is kept, so the next request may find better.
func TestFallbackIsNotKept(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	f := newMapped(t, server, 2*time.Second)
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) {
		for i := range d.Apps[0].Regions {
			d.Apps[0].Regions[i].Failover = nil
		}
		d.Apps[0].Regions[0].State = "off"
	}))
	if got := f.ask(t, "/route?session_id=a", "peer", atHome); got.Region != "" || got.Session != "" {
		t.Fatalf("got %+v, want the fallback", got)
	}
	f.ask(t, "/route?session_id=b", "peer", abroad)
	f.written(t, 1)
	if n := redisText(t, server, "DBSIZE"); n != "1" {
		t.Errorf("%s keys, want that of b alone", n)
	}
}

func redisText(t *testing.T, server *testenv.Redis, args ...any) string {
	t.Helper()
	reply, err := server.Do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(reply)
}

// BenchmarkRouteSessionID is a request that asks Redis on this machine.
func BenchmarkRouteSessionID(b *testing.B) {
	server := testenv.StartRedis(b)
	m, err := fleet.NewSessionMap(fleet.SessionMapOptions{URL: server.URL(), Deployment: "test"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	f := newFixture(b, func(o *Options) { o.Sessions = m })
	r := httptest.NewRequest(http.MethodGet, "/route?app=mobile", nil)
	r.Header = http.Header{sessionIDHeader: {"3f2504e0"}}
	r.RemoteAddr = atHome
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		serveOnce(f.handler.Public(), w, r)
	}
}
