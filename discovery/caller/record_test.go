package caller

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
)

// What is out of the ordinary is recorded always, the rest by the sample or on demand.
func TestWhatIsRecorded(t *testing.T) {
	t.Parallel()
	gray := rule("gray", "v1")
	gray.Strategy.Weight, gray.Fallback = 50, &rules.Fallback{Version: "v2", Weight: 50}
	both := append(instances(2, "gray", "prod", "v1"), instance("gray", "10.1.0.1:80", "prod", "v2"))
	set := rules.Set{Rules: []rules.Rule{gray, rule("nobody", "v9")}}
	c := filled(t, Options{Sample: 100}, set, both, instances(1, "nobody", "prod", "v1"), instances(2, "home", "prod", "v1"))
	recorded, all := map[route.Reason]int{}, map[route.Reason]int{}
	for _, service := range []string{"gray", "nobody", "home"} {
		for range 100_000 {
			p, err := c.Pick(t.Context(), service)
			if (err != nil) != (p.Reason == route.ByNobody) {
				t.Fatalf("%+v, %v", p, err)
			}
			if all[p.Reason]++; p.ID() != "" {
				recorded[p.Reason]++
			}
		}
	}
	for reason, n := range all {
		switch reason {
		case route.ByFallback, route.ByNobody:
			if recorded[reason] != n {
				t.Errorf("%s: %d of %d recorded", reason, recorded[reason], n)
			}
		default:
			if want := float64(n) / 100; math.Abs(float64(recorded[reason])-want) > 6*math.Sqrt(want) {
				t.Errorf("%s: %d of %d recorded, want 1 in 100", reason, recorded[reason], n)
			}
		}
	}
	if all[route.ByRule] == 0 || all[route.ByHome] == 0 || all[route.ByFallback] == 0 {
		t.Errorf("reasons: %v", all)
	}
	keep := Keep(WithLane(t.Context(), route.Query{Env: "prod"}))
	for range 100 {
		if p, err := c.Pick(keep, "home"); err != nil || p.ID() == "" {
			t.Fatal("a pick that was to be kept was not recorded")
		}
	}
	if LaneOf(keep) != (route.Query{Env: "prod"}) || LaneOf(WithLane(keep, route.Query{Env: "x"})) != (route.Query{Env: "x"}) {
		t.Error("Keep and WithLane overwrite each other")
	}
}

// The sample favours no instance: its shares are those of all picks.
func TestSampleIsFair(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{Sample: 10}, rules.Set{}, instances(7, "orders", "prod", "v1"))
	counts, sum := map[string]int{}, 0
	for range 700_000 {
		p, err := c.Pick(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if p.ID() != "" {
			counts[p.Instance.ID]++
			sum++
		}
	}
	chi := 0.0
	for _, n := range counts {
		want := float64(sum) / 7
		chi += (float64(n) - want) * (float64(n) - want) / want
	}
	if len(counts) != 7 || chi > 27.9 { // p = 0.0001 with 6 degrees of freedom
		t.Errorf("chi-square %.1f of %v", chi, counts)
	}
}

