package inner

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// logLines are those of hops that name a trace, by service.
func logLines(t *testing.T, id string, hops ...*hop) map[string][]map[string]any {
	t.Helper()
	all := map[string][]map[string]any{}
	for _, h := range hops {
		text, err := os.ReadFile(h.Log)
		must(t, err)
		for line := range strings.SplitSeq(string(text), "\n") {
			if !strings.Contains(line, id) {
				continue
			}
			fields := map[string]any{}
			must(t, json.Unmarshal([]byte(line), &fields))
			if !regexp.MustCompile(`"traceId":"[0-9a-f]{32}","spanId":"[0-9a-f]{16}"`).MatchString(line) {
				t.Errorf("a line without both IDs: %s", line)
			}
			all[h.server] = append(all[h.server], fields)
		}
	}
	return all
}

// awaitLines waits until each hop has a line, which is written after the answer.
func awaitLines(t *testing.T, id string, hops ...*hop) (lines map[string][]map[string]any) {
	t.Helper()
	within(t, 10*time.Second, func() error {
		if lines = logLines(t, id, hops...); len(lines) < len(hops) {
			return fmt.Errorf("only %d of %d hops have a line of trace %s", len(lines), len(hops), id)
		}
		return nil
	})
	return lines
}

// C05, C25: one ID strings the logs of five processes together, and the IDs of spans
// say in which order. C26: one command names the hop at fault.
func TestOneTraceThroughFiveServices(t *testing.T) {
	t.Parallel()
	const region, trace, parent = "cn-hangzhou", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	file, logs := filepath.Join(t.TempDir(), "registry.yaml"), t.TempDir()
	must(t, os.WriteFile(file, []byte("instances: []\n"), 0o600))
	names := []string{"a", "b", "c", "d", "e"}
	var hops []*hop
	for _, name := range names {
		hops = append(hops, launch(t, place{server: name, region: region, env: "prod", version: "v1"}, "-registry", "static:"+file, "-calls", "b.api,c.api,d.api,e.api"))
	}
	registryFile(t, file, hops...)
	registered(t, hops...)

	way := url.Values{"path": {"b.api,c.api,d.api,e.api"}}
	_, err := hops[0].ask(t.Context(), way, "traceparent: 00-"+trace+"-"+parent+"-01")
	must(t, err)
	lines := awaitLines(t, trace, hops...)
	caller := parent
	for _, name := range names {
		if len(lines[name]) != 1 || lines[name][0]["parentSpanId"] != caller || lines[name][0]["service"] != name+".api" || lines[name][0]["status"] != 200.0 {
			t.Fatalf("%s: %v, called by span %s", name, lines[name], caller)
		}
		caller, _ = lines[name][0]["spanId"].(string)
	}

	// A trace that nobody can read is a new one, in all five.
	_, err = hops[0].ask(t.Context(), way, "traceparent: 00-"+strings.Repeat("0", 32)+"-"+parent+"-01")
	must(t, err)
	if found := logLines(t, strings.Repeat("0", 32), hops...); len(found) != 0 {
		t.Errorf("an ID of zeros was passed on: %v", found)
	}

	must(t, hops[4].Kill())
	const failing = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	if _, err := hops[0].ask(t.Context(), way, "traceparent: 00-"+failing+"-"+parent+"-01"); err == nil {
		t.Fatal("a call through a dead service succeeded")
	}
	awaitLines(t, failing, hops[:4]...)
	for _, h := range hops {
		text, err := os.ReadFile(h.Log)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(logs, h.server+".log"), text, 0o600))
	}
	out, exit := (&control{}).ctl(t, "trace", failing, "--logs", logs)
	if exit != 0 || !regexp.MustCompile(`(?m)^at fault: d\.api \S+, span [0-9a-f]{16}: 502, .*e\.api`).MatchString(out) ||
		!regexp.MustCompile(`(?s)\na\.api .*\n  b\.api .*\n    c\.api .*\n      d\.api .*← at fault`).MatchString(strings.ReplaceAll(out, "… ", "")) {
		t.Errorf("exit %d\n%s", exit, out)
	}
}
