package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/fleet"
)

// overheard is what went over a fleet listener, both ways.
type overheard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *overheard) note(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(data)
}

func (w *overheard) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// tapped listens in on the fleet listener at addr.
func tapped(t *testing.T, addr string) (control string, w *overheard) {
	t.Helper()
	w = new(overheard)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.ModifyResponse = func(res *http.Response) error {
		data, err := io.ReadAll(res.Body)
		w.note(data)
		res.Body = io.NopCloser(bytes.NewReader(data))
		return err
	}
	proxy.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return // the replica has cut its question short
		}
		w.note(data)
		r.Body = io.NopCloser(bytes.NewReader(data))
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL, w
}

// get asks the admin API.
func (r *running) api(path string, into any) {
	r.t.Helper()
	status, body := r.get(r.admin+"/api/v1"+path, "Authorization", "Bearer "+r.token)
	if err := json.Unmarshal(body, into); status != http.StatusOK || err != nil {
		r.t.Fatalf("GET %s: %d %s, %v", path, status, body, err)
	}
}

// counted is how many answers the API has, by what the query says.
func (r *running) counted(query string) (total uint64, by map[string]uint64) {
	r.t.Helper()
	var out struct{ Counts []fleet.Count }
	r.api("/traffic?"+query, &out)
	by = map[string]uint64{}
	for _, c := range out.Counts {
		total += c.N
		by[strings.Trim(c.App+" "+c.Region+" "+c.Reason, " ")] += c.N
	}
	return total, by
}

// What an edge and a control node answer is counted once, by region and reason; a
// draft is tried on it; and no id goes over the wire for any of that.
func TestTrafficIsCountedAndTriedAndStaysHome(t *testing.T) {
	data, listen := t.TempDir(), free(t)
	control := start(t, "--demo", "--data", data, "--fleet-listen", listen)
	address, seen := tapped(t, listen)
	_, flags := edgeFiles(t, data)
	edge := start(t, append(flags, "--control", address, "--replica-id", "edge-1")...)
	edge.log.await(t, `"msg":"release in use","release":1,`, nil)
	for i := range 40 {
		edge.route("app=mobile", "X-Device-Id", fmt.Sprintf("edge-device-%d", i))
	}
	edge.route("app=mobile", "X-Device-Id", "d-1001")
	for i := range 10 {
		control.route("app=corporate", "X-Device-Id", fmt.Sprintf("control-device-%d", i))
	}
	control.awaitText(`^51$`, func() string { total, _ := control.counted("by=region,reason"); return fmt.Sprint(total) })
	if _, by := control.counted("by=app"); by["mobile"] != 41 || by["corporate"] != 10 {
		t.Errorf("counted %v", by)
	}
	if _, by := control.counted("app=mobile&by=reason&every=0"); by["POLICY"] != 1 || by["DEFAULT"] != 40 {
		t.Errorf("counted %v", by)
	}
	if n := control.metric(`dispatch_counts_dropped_total\{why="database"\}`); n != "0" {
		t.Errorf("%s counts were dropped", n)
	}

	document, err := os.ReadFile("../../examples/mobile-bank.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(document), "{region: sh, of: 6000}, {region: hf, of: 4000}", "{region: sh, of: 1000}, {region: hf, of: 9000}", 1)
	text = strings.Replace(text, "ids: [d-1001, d-1002]", "ids: [d-1001, d-1002, edge-device-1]", 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, control.admin+"/api/v1/releases?dry_run=true&reason=try+it", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	status, body := control.do(req, "Authorization", "Bearer "+control.token, "Content-Type", "application/yaml", "If-Match", "1")
	var out actions.Outcome
	if err := json.Unmarshal(body, &out); status != http.StatusOK || err != nil || out.Preview == nil || out.Preview.Impact == nil {
		t.Fatalf("dry run: %d %s, %v", status, body, err)
	}
	impact := out.Preview.Impact
	if impact.Sampled != 51 || impact.Replicas != 2 || impact.Of != 2 || len(impact.Problems) > 0 || len(impact.Apps) != 2 {
		t.Fatalf("impact %+v", impact)
	}
	mobile := impact.Apps[1]
	if mobile.App != "mobile" || mobile.Sampled != 41 || mobile.Moved < 10 || mobile.Regions[1].Region != "hf" || mobile.Regions[1].LoadAfter < 1.5 ||
		mobile.Regions[1].PerMinute <= 0 || len(mobile.Examples) != 10 {
		t.Errorf("impact on mobile %+v", mobile)
	}

	wire := seen.String()
	if !strings.Contains(wire, `"counts":[{"minute":`) || !strings.Contains(wire, `"verdict":{"id":`) || !strings.Contains(wire, `"trial":{"id":`) {
		t.Error("counts and trials did not go over the wire")
	}
	for _, secret := range []string{"edge-device", "d-1001"} {
		if strings.Contains(wire, secret) {
			t.Errorf("%s went over the wire", secret)
		}
	}
	_, fleetView := control.get(control.admin+"/api/v1/fleet", "Authorization", "Bearer "+control.token)
	if !bytes.Contains(fleetView, []byte(`"number":1,`)) || edge.route("app=mobile", "X-Device-Id", "d-1001").Release != 1 {
		t.Errorf("a draft is served: %s", fleetView)
	}
}

// A replica that starts anew counts anew, and what it counted before stays.
func TestCountsOutliveARestart(t *testing.T) {
	data := t.TempDir()
	flags := []string{"--demo", "--data", data}
	total := 0
	for range 2 {
		r := start(t, flags...)
		if r.token == "" {
			r.token = strings.TrimSpace(string(readFile(t, data+"/token")))
		} else if err := os.WriteFile(data+"/token", []byte(r.token), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			r.route("app=mobile", "X-Device-Id", "d-1001")
			total++
		}
		r.awaitText(fmt.Sprintf(`^%d$`, total), func() string { n, _ := r.counted("by=reason&since=" + time.Hour.String()); return fmt.Sprint(n) })
		r.stop()
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
