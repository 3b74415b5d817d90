package trace

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	valid   = "00-" + traceID + "-" + spanID + "-01"
)

var wellFormed = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// What comes in valid goes on under the same trace ID, and each hop has a span of its own. T93.
func TestATraceGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, flags string }{
		"sampled":                {valid, "01"},
		"not sampled":            {strings.TrimSuffix(valid, "01") + "00", "00"},
		"random":                 {strings.TrimSuffix(valid, "01") + "03", "03"},
		"flags nobody knows yet": {strings.TrimSuffix(valid, "01") + "ff", "03"},
		"a later version":        {"cc" + valid[2:], "01"},
		"a later, longer one":    {"cc" + valid[2:] + "-what-else", "01"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _ := Out(In(t.Context(), c.in, ""))
			if !wellFormed.MatchString(out) || !strings.Contains(out, traceID) || strings.Contains(out, spanID) || !strings.HasSuffix(out, "-"+c.flags) {
				t.Errorf("%s goes on as %s", c.in, out)
			}
		})
	}
}

// What cannot be read begins a new trace and is never passed on. T93, C25.
func TestWhatCannotBeReadBeginsANewTrace(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"none":                    "",
		"all zero":                "00-00000000000000000000000000000000-" + spanID + "-01",
		"no parent":               "00-" + traceID + "-0000000000000000-01",
		"too short":               valid[:54],
		"longer in version 00":    valid + "-00",
		"trailing byte":           valid + " ",
		"later, not separated":    "cc" + valid[2:] + "x",
		"version ff":              "ff" + valid[2:],
		"upper case":              strings.ToUpper(valid),
		"one letter in upper":     strings.Replace(valid, "4bf", "4Bf", 1),
		"not hexadecimal":         strings.Replace(valid, "4bf", "4bg", 1),
		"flags not hexadecimal":   valid[:53] + "0x",
		"version not hexadecimal": "0x" + valid[2:],
		"other separators":        strings.ReplaceAll(valid, "-", "_"),
		"shifted":                 "0-" + valid[1:34] + "0" + valid[34:],
		"text":                    `"><script>alert(1)</script>` + strings.Repeat("\n", 40),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, state := Out(In(t.Context(), in, "vendor=1"))
			if !wellFormed.MatchString(out) || strings.Contains(out, traceID) || strings.Contains(out, strings.Repeat("0", 16)) || state != "" {
				t.Errorf("%q goes on as %s with tracestate %q", in, out, state)
			}
			if again, _ := Out(In(t.Context(), in, "")); again == out {
				t.Errorf("two requests are in the same new trace %s", out)
			}
		})
	}
}

func TestTracestateIsBounded(t *testing.T) {
	t.Parallel()
	long := "first=" + strings.Repeat("a", 250) + ",second=" + strings.Repeat("b", 240)
	for name, c := range map[string]struct{ in, want string }{
		"passed on":            {"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
		"512 bytes":            {"a=" + strings.Repeat("x", 256) + ",b=" + strings.Repeat("y", 251), "a=" + strings.Repeat("x", 256) + ",b=" + strings.Repeat("y", 251)},
		"cut between members":  {long + ",third=cc", long},
		"one that is too long": {"a=" + strings.Repeat("x", 600), ""},
		"twice the same key":   {"a=1,a=2", ""},
		"no member":            {"what?", ""},
		"a line break":         {"a=1\r\nSet-Cookie: x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, state := Out(In(t.Context(), valid, c.in))
			if state != c.want || !strings.Contains(out, traceID) {
				t.Errorf("%s with tracestate %q (%d bytes), want %q", out, state, len(state), c.want)
			}
		})
	}
}

func TestWithoutATraceNothingIsSent(t *testing.T) {
	t.Parallel()
	if out, state := Out(t.Context()); out != "" || state != "" {
		t.Errorf("%q, %q", out, state)
	}
}

// A span that is there already is the hop's: OpenTelemetry's handlers put it there.
// One that is a caller's is the parent.
func TestSpansOfOpenTelemetryStay(t *testing.T) {
	t.Parallel()
	theirs := Parse(valid).WithRemote(false)
	ctx := trace.ContextWithSpanContext(t.Context(), theirs)
	if got := trace.SpanContextFromContext(In(ctx, "00-ffffffffffffffffffffffffffffffff-"+spanID+"-00", "")); !got.Equal(theirs) {
		t.Errorf("the span became %+v", got)
	}
	ctx = In(trace.ContextWithRemoteSpanContext(t.Context(), theirs), "", "")
	self := trace.SpanContextFromContext(ctx)
	if self.TraceID() != theirs.TraceID() || self.SpanID() == theirs.SpanID() || self.IsRemote() {
		t.Errorf("below a remote span stands %+v", self)
	}
}

// Both sides of OpenTelemetry's propagator understand what we send and the other way round.
func TestOpenTelemetryReadsWhatWeWrite(t *testing.T) {
	t.Parallel()
	carrier := propagation.MapCarrier{}
	carrier["traceparent"], carrier["tracestate"] = Out(In(t.Context(), valid, "rojo=1"))
	theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	if got := Parse(carrier["traceparent"]).WithTraceState(State("rojo=1")); !theirs.IsValid() || !got.Equal(theirs) {
		t.Errorf("they read %+v, we %+v", theirs, got)
	}
}

func TestInAndOutAllocateLittle(t *testing.T) {
	ctx := context.Background()
	if n := testing.AllocsPerRun(500, func() { Parse(valid) }); n != 0 {
		t.Errorf("Parse allocates %.0f times", n)
	}
	parent := Parse(valid)
	if n := testing.AllocsPerRun(500, func() { new(Hop).Begin(parent) }); n != 0 {
		t.Errorf("Begin allocates %.0f times", n)
	}
	if n := testing.AllocsPerRun(500, func() { In(ctx, valid, "") }); n > 2 {
		t.Errorf("In allocates %.0f times, for a span and a context", n)
	}
	in := In(ctx, valid, "")
	if n := testing.AllocsPerRun(500, func() { Out(in) }); n > 1 {
		t.Errorf("Out allocates %.0f times, for the header", n)
	}
}

func BenchmarkInOut(b *testing.B) {
	b.ReportAllocs()
	ctx := context.Background()
	for b.Loop() {
		Out(In(ctx, valid, ""))
	}
}

// Whatever comes in, what goes on can be read, and comes from the input only where
// OpenTelemetry reads the same in it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{valid, "cc" + valid[2:] + "-x", "00-" + strings.Repeat("0", 32) + "-" + spanID + "-01", strings.ToUpper(valid), "", valid + "-"} {
		f.Add(seed, "a=1")
	}
	f.Fuzz(func(t *testing.T, header, state string) {
		ours := Parse(header)
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": header}))
		if theirs.IsValid() && !ours.Equal(theirs) && !strings.HasSuffix(header, "-") { // they let one stand at the end
			t.Errorf("of %q we read %+v, OpenTelemetry %+v", header, ours, theirs)
		}
		if ours.IsValid() && !strings.Contains(header, ours.TraceID().String()+"-"+ours.SpanID().String()) {
			t.Errorf("%q became %+v", header, ours)
		}
		out, passed := Out(In(context.Background(), header, state))
		if !wellFormed.MatchString(out) || len(passed) > maxState || strings.ContainsAny(passed, "\r\n\x00") {
			t.Errorf("%q, %q go on as %q, %q", header, state, out, passed)
		}
	})
}
