package domain

import (
	"errors"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

// city is two regions that fail over to one another.
func city(sh, hf RegionState) []Region {
	return []Region{
		{Key: "sh", State: sh, Capacity: 60, Failover: []string{"hf"}, Endpoints: endpoints(100)},
		{Key: "hf", State: hf, Capacity: 40, Failover: []string{"sh"}, Endpoints: endpoints(100)},
	}
}

// diverted counts where the buckets of a named region go; the last count is nowhere.
func diverted(t *testing.T, regions []Region, named int) []int {
	t.Helper()
	plan, err := NewPlan(regions)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int, len(regions)+1)
	for bucket := range uint16(buckets) {
		to, ok := plan.Divert(named, bucket)
		if !ok {
			to = len(regions)
		} else if _, serves := regions[to].Pick(bucket); !serves {
			t.Fatalf("bucket %d is sent to %s, which does not serve", bucket, regions[to].Key)
		}
		counts[to]++
	}
	return counts
}

func TestDivertFollowsTheFailoverList(t *testing.T) {
	t.Parallel()
	closed := func(regions []Region, n int) []Region {
		regions[n].Endpoints = []Endpoint{{State: Standby}}
		return regions
	}
	for name, row := range map[string]struct {
		regions []Region
		want    [3]int // sh, hf, nowhere; the named region is sh
	}{
		"active keeps its own":                   {city(Active, Active), [3]int{10000, 0, 0}},
		"no state is active":                     {city("", Off), [3]int{10000, 0, 0}},
		"off goes to the active one":             {city(Off, Active), [3]int{0, 10000, 0}},
		"draining goes to the active one":        {city(Draining, Active), [3]int{0, 10000, 0}},
		"off goes to a draining one":             {city(Off, Draining), [3]int{0, 10000, 0}},
		"both draining: the one of the list":     {city(Draining, Draining), [3]int{0, 10000, 0}},
		"draining stays when the rest is off":    {city(Draining, Off), [3]int{10000, 0, 0}},
		"both off: nowhere":                      {city(Off, Off), [3]int{0, 0, 10000}},
		"a region without endpoints is no way":   {closed(city(Off, Active), 1), [3]int{0, 0, 10000}},
		"active without endpoints sends them on": {closed(city(Active, Active), 0), [3]int{0, 10000, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := diverted(t, row.regions, 0); [3]int(got) != row.want {
				t.Errorf("buckets = %v, want %v", got, row.want)
			}
		})
	}
}

func TestDivertSharesByCapacity(t *testing.T) {
	t.Parallel()
	four := func(capacity ...int) []Region {
		regions := []Region{{Key: "down", State: Off, Failover: []string{"a", "b", "c"}}, {Key: "a"}, {Key: "b"}, {Key: "c"}}
		for i := range capacity {
			regions[i+1].Capacity = capacity[i]
			regions[i+1].Endpoints = endpoints(100)
		}
		return regions
	}
	draining := four(60, 30, 10)
	draining[1].State = Draining
	for name, row := range map[string]struct {
		regions []Region
		want    [5]int
	}{
		"in proportion":                    {four(60, 30, 10), [5]int{0, 6000, 3000, 1000, 0}},
		"none states one: equally":         {four(0, 0, 0), [5]int{0, 3334, 3333, 3333, 0}},
		"0 beside others takes nothing":    {four(0, 50, 50), [5]int{0, 0, 5000, 5000, 0}},
		"a draining one takes no share":    {draining, [5]int{0, 0, 7500, 2500, 0}},
		"the largest capacities":           {four(MaxCapacity, MaxCapacity, 0), [5]int{0, 5000, 5000, 0, 0}},
		"a negative one counts as nothing": {four(-1, 100, 100), [5]int{0, 0, 5000, 5000, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := diverted(t, row.regions, 0); [5]int(got) != row.want {
				t.Errorf("buckets = %v, want %v", got, row.want)
			}
		})
	}
}

func TestDivertIsOneLevel(t *testing.T) {
	t.Parallel()
	regions := []Region{
		{Key: "a", State: Off, Failover: []string{"b"}},
		{Key: "b", State: Off, Failover: []string{"c"}},
		{Key: "c", Endpoints: endpoints(100)},
	}
	if got := diverted(t, regions, 0); got[3] != buckets {
		t.Errorf("buckets = %v, want all nowhere: the failover list of b is not a's", got)
	}
}

func TestPlanRefusesWrongFailoverLists(t *testing.T) {
	t.Parallel()
	_, err := NewPlan([]Region{{Key: "a", Failover: []string{"a", "x", "b", "b"}}, {Key: "b", Failover: []string{"y"}}})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind != fault.Invalid || len(e.Problems) != 4 {
		t.Errorf("err = %v, want four problems", err)
	}
}

func BenchmarkDivert(b *testing.B) {
	plan, err := NewPlan(city(Off, Active))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		plan.Divert(0, uint16(i%buckets))
	}
}
