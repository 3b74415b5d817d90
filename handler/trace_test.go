package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	otel "go.opentelemetry.io/otel/trace"

	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/discovery/trace/otlp"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/release"
)

const (
	appTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	appSpan  = "00f067aa0ba902b7"
	sampled  = "00-" + appTrace + "-" + appSpan + "-01"
)

// ids are the fields of log lines that string services together.
type ids struct{ TraceID, SpanID, ParentSpanID string }

// C25: each record has both IDs: those of the app's trace, or new ones.
func TestEveryRecordHasATrace(t *testing.T) {
	t.Parallel()
	cases := []struct {
		headers []string
		goesOn  bool
	}{
		{nil, false},
		{[]string{"Traceparent", sampled}, true},
		{[]string{"Traceparent", strings.TrimSuffix(sampled, "1") + "0"}, true},
		{[]string{"Traceparent", strings.ToUpper(sampled)}, false},
		{[]string{"Traceparent", strings.Replace(sampled, appTrace, strings.Repeat("0", 32), 1)}, false},
		{[]string{"Traceparent", sampled[:50]}, false},
		{[]string{"Traceparent", sampled, "Traceparent", sampled}, false},
		{[]string{"Traceparent", `","admin":"yes`}, false},
	}
	lines, _ := logged(t, func(f *fixture) {
		for _, tc := range cases {
			w := f.get("/route", append(tc.headers, "X-Device-Id", "d-1001")...)
			if w.Code != http.StatusOK || w.Header().Get(responseHeader) != "" {
				t.Errorf("%d with trace %q", w.Code, w.Header().Get(responseHeader))
			}
		}
	})
	form, seen := regexp.MustCompile(`"traceId":"[0-9a-f]{32}","spanId":"[0-9a-f]{16}"`), map[string]bool{}
	for i, tc := range cases {
		var got ids
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil || !form.MatchString(lines[i]) {
			t.Fatalf("%v: %s", err, lines[i])
		}
		switch {
		case seen[got.SpanID]:
			t.Errorf("two requests are span %s", got.SpanID)
		case tc.goesOn && (got.TraceID != appTrace || got.ParentSpanID != appSpan):
			t.Errorf("%q left the app's trace: %+v", tc.headers, got)
		case !tc.goesOn && (got.TraceID == appTrace || seen[got.TraceID] || got.ParentSpanID != "" || strings.Trim(got.TraceID, "0") == ""):
			t.Errorf("%q began no trace: %+v", tc.headers, got)
		}
		seen[got.SpanID], seen[got.TraceID] = true, !tc.goesOn
	}
}

// recorded is a fixture whose spans go to a collector, once end is called.
func recorded(t *testing.T, share float64, with ...func(*Options)) (f *fixture, c *testenv.Collector, end func()) {
	t.Helper()
	c = testenv.NewCollector(t)
	e, err := otlp.New(otlp.Options{URL: c.URL, Service: "dispatch", Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	f = newFixture(t, append(with, func(o *Options) { o.Tracer, o.TraceShare = e.Provider().Tracer("edge"), share })...)
	return f, c, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The span of /route is the first of its trace, says what was decided and names
// nobody; the app goes on below it.
func TestRouteIsTheFirstSpan(t *testing.T) {
	t.Parallel()
	f, c, end := recorded(t, 1)
	w := f.get("/route?app=mobile&attr.tier=secret-attr", "X-Device-Id", "d-1001", "X-User-Id", "secret-user", "X-Session-Token", "secret-token", "peer", "10.0.0.5:1")
	back := trace.Parse(w.Header().Get(responseHeader))
	if w.Code != http.StatusOK || !back.IsValid() || !back.IsSampled() {
		t.Fatalf("%d, trace %q", w.Code, w.Header().Get(responseHeader))
	}
	a := read(t, w)
	end()
	spans := c.Wait(t, 1)
	s := spans[0]
	if len(spans) != 1 || s.Name != "/route" || s.Service != "dispatch" || s.Parent != "" || s.Failed ||
		s.Trace != back.TraceID().String() || s.Self != back.SpanID().String() || !s.Start.Equal(testNow) {
		t.Errorf("%+v", spans)
	}
	for name, want := range map[string]string{"dispatch.app": "mobile", "dispatch.release": "412", "dispatch.region": a.Region, "dispatch.endpoint": "sh-main",
		"dispatch.policy": "staff", "dispatch.reason": "POLICY", "http.response.status_code": "200", "http.request.method": "GET", "http.route": "/route"} {
		if s.Attributes[name] != want {
			t.Errorf("%s is %q, want %q", name, s.Attributes[name], want)
		}
	}
	text, err := json.Marshal(spans)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"d-1001", "secret", "10.0.0.5", a.Session, f.key.Hash("device", "d-1001").String()} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the span says %s: %s", secret, text)
		}
	}
}

