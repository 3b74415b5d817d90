package handler

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// at moves the fixture's clock to so long after testNow, which is a full minute.
func (f *fixture) at(d time.Duration) { f.now.Store(int64(d)) }

// counted are the counts of all minutes, one line each.
func (f *fixture) counted() []string {
	var lines []string
	for _, c := range f.handler.Counts(time.Time{}) {
		lines = append(lines, fmt.Sprintf("%s %s %s/%s %s %s %d: %d", c.Minute.Format("15:04"), c.App, c.Region, c.Endpoint, c.Policy, c.Reason, c.Release, c.N))
	}
	return lines
}

// sum is how many answers the counts have.
func sum(counts []fleet.Count) (n uint64) {
	for _, c := range counts {
		n += c.N
	}
	return n
}

func TestAnswersAreCountedByTheMinute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	staff := f.ask(t, "/route", "X-Device-Id", "d-1001")
	f.ask(t, "/route", "X-Device-Id", "d-1002")
	f.at(59 * time.Second)
	f.ask(t, "/route", "X-Device-Id", "d-1001", "X-Session-Token", staff.Session)
	f.ask(t, "/route?app=corporate", "X-User-Id", "u-1")
	f.at(61 * time.Second)
	f.ask(t, "/route", "X-Device-Id", "d-1001")
	f.current.Store(f.snapshotOf(t, 413, nil))
	f.ask(t, "/route", "X-Device-Id", "d-1001")
	f.ask(t, "/route?app=mobile", "X-Device-Id", "d-1001")
	f.at(62 * time.Second)
	want := []string{
		"08:00 corporate bj/bj-main  DEFAULT 412: 1",
		"08:00 mobile sh/sh-main  STICKY 412: 1",
		"08:00 mobile sh/sh-main staff POLICY 412: 2",
		"08:01 mobile sh/sh-main staff POLICY 412: 1",
		"08:01 mobile sh/sh-main staff POLICY 413: 2",
	}
	if got := f.counted(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := f.handler.Counts(testNow.Add(time.Minute)); sum(got) != 3 {
		t.Errorf("since 08:01: %v", got)
	}
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="POLICY",region="sh"} 5`)
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="STICKY",region="sh"} 1`)
	f.wantMetric(t, `dispatch_decisions_total{app="mobile",reason="FALLBACK",region=""} 0`)
	f.wantMetric(t, `dispatch_policy_decisions_total{app="mobile",policy="staff"} 5`)
}

// Whatever is asked when, each answer is in exactly one minute: under load, while
// minutes end, while releases change, and while somebody reads.
func TestNoAnswerIsCountedTwiceOrNever(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	snapshots := make([]*release.Snapshot, 2*bindingsKept)
	for i := range snapshots {
		snapshots[i] = f.snapshotOf(t, 500+uint64(i), nil)
	}
	const workers, each = 8, 500
	var asking, turning sync.WaitGroup
	done := make(chan struct{})
	turning.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			f.at(time.Duration(i%(minutesKept-2)) * 20 * time.Second) // and back again
			f.current.Store(snapshots[i/50%len(snapshots)])
			f.handler.Counts(time.Time{})
		}
	})
	for w := range workers {
		asking.Go(func() {
			for i := range each {
				f.try(t, "/route", "X-Device-Id", fmt.Sprintf("d-%d-%d", w, i))
			}
		})
	}
	asking.Wait()
	close(done)
	turning.Wait()
	if got := sum(f.handler.Counts(time.Time{})); got != workers*each {
		t.Errorf("%d answers, %d counted by the minute", workers*each, got)
	}
	var total int
	for _, m := range regexp.MustCompile(`(?m)^dispatch_decisions_total\{.*\} (\d+)$`).FindAllStringSubmatch(f.exposition(t), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != workers*each {
		t.Errorf("%d answers, %d in the metrics", workers*each, total)
	}
}

func TestTheLastMinutesAreRemembered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for m := range 3 * minutesKept {
		f.at(time.Duration(m) * time.Minute)
		f.ask(t, "/route", "X-Device-Id", "d-1001")
	}
	counts := f.handler.Counts(time.Time{})
	if first := counts[0].Minute.Sub(testNow); len(counts) != minutesKept+1 || first != (2*minutesKept-1)*time.Minute {
		t.Errorf("%d minutes, the first is %v after the start", len(counts), first)
	}
	f.wantMetric(t, fmt.Sprintf(`dispatch_decisions_total{app="mobile",reason="POLICY",region="sh"} %d`, 3*minutesKept))
}

// A clock that is set back counts on in minutes that were over.
func TestAClockThatIsSetBackLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, at := range []time.Duration{0, 5 * time.Minute, time.Minute, 0, 10 * time.Second, 5 * time.Minute, time.Minute - time.Second} {
		f.at(at)
		f.ask(t, "/route", "X-Device-Id", "d-1001")
	}
	want := []string{
		"08:00 mobile sh/sh-main staff POLICY 412: 4",
		"08:01 mobile sh/sh-main staff POLICY 412: 1",
		"08:05 mobile sh/sh-main staff POLICY 412: 2",
	}
	if got := f.counted(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A release that is forgotten leaves its counts behind.
func TestReleasesThatPassKeepTheirCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const releases = 3 * bindingsKept
	for n := range uint64(releases) {
		f.current.Store(f.snapshotOf(t, 600+n, nil))
		f.ask(t, "/route", "X-Device-Id", "d-1001")
	}
	if got := len(f.handler.metrics.tally.bound); got != bindingsKept {
		t.Errorf("%d snapshots are bound, want %d", got, bindingsKept)
	}
	counts := f.handler.Counts(time.Time{})
	for i, c := range counts {
		if c.Release != 600+uint64(i) || c.N != 1 {
			t.Errorf("count %d is %v", i, c)
		}
	}
	if len(counts) != releases {
		t.Errorf("%d counts, want %d", len(counts), releases)
	}
	f.wantMetric(t, fmt.Sprintf(`dispatch_policy_decisions_total{app="mobile",policy="staff"} %d`, releases))
}

// The request that ends a minute is the only one that pays for it.
func BenchmarkCount(b *testing.B) {
	f := newFixture(b)
	f.ask(b, "/route", "X-Device-Id", "d-1001")
	snap := f.current.Load()
	counters := f.handler.metrics.of(snap, snap.Apps["mobile"])
	d := policy.Decision{Reason: policy.ByPolicy}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f.handler.metrics.tally.tick(testNow)
			f.handler.metrics.tally.decided(counters.cells, d)
		}
	})
}
