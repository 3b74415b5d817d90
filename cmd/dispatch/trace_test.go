package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/internal/testenv"
)

// The span of a request that was answered just before the end still arrives, and the
// decision log names the same trace.
func TestSpansLeaveBeforeTheProcessEnds(t *testing.T) {
	collector, dir := testenv.NewCollector(t), t.TempDir()
	r := start(t, "--demo", "--data", dir, "--otlp", collector.URL, "--otlp-sample", "1", "--region", "cn-hangzhou", "--env", "test")
	r.route("app=mobile", "X-Device-Id", "d-1001")
	r.stop()
	spans := collector.Wait(t, 1)
	s := spans[0]
	if len(spans) != 1 || s.Name != "/route" || s.Service != "dispatch" || s.Attributes["dispatch.app"] != "mobile" ||
		s.Resource["deployment.environment.name"] != "test" || s.Resource["dispatch.replica_region"] != "cn-hangzhou" {
		t.Errorf("%+v", spans)
	}
	line, err := os.ReadFile(filepath.Join(dir, "decisions.log"))
	if err != nil || !bytes.Contains(line, []byte(`"traceId":"`+s.Trace+`","spanId":"`+s.Self+`"`)) {
		t.Errorf("the log lacks %s/%s: %s, %v", s.Trace, s.Self, line, err)
	}
}

// A collector that is away changes no answer: one counter and one line say so.
func TestACollectorThatIsAwayChangesNothing(t *testing.T) {
	nobody, err := testenv.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "--demo", "--otlp", "http://"+nobody, "--otlp-sample", "1")
	for range 3 {
		if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain == "" {
			t.Errorf("%+v", a)
		}
	}
	r.awaitText(`dispatch_trace_spans_dropped_total 3`, func() string { _, body := r.get(r.ops + "/metrics"); return string(body) })
	r.stop()
	if n := strings.Count(r.log.String(), "takes no spans"); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, r.log)
	}
}

// What is logged about a request names its trace: that of whoever asked.
func TestLinesAboutRequestsNameTheirTrace(t *testing.T) {
	r := start(t, "--demo", "--log-level", "debug")
	const asked = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	r.get(r.public+"/route?app=mobile", "Traceparent", asked)
	r.awaitText(`"msg":"request".*"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"[0-9a-f]{16}","parentSpanId":"00f067aa0ba902b7"`, r.log.String)
	for line := range strings.SplitSeq(r.log.String(), "\n") {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil || fields["msg"] != "request" {
			continue
		}
		if !regexp.MustCompile(`"traceId":"[0-9a-f]{32}","spanId":"[0-9a-f]{16}"`).MatchString(line) {
			t.Errorf("a line about a request names no trace: %s", line)
		}
	}
}

// Requests to the admin API and between nodes have their place, too.
func TestOtherListenersReadTraces(t *testing.T) {
	t.Parallel()
	for header, goesOn := range map[string]bool{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": true, "": false, "x": false} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Traceparent", header)
		traced(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			out, _ := trace.Out(r.Context())
			if len(out) != 55 || strings.Contains(out, "4bf92f3577b34da6a3ce929d0e0e4736") != goesOn {
				t.Errorf("%q goes on as %q", header, out)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}

func TestFlagsOfTracesAreChecked(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--otlp=localhost:4318":                            "--otlp: the collector's URL",
		"--otlp=http://user:secret@localhost:4318":         "OTEL_EXPORTER_OTLP_HEADERS",
		"--otlp=http://localhost:4318 --otlp-sample=1.5":   "--otlp-sample: 1.5",
		"--otlp=http://localhost:4318 --otlp-sample=-0.1":  "--otlp-sample: -0.1",
		"--otlp-sample=NaN":                                "--otlp-sample: NaN",
		"--role=control --db=mysql:x --otlp=http://x:4318": "--otlp: is for what answers apps",
	} {
		var out, log bytes.Buffer
		args := append([]string{"serve", "--allowed-suffixes", "bank.example"}, strings.Fields(flags)...)
		if code := run(t.Context(), args, &out, &log); code != 2 || !strings.Contains(log.String(), want) || strings.Contains(log.String(), "secret") {
			t.Errorf("%s: exit %d, %s", flags, code, log.String())
		}
	}
}
