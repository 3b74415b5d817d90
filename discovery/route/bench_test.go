package route

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// processorTime is what a busy machine does not stretch.
func processorTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkPick is one pick: of one service of 1,000 instances with 200 rules, and
// over 200 services of 1,000 instances with a rule each, which no cache holds.
func BenchmarkPick(b *testing.B) {
	for _, c := range []struct {
		name     string
		services int
		in       Input
		q        Query
	}{
		{"50x200", 1, large(50, 200), Query{}},
		{"1000x200", 1, large(1000, 200), Query{}},
		{"services", 200, large(1000, 1), Query{}},
		{"lane", 1, large(1000, 200), Query{Env: "t2", Base: "prod"}},
		{"key", 1, large(1000, 200), Query{Key: "user-4711"}},
		{"nobody", 1, large(1000, 200), Query{Env: "t2"}},
	} {
		tables := make([]*Table, c.services)
		for i := range tables {
			tables[i] = Compile(c.in)
		}
		b.Run(c.name, func(b *testing.B) {
			random, at := draws(1), 0
			b.ReportAllocs()
			start := processorTime(b)
			for b.Loop() {
				if _, err := tables[at].Pick(c.q, random.Uint64()); (err != nil) != (c.name == "nobody") {
					b.Fatal(err)
				}
				if at++; at == len(tables) {
					at = 0
				}
			}
			b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkPick1000Over50 is A37: a pick among 1,000 over one among 50, which may be 2. The
// two take turns, so that what else the machine does meets both.
func BenchmarkPick1000Over50(b *testing.B) {
	few, many, random := Compile(large(50, 200)), Compile(large(1000, 200)), draws(1)
	const turn = 1000
	lap := func(t *Table) func() {
		return func() {
			for range turn {
				if _, err := t.Pick(Query{}, random.Uint64()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	a, z := alternate(b, lap(few), lap(many))
	b.ReportMetric(float64(z)/float64(a), "ratio")
	b.ReportMetric(0, "ns/op") // of a pair of turns is no figure
}

// BenchmarkLinear is what a pick costs without a table: the walk over the list that
// TestGroupingChangesNoShare compares with.
func BenchmarkLinear(b *testing.B) {
	for _, n := range []int{50, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, random := large(n, 1), draws(1)
			for b.Loop() {
				linear(in, "prod", random)
			}
		})
	}
}

// BenchmarkCompileService is the rebuild after one event.
func BenchmarkCompileService(b *testing.B) {
	scaled := large(1000, 200)
	for i := range 200 {
		scaled.Scale[scaled.Instances[i*5].ID] = Scale{500, Hot}
	}
	shuffled := large(1000, 1)
	draws(1).Shuffle(1000, func(i, j int) {
		shuffled.Instances[i], shuffled.Instances[j] = shuffled.Instances[j], shuffled.Instances[i]
	})
	for _, c := range []struct {
		name string
		in   Input
	}{{"50", large(50, 1)}, {"1000", large(1000, 1)}, {"1000x200", large(1000, 200)}, {"1000x200/scaled", scaled}, {"1000/shuffled", shuffled}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compile(c.in)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/compile")
		})
	}
}

// BenchmarkTableMemory is what 1,000 instances × 200 rules take, input included.
func BenchmarkTableMemory(b *testing.B) {
	var used int64
	var kept *Table
	for b.Loop() {
		kept = nil
		before := heap()
		kept = Compile(large(1000, 200))
		used = heap() - before
	}
	_ = kept.Input()
	b.ReportMetric(float64(used)/(1<<20), "MB")
	b.ReportMetric(0, "ns/op") // of collecting garbage
}

// BenchmarkExplain is for people: it may take its time.
func BenchmarkExplain(b *testing.B) {
	table, random := Compile(large(1000, 200)), draws(1)
	for b.Loop() {
		table.Explain(Query{}, random.Uint64())
	}
}
