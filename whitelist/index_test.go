package whitelist

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

// has says whether the list holds the id, by the Index alone.
func has(x *Index, list string, id string) bool {
	n, ok := x.Number(list)
	return ok && x.Lookup(x.Of(n), id).Has(n)
}

// world is what an Index must say, held in plain maps.
type world struct {
	x    *Index
	of   map[string]Of
	key  map[string]string
	ids  map[string]map[string]bool
	list map[string]List
}

func newWorld() *world {
	return &world{x: new(Index), of: map[string]Of{}, key: map[string]string{}, ids: map[string]map[string]bool{}, list: map[string]List{}}
}

// set gives a list its ids, under a key, keeping its bits as an import would.
func (w *world) set(tb testing.TB, list string, of Of, key string, ids map[string]bool) {
	tb.Helper()
	g, bits := gather{key: testKey(tb, key), of: of}, -1
	if old, ok := w.list[list]; ok {
		bits = old.Index.Bits
	}
	for id := range ids {
		g.add(id)
	}
	c := g.content(bits)
	w.of[list], w.key[list], w.ids[list] = of, key, maps.Clone(ids)
	w.list[list] = List{Key: list, Of: of, Index: c.Index(), Chunk: c.Chunk}
}

func (w *world) remove(list string) {
	delete(w.of, list)
	delete(w.key, list)
	delete(w.ids, list)
	delete(w.list, list)
}

func (w *world) apply(tb testing.TB) {
	tb.Helper()
	w.x = indexOf(tb, w.x, slices.Collect(maps.Values(w.list))...)
}

// check asks for ids of all kinds and compares every list's answer.
func (w *world) check(tb testing.TB, ids []string) {
	tb.Helper()
	if want := slices.Sorted(maps.Keys(w.of)); !slices.Equal(w.x.Keys(), want) {
		tb.Fatalf("lists %v, want %v", w.x.Keys(), want)
	}
	distinct := map[string]bool{}
	for list, members := range w.ids {
		if w.x.Count(list) != len(members) {
			tb.Fatalf("list %s counts %d, want %d", list, w.x.Count(list), len(members))
		}
		for id := range members {
			distinct[string(w.of[list])+w.key[list]+id] = true
		}
	}
	if w.x.Len() != len(distinct) {
		tb.Fatalf("%d distinct ids, want %d", w.x.Len(), len(distinct))
	}
	for _, of := range []Of{Device, User} {
		for _, id := range ids {
			in, any := w.x.Lookup(of, id), false
			for list, members := range w.ids {
				n, ok := w.x.Number(list)
				if !ok || w.x.Of(n) != w.of[list] {
					tb.Fatalf("list %s has no number or is of another kind", list)
				}
				want := w.of[list] == of && members[id]
				if in.Has(n) != want {
					tb.Fatalf("%s %s in list %s: %v, want %v", of, id, list, in.Has(n), want)
				}
				any = any || want
			}
			if in.Empty() == any {
				tb.Fatalf("%s %s: empty %v, want %v", of, id, in.Empty(), !any)
			}
		}
	}
}

// Whatever becomes of many lists, step by step, the Index says what maps say.
func TestIndexEqualsMapsOverRandomChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld()
		probes := make([]string, 300)
		for range 25 {
			for range 1 + r.IntN(4) {
				list := fmt.Sprint("list-", r.IntN(9))
				of, key := []Of{Device, User}[len(list)%2*r.IntN(2)], []string{"k1", "k2"}[r.IntN(8)/7]
				ids := maps.Clone(w.ids[list])
				switch what := r.IntN(10); {
				case what == 0:
					w.remove(list)
					continue
				case what < 3 || ids == nil: // replaced, small or large
					ids = map[string]bool{}
					for range r.IntN([]int{2, 50, 3_000, 40_000}[r.IntN(4)]) {
						ids[fmt.Sprint(r.IntN(50_000))] = true
					}
				default: // a few ids come and go
					of = w.of[list]
					for range r.IntN(20) {
						id := fmt.Sprint(r.IntN(50_000))
						ids[id] = !ids[id]
					}
					maps.DeleteFunc(ids, func(_ string, in bool) bool { return !in })
				}
				w.set(t, list, of, key, ids)
			}
			w.apply(t)
			for i := range probes {
				probes[i] = fmt.Sprint(r.IntN(50_000))
			}
			w.check(t, probes)
		}
	}
}

