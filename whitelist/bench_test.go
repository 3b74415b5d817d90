package whitelist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// sizes are those that the budgets name.
var sizes = []int{5_000, 1_000_000, 5_000_000}

func size(n int) string {
	if n < 1_000_000 {
		return strconv.Itoa(n/1_000) + "k"
	}
	return strconv.Itoa(n/1_000_000) + "M"
}

func BenchmarkNormalize(b *testing.B) {
	n := normalizer(b, false)
	for _, id := range []string{"d-1001", "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "用户-张三", "u\u0308ber "} {
		b.Run(id, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.Normalize(id)
			}
		})
	}
}

func BenchmarkHash(b *testing.B) {
	key := testKey(b, "k1")
	b.ReportAllocs()
	for b.Loop() {
		key.Hash(Device, "6f9619ff-8b86-4d01-b42d-00cf4fc964ff")
	}
}

// BenchmarkLookup asks for 1,000,000 distinct ids in random order.
func BenchmarkLookup(b *testing.B) {
	const asked = 1_000_000
	for _, n := range sizes {
		x := indexOf(b, new(Index), listOf(b, "l", Device, numbered("d-", n)))
		r := rand.New(rand.NewPCG(1, 2))
		for _, kind := range []struct{ name, prefix string }{{"hit", "d-"}, {"miss", "m-"}} {
			ids := make([]string, asked)
			for i := range ids {
				ids[i] = kind.prefix + strconv.Itoa(r.IntN(n))
			}
			b.Run(kind.name+"/"+size(n), func(b *testing.B) {
				b.ReportAllocs()
				i, hits := 0, 0
				for b.Loop() {
					if x.Lookup(Device, ids[i]).Has(0) {
						hits++
					}
					if i++; i == asked {
						i = 0
					}
				}
				if want := kind.name == "hit"; (hits > 0) != want {
					b.Errorf("%d hits", hits)
				}
			})
		}
	}
}

// BenchmarkImport is parse, hash and index in memory: budget 0.5 s for 1M.
func BenchmarkImport(b *testing.B) {
	for _, n := range sizes[1:] {
		text := []byte{}
		for id := range numbered("device-", n) {
			text = append(append(text, id...), '\n')
		}
		b.Run(size(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, c, err := Import(bytes.NewReader(text), importOptions(b))
				if err != nil {
					b.Fatal(err)
				}
				indexOf(b, new(Index), List{Key: "l", Of: Device, Index: c.Index(), Chunk: c.Chunk})
			}
		})
	}
}

// BenchmarkLoad is what a cold start spends on lists: from chunks to an Index.
func BenchmarkLoad(b *testing.B) {
	for _, lists := range []int{1, 5, 1000} {
		for _, n := range sizes[1:] {
			b.Run(fmt.Sprintf("%s/%dlists", size(n), lists), func(b *testing.B) {
				all := make([]List, lists)
				for i := range all {
					all[i] = kept(b, listOf(b, fmt.Sprint("l", i), Device, numbered(fmt.Sprint("d", i, "-"), n/lists)))
				}
				before, peak := heap(), watchHeap(b)
				var x *Index
				for b.Loop() {
					x = indexOf(b, new(Index), all...)
				}
				top := peak()
				b.ReportMetric(float64(heap()-before)/float64(n), "B/id")
				b.ReportMetric(float64(top-before)/float64(n), "peak-B/id")
				runtime.KeepAlive(x)
				runtime.KeepAlive(all)
			})
		}
	}
}

// BenchmarkDelta adds and removes ids in the way of an edge: budget 10 ms for 4 ids of 5M.
func BenchmarkDelta(b *testing.B) {
	for _, n := range []int{1_500_000, 5_000_000} {
		for _, edits := range []int{0, 1, 4} {
			b.Run(fmt.Sprintf("%s/%dids", size(n), edits), func(b *testing.B) {
				content := contentOf(b, Device, numbered("d-", n))
				one := List{Key: "l", Of: Device, Index: content.Index(), Chunk: content.Chunk}
				x := indexOf(b, new(Index), one)
				add := make([]string, edits)
				for i := range add {
					add[i] = fmt.Sprint("new-", i)
				}
				two := patched(b, one, stored(content), add, nil)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					x = indexOf(b, x, []List{two, one}[i%2])
				}
			})
		}
	}
}

// BenchmarkSmallListDelta adds an id to a list of 2,000 beside one of 5M.
func BenchmarkSmallListDelta(b *testing.B) {
	big := listOf(b, "big", Device, numbered("d-", 5_000_000))
	content := contentOf(b, Device, numbered("s-", 2_000))
	one := List{Key: "small", Of: Device, Index: content.Index(), Chunk: content.Chunk}
	two := patched(b, one, stored(content), []string{"new"}, nil)
	x := indexOf(b, new(Index), big, one)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x = indexOf(b, x, big, []List{two, one}[i%2])
	}
}

// BenchmarkPatch is the control side of one edit of a list of 1.5M (e31).
func BenchmarkPatch(b *testing.B) {
	s := stored(contentOf(b, Device, numbered("d-", 1_500_000)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Patch([]string{fmt.Sprint("new-", i)}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// watchHeap samples the heap in use until the returned function is called, which
// gives the highest value.
func watchHeap(tb testing.TB) (peak func() uint64) {
	tb.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	var top atomic.Uint64
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			top.Store(max(top.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return top.Load()
	}
}
