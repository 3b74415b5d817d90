package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// noon is where the tests of counters begin: whole hours before and after.
var noon = newClock().now()

func count(minute int, app, region string, n uint64) fleet.Count {
	return fleet.Count{Minute: noon.Add(time.Duration(minute) * time.Minute), App: app, Region: region, Endpoint: "web",
		Policy: "p", Reason: "rule", Release: 7, N: n}
}

func addCounts(t *testing.T, s *Store, replica string, counts ...fleet.Count) {
	t.Helper()
	must(t, s.AddCounts(t.Context(), ledger.Counts{Replica: replica, Boot: "b1", Counts: counts}))
}

// text is what Counts answers: minutes after noon, the columns asked for, and n.
func text(t *testing.T, s *Store, f ledger.CountFilter) string {
	t.Helper()
	list, err := s.Counts(t.Context(), f)
	must(t, err)
	out := ""
	for _, c := range list {
		minute := "-"
		if !c.Minute.IsZero() {
			minute = fmt.Sprint(int(c.Minute.Sub(noon).Minutes()))
		}
		out += fmt.Sprintf("%s %s%s%s%s=%d; ", minute, c.App, c.Region, c.Policy, c.Reason, c.N)
	}
	return out
}

func total(t *testing.T, s *Store) (n uint64) {
	t.Helper()
	list, err := s.Counts(t.Context(), ledger.CountFilter{})
	must(t, err)
	for _, c := range list {
		n += c.N
	}
	return n
}

func TestCountsKeepTheLargerOfOneMinute(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			s := openTest(t, newDSN(t, kind), Options{Now: newClock().now})
			addCounts(t, s, "r1", count(0, "app", "sh", 5), count(0, "app", "SH", 1))
			addCounts(t, s, "r1", count(0, "app", "sh", 9))
			addCounts(t, s, "r1", count(0, "app", "sh", 7), count(0, "app", "sh", 3)) // late, and twice in one report
			addCounts(t, s, "r2", count(0, "app", "sh", 2))
			must(t, s.AddCounts(t.Context(), ledger.Counts{Replica: "r1", Boot: "b2", Counts: []fleet.Count{count(0, "app", "sh", 100)}}))
			must(t, s.AddCounts(t.Context(), ledger.Counts{Replica: "r1", Boot: "b1"}))
			if got := text(t, s, ledger.CountFilter{By: []string{"region"}}); got != "- SH=1; - sh=111; " {
				t.Errorf("counts = %s", got)
			}
			if verify(t, s).Head.Seq != 0 {
				t.Error("counters wrote an audit row")
			}
		})
	}
}

func TestCountsAreSummedAsAsked(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			s := openTest(t, newDSN(t, kind), Options{Now: newClock().now})
			other := count(11, "pay", "hf", 1000)
			other.Policy, other.Release = "q", 8
			addCounts(t, s, "r1", count(0, "app", "sh", 1), count(1, "app", "sh", 10), count(11, "app", "hf", 100), other)
			addCounts(t, s, "r2", count(1, "app", "sh", 10000))
			at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
			for _, test := range []struct {
				filter ledger.CountFilter
				want   string
			}{
				{ledger.CountFilter{}, "- =11111; "},
				{ledger.CountFilter{App: "none"}, ""},
				{ledger.CountFilter{Every: time.Minute}, "0 =1; 1 =10010; 11 =1100; "},
				{ledger.CountFilter{Every: 5 * time.Minute, By: []string{"app", "region"}}, "0 appsh=10011; 10 apphf=100; 10 payhf=1000; "},
				{ledger.CountFilter{By: []string{"region", "region"}}, "- hf=1100; - sh=10011; "},
				{ledger.CountFilter{By: []string{"policy", "reason"}, Every: 24 * time.Hour}, "-480 prule=10111; -480 qrule=1000; "},
				{ledger.CountFilter{Since: at(1), Until: at(11), Every: time.Hour}, "0 =10010; "},
				{ledger.CountFilter{Since: at(1), Until: at(11)}, "1 =10010; "},
				{ledger.CountFilter{App: "app", Region: "hf", Policy: "p", Release: 7}, "- =100; "},
				{ledger.CountFilter{Release: 8}, "- =1000; "},
				{ledger.CountFilter{App: "APP"}, ""},
			} {
				if got := text(t, s, test.filter); got != test.want {
					t.Errorf("%+v = %s, want %s", test.filter, got, test.want)
				}
			}
			list, err := s.Counts(t.Context(), ledger.CountFilter{By: []string{"release", "endpoint"}})
			must(t, err)
			if len(list) != 2 || list[1].Release != 8 || list[1].Endpoint != "web" || list[1].App != "" || list[1].N != 1000 {
				t.Errorf("by release and endpoint = %+v", list)
			}
			_, err = s.Counts(t.Context(), ledger.CountFilter{By: []string{"n; DROP TABLE audit"}, Every: time.Second})
			want(t, err, fault.Invalid, "bad_count_filter")
		})
	}
}