// What the app's trace decided counts, and a share only where it begins here.
func TestWhichRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		share  float64
		header string
		want   int
	}{
		"begun here, share 0":   {0, "", 0},
		"begun here, share 1":   {1, "", 1},
		"sampled by the app":    {0, sampled, 1},
		"not sampled by it":     {1, strings.TrimSuffix(sampled, "1") + "0", 0},
		"unreadable, share 0":   {0, strings.ToUpper(sampled), 0},
		"unreadable and marked": {1, "x", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c, end := recorded(t, tc.share)
			w := f.get("/route", "Traceparent", tc.header, "Tracestate", "rojo=1")
			end()
			spans := c.Spans()
			if len(spans) != tc.want || (w.Header().Get(responseHeader) != "") != (tc.want > 0) {
				t.Fatalf("%d recorded, header %q", len(spans), w.Header().Get(responseHeader))
			}
			if tc.want > 0 && tc.header == sampled && (spans[0].Trace != appTrace || spans[0].Parent != appSpan) {
				t.Errorf("%+v", spans)
			}
		})
	}
}

// Nobody outside can have every request recorded.
func TestTheFlagOfOutsidersIsBounded(t *testing.T) {
	t.Parallel()
	f, c, end := recorded(t, 0)
	began := time.Now()
	for range 5 * maxAsked {
		f.get("/route", "Traceparent", sampled)
	}
	most := maxAsked + int(time.Since(began).Seconds()*maxAsked) + 1
	end()
	if n := len(c.Spans()); n < maxAsked || n > most {
		t.Errorf("%d of %d were recorded, at most %d may be", n, 5*maxAsked, most)
	}
}

// What fails is recorded as failed, and its log lines name the trace.
func TestFailuresAreSpansAndLinesOfTheirTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	f, c, end := recorded(t, 0, func(o *Options) {
		o.Log = slog.New(trace.Handler(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	})
	f.get("/route?app=nobody", "Traceparent", sampled)
	f.get("/route?app=nobody") // not recorded, and named all the same
	f.current.Store(&release.Snapshot{Apps: map[string]*release.Served{"mobile": {}}})
	f.get("/route?app=mobile", "Traceparent", sampled) // panics
	f.get("/route?app=mobile", "Traceparent", strings.TrimSuffix(sampled, "1")+"0")
	end()
	spans := c.Wait(t, 2)
	if a, b := spans[0], spans[1]; a.Attributes["http.response.status_code"] != "404" || a.Failed || a.Attributes["error.type"] != "unknown_app" ||
		b.Attributes["http.response.status_code"] != "500" || !b.Failed {
		t.Errorf("%+v", spans)
	}
	lines, named := 0, 0
	for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		var got ids
		if err := json.Unmarshal([]byte(line), &got); err != nil || len(got.TraceID) != 32 || len(got.SpanID) != 16 {
			t.Errorf("%v: %s", err, line)
		}
		if lines++; got.TraceID == appTrace && got.ParentSpanID == appSpan {
			named++
		}
	}
	if lines != 6 || named != 5 { // two lines for each panic
		t.Errorf("%d of %d lines are in the app's trace:\n%s", named, lines, out.String())
	}
}

// Tracing of a web page adds headers of its own: its preflight passes, and its script
// may read the trace that it is to go on in, where there is one.
func TestPagesMayTrace(t *testing.T) {
	t.Parallel()
	const page, stranger = "https://m.bank.example", "https://m.bank.example.evil.example"
	f, _, end := recorded(t, 0)
	for _, name := range []string{"Traceparent", "Tracestate"} {
		w := f.do(http.MethodOptions, "/route", "", "Origin", page, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", strings.ToLower(name))
		if !slices.Contains(strings.Split(w.Header().Get("Access-Control-Allow-Headers"), ", "), name) {
			t.Errorf("no page may send %s: %v", name, w.Header())
		}
	}
	for name, tc := range map[string]struct{ origin, parent, exposed string }{
		"recorded":        {page, sampled, responseHeader},
		"not recorded":    {page, strings.TrimSuffix(sampled, "1") + "0", ""},
		"without a trace": {page, "", ""},
		"of another page": {stranger, sampled, ""},
		"no page asks":    {"", sampled, ""},
	} {
		h := f.get("/route", "Origin", tc.origin, "Traceparent", tc.parent).Header()
		if h.Get("Access-Control-Expose-Headers") != tc.exposed || (h.Get(responseHeader) != "") != (tc.parent == sampled) {
			t.Errorf("%s: %v", name, h)
		}
	}
	end()
}

// The next service that the app asks is below /route, by the header that it got.
func TestTheAppGoesOnInTheTrace(t *testing.T) {
	t.Parallel()
	f, c, end := recorded(t, 1)
	parent := trace.Parse(f.get("/route").Header().Get(responseHeader))
	e, err := otlp.New(otlp.Options{URL: c.URL, Service: "order-core"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	_, span := e.Provider().Tracer("order").Start(otel.ContextWithRemoteSpanContext(ctx, parent), "order")
	span.End()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	end()
	by := map[string]testenv.Span{}
	for _, s := range c.Wait(t, 2) {
		by[s.Service] = s
	}
	if order, edge := by["order-core"], by["dispatch"]; order.Parent != edge.Self || order.Trace != edge.Trace || edge.Self == "" {
		t.Errorf("%+v", by)
	}
}
