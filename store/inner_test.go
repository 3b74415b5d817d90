package store

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// instance is number n of a service.
func instance(service string, n int) discovery.Instance {
	weight := n % 7 * 10
	return discovery.Instance{ID: fmt.Sprintf("%s-%03d", service, n), Service: service,
		Address:     discovery.Address{Host: fmt.Sprintf("10.0.%d.%d", n/250, n%250), Port: 8080},
		Coordinates: discovery.Coordinates{Cluster: "production", Region: "hz", Env: "prod", Version: "v2.3.1"},
		Weight:      &weight, Labels: map[string]string{"rack": fmt.Sprint("r", n%9), "a": "é"},
		Started: time.Date(2026, 9, 1, 8, 0, n%60, n, time.UTC), Source: "consul"}
}

func instances(service string, n int) (list []discovery.Instance) {
	for i := range n {
		list = append(list, instance(service, i))
	}
	return list
}

func report(id string, started time.Time, cpu float64) wire.Report {
	return wire.Report{ID: id, Service: "order-core", Address: discovery.Address{Host: "2001:db8::1", Port: 8080}, Started: started, Load: discovery.Load{CPU: &cpu}}
}

func TestReportsCountUntilTheyExpire(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			read := func() []string {
				list, err := s.Inner().Reports(t.Context())
				must(t, err)
				seen := []string{}
				for _, r := range list {
					seen = append(seen, fmt.Sprintf("%s %s %g", r.ID, r.Started.Format("05"), *r.Load.CPU))
				}
				slices.Sort(seen)
				return seen
			}
			start := clock.now()
			must(t, s.Inner().SaveReports(t.Context(), nil))
			// Two processes under one id, as after a restart: both are there, for the directory to judge.
			must(t, s.Inner().SaveReports(t.Context(), []wire.Report{report("a", start, 5), report("a", start.Add(time.Second), 6), report("b", start, 7), report("b", start, 7)}))
			clock.advance(directory.ReportLives - time.Second)
			must(t, s.Inner().SaveReports(t.Context(), []wire.Report{report("b", start, 93.5)}))
			if got, want := read(), []string{"a 00 5", "a 01 6", "b 00 93.5"}; !slices.Equal(got, want) {
				t.Errorf("reports = %q, want %q", got, want)
			}
			clock.advance(time.Second)
			if got, want := read(), []string{"b 00 93.5"}; !slices.Equal(got, want) {
				t.Errorf("reports after they lived = %q, want %q", got, want)
			}
			many := make([]wire.Report, 2*countsBatch+5)
			for i := range many {
				many[i] = report(fmt.Sprint("m-", i), start, 1)
			}
			must(t, s.Inner().SaveReports(t.Context(), many))
			var rows int64
			must(t, s.reader.Model(&reportRow{}).Count(&rows).Error)
			if rows != int64(len(many))+1 || verify(t, s).Head.Seq != 0 {
				t.Errorf("%d rows are kept, want %d, and no audit row", rows, len(many)+1)
			}
		})
	}
}

// Control nodes hear from the same instances and write at once.
func TestControlNodesSaveReportsAtOnce(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn := newDSN(t, kind)
			nodes := []*Store{openTest(t, dsn, testOptions()), openTest(t, dsn, testOptions())}
			var list []wire.Report
			for i := range 200 {
				list = append(list, report(fmt.Sprint("i-", i), time.UnixMilli(1), float64(i)))
			}
			var group sync.WaitGroup
			for i := range 8 {
				group.Go(func() {
					mine := slices.Clone(list)
					rand.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
					if err := nodes[i%2].Inner().SaveReports(t.Context(), mine); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if got, err := nodes[0].Inner().Reports(t.Context()); err != nil || len(got) != len(list) {
				t.Errorf("%d reports, want %d (%v)", len(got), len(list), err)
			}
		})
	}
}

func TestVerdictsAreThoseThatNobodyLifted(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		want := map[string]directory.Verdict{}
		for _, state := range []string{ledger.Accepted, ledger.Refused, ledger.Isolated, ledger.Lifted} {
			v := directory.Verdict{Fingerprint: directory.Fingerprint{ID: state, Address: discovery.Address{Host: "10.0.0.1", Port: 1}, Started: time.UnixMilli(5).UTC()},
				Service: "order-core", Isolate: state == ledger.Isolated, By: "ada", Reason: "test", At: time.UnixMilli(7).UTC()}
			body, err := json.Marshal(v)
			must(t, err)
			_, err = s.SavePaper(t.Context(), ledger.Paper{Kind: ledger.Instance, ID: "order-core/" + state, State: state, Body: body}, by("ada"))
			must(t, err)
			want[state] = v
		}
		delete(want, ledger.Lifted)
		got, err := s.Inner().Verdicts(t.Context())
		must(t, err)
		if len(got) != len(want) {
			t.Errorf("%d verdicts, want %d", len(got), len(want))
		}
		for _, v := range got {
			if !reflect.DeepEqual(v, want[v.ID]) {
				t.Errorf("verdict = %+v, want %+v", v, want[v.ID])
			}
		}
	})
}

