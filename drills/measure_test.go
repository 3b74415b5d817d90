package drills

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// quantile is the q-th of the durations, 0 to 1; the nearest one that was measured.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// spread is a distribution in words: means hide what hurts.
func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %s p99 %s max %s", short(quantile(all, 0.5)), short(quantile(all, 0.99)), short(quantile(all, 1)))
}

// short rounds to three digits or so.
func short(d time.Duration) string {
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d.Abs() >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d.Abs() >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d.Abs() >= 10*time.Microsecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}

// keep leaves what a figure was computed from in samples/ROW.csv, in full runs. Each
// run replaces the file; those of older commits are in Git.
func keep(t testing.TB, row string, header []string, records [][]string) {
	t.Helper()
	if !*full {
		return
	}
	var text strings.Builder
	w := csv.NewWriter(&text)
	must(t, w.Write(header))
	must(t, w.WriteAll(records))
	must(t, os.MkdirAll("samples", 0o755))
	must(t, os.WriteFile(filepath.Join("samples", row+".csv"), []byte(text.String()), 0o644))
}

// micros is a duration as samples have it.
func micros(d time.Duration) string { return fmt.Sprint(d.Microseconds()) }

// pausesOf tells in the end by how much timers of this process were late at most:
// what others on the machine do to it.
func pausesOf(t *testing.T) (worst func() time.Duration) {
	var most atomic.Int64
	during(t, func(ctx context.Context) {
		const every = 2 * time.Millisecond
		timer := time.NewTimer(every)
		defer timer.Stop()
		for begin := time.Now(); ; begin = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			most.Store(max(most.Load(), int64(time.Since(begin)-every)))
			timer.Reset(every)
		}
	})
	return func() time.Duration { return time.Duration(most.Load()) }
}
