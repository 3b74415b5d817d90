package trace

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/slogtest"
)

// C25: every line has both IDs, whatever logger of the hop wrote it.
func TestEveryLineOfAHopHasItsIDs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewJSONHandler(&out, nil)))
	ctx := In(t.Context(), valid, "")
	for name, log := range map[string]*slog.Logger{
		"plain": log, "with": log.With("service", "a"), "group": log.WithGroup("g"), "both": log.With("a", 1).WithGroup("g").With("b", 2).WithGroup("h"),
	} {
		out.Reset()
		log.InfoContext(ctx, "called", "x", 1, "y", 2, "z", 3, "u", 4, "v", 5, "w", 6)
		var line struct{ TraceID, SpanID, ParentSpanID string }
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		self := Parse(first(Out(ctx)))
		if line.TraceID != traceID || line.SpanID != self.SpanID().String() || line.ParentSpanID != spanID {
			t.Errorf("%s: %s", name, out.String())
		}
	}
	out.Reset()
	log.With("a", 1).WithGroup("g").With("b", 2).InfoContext(ctx, "called", "c", 3)
	if !bytes.Contains(out.Bytes(), []byte(`"g":{"b":2,"c":3}`)) || !bytes.Contains(out.Bytes(), []byte(`"a":1,"traceId"`)) {
		t.Errorf("the groups are lost: %s", out.String())
	}
}

func first(a, _ string) string { return a }

func TestALineWithoutATraceStaysAsItIs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	slog.New(Handler(slog.NewJSONHandler(&out, nil))).WarnContext(t.Context(), "nothing asked")
	if bytes.Contains(out.Bytes(), []byte("Id")) {
		t.Error(out.String())
	}
}

// The first hop of a trace has no parent to name.
func TestTheFirstHopNamesNoParent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	slog.New(Handler(slog.NewJSONHandler(&out, nil))).WarnContext(In(t.Context(), "", ""), "asked")
	if !bytes.Contains(out.Bytes(), []byte(`"traceId"`)) || bytes.Contains(out.Bytes(), []byte("parentSpanId")) {
		t.Error(out.String())
	}
}

func TestTheHandlerKeepsTheRulesOfSlog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return Handler(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		line := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}
