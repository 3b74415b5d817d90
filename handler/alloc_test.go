//go:build !race

package handler

import (
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"
)

// The race detector makes sync.Pool forget at random, so allocations are counted without it.

const raceDetector = false

// allocationsOverBareEcho is the budget of one /route with metrics and decision
// log on: none of our own per request beyond what bare Echo spends.
const allocationsOverBareEcho = 0

func TestRouteAllocatesLittle(t *testing.T) {
	f := measured(t)
	w, r := &sink{header: http.Header{}}, routeRequest()
	serveOnce(f.handler.Public(), w, r)
	if w.status != http.StatusOK || !strings.Contains(string(w.body), `"session":"`) {
		t.Fatalf("%d %s", w.status, w.body)
	}
	bare := bareEcho(string(w.body))
	ours := testing.AllocsPerRun(2000, func() { serveOnce(f.handler.Public(), w, r) })
	theirs := testing.AllocsPerRun(2000, func() { serveOnce(bare, w, r) })
	if ours > theirs+allocationsOverBareEcho {
		t.Errorf("/route allocates %.1f times a request, bare Echo %.1f, budget %d more", ours, theirs, allocationsOverBareEcho)
	}
}

// A request that is not recorded costs nothing more because others are.
func TestRouteAllocatesLittleWhileOthersAreRecorded(t *testing.T) {
	f := measured(t)
	w, r := &sink{header: http.Header{}}, routeRequest()
	r.Header["Traceparent"] = []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
	serveOnce(f.handler.Public(), w, r)
	without := testing.AllocsPerRun(2000, func() { serveOnce(f.handler.Public(), w, r) })
	f.handler.tracing.tracer, f.handler.tracing.share = noop.Tracer{}, 1
	if with := testing.AllocsPerRun(2000, func() { serveOnce(f.handler.Public(), w, r) }); with > without {
		t.Errorf("/route allocates %.1f times while others are recorded, else %.1f", with, without)
	}
}
