package handler

import (
	"bufio"
	"bytes"
	"encoding/json"
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

	"github.com/prometheus/client_golang/prometheus"
)

// slowly opens connections that begin a header and never end it. Each of them is
// read to its end; wait returns when all have ended.
func slowly(t *testing.T, addr string, n int) (wait func()) {
	t.Helper()
	var slow sync.WaitGroup
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Errorf("%v\ntry: ulimit -n 20000; both ends of %d connections are in this process", err, n)
			break
		}
		_, _ = io.WriteString(c, "GET /route HTTP/1.1\r\nHost: a\r\nX-Slow: ") // it may have been ended already
		slow.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			if text, _ := io.ReadAll(c); bytes.HasPrefix(text, []byte("HTTP/1.1 200")) {
				t.Error("a header without end was answered")
			}
		})
	}
	return slow.Wait
}

// honest is the time of a whole request on a connection of its own.
func honest(t *testing.T, addr string) time.Duration {
	t.Helper()
	begin := time.Now()
	if got, _, err := exchange(t, addr, "GET /route HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil || got.StatusCode != http.StatusOK {
		t.Errorf("an honest request: %v %v", got, err)
	}
	return time.Since(begin)
}

// Slowloris on real sockets: each of 5,000 connections ends within its 2 seconds,
// and others are answered meanwhile as fast as before, within twice the time.
func TestSEC25SlowHeadersAreCutOff(t *testing.T) {
	f := newFixture(t)
	addr := start(t, f, slog.New(slog.DiscardHandler))
	ask := func() time.Duration { return honest(t, addr) }
	before := slowest(ask)
	begin := time.Now()
	wait := slowly(t, addr, 5000)
	// 100 ms stand for the noise of a busy machine: a server that waits for the slow
	// ones takes 2 s.
	if beside := slowest(ask); beside > max(2*before, 100*time.Millisecond) {
		t.Errorf("beside slow connections an honest request took %v, before %v", beside, before)
	}
	wait()
	if d := time.Since(begin); d > 8*time.Second {
		t.Errorf("slow connections lived %v, the limit is 2 s", d)
	}
}

// 5,000 slow connections where 200 are allowed: the slow ones make way, for each
// other and for whoever asks; nobody honest is refused or has to wait.
func TestSEC25SlowConnectionsMakeWay(t *testing.T) {
	f := newFixture(t)
	addr := start(t, f, slog.New(slog.DiscardHandler), 200)
	ask := func() time.Duration { return honest(t, addr) }
	before := slowest(ask)
	flood := make(chan func())
	go func() { flood <- slowly(t, addr, 5000) }()
	beside := slowest(ask)
	wait := <-flood
	beside = max(beside, slowest(ask))
	if beside > max(2*before, 100*time.Millisecond) {
		t.Errorf("beside slow connections an honest request took %v, before %v", beside, before)
	}
	if open := f.value(t, "dispatch_open_connections"); open > 200 {
		t.Errorf("%v connections are open, 200 are allowed", open)
	}
	wait()
	// Of the slow ones themselves a few may come while none has been read yet.
	made, busy := f.value(t, `dispatch_connections_refused_total{why="waiting"}`), f.value(t, `dispatch_connections_refused_total{why="busy"}`)
	if made < 4000 || made+busy < 4500 {
		t.Errorf("%v connections made way and %v were refused, want nearly 5,000, nearly all of the first kind", made, busy)
	}
	eventuallyNone(t, f)
}

// A connection with a request under way is never ended for a new one; one that
// waits for its next request is, the longest first.
func TestConnectionsWithARequestStay(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	c, err := NewConnections(2, registry)
	if err != nil {
		t.Fatal(err)
	}
	conn := make([]*boundConn, 6)
	for i := range conn {
		near, other := net.Pipe()
		conn[i] = &boundConn{Conn: near}
		defer other.Close()
		defer near.Close()
	}
	for i, step := range []struct {
		admit int
		ended *boundConn
		then  func()
	}{
		{0, nil, func() { c.changed(conn[0], http.StateNew) }},
		{1, nil, func() { c.changed(conn[0], http.StateActive) }},
		{2, conn[1], func() { c.changed(conn[2], http.StateActive); c.changed(conn[1], http.StateClosed) }},
		{3, conn[3], func() { c.changed(conn[2], http.StateIdle); c.changed(conn[0], http.StateIdle) }},
		{4, conn[2], func() { c.changed(conn[0], http.StateClosed) }},
		{5, nil, func() {}},
	} {
		for _, c := range conn {
			c.read.Store(true)
		}
		if ended := c.admit(conn[step.admit]); ended != step.ended {
			t.Errorf("step %d: the wrong connection was ended", i)
		}
		step.then()
	}
	fresh := &boundConn{Conn: conn[0].Conn}
	if c.waiting.Front().Value.(*boundConn).read.Store(false); c.admit(fresh) != fresh {
		t.Error("a connection that nobody has read yet made way")
	}
	if len(c.open) != 2 || c.waiting.Len() != 2 {
		t.Errorf("%d open, %d waiting, want 2 and 2", len(c.open), c.waiting.Len())
	}
	if _, err := NewConnections(0, prometheus.NewRegistry()); err == nil {
		t.Error("a server for nobody")
	}
}

// Whoever has asked and must go hears why, on a new connection too; who has asked
// nothing is closed without a word.
func TestWhoMustGoHearsWhy(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		sent string
		want string
	}{
		"asked":   {"GET /route HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 503 Service Unavailable\r\n"},
		"nothing": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(client, row.sent); err != nil {
				t.Fatal(err)
			}
			c := &boundConn{Conn: server}
			c.end()
			if n, err := c.Read(make([]byte, 1024)); n != 0 || err != io.EOF {
				t.Errorf("read %d, %v from a connection that must go", n, err)
			}
			_ = c.Close()
			text, err := io.ReadAll(client)
			if err != nil || !strings.HasPrefix(string(text), row.want) || row.want == "" && len(text) > 0 {
				t.Errorf("%q, %v, want %q", text, err, row.want)
			}
			if row.want == "" {
				return
			}
			answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
			if err != nil || answer.Header.Get("Retry-After") == "" {
				t.Fatalf("%v %v", answer, err)
			}
			if body, err := io.ReadAll(answer.Body); err != nil || !json.Valid(body) {
				t.Errorf("%s %v", body, err)
			}
		})
	}
}

// eventuallyNone waits until no connection is open.
func eventuallyNone(t *testing.T, f *fixture) {
	t.Helper()
	limit, tick := time.After(10*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for f.value(t, "dispatch_open_connections") > 0 {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%v connections are still counted", f.value(t, "dispatch_open_connections"))
		}
	}
}

// slowest is the 99th of 100 times in their order.
func slowest(ask func() time.Duration) time.Duration {
	var times []time.Duration
	for range 100 {
		times = append(times, ask())
	}
	slices.Sort(times)
	return times[98]
}

// value is what a series of one value has now.
func (f *fixture) value(t *testing.T, series string) (v float64) {
	t.Helper()
	for line := range strings.Lines(f.exposition(t)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no series %s", series)
	return 0
}