// batch is one record of a view of the list with the digest.
func batch(id string, at time.Time, digest string) wire.Batch {
	return wire.Batch{Caller: "gateway-1",
		Records: []wire.Record{{ID: id, At: at, Caller: "gateway-1", Service: "order-core", View: "gateway-1/" + digest, Lane: route.Query{Env: "prod", Key: "d-1001"},
			Draw: 1<<63 + 7, Rule: "order-core/prod@2026-09-01T08:00:00Z", Reason: route.ByRule, Chosen: "10.0.0.1:8080", Counts: &route.Counts{Cluster: 4}}},
		Views: []route.View{{Key: "gateway-1/" + digest, Service: "order-core", Home: discovery.Coordinates{Cluster: "production", Region: "hz", Env: "prod", Version: "v1"},
			Digest: digest, Number: 3, Scale: map[string]route.Scale{"order-core-001": {Thousandths: 0, Why: "warming"}}}}}
}

func TestAPickIsKeptWithWhatDecidedIt(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		at := s.now().UTC().Truncate(time.Microsecond)
		list := instances("order-core", 3)
		b := batch("C0FFEE-1", at, "sha-1")
		for range 2 { // a batch may come twice
			must(t, s.Inner().SaveRecords(t.Context(), b, map[string][]discovery.Instance{"sha-1": list, "other": nil}))
		}
		for _, id := range []string{"C0FFEE-1", "c0ffee-1"} {
			p, err := s.Pick(t.Context(), id)
			must(t, err)
			if !reflect.DeepEqual(p.Record, b.Records[0]) || !reflect.DeepEqual(*p.View, b.Views[0]) || !reflect.DeepEqual(p.List, list) {
				t.Errorf("%s: pick = %+v\nview %+v\nlist %+v", id, p.Record, p.View, p.List)
			}
		}
		_, err := s.Pick(t.Context(), "c0ffee-2")
		want(t, err, fault.NotFound, "unknown_pick")

		// Of two with one id the newer counts, whichever came first.
		older := batch("C0FFEE-1", at.Add(-time.Minute), "sha-1")
		older.Records[0].Chosen = "10.9.9.9:1"
		must(t, s.Inner().SaveRecords(t.Context(), older, nil))
		if p, err := s.Pick(t.Context(), "c0ffee-1"); err != nil || p.Record.Chosen != "10.0.0.1:8080" {
			t.Errorf("pick = %+v, %v, want the newer record", p.Record, err)
		}

		// What never came is not there, and that is no error.
		must(t, s.Inner().SaveRecords(t.Context(), batch("no-list", at, "sha-9"), nil))
		if p, err := s.Pick(t.Context(), "no-list"); err != nil || p.View == nil || p.List != nil {
			t.Errorf("pick without a list = %+v, %v", p, err)
		}
		lost := batch("no-view", at, "sha-8")
		lost.Views = nil
		must(t, s.Inner().SaveRecords(t.Context(), lost, nil))
		if p, err := s.Pick(t.Context(), "no-view"); err != nil || p.View != nil || p.Record.ID != "no-view" {
			t.Errorf("pick without a view = %+v, %v", p, err)
		}
		if verify(t, s).Head.Seq != 0 {
			t.Error("records of picks have audit rows")
		}
	})
}

// What keeps a call on its version may be the id of a person: no column shows it, and
// without its seal key the record alone can be read.
func TestTheKeyOfALaneIsSealed(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn := newDSN(t, kind)
			s := openTest(t, dsn, testOptions())
			must(t, s.Inner().SaveRecords(t.Context(), batch("a", s.now(), "sha-1"), map[string][]discovery.Instance{"sha-1": instances("order-core", 3)}))
			var row recordRow
			must(t, s.reader.First(&row).Error)
			if strings.Contains(fmt.Sprintf("%+v %s", row, row.LaneKey), "d-1001") || row.LaneKey == nil {
				t.Errorf("the row is %+v", row)
			}
			other := openTest(t, dsn, Options{Seal: SealKeys{Current: key('z')}, Timeout: time.Minute})
			if p, err := other.Pick(t.Context(), "a"); err != nil || p.Record.Lane.Key != "" || p.View != nil {
				t.Errorf("without the key the pick is %+v, %v", p, err)
			}
			unsealed := openTest(t, dsn, Options{Timeout: time.Minute})
			must(t, unsealed.Inner().SaveRecords(t.Context(), batch("b", s.now(), "sha-1"), nil))
			if p, err := s.Pick(t.Context(), "b"); err != nil || p.Record.Lane.Key != "" || p.Record.Lane.Env != "prod" {
				t.Errorf("a record that was kept without seal keys is %+v, %v", p.Record, err)
			}
		})
	}
}

