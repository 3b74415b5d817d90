package otlp

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	otel "go.opentelemetry.io/otel/trace"

	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// recording is an exporter that runs until end is called.
type recording struct {
	*Exporter
	end func()
	log *bytes.Buffer // to be read after end
}

func record(t *testing.T, url string, share float64) *recording {
	t.Helper()
	r := &recording{log: new(bytes.Buffer)}
	var err error
	r.Exporter, err = New(Options{URL: url, Service: "order-core", Share: share, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	ended := false
	r.end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(r.end)
	return r
}

// value is what a counter shows.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// A span that was begun in the context of a call has the caller's as its parent, and
// both arrive.
func TestSpansOfTwoServicesHangTogether(t *testing.T) {
	t.Parallel()
	c := testenv.NewCollector(t)
	r := record(t, c.URL, 1)
	tracer := r.Provider().Tracer("test")
	ctx, caller := tracer.Start(t.Context(), "caller")
	header, state := trace.Out(ctx)
	// The other side of the wire.
	remote := otel.ContextWithRemoteSpanContext(t.Context(), trace.Parse(header).WithTraceState(trace.State(state)))
	within, callee := tracer.Start(remote, "callee")
	if got := otel.SpanFromContext(trace.In(within, header, state)); got != callee {
		t.Errorf("the recorded span was replaced by %+v", got.SpanContext())
	}
	callee.End()
	caller.End()
	r.end()
	spans := c.Wait(t, 2)
	if callee, caller := spans[0], spans[1]; callee.Parent != caller.Self || callee.Trace != caller.Trace || caller.Parent != "" || caller.Service != "order-core" {
		t.Errorf("%+v", spans)
	}
	if n := value(t, r.sent); n != 2 {
		t.Errorf("%v spans were counted", n)
	}
}

// A trace that begins elsewhere is recorded when its first hop said so; of those that
// begin here, a share is.
func TestTheFirstHopDecidesWhatIsRecorded(t *testing.T) {
	t.Parallel()
	c := testenv.NewCollector(t)
	r := record(t, c.URL, 0)
	tracer := r.Provider().Tracer("test")
	for _, header := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		ctx := t.Context()
		if parent := trace.Parse(header); parent.IsValid() {
			ctx = otel.ContextWithRemoteSpanContext(ctx, parent)
		}
		_, span := tracer.Start(ctx, "span"+header)
		span.End()
	}
	r.end()
	if spans := c.Spans(); len(spans) != 1 || !strings.HasSuffix(spans[0].Name, "-01") {
		t.Errorf("%+v", spans)
	}
}

// A collector that is away costs spans, a counter and one line, and nothing else.
func TestACollectorThatIsAwayCostsOnlySpans(t *testing.T) {
	t.Parallel()
	c := testenv.NewCollector(t)
	c.Refuse(http.StatusBadRequest)
	r := record(t, c.URL, 1)
	tracer := r.Provider().Tracer("test")
	for range 3 * maxBatch { // three batches at least
		_, span := tracer.Start(t.Context(), "lost")
		span.End()
	}
	r.end()
	if n := value(t, r.queue.dropped); n != 3*maxBatch {
		t.Errorf("%v spans were counted as dropped", n)
	}
	if n := strings.Count(r.log.String(), "\n"); n != 1 || !strings.Contains(r.log.String(), "takes no spans") {
		t.Errorf("%d lines: %s", n, r.log)
	}
}

// Nobody reads the queue: what does not fit is dropped, and no request waits.
func TestAFullQueueDropsAndDoesNotWait(t *testing.T) {
	t.Parallel()
	e, err := New(Options{URL: "http://127.0.0.1:1", Service: "s", Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	tracer := e.Provider().Tracer("test")
	for range maxQueue + 7 {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
	}
	if n := value(t, e.queue.dropped); n != 7 {
		t.Errorf("%v were dropped of 7 too many", n)
	}
}

func TestTheCollectorComesBack(t *testing.T) {
	t.Parallel()
	c := testenv.NewCollector(t)
	c.Refuse(http.StatusBadRequest)
	r := record(t, c.URL, 1)
	tracer := r.Provider().Tracer("test")
	for range maxBatch {
		_, span := tracer.Start(t.Context(), "lost")
		span.End()
	}
	for ; value(t, r.queue.dropped) < maxBatch; runtime.Gosched() {
		if t.Context().Err() != nil {
			t.Fatal("nothing was dropped")
		}
	}
	c.Refuse(0)
	_, span := tracer.Start(t.Context(), "kept")
	span.End()
	r.end()
	if spans := c.Spans(); len(spans) != 1 || spans[0].Name != "kept" || !strings.Contains(r.log.String(), "takes spans again") {
		t.Errorf("%+v, %s", spans, r.log)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for url, share := range map[string]float64{"": 1, "127.0.0.1:4318": 1, "ftp://x": 1, "http://": 1, "http://user:secret@x": 1, "http://x?token=secret": 1, "http://x": 1.5, "https://x": -1} {
		_, err := New(Options{URL: url, Service: "s", Share: share})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s, %v: %v", url, share, err)
		}
	}
}