// e.g. after a day: the same sums by the hour, one row for all replicas.
func TestOldMinutesBecomeHours(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			for m := range 120 {
				addCounts(t, s, "r1", count(m-60, "app", "sh", 1), count(m-60, "app", "hf", 1000))
			}
			addCounts(t, s, "r2", count(-1, "app", "sh", 7), count(59, "app", "sh", 7))
			hourly := ledger.CountFilter{Every: time.Hour, By: []string{"region"}}
			before := text(t, s, hourly)
			rows := func() (minutes, hours int64) {
				must(t, s.reader.Model(&counterRow{}).Count(&minutes).Error)
				must(t, s.reader.Model(&sumRow{}).Count(&hours).Error)
				return minutes, hours
			}
			roll := func(now time.Time, wantMinutes, wantHours int64) {
				t.Helper()
				for range 2 {
					must(t, s.RollUpCounts(t.Context(), now))
					if minutes, hours := rows(); minutes != wantMinutes || hours != wantHours {
						t.Errorf("%d minutes and %d hours are kept, want %d and %d", minutes, hours, wantMinutes, wantHours)
					}
				}
			}
			roll(noon.Add(time.Hour), 242, 0)
			// One clock that is far ahead is not believed: others still count these minutes.
			roll(noon.AddDate(1, 0, 0), 242, 0)
			clock.advance(24 * time.Hour)
			addCounts(t, s, "r3", count(24*60+59, "other", "", 1)) // the fleet's time goes on
			roll(noon.Add(24*time.Hour), 122, 2)                   // the hour before noon has passed
			if got := text(t, s, ledger.CountFilter{App: "app", Every: time.Hour, By: []string{"region"}}); got != before {
				t.Errorf("sums by the hour = %s, want %s as before", got, before)
			}
			// Late minutes of an hour that is summed up: reported again, larger, or new.
			addCounts(t, s, "r1", count(-1, "app", "sh", 500), count(-2, "app", "sh", 1), count(0, "app", "sh", 2))
			addCounts(t, s, "r9", count(-1, "app", "sh", 500))
			roll(noon.Add(24*time.Hour), 122, 2)
			addCounts(t, s, "r1", count(0, "app", "sh", 1))
			if got, want := text(t, s, ledger.CountFilter{Region: "sh", Every: time.Hour}), "-60 =67; 0 =68; "; got != want {
				t.Errorf("sums after late minutes = %s, want %s", got, want)
			}
			roll(noon.Add(25*time.Hour), 122, 2) // r3's minute is still before 25:00
			late := count(91*24*60, "last", "", 1)
			clock.advance(90 * 24 * time.Hour)
			addCounts(t, s, "r3", late)
			must(t, s.RollUpCounts(t.Context(), late.Minute))
			if got := text(t, s, ledger.CountFilter{By: []string{"app"}}); got != "- last=1; - other=1; " {
				t.Errorf("after 91 days = %s", got)
			}
		})
	}
}

// Replicas report, and two control nodes sum up, all at once and in many batches:
// each answer is counted once.
func TestNothingIsCountedTwice(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			clock := newClock()
			opt := Options{Now: clock.now, Timeout: time.Minute}
			nodes := []*Store{openTest(t, dsn, opt), openTest(t, dsn, opt)}
			const replicas, minutes = 4, 900
			var group sync.WaitGroup
			for r := range replicas {
				var counts []fleet.Count
				for m := range minutes {
					counts = append(counts, count(m-minutes, "app", "sh", 1))
				}
				if r%2 == 1 {
					slices.Reverse(counts)
				}
				for _, node := range nodes { // both hear of it
					group.Go(func() {
						must(t, node.AddCounts(t.Context(), ledger.Counts{Replica: fmt.Sprint("r", r), Boot: "b", Counts: counts}))
					})
				}
			}
			group.Wait()
			clock.advance(24 * time.Hour)
			addCounts(t, nodes[0], "clock", count(24*60, "app", "sh", 0))
			for i, node := range nodes {
				group.Go(func() { must(t, node.RollUpCounts(t.Context(), clock.now())) })
				group.Go(func() {
					for m := range 20 { // late ones
						addCounts(t, node, fmt.Sprint("r", i), count(m-minutes, "app", "sh", 1))
					}
				})
			}
			group.Wait()
			must(t, nodes[0].RollUpCounts(t.Context(), clock.now()))
			if got := total(t, nodes[0]); got != replicas*minutes {
				t.Errorf("%d answers, want %d", got, replicas*minutes)
			}
			var left int64
			must(t, nodes[0].reader.Model(&counterRow{}).Count(&left).Error)
			if left != 1 {
				t.Errorf("%d minutes are left, want the newest", left)
			}
		})
	}
}

// AddCounts does it in passing: a batch with each report while there is more, then
// once an hour.
func TestReportsMoveOldMinutesInPassing(t *testing.T) {
	clock := newClock()
	s := openTest(t, newDSN(t, "sqlite"), Options{Now: clock.now, Timeout: time.Minute})
	var counts []fleet.Count
	for m := range countsBatch + 10 {
		counts = append(counts, count(-m, "app", "sh", 1))
	}
	addCounts(t, s, "r1", counts...)
	clock.advance(48 * time.Hour)
	left := func() (n int64) { must(t, s.reader.Model(&counterRow{}).Count(&n).Error); return n }
	for i, want := range []int64{11, 2, 3, 4} {
		addCounts(t, s, "r1", count(48*60+i, "app", "sh", 1))
		if got := left(); got != want {
			t.Errorf("report %d: %d minutes are left, want %d", i, got, want)
		}
	}
	if got := total(t, s); got != countsBatch+10+4 {
		t.Errorf("total = %d", got)
	}
}

func TestCountsAreCheckedWhole(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{Now: newClock().now})
	for name, c := range map[string]ledger.Counts{
		"no replica": {Boot: "b"},
		"no boot":    {Replica: "r"},
		"bad text":   {Replica: "r", Boot: "b", Counts: []fleet.Count{count(0, " app", "sh", 1)}},
		"the future": {Replica: "r", Boot: "b", Counts: []fleet.Count{count(61, "app", "sh", 1)}},
	} {
		if err := s.AddCounts(context.Background(), c); fault.CodeOf(err) != "bad_counts" {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if got := total(t, s); got != 0 {
		t.Errorf("%d were stored", got)
	}
}