// Each record travels once, its view once, and control can make the pick again.
func TestRecordsTravel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", mixed()...)
		n.publish(3, rule("orders", "v1"))
		c := started(t, one(n), options(n))
		ready(t, c)
		want := map[string]string{} // by ID
		pick := func(times int) {
			for range times {
				p, err := c.Pick(Keep(t.Context()), "orders")
				if err != nil {
					t.Fatal(err)
				}
				want[p.ID()] = p.Instance.Address.String()
			}
		}
		pick(3 * maxBatch)
		time.Sleep(3 * time.Second)
		pick(100)
		time.Sleep(3 * time.Second)
		n.publish(4, rule("orders", "v2"))
		time.Sleep(time.Second)
		pick(100)
		time.Sleep(3 * time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		views, got := map[string]route.View{}, 0
		for _, b := range n.batches {
			if len(b.Records) > maxBatch || b.Caller != "test" || b.Dropped != 0 {
				t.Errorf("a batch of %d records by %q, %d dropped", len(b.Records), b.Caller, b.Dropped)
			}
			for _, v := range b.Views {
				if _, before := views[v.Key]; before {
					t.Errorf("view %s came twice", v.Key)
				}
				views[v.Key] = v
			}
			for _, r := range b.Records {
				got++
				if want[r.ID] != r.Chosen || r.Service != "orders" || r.Reason != route.ByRule || r.At.IsZero() || !strings.HasPrefix(r.Rule, "orders/prod@") {
					t.Fatalf("record %+v, chosen was %q", r, want[r.ID])
				}
				delete(want, r.ID)
				v, known := views[r.View]
				if !known || v.Service != "orders" || v.Digest != n.lists["orders"].Digest {
					t.Fatalf("record %s came before its view: %+v", r.ID, v)
				}
				version := map[uint64]string{3: "v1", 4: "v2"}[v.Number]
				table := route.Compile(route.Input{Service: "orders", Home: v.Home, Instances: mixed(), Number: v.Number, Direct: v.Direct,
					Isolate: v.Isolate, Scale: v.Scale, Rules: []rules.Rule{rule("orders", version)}})
				if again, err := table.Pick(r.Lane, r.Draw); err != nil || again.Instance.Address.String() != r.Chosen {
					t.Fatalf("made again: %+v, %v, chosen was %s", again, err, r.Chosen)
				}
			}
		}
		if len(want) != 0 || len(views) != 2 {
			t.Errorf("%d records came, %d did not; %d views", got, len(want), len(views))
		}
	})
}

// What does not fit is counted, and control is told; what waits arrives when control
// is back, and its view with it.
func TestRecordsThatAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, registry := newNode(t), prometheus.NewRegistry()
		n.list("orders", mixed()...)
		opt := options(n)
		opt.Metrics = registry
		c := started(t, one(n), opt)
		ready(t, c)
		n.change(func() { n.down = true })
		time.Sleep(5 * time.Second)
		for range ringSize + 500 {
			if _, err := c.Pick(Keep(t.Context()), "orders"); err != nil {
				t.Fatal(err)
			}
			if len(c.ring.notes) > ringSize {
				t.Fatal("the ring grows")
			}
		}
		time.Sleep(5 * time.Second)
		if got := metric(t, registry, "dispatch_discovery_records_dropped_total"); got != 500 {
			t.Errorf("%v were counted as dropped, want 500", got)
		}
		n.change(func() { n.down = false })
		time.Sleep(30 * time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		records, views, dropped := 0, 0, uint64(0)
		for _, b := range n.batches {
			records, views, dropped = records+len(b.Records), views+len(b.Views), dropped+b.Dropped
		}
		if records != ringSize || views != 1 || dropped != 500 {
			t.Errorf("%d records, %d views, %d dropped", records, views, dropped)
		}
	})
}

// A view whose records were all given up comes with the next record that names it.
// A batch that a node will never take is cut, and a record that it takes in none is
// given up: the others must not wait for it.
func TestBatchesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.list("orders", mixed()...)
		n.publish(1, rule("orders", "v1"))
		n.takes = 64 << 10
		c := started(t, one(n), options(n))
		ready(t, c)
		want := map[string]bool{}
		keep := func(ctx context.Context) {
			for range 500 {
				p, err := c.Pick(Keep(ctx), "orders")
				if err != nil {
					t.Fatal(err)
				}
				want[p.ID()] = true
			}
		}
		keep(t.Context())
		unfit, err := c.Pick(Keep(WithKey(t.Context(), strings.Repeat("k", n.takes))), "orders")
		if err != nil {
			t.Fatal(err)
		}
		keep(t.Context())
		time.Sleep(5 * time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, b := range n.batches {
			for _, r := range b.Records {
				delete(want, r.ID)
				if r.ID == unfit.ID() {
					t.Error("the record that is too large arrived")
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("%d records never arrived", len(want))
		}
	})
}

func TestViewOfDroppedRecords(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, instances(1, "a", "prod", "v1"), instances(1, "b", "prod", "v1"))
	c.opt.Control = []string{"https://control:8083"}
	pick := func(service string, times int) {
		for range times {
			if _, err := c.Pick(Keep(t.Context()), service); err != nil {
				t.Fatal(err)
			}
		}
	}
	pick("a", 1)
	pick("b", ringSize)
	c.batch(1)
	pick("a", 1)
	views := map[string]int{}
	for c.ring.sent < c.ring.last {
		b, upTo := c.batch(maxBatch)
		for _, v := range b.Views {
			views[v.Service]++
		}
		c.arrived(b, upTo)
	}
	if views["a"] != 1 || views["b"] != 1 || c.ring.dropped != 0 || len(c.ring.views) != 0 {
		t.Errorf("views %v; %d dropped, %d views wait", views, c.ring.dropped, len(c.ring.views))
	}
}