// A list that moves on is kept as differences to a whole one, comes back exactly, and
// costs a quarter at most of what whole lists would.
func TestListsAreKeptAsDifferences(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		current := instances("order-core", 500)
		lists := map[string][]discovery.Instance{}
		const changes = 60
		for n := range changes {
			switch n % 3 {
			case 0: // one is replaced
				current[n] = instance("order-core", 1000+n)
			case 1: // one goes
				current = slices.Delete(slices.Clone(current), n, n+1)
			default: // one comes, in between
				current = slices.Insert(slices.Clone(current), n, instance("order-core", 2000+n))
			}
			digest := fmt.Sprint("sha-", n)
			lists[digest] = slices.Clone(current)
			must(t, s.Inner().SaveRecords(t.Context(), batch(fmt.Sprint("r-", n), s.now(), digest), lists))
		}
		for n := range changes {
			p, err := s.Pick(t.Context(), fmt.Sprint("r-", n))
			must(t, err)
			if !reflect.DeepEqual(p.List, lists[fmt.Sprint("sha-", n)]) {
				t.Fatalf("list %d does not come back", n)
			}
		}
		var rows []listRow
		must(t, s.reader.Order("added").Find(&rows).Error)
		whole, bytes := 0, 0
		for _, r := range rows {
			bytes += len(r.Body)
			if r.Base == "" {
				whole++
			}
		}
		t.Logf("%d lists of 500 instances: %d whole, %d bytes, the first one has %d", len(rows), whole, bytes, len(rows[0].Body))
		if len(rows) != changes || whole > changes/8 || bytes > changes*len(rows[0].Body)/4 {
			t.Errorf("%d lists, %d whole, %d bytes", len(rows), whole, bytes)
		}
		// Another service's list is no base.
		b := batch("pay", s.now(), "sha-pay")
		b.Views[0].Service = "pay"
		must(t, s.Inner().SaveRecords(t.Context(), b, map[string][]discovery.Instance{"sha-pay": current}))
		var other listRow
		must(t, s.reader.Where("digest = ?", "sha-pay").First(&other).Error)
		if other.Base != "" {
			t.Errorf("the list of another service is kept as a difference to %s", other.Base)
		}
		// An empty list is a list.
		must(t, s.Inner().SaveRecords(t.Context(), batch("empty", s.now(), "sha-none"), map[string][]discovery.Instance{"sha-none": {}}))
		if p, err := s.Pick(t.Context(), "empty"); err != nil || p.List == nil || len(p.List) != 0 {
			t.Errorf("empty list has %d instances, %v", len(p.List), err)
		}
	})
}

func TestPicksAreKeptAsLongAsTheyShallBe(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now, PicksKept: 10 * 24 * time.Hour})
			base := instances("order-core", 300)
			moved := slices.Clone(base)
			moved[5] = instance("order-core", 999)
			lists := map[string][]discovery.Instance{"base": base, "moved": moved}
			must(t, s.Inner().SaveRecords(t.Context(), batch("first", clock.now(), "base"), lists))
			must(t, s.Inner().SaveRecords(t.Context(), batch("second", clock.now(), "moved"), lists))
			// A view that lives on is named by records and not sent again.
			for day := range 30 {
				clock.advance(24 * time.Hour)
				b := batch(fmt.Sprint("day-", day), clock.now(), "moved")
				b.Views = nil
				must(t, s.Inner().SaveRecords(t.Context(), b, nil))
			}
			count := func(table any) (n int64) {
				must(t, s.reader.Model(table).Count(&n).Error)
				return n
			}
			if n := count(&recordRow{}); n != 11 {
				t.Errorf("%d records, want those of 10 days", n)
			}
			if _, err := s.Pick(t.Context(), "first"); fault.KindOf(err) != fault.NotFound {
				t.Errorf("a record of 30 days ago: %v", err)
			}
			p, err := s.Pick(t.Context(), "day-29")
			must(t, err)
			if p.View == nil || !reflect.DeepEqual(p.List, moved) {
				t.Error("a view or list in use, or the whole list that it needs, was dropped")
			}
			if n := count(&viewRow{}); n != 1 {
				t.Errorf("%d views, want the one in use", n)
			}
			clock.advance(13 * 24 * time.Hour)
			for range 3 { // the difference goes first, then what it needed
				_, err := s.dropOld(t.Context(), clock.now().Add(-s.picksKept))
				must(t, err)
			}
			if r, v, l := count(&recordRow{}), count(&viewRow{}), count(&listRow{}); r+v+l != 0 {
				t.Errorf("%d records, %d views and %d lists stay for ever", r, v, l)
			}
		})
	}
}