// e33, e34: an empty list holds nobody, least of all the absent id.
func TestEmptyListsHoldNobody(t *testing.T) {
	t.Parallel()
	empty, full := listOf(t, "empty", Device, numbered("", 0)), listOf(t, "full", Device, numbered("d-", 10))
	for name, x := range map[string]*Index{
		"no index":    new(Index),
		"no lists":    indexOf(t, new(Index)),
		"empty list":  indexOf(t, new(Index), empty),
		"beside full": indexOf(t, new(Index), empty, full),
		"emptied":     indexOf(t, indexOf(t, new(Index), full), empty),
	} {
		for _, id := range []string{"", "d-1", "x"} {
			if has(x, "empty", id) || has(x, "nowhere", id) || !x.Lookup(User, id).Empty() {
				t.Errorf("%s: %q is in it", name, id)
			}
		}
		if !x.Lookup(Device, "").Empty() || x.Count("empty") != 0 {
			t.Errorf("%s: it is not empty", name)
		}
	}
	// Not even a list that was made wrong.
	g := gather{key: testKey(t, "k1"), of: Device}
	g.add("")
	c := g.content(-1)
	x := indexOf(t, new(Index), List{Key: "wrong", Of: Device, Index: c.Index(), Chunk: c.Chunk})
	if x.Len() != 1 || has(x, "wrong", "") {
		t.Error("the absent id is in a list")
	}
	if (Lists{}).Has(0) || !(Lists{}).Empty() {
		t.Error("the zero Lists is not empty")
	}
}

// Up to 1,024 lists and any combination of them: here every id has its own.
func TestEveryIDMayBeInItsOwnCombinationOfLists(t *testing.T) {
	t.Parallel()
	const lists, ids = 1_024, 4_000
	r := rand.New(rand.NewPCG(5, 5))
	members := make([][]string, lists)
	want := make([]map[int]bool, ids)
	for i := range want {
		want[i] = map[int]bool{}
		for range 1 + r.IntN(12) {
			l := r.IntN(lists)
			if !want[i][l] {
				members[l] = append(members[l], "d-"+strconv.Itoa(i))
			}
			want[i][l] = true
		}
	}
	all := make([]List, lists)
	for l := range all {
		all[l] = listOf(t, fmt.Sprint("l", l), Device, slices.Values(members[l]))
	}
	x := indexOf(t, new(Index), all...)
	number := make([]int, lists)
	for l := range number {
		number[l], _ = x.Number(fmt.Sprint("l", l))
	}
	for i, in := range want {
		got := x.Lookup(Device, "d-"+strconv.Itoa(i))
		for l := range lists {
			if got.Has(number[l]) != in[l] {
				t.Fatalf("id %d in list %d: %v", i, l, !in[l])
			}
		}
	}
}

// An id comes into one more list, whose number lies between those of the others.
func TestAnIDInManyListsComesIntoOneMore(t *testing.T) {
	t.Parallel()
	const lists = 20
	all := make([]List, lists)
	for l := range all {
		ids := []string{"a", "b"}
		if l == 7 {
			ids = ids[1:]
		}
		all[l] = listOf(t, fmt.Sprintf("l%02d", l), Device, slices.Values(ids))
	}
	x := indexOf(t, new(Index), all...)
	all[7] = listOf(t, all[7].Key, Device, slices.Values([]string{"a", "b"}))
	x = indexOf(t, x, all...)
	for l := range all {
		if !has(x, all[l].Key, "a") || !has(x, all[l].Key, "b") {
			t.Errorf("list %d has lost an id", l)
		}
	}
	if n := len(x.parts[0].uses); n != 1 {
		t.Errorf("%d sets for one combination", n)
	}
}

// Hashes are compared whole, not by their first half alone.
func TestHashesMayShareTheirFirstHalf(t *testing.T) {
	t.Parallel()
	list := func(key string, ends ...byte) List {
		var chunk []byte
		for _, end := range ends {
			chunk = append(chunk, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, end)
		}
		index := &IndexBlob{KeyID: "k1", Count: len(ends), Digests: [][sha256.Size]byte{sha256.Sum256(chunk)}}
		return List{Key: key, Of: Device, Index: index, Chunk: func(int) ([]byte, error) { return chunk, nil }}
	}
	x := indexOf(t, new(Index), list("a", 3, 5), list("b", 1, 4, 5), list("c", 2))
	x = indexOf(t, x, list("a", 3, 5), list("b", 1, 4, 5), list("c", 2, 6), list("d", 0, 3))
	for end, want := range []string{"d", "b", "c", "ad", "b", "ab", "c", ""} {
		got := ""
		for _, key := range x.Keys() {
			n, _ := x.Number(key)
			if slices.Contains(x.find(0x0909090909090909, uint64(end)), uint16(n)) {
				got += key
			}
		}
		if got != want {
			t.Errorf("hash %d is in %q, want %q", end, got, want)
		}
	}
}

