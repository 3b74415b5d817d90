package release

import (
	"fmt"
	"iter"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// ids are n ids of devices.
func ids(n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(fmt.Sprintf("device-%012d", i)) {
				return
			}
		}
	}
}

// largeBank has five million ids in one list.
func largeBank(b *testing.B) (*bank, *Manifest) {
	b.Helper()
	bk := newBank(b)
	m := next(bk.first, func(_ *Document, _ *Operational, c *Change) {
		c.Lists = map[string]Digest{"staff-devices": bk.list(ids(5_000_000))}
	})
	runtime.GC()
	return bk, m
}

func swapOf(m *Manifest) *Manifest {
	return next(m, func(_ *Document, o *Operational, _ *Change) { *o = swapped() })
}

// cpuTime is the time that this process has spent on all processors, which a
// machine that does other things at the same time does not distort.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkLoad5M is what changes cost while five million ids are loaded. Budget of
// a swap and of a patch: 10 ms each.
func BenchmarkLoad5M(b *testing.B) {
	bk, m := largeBank(b)
	loader := bk.loader(nil)
	cur, err := loader.Load(b.Context(), bk.sign(m), bk.blobs, nil)
	if err != nil {
		b.Fatal(err)
	}
	renewed := bk.sign(m)
	if renewed.Records, err = Renew(renewed, bk.keys.Trust(), bk.keys.Record, madeAt()); err != nil {
		b.Fatal(err)
	}
	patched := next(m, func(_ *Document, _ *Operational, c *Change) {
		c.Lists = map[string]Digest{"staff-devices": bk.list(func(yield func(string) bool) {
			for id := range ids(5_000_000) {
				if !yield(id) {
					return
				}
			}
			_ = yield("d-1001") && yield("d-1002") && yield("d-1003") && yield("d-1004")
		})}
	})
	for _, c := range []struct {
		name  string
		offer Signed
	}{
		{"swap", bk.sign(swapOf(m))},
		{"freeze", bk.sign(next(m, func(_ *Document, o *Operational, _ *Change) { o.Frozen = true }))},
		{"renewal", renewed},
		{"patch of 4 ids", bk.sign(patched)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			start := cpuTime(b)
			for b.Loop() {
				if _, err := loader.Load(b.Context(), c.offer, bk.blobs, cur); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkOverride5M is break glass while five million ids are loaded. A swap has
// the budget of any swap, 10 ms; a region that is turned off asks all golden requests.
func BenchmarkOverride5M(b *testing.B) {
	bk, m := largeBank(b)
	loader := bk.loader(nil)
	cur, err := loader.Load(b.Context(), bk.sign(m), bk.blobs, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, action := range map[string]OverrideAction{"swap": swapAction(), "region_off": regionAction("sh", "off")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			o := breakGlass(action)
			start := cpuTime(b)
			for b.Loop() {
				if _, _, err := loader.lay(cur, o, true); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkColdStart5M is a start from disk with five million ids, to a snapshot
// that answers. Budget: 2 s. The write before it is reported too.
func BenchmarkColdStart5M(b *testing.B) {
	bk, m := largeBank(b)
	dir := b.TempDir()
	k := bk.keeper(must(OpenDisk(dir)))
	start := time.Now()
	if err := k.Accept(b.Context(), bk.sign(m), bk.blobs, "publisher"); err != nil {
		b.Fatal(err)
	}
	first := time.Since(start)
	if s := k.Status(); s.DiskErr != "" {
		b.Fatal(s.DiskErr)
	}
	start = time.Now()
	if err := k.Accept(b.Context(), bk.sign(swapOf(m)), bk.blobs, "publisher"); err != nil {
		b.Fatal(err)
	}
	second := time.Since(start)
	k, bk.blobs = nil, nil
	runtime.GC()
	b.ReportAllocs()
	used := cpuTime(b)
	for b.Loop() {
		k := bk.keeper(must(OpenDisk(dir)))
		if err := k.Restore(b.Context()); err != nil {
			b.Fatal(err)
		}
		if k.Current().Lists.Len() != 5_000_000 {
			b.Fatal("ids are missing")
		}
	}
	b.ReportMetric(float64(cpuTime(b)-used)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(first.Seconds(), "s-first-copy")
	b.ReportMetric(second.Seconds(), "s-next-copy")
}

func BenchmarkCurrent(b *testing.B) {
	bk := newBank(b)
	k := bk.keeper(nil)
	if err := k.Accept(b.Context(), bk.sign(bk.first), bk.blobs, "publisher"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if k.Current() == nil {
				b.Error("no snapshot")
			}
		}
	})
}

func BenchmarkSign(b *testing.B) {
	bk := newBank(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Sign(bk.first, bk.keys, madeAt()); err != nil {
			b.Fatal(err)
		}
	}
}
