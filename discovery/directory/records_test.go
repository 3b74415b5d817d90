package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

// Records are saved with the lists that they were made from, as long as those are
// remembered.
func TestRecordsCarryTheirLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		book.write("orders", at("orders", 0))
		d, end := follow(t, memory, book)
		defer end()
		s := serve(t, d, nil)
		settle()
		digest := func() string { return ask(t, s, wire.Ask{}).Services["orders"].Digest }
		first := digest()
		sent := func(digests ...string) map[string][]discovery.Instance {
			batch := wire.Batch{Caller: "c", Records: []wire.Record{{ID: "r1", View: "c/1"}}, Dropped: 3}
			for i, digest := range digests {
				batch.Views = append(batch.Views, route.View{Key: fmt.Sprint("c/", i), Digest: digest})
			}
			if w := send(s, wire.RecordsPath, batch); w.Code != http.StatusNoContent {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			return memory.lists[len(memory.lists)-1]
		}
		if got := sent(first, "unknown", ""); len(got) != 1 || len(got[first]) != 1 || memory.batches[0].Records[0].ID != "r1" {
			t.Errorf("lists %v, batches %v", got, memory.batches)
		}
		for i := range recentEach {
			book.write("orders", at("orders", i+1))
			time.Sleep(2 * buildPace)
		}
		if got := sent(first, digest()); len(got) != 2 {
			t.Errorf("after %d changes: %d lists, want 2", recentEach, len(got))
		}
		second := digest()
		book.write("orders", at("orders", 99))
		time.Sleep(2 * buildPace)
		if got := sent(first, second); len(got) != 1 || got[second] == nil {
			t.Errorf("one more change pushes the first out and nothing else: %v", got)
		}
		time.Sleep(recentFor + buryEvery + time.Second)
		if got := sent(second, digest()); len(got) != 1 || got[second] != nil {
			t.Errorf("ten minutes later: %v", got)
		}
		if d.tables.lists.unused != 0 || len(d.tables.lists.by) != 1 {
			t.Errorf("%d bytes in %d lists are left", d.tables.lists.unused, len(d.tables.lists.by))
		}
	})
}

func TestListThatComesBackIsInUse(t *testing.T) {
	t.Parallel()
	r, now := newRecent(), time.Now()
	lists := make([]*list, 3)
	for i := range lists {
		in := at("a", i)
		lists[i] = newList([]entry{{Instance: in, json: plain(in)}}, 10)
	}
	r.add("a", lists[0])
	r.replaced(lists[0].digest, now)
	r.add("a", lists[1])
	r.replaced(lists[1].digest, now)
	r.add("a", lists[0])
	r.prune(now.Add(2 * recentFor))
	if r.by[lists[0].digest] == nil || r.unused != 0 {
		t.Errorf("a list in use was forgotten, %d bytes unused", r.unused)
	}
	if r.by[lists[1].digest] != nil {
		t.Error("a list out of use is kept")
	}
	r.replaced(lists[0].digest, now)
	r.prune(now.Add(2 * recentFor))
	if len(r.by)+len(r.of)+r.unused != 0 {
		t.Errorf("%d lists and %d bytes are kept", len(r.by), r.unused)
	}
}

func TestRememberedListsAreBounded(t *testing.T) {
	t.Parallel()
	r, now := newRecent(), time.Now()
	for i := range 200 {
		l := &list{digest: fmt.Sprint(i), json: make([]byte, 1<<20)}
		r.add(fmt.Sprint("s", i), l)
		r.replaced(l.digest, now.Add(time.Duration(i)))
	}
	if r.by["199"] == nil || r.unused > recentBytes || r.unused < recentBytes/2 {
		t.Errorf("%d bytes are kept, at most %d may be", r.unused, recentBytes)
	}
	if r.by["0"] != nil {
		t.Error("the oldest list is kept")
	}
}

func TestRecordsWithoutAndWithBrokenMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		batch := wire.Batch{Caller: "c", Records: make([]wire.Record, 4), Dropped: 1 << 63}
		for name, c := range map[string]struct {
			memory  Memory
			problem error
			status  int
			want    string
		}{
			"none":   {nil, nil, 204, "dropped 4, failed 0, lost 9.223372036854776e+18, saved 0"},
			"broken": {memory, errors.New("no space"), 503, "dropped 0, failed 4, lost 0, saved 0"},
			"whole":  {memory, nil, 204, "dropped 0, failed 0, lost 9.223372036854776e+18, saved 4"},
		} {
			registry := prometheus.NewRegistry()
			d, err := New(Options{Region: region, Registries: []Registry{{"a", book}}, Memory: c.memory, Metrics: registry})
			if err != nil {
				t.Fatal(err)
			}
			memory.problem = c.problem
			w := send(serve(t, d, nil), wire.RecordsPath, batch)
			if w.Code != c.status || (c.status == 503) != (w.Header().Get("Retry-After") != "") {
				t.Errorf("%s: status %d, headers %v", name, w.Code, w.Header())
			}
			var got []string
			for _, outcome := range []string{recordDropped, recordFailed, recordLost, recordSaved} {
				got = append(got, fmt.Sprint(outcome, " ", value(t, registry, "dispatch_directory_records_total", outcome)))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%s: counted %s, want %s", name, strings.Join(got, ", "), c.want)
			}
		}
	})
}

