package route

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

func TestVersionShares(t *testing.T) {
	t.Parallel()
	two := slices.Concat(times(3, version("v2.3.1")), times(2, version("v2.3.0")))
	scaled := func(why string, thousandths int, ids ...string) map[string]Scale {
		all := map[string]Scale{}
		for _, id := range ids {
			all[id] = Scale{thousandths, why}
		}
		return all
	}
	main := []string{"i0000", "i0001", "i0002"}
	for _, c := range []struct {
		name         string
		main, second int
		instances    []func(*discovery.Instance)
		scale        map[string]Scale
		want         map[string]float64
	}{
		{"A34: seventy to thirty, whatever the number of instances", 70, 30, two, nil, map[string]float64{"v2.3.1": 0.7, "v2.3.0": 0.3}},
		{"A36: ten", 10, 90, two, nil, map[string]float64{"v2.3.1": 0.1, "v2.3.0": 0.9}},
		{"A36: zero is none at all", 0, 100, two, nil, map[string]float64{"v2.3.0": 1}},
		{"parts are relative to each other", 7000, 3000, two, nil, map[string]float64{"v2.3.1": 0.7, "v2.3.0": 0.3}},
		{"a version alone takes everything", 5, -1, two, nil, map[string]float64{"v2.3.1": 1}},
		{"A38: a fallback of weight 0 only stands by", 100, 0, two, nil, map[string]float64{"v2.3.1": 1}},
		{"A39: the main version is gone", 70, 30, times(2, version("v2.3.0")), nil, map[string]float64{"v2.3.0": 1}},
		{"the fallback is gone", 70, 30, times(2, version("v2.3.1")), nil, map[string]float64{"v2.3.1": 1}},
		{"T54: all of the main version are ejected", 70, 30, two, scaled(Ejected, 0, main...), map[string]float64{"v2.3.0": 1}},
		{"T55: the side of 100 dies, that of 0 serves", 100, 0, two, scaled(Ejected, 0, main...), map[string]float64{"v2.3.0": 1}},
		{"both weights are 0: the fallback stands by for nobody", 0, 0, two, nil, map[string]float64{"v2.3.0": 1}},
		// 70 × 2/3 : 30 = 46.67 : 30
		{"an ejected instance lowers its version's part", 70, 30, two, scaled(Ejected, 0, "i0000"), map[string]float64{"v2.3.1": 46.667 / 76.667, "v2.3.0": 30 / 76.667}},
		// 70 × 1/2 : 30
		{"A43: a hot version loses to its fallback", 70, 30, two, scaled(Hot, 500, main...), map[string]float64{"v2.3.1": 35. / 65, "v2.3.0": 30. / 65}},
		{"B23: a version that grows keeps its part", 70, 30, two, scaled(Warming, 0, "i0000", "i0001"), map[string]float64{"v2.3.1": 0.7, "v2.3.0": 0.3}},
		{"A11: a version that is new altogether gets nothing yet", 70, 30, two, scaled(Warming, 0, main...), map[string]float64{"v2.3.0": 1}},
		// 70 × 1/10 : 30
		{"and is led in slowly", 70, 30, two, scaled(Warming, 100, main...), map[string]float64{"v2.3.1": 7. / 37, "v2.3.0": 30. / 37}},
		{"everybody warms: they serve as if warm", 70, 30, two, scaled(Warming, 0, append(main, "i0003", "i0004")...), map[string]float64{"v2.3.1": 0.7, "v2.3.0": 0.3}},
		{"after a drain", 70, 30, slices.Concat(times(1, version("v2.3.1")), times(4, weight(0)), times(2, version("v2.3.0"))), nil, map[string]float64{"v2.3.1": 0.7, "v2.3.0": 0.3}},
		{"a version that drains altogether", 70, 30, slices.Concat(times(2, weight(0)), times(2, version("v2.3.0"))), nil, map[string]float64{"v2.3.0": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := table(made(c.instances...), c.scale, split(c.main, c.second))
			wantShares(t, tally(t, table, Query{}, versionOf), c.want)
			for _, side := range table.Explain(Query{}, 0).Sides {
				if want := c.want[side.Version]; side.Effective < want-1e-4 || side.Effective > want+1e-4 {
					t.Errorf("explain says %+v, want %.4f", side, want)
				}
			}
		})
	}
}

func TestInstanceShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		instances []func(*discovery.Instance)
		scale     map[string]Scale
		want      map[string]float64
	}{
		{"A35: equal without weights", times(4, version("v1")), nil,
			map[string]float64{"i0000": 0.25, "i0001": 0.25, "i0002": 0.25, "i0003": 0.25}},
		{"by weight over all versions without a rule", []func(*discovery.Instance){version("v1"), both(version("v2"), weight(300))}, nil,
			map[string]float64{"i0000": 0.25, "i0001": 0.75}},
		{"T66: no weight is 100", []func(*discovery.Instance){version("v1"), weight(100)}, nil,
			map[string]float64{"i0000": 0.5, "i0001": 0.5}},
		{"T64: weight 0 gets nothing", []func(*discovery.Instance){weight(0), weight(100)}, nil,
			map[string]float64{"i0001": 1}},
		{"a small weight is not lost", []func(*discovery.Instance){weight(1), weight(99)}, nil,
			map[string]float64{"i0000": 0.01, "i0001": 0.99}},
		{"T53: isolated", times(3, version("v1")), map[string]Scale{"i0000": {500, Isolated}},
			map[string]float64{"i0001": 0.5, "i0002": 0.5}},
		{"T53: isolated, and the others warm", times(3, version("v1")), map[string]Scale{"i0000": {0, Isolated}, "i0001": {0, Warming}, "i0002": {0, Warming}},
			map[string]float64{"i0001": 0.5, "i0002": 0.5}},
		{"suspicious and ejected, and the other warms", times(3, version("v1")), map[string]Scale{"i0000": {0, Suspicious}, "i0001": {0, Ejected}, "i0002": {0, Warming}},
			map[string]float64{"i0002": 1}},
		{"T81: all are ejected", times(2, version("v1")), map[string]Scale{"i0000": {0, Ejected}, "i0001": {100, Ejected}},
			map[string]float64{"i0000": 0.5, "i0001": 0.5}},
		{"one is ejected, one on trial", times(3, version("v1")), map[string]Scale{"i0000": {0, Ejected}, "i0001": {100, Ejected}},
			map[string]float64{"i0001": 1. / 11, "i0002": 10. / 11}},
		{"T78: one among equals warms", times(3, version("v1")), map[string]Scale{"i0001": {0, Warming}},
			map[string]float64{"i0000": 0.5, "i0002": 0.5}},
		{"the ramp", times(2, version("v1")), map[string]Scale{"i0001": {250, Warming}},
			map[string]float64{"i0000": 0.8, "i0001": 0.2}},
		{"everybody warms: none is ahead of the others", times(2, version("v1")), map[string]Scale{"i0000": {1, Warming}, "i0001": {0, Warming}},
			map[string]float64{"i0000": 0.5, "i0001": 0.5}},
		{"a drained instance that warms does not serve", []func(*discovery.Instance){weight(0), weight(5)}, map[string]Scale{"i0000": {0, Warming}, "i0001": {0, Warming}},
			map[string]float64{"i0001": 1}},
		{"nobody is scaled up or below nothing", times(3, version("v1")), map[string]Scale{"i0000": {5000, Hot}, "i0001": {-5, Hot}},
			map[string]float64{"i0000": 0.5, "i0002": 0.5}},
		{"T65: a negative weight is none, one too large the largest", []func(*discovery.Instance){weight(-1), weight(1 << 60), weight(10_000)}, nil,
			map[string]float64{"i0001": 0.5, "i0002": 0.5}},
		{"A03: an empty coordinate is in no set", []func(*discovery.Instance){version(""), version(" "), env(""), func(in *discovery.Instance) { in.Region = "" }, version("v1")}, nil,
			map[string]float64{"i0004": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantShares(t, tally(t, table(made(c.instances...), c.scale), Query{}, idOf), c.want)
		})
	}
}

// Direct knows no proportions: the weights and scales of a registry may be what is wrong.
func TestDirectIsUniform(t *testing.T) {
	t.Parallel()
	in := Input{Service: "order-core", Home: home(), Direct: true, Scale: map[string]Scale{"i0002": {200, Hot}, "i0003": {0, Ejected}},
		Instances: made(weight(1), weight(300), version("v1"), version("v1"))}
	wantShares(t, tally(t, Compile(in), Query{}, idOf), map[string]float64{"i0000": 1. / 3, "i0001": 1. / 3, "i0002": 1. / 3})
}

// T68: a thousand callers that each pick once from a table of their own.
func TestFirstPicksAreUniform(t *testing.T) {
	t.Parallel()
	random, counts, shares := draws(2), make([]int, 10), make([]float64, 10)
	for range 1000 {
		all := made(times(10, version("v1"))...)
		rand.New(random).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		choice, err := table(all, nil).Pick(Query{}, random.Uint64())
		if err != nil {
			t.Fatal(err)
		}
		counts[choice.Instance.ID[4]-'0']++
	}
	for i := range shares {
		shares[i] = 1
	}
	if p := chiP(counts, shares); p < 0.01 {
		t.Errorf("%v: p = %.5f", counts, p)
	}
}

// The half of the draw that chose the version says nothing about the instance.
func TestInstanceDoesNotDependOnVersion(t *testing.T) {
	t.Parallel()
	table := table(made(slices.Concat(times(4, version("v2.3.1")), times(4, version("v2.3.0")))...), nil, split(30, 70))
	want := map[string]float64{}
	for i := range 8 {
		want[fmt.Sprintf("i%04d", i)] = []float64{0.075, 0.175}[i/4]
	}
	wantShares(t, tally(t, table, Query{}, idOf), want)
}

