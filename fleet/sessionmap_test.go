package fleet

import (
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/whitelist"
)

func newSessionMapAt(tb testing.TB, url string, change func(*SessionMapOptions)) *SessionMap {
	tb.Helper()
	opt := SessionMapOptions{URL: url, Deployment: "bank", Registry: prometheus.NewRegistry()}
	if change != nil {
		change(&opt)
	}
	m := must(NewSessionMap(opt))
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

func patient(o *SessionMapOptions) { o.Wait = 5 * time.Second }

// sessionKey is as good as a hash.
func sessionKey(i int) (h whitelist.Hash) {
	binary.LittleEndian.PutUint64(h[:], uint64(i)*0x9E3779B97F4A7C15)
	return h
}

func TestSessionMapKeepsATokenForItsLife(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	m := newSessionMapAt(t, server.URL(), patient)
	run(t, m.Run)
	if token, ok := m.Get(t.Context(), sessionKey(1)); token != "" || !ok {
		t.Errorf("before: %q, %v", token, ok)
	}
	m.Put(sessionKey(1), "one", time.Minute)
	m.Put(sessionKey(2), "two", 300*time.Millisecond)
	eventually(t, 5*time.Second, func() bool { return counted(m.written) == 2 })
	if token, ok := m.Get(t.Context(), sessionKey(1)); token != "one" || !ok {
		t.Errorf("after: %q, %v", token, ok)
	}
	eventually(t, 5*time.Second, func() bool {
		token, ok := m.Get(t.Context(), sessionKey(2))
		return token == "" && ok
	})
	// A client that has gone says nothing about Redis.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if token, ok := m.Get(gone, sessionKey(1)); token != "one" || !ok {
		t.Errorf("for a client that has gone: %q, %v", token, ok)
	}
	if counted(m.timeouts)+counted(m.failures)+counted(m.dropped) != 0 {
		t.Error("something failed")
	}
}

// The wait is 5 ms unless somebody says otherwise, and the breaker soon spares
// even that. Goroutines and what waits are bounded; when Redis is back, so are the sessions.
func TestSessionMapWithFrozenRedis(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	m := newSessionMapAt(t, server.URL(), nil)
	if m.wait != 5*time.Millisecond {
		t.Errorf("a request waits for %v", m.wait)
	}
	run(t, m.Run)
	m.Put(sessionKey(1), "one", time.Minute)
	found := func() bool { token, _ := m.Get(t.Context(), sessionKey(1)); return token == "one" }
	eventually(t, 20*time.Second, found)
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	most := 0
	var took []time.Duration
	for i := range 3000 {
		began := time.Now()
		if token, ok := m.Get(t.Context(), sessionKey(i)); token != "" || ok {
			t.Fatalf("a frozen Redis said %q, %v", token, ok)
		}
		took = append(took, time.Since(began))
		m.Put(sessionKey(i), "later", time.Minute)
		most = max(most, runtime.NumGoroutine())
	}
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; p99 > 25*time.Millisecond { // 5 ms, and what a busy machine adds
		t.Errorf("p99 of a look-up is %v", p99)
	}
	if median := took[len(took)/2]; median > time.Millisecond {
		t.Errorf("the median of a look-up is %v, with an open breaker it waits for nothing", median)
	}
	if most > before+100 {
		t.Errorf("%d goroutines became %d", before, most)
	}
	if counted(m.refused) < 2000 || counted(m.timeouts) < breakerFailures {
		t.Errorf("%v were spared, %v timed out", counted(m.refused), counted(m.timeouts))
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() bool {
		_, ok := m.Get(t.Context(), sessionKey(5000))
		return ok && m.breaker.IsClosed()
	})
}

// Without Run, or while it is busy, the queue fills up and the rest is dropped.
func TestSessionMapPutNeverWaits(t *testing.T) {
	t.Parallel()
	m := newSessionMapAt(t, "redis://127.0.0.1:1", nil)
	for i := range sessionQueue + 100 {
		m.Put(sessionKey(i), "t", time.Minute)
	}
	if counted(m.dropped) != 100 {
		t.Errorf("dropped %v, want 100", counted(m.dropped))
	}
}

func TestNewSessionMapRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewSessionMap(SessionMapOptions{URL: "redis://127.0.0.1:1"}); fault.CodeOf(err) != "bad_session_map" {
		t.Errorf("no deployment: %v", err)
	}
	if m, err := NewSessionMap(SessionMapOptions{URL: "x", Deployment: "bank"}); fault.CodeOf(err) != "bad_redis_url" || m != nil {
		t.Errorf("no address: %v, %v", m, err)
	}
}

func BenchmarkSessionMapGet(b *testing.B) {
	m := newSessionMapAt(b, testenv.StartRedis(b).URL(), patient)
	b.ReportAllocs()
	for b.Loop() {
		m.Get(b.Context(), sessionKey(1))
	}
}