// Five lists of the same ids are no five times as many partitions.
func TestPartitionsAreAsManyAsTheDistinctIDsNeed(t *testing.T) {
	t.Parallel()
	all := make([]List, 5)
	for l := range all {
		all[l] = listOf(t, fmt.Sprint("l", l), Device, numbered("d-", 60_000))
	}
	x := indexOf(t, new(Index), all...)
	if got, want := len(x.parts), 1<<partMean.bits(60_000, -1); got != want || x.Len() != 60_000 {
		t.Errorf("%d partitions of %d ids, want %d", got, x.Len(), want)
	}
	for l := range all {
		if !has(x, all[l].Key, "d-59999") || has(x, all[l].Key, "d-60000") {
			t.Errorf("list %d is wrong", l)
		}
	}
}

// While a rotation goes on, some lists are hashed under the old key.
func TestLookupTriesBothKeysDuringARotation(t *testing.T) {
	t.Parallel()
	w := newWorld()
	ids := map[string]bool{"a": true, "b": true}
	w.set(t, "old", Device, "k1", ids)
	w.set(t, "new", Device, "k2", ids)
	w.set(t, "users", User, "k1", ids)
	w.apply(t)
	w.check(t, []string{"a", "b", "c"})
	if len(w.x.device) != 2 || len(w.x.user) != 1 {
		t.Errorf("%d and %d keys to try", len(w.x.device), len(w.x.user))
	}
	w.set(t, "old", Device, "k2", ids)
	w.apply(t)
	w.check(t, []string{"a", "b", "c"})
	if len(w.x.device) != 1 {
		t.Errorf("%d keys to try after the rotation", len(w.x.device))
	}
}

// fetching counts the chunks that With asks for.
func fetching(l List, count *int) List {
	chunk := l.Chunk
	l.Chunk = func(n int) ([]byte, error) { *count++; return chunk(n) }
	return l
}

// rebuilt is how many partitions of x are not shared with before.
func rebuilt(x, before *Index) int {
	n := 0
	for p := range x.parts {
		if len(x.parts) != len(before.parts) || len(x.parts[p].entries) > 0 && &x.parts[p].entries[0] != &before.parts[p].entries[0] {
			n++
		}
	}
	return n
}

func TestADeltaFetchesAndRebuildsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	big, small := contentOf(t, Device, numbered("d-", 300_000)), contentOf(t, Device, numbered("s-", 500))
	one := List{Key: "big", Of: Device, Index: big.Index(), Chunk: big.Chunk}
	two := List{Key: "small", Of: Device, Index: small.Index(), Chunk: small.Chunk}
	x := indexOf(t, new(Index), one, two)
	if len(x.parts) < 16 {
		t.Fatalf("%d partitions are too few to show anything", len(x.parts))
	}
	for name, c := range map[string]struct {
		lists           []List
		fetched, remade int
	}{
		"nothing":            {[]List{two, one}, 0, 0},
		"4 ids of a big":     {[]List{patched(t, one, stored(big), []string{"a", "b", "c"}, []string{"d-7"}), two}, 4, 4},
		"2 ids of a small":   {[]List{one, patched(t, two, stored(small), []string{"a"}, []string{"s-7"})}, 1, 2},
		"a new list":         {[]List{one, two, listOf(t, "new", Device, numbered("d-", 3))}, 1, 3},
		"a small one gone":   {[]List{one}, 0, 32},
		"a new empty list":   {[]List{one, two, listOf(t, "new", Device, numbered("d-", 0))}, 0, 0},
		"the same, new blob": {[]List{{Key: "big", Of: Device, Index: contentOf(t, Device, numbered("d-", 300_000)).Index(), Chunk: one.Chunk}, two}, 0, 0},
	} {
		fetched := 0
		for i := range c.lists {
			c.lists[i] = fetching(c.lists[i], &fetched)
		}
		next := indexOf(t, x, c.lists...)
		if n := rebuilt(next, x); n > c.remade || fetched > c.fetched {
			t.Errorf("%s: %d partitions of %d rebuilt, %d chunks fetched", name, n, len(next.parts), fetched)
		}
		if next.Len() == 0 || !has(next, "big", "d-1") {
			t.Errorf("%s: the big list is gone", name)
		}
	}
}

