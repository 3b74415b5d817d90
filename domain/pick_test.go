package domain

import "testing"

func endpoints(weights ...int) []Endpoint {
	var list []Endpoint
	for i := range weights {
		list = append(list, Endpoint{Key: string(rune('a' + i)), Weight: &weights[i]})
	}
	return list
}

// picked counts the buckets of each endpoint, and fails on a bucket without one.
func picked(t *testing.T, r Region) []int {
	t.Helper()
	counts := make([]int, len(r.Endpoints))
	for bucket := range uint16(buckets) {
		n, ok := r.Pick(bucket)
		if !ok || n < 0 || n >= len(counts) {
			t.Fatalf("bucket %d: Pick = %d, %v", bucket, n, ok)
		}
		counts[n]++
	}
	return counts
}

// e8: parts that do not divide 10,000 leave no gap. e60: weights 0 and 10000.
func TestPickSharesByWeight(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ weights, want []int }{
		"one":                   {[]int{100}, []int{10000}},
		"one of weight 0":       {[]int{0}, []int{10000}},
		"equal":                 {[]int{100, 100}, []int{5000, 5000}},
		"90 to 10":              {[]int{90, 10}, []int{9000, 1000}},
		"thirds":                {[]int{1, 1, 1}, []int{3334, 3333, 3333}},
		"0 takes nothing":       {[]int{0, 100, 0}, []int{0, 10000, 0}},
		"0 and 10000":           {[]int{0, MaxWeight}, []int{0, 10000}},
		"1 of 10000":            {[]int{9999, 1}, []int{9999, 1}},
		"all 0":                 {[]int{0, 0}, []int{5000, 5000}},
		"negative counts as 0":  {[]int{-5, 100}, []int{0, 10000}},
		"more than all buckets": {[]int{MaxWeight, MaxWeight, MaxWeight}, []int{3334, 3333, 3333}},
	} {
		t.Run(name, func(t *testing.T) {
			got := picked(t, Region{Endpoints: endpoints(row.weights...)})
			for i := range row.want {
				if got[i] != row.want[i] {
					t.Fatalf("weights %v: buckets = %v, want %v", row.weights, got, row.want)
				}
			}
		})
	}
}

func TestPickStaysWithinOneBucketOfTheShare(t *testing.T) {
	t.Parallel()
	for a := 1; a <= 300; a += 7 {
		for b := 1; b <= 300; b += 11 {
			got := picked(t, Region{Endpoints: endpoints(a, b, 100)})
			for i, weight := range []int{a, b, 100} {
				exact := float64(weight) * buckets / float64(a+b+100)
				if diff := float64(got[i]) - exact; diff >= 1 || diff <= -1 {
					t.Fatalf("weights %d, %d, 100: endpoint %d has %d buckets, its share is %.2f", a, b, i, got[i], exact)
				}
			}
		}
	}
}

func TestPickChoosesOnlyServingEndpoints(t *testing.T) {
	t.Parallel()
	list := endpoints(100, 100, 100, 100)
	list[0].State, list[1].State, list[2].State, list[3].State = Standby, Serving, Closed, ""
	if got := picked(t, Region{Endpoints: list}); got[0] != 0 || got[2] != 0 || got[1] != 5000 || got[3] != 5000 {
		t.Errorf("buckets = %v, want only the active ones", got)
	}
	for name, r := range map[string]Region{
		"no endpoint": {},
		"standby":     {Endpoints: []Endpoint{{State: Standby}, {State: Closed}}},
		"unknown":     {Endpoints: []Endpoint{{State: "Active"}}},
	} {
		if n, ok := r.Pick(0); ok || r.Serves() {
			t.Errorf("%s: Pick = %d, %v, Serves = %v; want nothing", name, n, ok, r.Serves())
		}
	}
}

func TestPickAbsentWeightIsTheDefault(t *testing.T) {
	t.Parallel()
	list := endpoints(3*DefaultWeight, 0)
	list[1].Weight = nil
	if got := picked(t, Region{Endpoints: list}); got[0] != 7500 || got[1] != 2500 {
		t.Errorf("buckets = %v, want 7500 and 2500", got)
	}
}

func TestChoicesDoNotAllocate(t *testing.T) {
	regions := city(Active, Off)
	plan, err := NewPlan(regions)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		to, _ := plan.Divert(1, 1234)
		regions[to].Pick(1234)
	}); n != 0 {
		t.Errorf("Divert and Pick allocate %.0f times, want 0", n)
	}
}

func BenchmarkPick(b *testing.B) {
	r := Region{Endpoints: endpoints(50, 30, 15, 5)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Pick(uint16(i % buckets))
	}
}