// value is that of a metric whose only label has this value.
func value(t *testing.T, g prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// A17: how old a registry's lists are is exported, and so is the rest.
func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, registry, memory := newBook("consul"), prometheus.NewRegistry(), newShelf()
		far := at("orders", 3)
		far.Region = "x"
		book.write("orders", at("orders", 1), at("orders", 2), far)
		book.write("pay", at("pay", 1))
		book.reject("pay", discovery.Rejected{ID: "p", Why: "env"})
		d, err := New(Options{Region: region, Registries: []Registry{{"main", book}}, Memory: memory, Metrics: registry})
		if err != nil {
			t.Fatal(err)
		}
		defer running(t, d)()
		s := serve(t, d, nil)
		settle()
		ask(t, s, wire.Ask{})
		ask(t, s, after(ask(t, s, wire.Ask{})))
		send(s, wire.TablesPath, "{")
		a := wire.Ask{Caller: "c", Home: home(), Epoch: d.tables.epoch, Version: d.tables.version}
		book.fail(errors.New("away"))
		memory.do(func() { memory.problem = errors.New("away") })
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { sendIn(ctx, s, wire.TablesPath, a); close(done) }()
		time.Sleep(time.Second)
		for _, c := range []struct {
			name, label string
			low, high   float64
		}{
			{"dispatch_directory_services", "", 2, 2},
			{"dispatch_directory_instances", "main", 3, 3},
			{"dispatch_directory_other_region_entries", "main", 1, 1},
			{"dispatch_directory_suspicious_entries", "", 1, 1},
			{"dispatch_directory_queued_entries", "", 0, 0},
			{"dispatch_directory_registry_away", "main", 1, 1},
			{"dispatch_directory_registry_age_seconds", "main", 3, 7},
			{"dispatch_directory_build_seconds", "", 3, 100},
			{"dispatch_directory_memory_problems_total", "", 3, 5},
			{"dispatch_directory_asks_total", askedFull, 2, 2},
			{"dispatch_directory_asks_total", askedNothing, 1, 1},
			{"dispatch_directory_asks_total", askedWrong, 1, 1},
			{"dispatch_directory_waiting_requests", "", 1, 1},
		} {
			if got := value(t, registry, c.name, c.label); got < c.low || got > c.high {
				t.Errorf("%s{%s} is %g, want %g to %g", c.name, c.label, got, c.low, c.high)
			}
		}
		cancel()
		<-done
	})
}

// T95, B20, B27: what Prometheus reads.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, memory := newBook("consul"), newShelf()
		d, end := follow(t, memory, book)
		defer end()
		s := serve(t, d, nil)
		book.fail(errors.New("away"))
		settle()
		if w := send(s, wire.PrometheusPath, nil); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Header().Get("Content-Type"), "json") {
			t.Errorf("before a registry was heard: %d %s", w.Code, w.Body)
		}
		book.fail(nil)
		settle()
		if w := send(s, wire.PrometheusPath, nil); w.Code != 200 || strings.TrimSpace(w.Body.String()) != "[]" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("empty: %d %q %q", w.Code, w.Body, w.Header().Get("Content-Type"))
		}
		one, two, out := at("orders", 1), at("orders", 2), at("orders", 3)
		two.Labels = map[string]string{labelMetricsPort: "9100", labelMetricsPath: "/stats", "team": "x"}
		two.Address.Host = "2001:db8::1"
		out.Labels = map[string]string{labelMetricsPort: "0", labelMetricsPath: "stats"}
		book.write("orders", one, two, out)
		book.write("pay", at("pay", 1))
		memory.do(func() {
			memory.verdicts = []Verdict{{Fingerprint: Fingerprint{ID: one.ID}, Service: "orders", Isolate: true},
				{Fingerprint: Fingerprint{at("pay", 1).ID, at("pay", 1).Address, time.Time{}}, Service: "pay", Refuse: true}}
		})
		settle()
		settle()
		const labels = `"labels":{%s"cluster":"production","env":"prod","instance_id":"orders-10.0.0.%d:8080","region":"cn-hangzhou","service":"orders","source":"consul","version":"v1"}}`
		want := `[{"targets":["10.0.0.2:8080"],` + fmt.Sprintf(labels, "", 2) + `,{"targets":["[2001:db8::1]:9100"],` + fmt.Sprintf(labels, `"__metrics_path__":"/stats",`, 3) +
			`,{"targets":["10.0.0.4:8080"],` + fmt.Sprintf(labels, "", 4) + `]`
		w := send(s, wire.PrometheusPath, nil)
		if w.Body.String() != want {
			t.Errorf("got  %s\nwant %s", w.Body, want)
		}
		book.fail(errors.New("away"))
		settle()
		if again := send(s, wire.PrometheusPath, nil); again.Code != 200 || again.Body.String() != want {
			t.Errorf("while the registry is away: %d %s", again.Code, again.Body)
		}
		var groups []struct {
			Targets []string
			Labels  map[string]string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &groups); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, g := range groups {
			key := fmt.Sprint(g.Targets, g.Labels)
			if seen[key] {
				t.Errorf("%s is there twice", key)
			}
			seen[key] = true
		}
	})
}
