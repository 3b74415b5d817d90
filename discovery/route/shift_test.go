package route

import (
	"fmt"
	"slices"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// loaded is split with a condition.
func loaded(main, fallback int) rules.Rule {
	r := split(main, fallback)
	r.Fallback.Condition = &rules.Condition{Metric: "target-load", Operator: ">", Number: 80}
	return r
}

// shiftedTable is order-core at home while so many tenths are moved.
func shiftedTable(all []discovery.Instance, moved int, scale map[string]Scale, r rules.Rule) *Table {
	return Compile(Input{Service: "order-core", Home: home(), Instances: all, Rules: []rules.Rule{r}, Number: 1, Scale: scale,
		Shift: map[string]int{"prod": moved, "test": 9}, Load: map[string]float64{"prod": 93.25}})
}

func TestShiftedShares(t *testing.T) {
	t.Parallel()
	two := made(slices.Concat(times(3, version("v2.3.1")), times(2, version("v2.3.0")))...)
	for _, c := range []struct {
		name  string
		all   []discovery.Instance
		moved int
		scale map[string]Scale
		rule  rules.Rule
		want  float64 // of main; the fallback has the rest
	}{
		{"nothing", two, 0, nil, loaded(70, 30), 0.7},
		{"three tenths of seventy", two, 3, nil, loaded(70, 30), 0.49},
		{"nine tenths are the most", two, 9, nil, loaded(70, 30), 0.07},
		{"whatever the input says", two, 99, nil, loaded(70, 30), 0.07},
		{"nothing comes back", two, -1, nil, loaded(70, 30), 0.7},
		{"a rule without condition moves nothing", two, 5, nil, split(70, 30), 0.7},
		{"a fallback that stands by takes what is moved", two, 2, nil, loaded(100, 0), 0.8},
		{"a main version of weight 0 has nothing to give", two, 2, nil, loaded(0, 30), 0},
		{"the main version is gone", made(version("v2.3.0")), 2, nil, loaded(70, 30), 0},
		{"the fallback is gone", made(version("v2.3.1")), 9, nil, loaded(70, 30), 1},
		// 70 × 5/10 × 2/3 : 30 + 35
		{"a hot instance besides", two, 5, map[string]Scale{"i0000": {0, Hot}}, loaded(70, 30), (35. * 2 / 3) / (35.*2/3 + 65)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := shiftedTable(c.all, c.moved, c.scale, c.rule)
			want := map[string]float64{}
			for version, share := range map[string]float64{"v2.3.1": c.want, "v2.3.0": 1 - c.want} {
				if share > 0 {
					want[version] = share
				}
			}
			wantShares(t, tally(t, table, Query{}, versionOf), want)
			for _, side := range table.Explain(Query{}, 0).Sides {
				if d := side.Effective - want[side.Version]; d > 1e-9 || d < -1e-9 {
					t.Errorf("explain says %+v, want %v", side, want)
				}
				if side.Version == "v2.3.1" && side.Weight != c.rule.Strategy.Weight || side.Version == "v2.3.0" && side.Weight != c.rule.Fallback.Weight {
					t.Errorf("the weight of %+v is not the rule's", side)
				}
			}
		})
	}
}

// A shift that grows moves keys to the fallback and none to the main version.
func TestShiftMovesKeysOneWay(t *testing.T) {
	t.Parallel()
	all := made(slices.Concat(times(3, version("v2.3.1")), times(3, version("v2.3.0")))...)
	var tables []*Table
	for moved := range tenths {
		tables = append(tables, shiftedTable(all, moved, nil, loaded(70, 30)))
	}
	gone := 0
	for i := range 5000 {
		q, before := Query{Key: fmt.Sprintf("user-%d", i)}, ByRule
		for moved, table := range tables {
			choice, err := table.Pick(q, uint64(i)<<50)
			if err != nil || moved > 0 && before == ByFallback && choice.Reason != ByFallback {
				t.Fatalf("%s at %d tenths: %v after %v, %v", q.Key, moved, choice.Reason, before, err)
			}
			if moved > 0 && before != choice.Reason {
				gone++
			}
			before = choice.Reason
		}
	}
	if gone < 3000 || gone > 3300 { // 63 % of 5,000
		t.Errorf("%d keys moved", gone)
	}
}

func TestExplainSaysWhatShifts(t *testing.T) {
	t.Parallel()
	all := made(version("v2.3.1"), version("v2.3.0"))
	if x := shiftedTable(all, 0, nil, loaded(70, 30)).Explain(Query{}, 0); x.Shift != nil {
		t.Errorf("%+v of a condition that does not hold", x.Shift)
	}
	x := shiftedTable(all, 3, nil, loaded(70, 30)).Explain(Query{}, 0)
	if x.Shift == nil {
		t.Fatal("nothing is said")
	}
	const want = "target-load > 80: the fallback takes 3 tenths of the main version's part besides its own; the load was 93.2 % when that last changed"
	if got := x.Shift.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	x.Shift.Load = nil
	if got := x.Shift.String(); got != "target-load > 80: the fallback takes 3 tenths of the main version's part besides its own; the load was unknown when that last changed" {
		t.Error(got)
	}
}
