package handler

import (
	"bytes"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestMemoryIsFlat is e63, and e71 at its full number: a million devices, each
// with a session token of the client's own making, then with the one that it was
// given. All are answered, no state is kept of any, and no series is added.
//
// It does not run beside other tests, which would share its heap.
func TestMemoryIsFlat(t *testing.T) {
	devices, limit := 1_000_000, int64(512<<10) // half a byte a device
	if raceDetector {
		devices = 200_000
	}
	f := newFixture(t)
	w, r := &sink{header: http.Header{}}, routeRequest()
	ask := func(i int, token string) {
		r.Header["X-Device-Id"] = []string{"e63-" + strconv.Itoa(i)}
		r.Header["X-Session-Token"] = []string{token}
		w.status = 0
		serveOnce(f.handler.Public(), w, r)
		if w.status != http.StatusOK {
			t.Fatalf("device %d: %d %s", i, w.status, w.body)
		}
	}
	run := func(from, to int) {
		for i := from; i < to; i++ {
			ask(i, "session-"+strconv.Itoa(i))
			if i%10 == 0 {
				_, token, _ := bytes.Cut(w.body, []byte(`"session":"`))
				ask(i, string(bytes.TrimSuffix(token, []byte(`"}`))))
			}
		}
	}
	run(0, 10_000)
	before, lines := heap(), strings.Count(f.exposition(t), "\n")
	run(10_000, devices)
	grown := heap() - before
	t.Logf("heap %d bytes, %+d after %d devices", before, grown, devices)
	if grown > limit {
		t.Errorf("the heap grew by %d bytes over %d devices, the limit is %d", grown, devices, limit)
	}
	if after := strings.Count(f.exposition(t), "\n"); after != lines {
		t.Errorf("%d lines of metrics became %d", lines, after)
	}
	f.wantMetric(t, `dispatch_requests_total{code="200"} `+number(devices+devices/10))
	f.wantMetric(t, `dispatch_bad_inputs_total{kind="session"} `+number(devices)) // those of the client's own making, and no other
	runtime.KeepAlive(f)
}

// number is n as the exposition format writes it.
func number(n int) string { return strconv.FormatFloat(float64(n), 'g', -1, 64) }

// heap is what lives after a collection; the second one empties pools.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
