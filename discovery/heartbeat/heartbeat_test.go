package heartbeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// two are the ports of one server.
func two() []discovery.Instance {
	base := discovery.Instance{Address: discovery.Address{Host: "10.1.0.7"}, Started: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
		Coordinates: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v2.3.1"}}
	all := discovery.Ports("passport_server", base, map[string]uint16{"rpc_service": 8080, "control_service": 8081})
	for i := range all {
		all[i].ID = all[i].Service + "-" + all[i].Address.String()
	}
	return all
}

// control is a control node: what it was told, and what it answers.
type control struct {
	mu      sync.Mutex
	batches [][]wire.Report
	at      []time.Time
	tokens  map[string]bool
	status  int // 0: 204
}

func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var reports []wire.Report
	err := json.NewDecoder(r.Body).Decode(&reports)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.Method != http.MethodPost || r.URL.Path != wire.ReportsPath {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
		_, _ = fmt.Fprint(w, "no")
		return
	}
	c.batches, c.at = append(c.batches, reports), append(c.at, time.Now())
	if c.tokens == nil {
		c.tokens = map[string]bool{}
	}
	c.tokens[r.Header.Get("Authorization")] = true
	w.WriteHeader(http.StatusNoContent)
}

func (c *control) answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

func (c *control) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.batches)
}

// direct hands requests of a bubble to handlers, by host.
type direct map[string]http.Handler

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	h := d[r.URL.Host]
	if h == nil {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// beating runs a reporter in a bubble until the returned function ends it.
func beating(t *testing.T, opt Options, nodes direct) (end func()) {
	t.Helper()
	r, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	r.client.Transport = nodes
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A10: 60 reports in ten minutes, each with three figures; the first knows no CPU,
// and says so.
func TestSixtyReportsInTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := &control{}
		end := beating(t, Options{Control: []string{"http://127.0.0.1:8083/"}, Token: "secret", Instances: two(), InWork: func() int64 { return 7 }}, direct{"127.0.0.1:8083": node})
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		end()
		if len(node.batches) != 60 || len(node.tokens) != 1 || !node.tokens["Bearer secret"] {
			t.Fatalf("%d reports, tokens %v", len(node.batches), node.tokens)
		}
		for i, reports := range node.batches {
			if i > 0 && node.at[i].Sub(node.at[i-1]) != wire.ReportEvery {
				t.Errorf("report %d came after %s", i, node.at[i].Sub(node.at[i-1]))
			}
			if len(reports) != 2 || reports[0].Service != "passport_server.control_service" || !reports[1].Started.Equal(two()[1].Started) || reports[1].Address != two()[1].Address || reports[1].ID != two()[1].ID {
				t.Fatalf("report %d: %+v", i, reports)
			}
			load := reports[0].Load
			if load.Memory == nil || *load.Memory <= 0 || *load.Memory > 100 || load.Connections == nil || *load.Connections != 7 {
				t.Errorf("report %d: %+v", i, load)
			}
			if i == 0 && load.CPU != nil || i > 0 && (load.CPU == nil || *load.CPU < 0 || *load.CPU > 100) {
				t.Errorf("report %d: CPU %v", i, load.CPU)
			}
		}
	})
}

// Who counts nothing reports nothing: absent, and not 0.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	m, err := newMeter(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m.load(t.Context()))
	if err != nil || strings.Contains(string(text), "connections") || strings.Contains(string(text), "cpu") || !strings.Contains(string(text), "memory") {
		t.Errorf("%s, %v", text, err)
	}
	m.process.Pid = -1 // nobody's
	if l := m.load(t.Context()); l.CPU != nil || l.Memory != nil {
		t.Errorf("%+v of nobody", l)
	}
}

// A busy process says so: CPU is what it used of what it may use, as the kernel counts.
func TestBusyProcessShowsIt(t *testing.T) {
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	m, err := newMeter(nil)
	if err != nil {
		t.Fatal(err)
	}
	m.load(t.Context())
	started, before := time.Now(), used()
	for used()-before < 300*time.Millisecond { // however long that takes beside others
	}
	l := m.load(t.Context())
	want := 100 * (used() - before).Seconds() / (time.Since(started).Seconds() * processors(readLimits(m.root)))
	if l.CPU == nil {
		t.Fatal("CPU is unknown")
	}
	if *l.CPU < want*0.7 || *l.CPU > want*1.3 { // it counts in hundredths of a second
		t.Errorf("CPU %.1f, want about %.1f", *l.CPU, want)
	}
}