func TestOldPicksGoInBatches(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		var b wire.Batch
		for i := range countsBatch + 10 {
			b.Records = append(b.Records, wire.Record{ID: fmt.Sprint("r-", i), At: s.now().Add(-time.Duration(i) * time.Second), Caller: "c", Service: "order-core", Reason: route.ByNobody})
		}
		must(t, s.Inner().SaveRecords(t.Context(), b, nil))
		before := s.now().Add(time.Hour)
		for _, want := range []bool{true, false} {
			if more, err := s.dropOld(t.Context(), before); err != nil || more != want {
				t.Errorf("more = %v, %v, want %v", more, err, want)
			}
		}
	})
}

// One record that was made badly costs no other one.
func TestWhatCannotBeStoredIsLeftOut(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for name, change := range map[string]func(*wire.Batch){
			"no id":            func(b *wire.Batch) { b.Records[0].ID = "" },
			"two lines":        func(b *wire.Batch) { b.Records[0].Caller = "a\nb" },
			"a long service":   func(b *wire.Batch) { b.Records[0].Service = strings.Repeat("s", 201) },
			"space before":     func(b *wire.Batch) { b.Records[0].Reason = " rule" },
			"no key of a view": func(b *wire.Batch) { b.Views[0].Key = "" },
			"a bad digest":     func(b *wire.Batch) { b.Views[0].Digest = "x " },
		} {
			b := batch(name, s.now(), "sha-1")
			b.Records = append(b.Records, b.Records[0])
			b.Records[1].ID = "good " + name
			change(&b)
			must(t, s.Inner().SaveRecords(t.Context(), b, nil))
			if _, err := s.Pick(t.Context(), "good "+name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := s.Pick(t.Context(), b.Records[0].ID); (err == nil) != (b.Views[0].Key == "" || b.Views[0].Digest == "x ") {
				t.Errorf("%s: the bad record: %v", name, err)
			}
		}
	})
}

// useInner writes, changes and drops one of each thing that the inner layer keeps.
func useInner(t *testing.T, s *Store) {
	t.Helper()
	list := map[string][]discovery.Instance{"sha-1": instances("order-core", 300)}
	for n := range 2 {
		must(t, s.Inner().SaveReports(t.Context(), []wire.Report{report("a", time.UnixMilli(1), 5)}))
		list["sha-2"] = append(list["sha-1"], instance("order-core", 900))
		must(t, s.Inner().SaveRecords(t.Context(), batch("a", s.now(), fmt.Sprint("sha-", n+1)), list))
	}
	must(t, s.write(t.Context(), func(tx *gorm.DB) error {
		for _, table := range []any{&reportRow{}, &viewRow{}, &listRow{}} {
			column := "used"
			if _, ok := table.(*reportRow); ok {
				column = "expires"
			}
			if err := tx.Model(table).Where("1 = 1").Update(column, 1).Error; err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, s.Inner().SaveReports(t.Context(), nil))
	for range 2 {
		_, err := s.dropOld(t.Context(), s.now().Add(time.Hour))
		must(t, err)
	}
	for _, table := range []any{&reportRow{}, &recordRow{}, &viewRow{}, &listRow{}} {
		var n int64
		if err := s.reader.Model(table).Count(&n).Error; err != nil || n != 0 {
			t.Errorf("%T: %d rows stay, %v", table, n, err)
		}
	}
}

// BenchmarkSaveRecords keeps batches of 1,000 records, the size that a busy caller
// sends, of one view of 1,000 instances.
func BenchmarkSaveRecords(b *testing.B) {
	for _, kind := range []string{"sqlite", "mysql"} {
		b.Run(kind, func(b *testing.B) {
			s := openTest(b, newDSN(b, kind), testOptions())
			lists := map[string][]discovery.Instance{"sha-1": instances("order-core", 1000)}
			one := batch("a", time.Now(), "sha-1")
			n := 0
			for b.Loop() {
				full := one
				full.Records = make([]wire.Record, 1000)
				for i := range full.Records {
					full.Records[i] = one.Records[0]
					n++
					full.Records[i].ID = fmt.Sprint("r-", n)
				}
				must(b, s.Inner().SaveRecords(b.Context(), full, lists))
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