func TestListsKeepTheirNumbersAndFreeOnesAreNotReusedAtOnce(t *testing.T) {
	t.Parallel()
	a, b, c := listOf(t, "a", Device, numbered("a", 5)), listOf(t, "b", User, numbered("b", 5)), listOf(t, "c", Device, numbered("c", 5))
	x := indexOf(t, new(Index), a, b)
	bNumber, _ := x.Number("b")
	aNumber, _ := x.Number("a")
	y := indexOf(t, x, c, b)
	if n, _ := y.Number("b"); n != bNumber {
		t.Errorf("b was %d and is %d", bNumber, n)
	}
	if n, ok := y.Number("c"); !ok || n == aNumber {
		t.Errorf("c has the number of a, which left in the same step")
	}
	if _, ok := y.Number("a"); ok || !y.Lookup(Device, "a1").Empty() {
		t.Error("a is still there")
	}
	z := indexOf(t, y, a, b, c)
	if n, _ := z.Number("a"); n != aNumber || !has(z, "a", "a1") || !has(z, "c", "c1") || has(z, "a", "c1") {
		t.Errorf("a came back as %d", n)
	}
}

func TestWithRefusesWhatDoesNotHoldTogether(t *testing.T) {
	t.Parallel()
	good := kept(t, listOf(t, "l", Device, numbered("d-", 5_000)))
	x := indexOf(t, new(Index), good)
	lost := errors.New("lost")
	grown := patched(t, good, stored(contentOf(t, Device, numbered("d-", 5_000))), []string{"new"}, nil)
	miscounted := *grown.Index
	miscounted.Count += 100
	skewed, skewedChunk := skewedIndex()
	for name, l := range map[string]List{
		"no key":         {Of: Device, Index: good.Index, Chunk: good.Chunk},
		"no kind":        {Key: "l", Index: good.Index, Chunk: good.Chunk},
		"no index":       {Key: "l", Of: Device, Chunk: good.Chunk},
		"no chunks":      {Key: "l", Of: Device, Index: good.Index},
		"impossible":     {Key: "l", Of: Device, Index: &IndexBlob{KeyID: "k1", Bits: 3, Count: 1}, Chunk: good.Chunk},
		"chunk lost":     {Key: "l", Of: Device, Index: grown.Index, Chunk: func(int) ([]byte, error) { return nil, lost }},
		"chunk of other": {Key: "l", Of: Device, Index: grown.Index, Chunk: good.Chunk},
		"miscounted":     {Key: "l", Of: Device, Index: &miscounted, Chunk: grown.Chunk},
		"skewed":         {Key: "l", Of: Device, Index: skewed, Chunk: func(int) ([]byte, error) { return skewedChunk, nil }},
	} {
		next, err := x.With([]Key{testKey(t, "k1")}, []List{l})
		if err == nil || next != nil {
			t.Errorf("%s was taken", name)
		}
		if name == "chunk lost" && !errors.Is(err, lost) {
			t.Errorf("the cause is lost: %v", err)
		}
	}
	if _, err := x.With([]Key{testKey(t, "k1")}, []List{good, good}); err == nil {
		t.Error("a list was taken twice")
	}
	_, err := x.With([]Key{testKey(t, "k2")}, []List{good})
	if fault.CodeOf(err) != "missing_key" || !strings.Contains(err.Error(), "--list-key-file") {
		t.Errorf("missing key: %v", err)
	}
	if !has(x, "l", "d-1") || has(x, "l", "new") || x.Len() != 5_000 {
		t.Error("a refused list changed the index before")
	}
}

func TestAtMostTwoKeysOfOneKind(t *testing.T) {
	t.Parallel()
	var keys []Key
	var lists []List
	for _, id := range []string{"k1", "k2", "k3"} {
		key := testKey(t, id)
		c, err := Build(key, Device, numbered("d-", 3))
		if err != nil {
			t.Fatal(err)
		}
		keys, lists = append(keys, key), append(lists, List{Key: id, Of: Device, Index: c.Index(), Chunk: c.Chunk})
	}
	if _, err := new(Index).With(keys, lists); err == nil {
		t.Error("three keys were taken")
	}
	lists[2].Of = User
	if _, err := new(Index).With(keys, lists); err != nil {
		t.Error(err)
	}
}