// counted is how many reports ended so.
func counted(t *testing.T, registry *prometheus.Registry, outcome string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "dispatch_discovery_reports_total" && metric.GetLabel()[0].GetValue() == outcome {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// A node that fails is passed over; a failure is logged when it begins and when it
// ends, and always counted.
func TestControlNodesFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() } // and what is written may be read
		a, b := &control{}, &control{}
		var log strings.Builder
		registry := prometheus.NewRegistry()
		end := beating(t, Options{Control: []string{"http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"}, Instances: two(),
			Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: registry}, direct{"127.0.0.1:2": a, "127.0.0.1:3": b})
		pass(25 * time.Second) // reports at 0, 10 and 20 s
		if a.count() != 3 || b.count() != 0 || log.Len() != 0 {
			t.Errorf("%d and %d reports, log %s", a.count(), b.count(), log.String())
		}
		a.answer(http.StatusServiceUnavailable)
		pass(20 * time.Second) // 30, 40
		a.answer(0)
		pass(10 * time.Second) // 50: who answered last is asked first
		if a.count() != 3 || b.count() != 3 || log.Len() != 0 {
			t.Errorf("%d and %d reports, log %s", a.count(), b.count(), log.String())
		}
		a.answer(http.StatusUnauthorized)
		b.answer(http.StatusUnauthorized)
		pass(30 * time.Second) // 60, 70, 80
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "status 401: no") || !strings.Contains(got, "127.0.0.1:1") {
			t.Errorf("the log says %s", got)
		}
		b.answer(0)
		pass(20 * time.Second) // 90, 100
		end()
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "reported again") {
			t.Errorf("the log says %s", got)
		}
		if ok, failed := counted(t, registry, "ok"), counted(t, registry, "failed"); ok != 8 || failed != 3 {
			t.Errorf("%v reports are counted as taken, %v as lost", ok, failed)
		}
	})
}

// A control node that is silent costs its time and no report to the others.
func TestSilentControlNode(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	node := &control{}
	server := httptest.NewServer(node)
	defer server.Close()
	r, err := New(Options{Control: []string{"http://" + silent.Addr().String(), server.URL}, Instances: two()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.client.CloseIdleConnections()
	started := time.Now()
	r.report(t.Context())
	if took := time.Since(started); node.count() != 1 || took > sendTimeout+2*time.Second {
		t.Errorf("%d reports after %s", node.count(), took)
	}
}

func TestTokenIsNotRedirected(t *testing.T) {
	t.Parallel()
	var leaked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	r, err := New(Options{Control: []string{server.URL}, Token: "secret", Instances: two()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.client.CloseIdleConnections()
	if err := r.send(t.Context(), nil); err == nil || leaked.Load() != 0 {
		t.Errorf("%v; the other was asked %d times", err, leaked.Load())
	}
}

func TestNewListsAllMistakes(t *testing.T) {
	t.Parallel()
	bad := two()
	bad[1].ID = ""
	for name, c := range map[string]struct {
		opt  Options
		want int
	}{
		"nothing":                 {Options{}, 2},
		"plain text, far away":    {Options{Control: []string{"http://10.0.0.1:8083"}, Instances: two()}, 1},
		"no URLs":                 {Options{Control: []string{"10.0.0.1:8083", "https://a/b", "https://u:p@a"}, Instances: two()}, 3},
		"not taken from Register": {Options{Control: []string{"https://a:8083"}, Instances: bad}, 1},
		"good":                    {Options{Control: []string{"https://a:8083", "http://localhost:1"}, Instances: two()}, 0},
	} {
		_, err := New(c.opt)
		var problems int
		if found, ok := errors.AsType[*fault.Error](err); ok {
			problems = len(found.Problems)
		}
		if problems != c.want {
			t.Errorf("%s: %v, want %d problems", name, err, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	files := func(pairs ...string) fstest.MapFS {
		all := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return all
	}
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  limits
	}{
		"no control groups": {files(), limits{}},
		"a container, version 2": {files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/cpu.max", "50000 100000\n", "sys/fs/cgroup/memory.max", "1073741824\n"),
			limits{0.5, 1 << 30}},
		"no limit, version 2": {files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/cpu.max", "max 100000\n", "sys/fs/cgroup/a/memory.max", "max\n"), limits{}},
		"the narrowest above": {files("proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max", "300000 100000", "sys/fs/cgroup/a/cpu.max", "200000 100000",
			"sys/fs/cgroup/a/b/memory.max", "1000", "sys/fs/cgroup/a/memory.max", "2000"), limits{2, 1000}},
		"version 1": {files("proc/self/cgroup", "4:memory:/x\n1:cpu,cpuacct:/x\n3:cpuset:/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2048\n",
			"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n", "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"), limits{1.5, 2048}},
		"version 1 without a limit":     {files("proc/self/cgroup", "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"), limits{}},
		"a group that is not seen here": {files("proc/self/cgroup", "0::/../../host\n4:memory:/kube/pod\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "4096"), limits{0, 4096}},
		"nonsense":                      {files("proc/self/cgroup", "x\n\n0::\n", "sys/fs/cgroup/cpu.max", "1", "sys/fs/cgroup/memory.max", "-5"), limits{}},
	} {
		if got := readLimits(c.files); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if n := processors(limits{processors: 0.5}); n != 0.5 {
		t.Errorf("half a processor is %v", n)
	}
	if n := processors(limits{processors: 1 << 20}); n != float64(runtime.GOMAXPROCS(0)) {
		t.Errorf("a million are %v", n)
	}
	if all := memory(t.Context(), limits{memory: 1 << 20}); all != 1<<20 {
		t.Errorf("a limit of 1 MiB is %v", all)
	}
}

// A09: 1,000 starts and stops leave neither goroutines nor memory behind.
func TestReportersLeaveNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	cycle := func() {
		r, err := New(Options{Control: []string{server.URL}, Instances: two()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 20 {
		cycle()
	}
	goroutines, before := runtime.NumGoroutine(), heap()
	for range 1000 {
		cycle()
	}
	deadline, tick := time.After(10*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > goroutines+2 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}