// Lists in another order, equal picks.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	t.Parallel()
	all := made(slices.Concat(times(20, weight(7)), times(20, both(version("v2.3.0"), weight(20))), times(20, weight(100)))...)
	shuffled := slices.Clone(all)
	draws(3).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	a, b, random := table(all, nil, split(70, 30)), table(shuffled, nil, split(70, 30)), draws(4)
	for range 10_000 {
		draw := random.Uint64()
		one, _ := a.Pick(Query{}, draw)
		other, _ := b.Pick(Query{}, draw)
		if !one.Instance.Equal(*other.Instance) || one.Reason != other.Reason {
			t.Fatalf("draw %d: %s and %s", draw, one.Instance.ID, other.Instance.ID)
		}
	}
}

// T58: a key has one version at each step, and moves to the new side only.
func TestKeysKeepTheirVersion(t *testing.T) {
	t.Parallel()
	all := made(slices.Concat(times(3, version("v2.3.1")), times(3, version("v2.3.0")))...)
	var tables []*Table
	for _, share := range []int{5, 20, 50, 100} {
		tables = append(tables, table(all, nil, split(share, 100-share)))
	}
	random, moved := draws(5), make([]int, len(tables))
	const keys = 20_000
	for i := range keys {
		q, before := Query{Key: fmt.Sprintf("user-%d", i)}, "v2.3.0"
		for step, table := range tables {
			now := ""
			for range 3 {
				choice, err := table.Pick(q, random.Uint64())
				if err != nil || now != "" && choice.Instance.Version != now {
					t.Fatalf("%s at step %d: %v, %s after %s", q.Key, step, err, choice.Instance.Version, now)
				}
				now = choice.Instance.Version
			}
			if before == "v2.3.1" && now != before {
				t.Fatalf("%s went back at step %d", q.Key, step)
			}
			if now == "v2.3.1" {
				moved[step]++
			}
			before = now
		}
	}
	for step, share := range []float64{0.05, 0.2, 0.5, 1} {
		if p := chiP([]int{moved[step], keys - moved[step]}, []float64{share, 1 - share}); p < 0.01 {
			t.Errorf("step %d: %d of %d keys, p = %.5f", step, moved[step], keys, p)
		}
	}
}

// Equal in every process and for all time: the numbers were computed apart from this
// code, with FNV-1a 64 and MurmurHash3's fmix64.
func TestKeyPointsAreFixed(t *testing.T) {
	t.Parallel()
	salt := hashTexts("order-core", "production", "cn-hangzhou", "prod", "v2.3.1")
	for key, want := range keyPoints {
		if got := keyPoint(salt, key); got != want {
			t.Errorf("keyPoint(%q) = %#x, want %#x", key, got, want)
		}
	}
	if hashTexts("a", "bc") == hashTexts("ab", "c") {
		t.Error("texts run into each other")
	}
}

// The first few per cent of one version are not those of the next, nor of another
// service: nobody is always first.
func TestFirstKeysDiffer(t *testing.T) {
	t.Parallel()
	all := made(version("v2.4.0"), version("v2.3.1"), version("v2.3.0"))
	next, other := split(5, 95), split(5, 95)
	next.Strategy.Version, next.Fallback.Version = "v2.4.0", "v2.3.1"
	other.Service = "stock-core"
	for name, r := range map[string]rules.Rule{"version": next, "service": other} {
		a, b, again := table(all, nil, split(5, 95)), table(all, nil, r), 0
		for i := range 10_000 {
			q := Query{Key: fmt.Sprint(i)}
			one, _ := a.Pick(q, 0)
			another, _ := b.Pick(q, 0)
			if one.Reason == ByRule && another.Reason == ByRule {
				again++
			}
		}
		if again > 60 { // 25 by chance, of 500
			t.Errorf("another %s: %d of the same keys are first again", name, again)
		}
	}
}

func TestAliasTableIsExact(t *testing.T) {
	t.Parallel()
	random := draws(6)
	for range 500 {
		var v vose
		var list loads
		weights, total := map[uint32]uint64{}, uint64(0)
		for i := range 1 + random.Uint32N(60) {
			w := random.Uint32N(2) * random.Uint32N(maxWeight*whole+1)
			list = append(list, load{at: i, effective: w})
			weights[i] = uint64(w)
			total += uint64(w)
		}
		parts := map[uint32]float64{}
		p := v.pool(list, settled)
		for _, s := range p {
			own := float64(s.cut) / (1 << 32)
			if s.alias == s.self {
				own = 1
			}
			parts[s.self] += own / float64(len(p))
			parts[s.alias] += (1 - own) / float64(len(p))
		}
		for i, w := range weights {
			if want := part(w, total); parts[i] < want-1e-8 || parts[i] > want+1e-8 {
				t.Fatalf("%d has %g, want %g (weights %v)", i, parts[i], want, slices.Sorted(maps.Values(weights)))
			}
		}
	}
}

var keyPoints = map[string]uint64{
	"user-42":     0xb7840f144c9c769a,
	"a":           0xfbd8506315971437,
	"":            0x2518474ff99c11b5,
	"用户-7":        0x6bef377408907385,
	"2001:db8::1": 0xd0f4afc0fb1e3602,
}