// Without a node no batch is made; views wait for their records, and for no others.
func TestViewsWithoutControl(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, instances(1, "orders", "prod", "v1"), instances(1, "parts", "prod", "v1"))
	c.opt.Control = []string{"https://control:8083"}
	pick := func(service string, times int) {
		for range times {
			if _, err := c.Pick(Keep(t.Context()), service); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range ringSize + 500 {
		c.mu.Lock()
		c.soil("orders")
		c.mu.Unlock()
		c.compileDirty()
		pick("orders", 1)
	}
	if most := ringSize + looseViews; len(c.ring.views) > most {
		t.Errorf("%d views wait, at most %d", len(c.ring.views), most)
	}
	pick("parts", ringSize)
	c.batch(1)
	if len(c.ring.views) != 1 {
		t.Errorf("%d views wait for records of one table", len(c.ring.views))
	}
}

// A batch arrives after its view was let go: nothing falls over, and the next record
// of its table brings the view again.
func TestViewThatWentMeanwhile(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{}, instances(1, "a", "prod", "v1"), instances(1, "b", "prod", "v1"))
	c.opt.Control = []string{"https://control:8083"}
	pick := func(service string, times int) {
		for range times {
			if _, err := c.Pick(Keep(t.Context()), service); err != nil {
				t.Fatal(err)
			}
		}
	}
	pick("a", 1)
	b, upTo := c.batch(maxBatch)
	pick("b", ringSize)
	c.ring.prune()
	c.arrived(b, upTo)
	pick("a", 1)
	if b, _ := c.batch(ringSize); len(b.Views) != 2 {
		t.Errorf("%d views come with the records of two tables", len(b.Views))
	}
}

// A47: a process can say why, as long as it keeps record and table.
func TestExplainHere(t *testing.T) {
	t.Parallel()
	c := filled(t, Options{}, rules.Set{Rules: []rules.Rule{rule("orders", "v1")}}, mixed())
	keep := Keep(t.Context())
	p, err := c.Pick(keep, "orders")
	if err != nil {
		t.Fatal(err)
	}
	id := p.ID()
	if len(id) > 20 {
		t.Errorf("%s is long", id)
	}
	explained := func() error {
		r, e, err := c.Explain(id)
		if err == nil && (r.Chosen != p.Instance.Address.String() || e.Chosen != r.Chosen || e.Reason != route.ByRule || e.Rule == nil) {
			t.Errorf("record %+v, explanation %+v", r, e)
		}
		return err
	}
	if err := explained(); err != nil {
		t.Error(err)
	}
	again := func() {
		c.soil()
		c.compileDirty()
	}
	for range keptTables {
		if again(); explained() != nil {
			t.Fatal("the table of a record was not kept")
		}
		for range 10 {
			again() // tables that no record names push none out
		}
		if _, err := c.Pick(keep, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	if again(); fault.CodeOf(explained()) != "table_expired" {
		t.Errorf("explain of an old table: %v", explained())
	}
	lost, err := c.Pick(t.Context(), "nobody")
	if err == nil {
		t.Fatal("picked nobody")
	}
	if r, _, err := c.Explain(lost.ID()); fault.CodeOf(err) != "no_table" || r.Service != "nobody" || r.Reason != route.ByNobody {
		t.Errorf("%+v, %v", r, err)
	}
	for _, unknown := range []string{"", "x", id + "zz", c.prefix + "-0", c.prefix + "-", "other-1", c.recordID(math.MaxUint64)} {
		if _, _, err := c.Explain(unknown); fault.CodeOf(err) != "no_record" {
			t.Errorf("Explain(%q) = %v", unknown, err)
		}
	}
	for range ringSize {
		_, _ = c.Pick(keep, "orders")
	}
	if err := explained(); fault.CodeOf(err) != "no_record" {
		t.Errorf("a record that was overwritten: %v", err)
	}
}
