package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// chiP is the probability that counts as far from the expected shares as these, or
// farther, come by chance: the chi-square test, with the approximation of Wilson and
// Hilferty. Shares need not add up to 1; where one is 0 a single count gives 0.
func chiP(counts []int, shares []float64) float64 {
	total, whole, degrees, chi := 0, 0.0, -1.0, 0.0
	for i := range counts {
		total += counts[i]
		whole += shares[i]
	}
	for i, count := range counts {
		want := float64(total) * shares[i] / whole
		if want == 0 {
			if count > 0 {
				return 0
			}
			continue
		}
		degrees++
		chi += (float64(count) - want) * (float64(count) - want) / want
	}
	if degrees == 0 {
		return 1
	}
	z := (math.Cbrt(chi/degrees) - (1 - 2/(9*degrees))) / math.Sqrt(2/(9*degrees))
	return math.Erfc(z/math.Sqrt2) / 2
}

// The values are those of printed tables.
func TestChiP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		counts []int
		shares []float64
		want   float64
	}{
		{[]int{500, 500}, []float64{1, 1}, 0.95},   // where the approximation ends
		{[]int{541, 459}, []float64{1, 1}, 0.0095}, // chi-square 6.72, 1 degree
		{[]int{70_000, 30_000}, []float64{0.7, 0.3}, 0.95},
		{[]int{120, 100, 80}, []float64{1, 1, 1}, 0.018}, // 8.0, 2 degrees
		{[]int{1, 1000}, []float64{0, 1}, 0},
	} {
		if got := chiP(c.counts, c.shares); math.Abs(got-c.want) > 0.02 {
			t.Errorf("chiP(%v, %v) = %.4f, want %.4f", c.counts, c.shares, got, c.want)
		}
	}
}

// draws are uniform numbers that are the same in each run.
func draws(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func home() discovery.Coordinates {
	return discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v1"}
}

// made builds instances of order-core: each argument changes the next one, which
// begins as v2.3.1 at home without a weight.
func made(change ...func(*discovery.Instance)) (all []discovery.Instance) {
	for i, c := range change {
		in := discovery.Instance{ID: fmt.Sprintf("i%04d", i), Service: "order-core",
			Address: discovery.Address{Host: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), Port: 8080}, Coordinates: home(), Source: "static"}
		in.Version = "v2.3.1"
		c(&in)
		all = append(all, in)
	}
	return all
}

func version(v string) func(*discovery.Instance) {
	return func(in *discovery.Instance) { in.Version = v }
}

func env(e string) func(*discovery.Instance) { return func(in *discovery.Instance) { in.Env = e } }

func weight(w int) func(*discovery.Instance) {
	return func(in *discovery.Instance) { in.Weight = &w }
}

func both(a, b func(*discovery.Instance)) func(*discovery.Instance) {
	return func(in *discovery.Instance) { a(in); b(in) }
}

func times(n int, change func(*discovery.Instance)) (all []func(*discovery.Instance)) {
	for range n {
		all = append(all, change)
	}
	return all
}

// split is the rule of order-core at home: main v2.3.1, fallback v2.3.0; a negative
// weight leaves the fallback out.
func split(main, fallback int) rules.Rule {
	r := rules.Rule{Service: "order-core", Updated: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
		Selector: rules.Selector{Cluster: "production", Region: "cn-hangzhou", Env: "prod"},
		Strategy: rules.Strategy{Version: "v2.3.1", Weight: main}, File: "order-core.yaml"}
	if fallback >= 0 {
		r.Fallback = &rules.Fallback{Version: "v2.3.0", Weight: fallback}
	}
	return r
}

// table compiles order-core for the home.
func table(all []discovery.Instance, scale map[string]Scale, r ...rules.Rule) *Table {
	return Compile(Input{Service: "order-core", Home: home(), Instances: all, Rules: r, Number: 1, Scale: scale})
}

const manyPicks = 100_000

// tally picks many times and counts by what of gives.
func tally(t *testing.T, table *Table, q Query, of func(*discovery.Instance) string) map[string]int {
	t.Helper()
	counts, random := map[string]int{}, draws(7)
	for range manyPicks {
		choice, err := table.Pick(q, random.Uint64())
		if err != nil {
			t.Fatal(err)
		}
		counts[of(choice.Instance)]++
	}
	return counts
}

func versionOf(in *discovery.Instance) string { return in.Version }

func idOf(in *discovery.Instance) string { return in.ID }

// wantShares holds counts against shares: chi-square p over 0.01 and each within a point.
func wantShares(t *testing.T, counts map[string]int, shares map[string]float64) {
	t.Helper()
	var got []int
	var want []float64
	for key, share := range shares {
		got, want = append(got, counts[key]), append(want, share)
		if seen := float64(counts[key]) / manyPicks; math.Abs(seen-share) > 0.01 {
			t.Errorf("%s has %.4f, want %.4f", key, seen, share)
		}
	}
	for key, count := range counts {
		if _, ok := shares[key]; !ok {
			t.Errorf("%s got %d calls, want none", key, count)
		}
	}
	if p := chiP(got, want); p < 0.01 {
		t.Errorf("%v against %v: p = %.5f", counts, shares, p)
	}
}

// alternate runs two laps in turn until the benchmark ends, and gives the time of each.
func alternate(b *testing.B, one, other func()) (a, z time.Duration) {
	for b.Loop() {
		begin := time.Now()
		one()
		middle := time.Now()
		other()
		a += middle.Sub(begin)
		z += time.Since(middle)
	}
	return a, z
}
