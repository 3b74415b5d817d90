package handler

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"dispatch.example/dispatch/release"
)

// TestSeriesAreBounded is e71 with names of every kind; TestMemoryIsFlat has its
// million ids. However many ids come, the series are those of the
// configuration, and no id is in any of them.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ask := func(n int) {
		for i := range n {
			f.get(fmt.Sprintf("/route?app=mobile&device_id=dev-%d-%d&attr.a%d=x&user_id=usr-%d", n, i, i, i), "X-Platform", fmt.Sprintf("plat-%d", i))
			f.get(fmt.Sprintf("/route?app=app-%d", i))
			f.get(fmt.Sprintf("/path-%d", i))
		}
	}
	ask(10)
	before := strings.Count(f.exposition(t), "\n")
	ask(5000)
	text := f.exposition(t)
	if after := strings.Count(text, "\n"); after != before {
		t.Errorf("%d lines of metrics became %d", before, after)
	}
	for _, secret := range []string{"dev-", "usr-", "plat-", "app-", "path-"} {
		if strings.Contains(text, secret) {
			t.Errorf("metrics hold %s", secret)
		}
	}
	f.wantMetric(t, `dispatch_policy_decisions_total{app="mobile",policy="staff"} 0`)
	f.wantMetric(t, "dispatch_release_number 412")
	f.wantMetric(t, "dispatch_release_age_seconds 3600")
	f.wantMetric(t, `dispatch_requests_total{code="200"} 5010`)
	f.wantMetric(t, `dispatch_requests_total{code="404"} 10020`)
	f.wantMetric(t, "dispatch_route_seconds_count 5010")
}

func TestMetricsFollowConventions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) {
		o.Decisions = new(buffer)
		o.Status = func() release.Status {
			return release.Status{Refused: map[string]uint64{"missing_key": 1}, DiskErrs: 2, DiskBad: 3}
		}
	})
	f.get("/route")
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, m := range families {
		if !strings.HasPrefix(m.GetName(), "dispatch_") || m.GetHelp() == "" {
			t.Errorf("%s: name or help %q", m.GetName(), m.GetHelp())
		}
	}
	f.wantMetric(t, `dispatch_release_refusals_total{reason="missing_key"} 1`)
	f.wantMetric(t, "dispatch_release_copy_errors_total 2")
	f.wantMetric(t, "dispatch_release_copies_damaged_total 3")
}

func TestCountersFollowTheRelease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask(t, "/route", "X-Device-Id", "d-1001")
	f.current.Store(f.snapshotOf(t, 413, func(d *release.Document) {
		d.Apps[0].Regions[0].Key = "pd"
		d.Apps[0].Regions[1].Failover = []string{"pd"}
		d.Apps[0].Policies[0].Then.Region = "pd"
		d.Apps[0].Otherwise.Split[0].Region = "pd"
	}))
	f.ask(t, "/route", "X-Device-Id", "d-1001")
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="POLICY",region="sh"} 1`)
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="POLICY",region="pd"} 1`)
	f.wantMetric(t, `dispatch_policy_decisions_total{app="mobile",policy="staff"} 2`)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for name, opt := range map[string]Options{
		"no releases":      {Registry: reg},
		"no registry":      {Releases: new(current)},
		"log without hash": {Releases: new(current), Registry: reg, Decisions: new(buffer)},
		"bad origin":       {Releases: new(current), Registry: reg, CORSOrigins: []string{"x"}},
		"registry used":    {Releases: new(current), Registry: usedRegistry(t)},
	} {
		if h, err := New(opt); err == nil || h != nil {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
}

func usedRegistry(t *testing.T) *prometheus.Registry { return newFixture(t).registry }

func TestOpsListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) {
		o.RecordKeys = func() []byte { return []byte(`{"keys":[]}`) }
		o.Checks = []Check{{"redis", func() error { return errors.New("connection refused") }}, {"store", func() error { return nil }}}
	})
	for path, want := range map[string]string{
		"/healthz":                  "ok",
		"/readyz":                   "[+]release ok: number 412, age 1h0m0s\n[-]redis: connection refused\n[+]store ok\n",
		"/metrics":                  "dispatch_release_number 412",
		"/debug/pprof/":             "goroutine",
		"/debug/pprof/heap?debug=1": "heap profile",
	} {
		w := httptest.NewRecorder()
		f.handler.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("ops %s: %d %.300s", path, w.Code, w.Body)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/.well-known/dispatch-keys": 200, "/metrics": 404, "/debug/pprof/": 404, "/": 404} {
		if w := f.get(path); w.Code != want {
			t.Errorf("public %s: %d, want %d", path, w.Code, want)
		}
	}
	if text := f.get("/readyz").Body.String(); strings.Contains(text, "redis") {
		t.Errorf("the public page names what stands behind it: %s", text)
	}
	for _, listener := range []http.Handler{f.handler.Public(), f.handler.Ops()} {
		for _, path := range []string{"/healthz", "/readyz"} {
			get, head := httptest.NewRecorder(), httptest.NewRecorder()
			listener.ServeHTTP(get, httptest.NewRequest(http.MethodGet, path, nil))
			listener.ServeHTTP(head, httptest.NewRequest(http.MethodHead, path, nil))
			if head.Code != http.StatusOK || !maps.EqualFunc(head.Header(), get.Header(), slices.Equal[[]string]) {
				t.Errorf("HEAD %s: %d %v, GET says %v", path, head.Code, head.Header(), get.Header())
			}
		}
	}
	if s := OpsServer(f.handler.Ops(), f.handler.log); s.WriteTimeout.Seconds() < 60 {
		t.Errorf("ops write time-out %v is shorter than a profile", s.WriteTimeout)
	}
}