// skewedIndex is a list as no key makes it: all hashes in one corner.
func skewedIndex() (*IndexBlob, []byte) {
	const n = 70_000
	x := &IndexBlob{KeyID: "k1", Bits: 5, Count: n, Digests: slices.Repeat([][sha256.Size]byte{emptyDigest}, 32)}
	chunk := make([]byte, 0, n*16)
	for i := range n {
		chunk = append(chunk, 0, 0, byte(i>>16), byte(i>>8), byte(i), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	x.Digests[0] = sha256.Sum256(chunk)
	return x, chunk
}

// e30: while a list of 200,000 is replaced, whoever reads sees the old one or the
// new one, whole.
func TestReplacingAListNeverShowsAMix(t *testing.T) {
	t.Parallel()
	const n = 200_000
	oldList, newList := kept(t, listOf(t, "l", Device, numbered("old-", n))), kept(t, listOf(t, "l", Device, numbered("new-", n)))
	var current atomic.Pointer[Index]
	current.Store(indexOf(t, new(Index), oldList))
	var readers sync.WaitGroup
	var stop atomic.Bool
	var mixed, reads atomic.Int64
	for seed := range uint64(2) {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for !stop.Load() {
				x, i := current.Load(), strconv.Itoa(r.IntN(n))
				if has(x, "l", "old-"+i) == has(x, "l", "new-"+i) {
					mixed.Add(1)
				}
				reads.Add(1)
			}
		})
	}
	for swap := range 4 {
		for seen := reads.Load(); reads.Load() < seen+1_000; {
			runtime.Gosched()
		}
		current.Store(indexOf(t, current.Load(), []List{newList, oldList}[swap%2]))
	}
	current.Store(indexOf(t, current.Load(), newList))
	stop.Store(true)
	readers.Wait()
	if mixed.Load() > 0 || reads.Load() < 4_000 {
		t.Errorf("%d of %d reads saw a mix", mixed.Load(), reads.Load())
	}
	for i := range n {
		if has(current.Load(), "l", "old-"+strconv.Itoa(i)) {
			t.Fatalf("old-%d is left", i)
		}
	}
}

// e31: 1,000 edits of one id in a long list, through both planes, under readers.
func TestAThousandSingleEdits(t *testing.T) {
	t.Parallel()
	const n = 20_000
	store := newBlobStore(contentOf(t, Device, numbered("d-", n)))
	list := func() List {
		index := store.index
		return List{Key: "l", Of: Device, Index: index, Chunk: func(n int) ([]byte, error) {
			return store.blobs[index.Digests[n]].Bytes, nil
		}}
	}
	var current atomic.Pointer[Index]
	current.Store(indexOf(t, new(Index), list()))
	var reader sync.WaitGroup
	var stop atomic.Bool
	reader.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if id := "d-" + strconv.Itoa(1_000+i%(n-1_000)); !has(current.Load(), "l", id) {
				t.Errorf("%s went with others", id)
				return
			}
		}
	})
	for i := range 1_000 {
		before := current.Load()
		if i%2 == 0 {
			store.patch(t, []string{"new-" + strconv.Itoa(i)}, nil)
		} else {
			store.patch(t, nil, []string{"d-" + strconv.Itoa(i)})
		}
		x := indexOf(t, before, list())
		if rebuilt(x, before) != 1 {
			t.Fatalf("edit %d rebuilt %d partitions", i, rebuilt(x, before))
		}
		current.Store(x)
	}
	stop.Store(true)
	reader.Wait()
	x := current.Load()
	for i := range 1_000 {
		if has(x, "l", "new-"+strconv.Itoa(i)) != (i%2 == 0) || has(x, "l", "d-"+strconv.Itoa(i)) != (i%2 == 0) {
			t.Fatalf("edit %d was lost", i)
		}
	}
	if x.Count("l") != n || x.Len() != n {
		t.Errorf("%d and %d ids", x.Count("l"), x.Len())
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	w := newWorld()
	w.set(t, "one", Device, "k1", map[string]bool{"d-1": true})
	w.set(t, "two", Device, "k2", map[string]bool{"d-1": true, "d-2": true})
	w.apply(t)
	n, _ := w.x.Number("two")
	if allocs := testing.AllocsPerRun(100, func() {
		for _, id := range []string{"d-1", "d-2", "d-3", ""} {
			w.x.Lookup(Device, id).Has(n)
			w.x.Lookup(User, id).Empty()
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// e28: at most 20 bytes an id, everything included.
func TestIndexTakesAtMost20BytesAnID(t *testing.T) {
	for _, lists := range []int{1, 5, 1_024} {
		const n = 1_024_000
		all := make([]List, lists)
		for i := range all {
			all[i] = kept(t, listOf(t, fmt.Sprint("l", i), Device, numbered(fmt.Sprint("d", i, "-"), n/lists)))
		}
		before := heap()
		x := indexOf(t, new(Index), all...)
		if got := float64(heap()-before) / float64(x.Len()); got > 20 || got < 18 {
			t.Errorf("%d lists: %.2f bytes an id", lists, got)
		}
		runtime.KeepAlive(x)
		runtime.KeepAlive(all)
	}
}
