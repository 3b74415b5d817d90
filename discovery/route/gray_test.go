package route

import (
	"fmt"
	"slices"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// growing is the rule of order-core at home while v2.4.0 has this share of what
// v2.3.1 had; with share 0 there is no gray.
func growing(share int, byKey bool) rules.Rule {
	if share == 0 {
		return split(100, -1)
	}
	return rules.Effective(split(100, -1), rules.Gray{Service: "order-core", Env: "prod", Version: "v2.4.0", Share: share, Steps: rules.DefaultSteps(), ByKey: byKey})
}

func old3new2() []discovery.Instance {
	return made(slices.Concat(times(3, version("v2.3.1")), times(2, version("v2.4.0")))...)
}

// A36, C04, T64: the share of each step, and nothing at all without one.
func TestGrayShares(t *testing.T) {
	t.Parallel()
	all := old3new2()
	for _, c := range []struct {
		share int
		want  map[string]float64
	}{
		{0, map[string]float64{"v2.3.1": 1}},
		{5, map[string]float64{"v2.3.1": 0.95, "v2.4.0": 0.05}},
		{10, map[string]float64{"v2.3.1": 0.9, "v2.4.0": 0.1}},
		{20, map[string]float64{"v2.3.1": 0.8, "v2.4.0": 0.2}},
		{50, map[string]float64{"v2.3.1": 0.5, "v2.4.0": 0.5}},
		{100, map[string]float64{"v2.4.0": 1}},
	} {
		table := table(all, nil, growing(c.share, false))
		wantShares(t, tally(t, table, Query{}, versionOf), c.want)
		for _, side := range table.Explain(Query{}, 0).Sides {
			if want := c.want[side.Version]; side.Effective < want-1e-6 || side.Effective > want+1e-6 {
				t.Errorf("at %d explain says %+v", c.share, side)
			}
		}
	}
}

// C04, T58: while a gray grows a key moves to the new version only, and while it
// shrinks to the old one only; the next rule moves none.
func TestKeysOfAGrayMoveOneWay(t *testing.T) {
	t.Parallel()
	all := old3new2()
	next := split(100, -1)
	next.Strategy.Version, next.Fallback = "v2.4.0", &rules.Fallback{Version: "v2.3.1"}
	shares := []int{0, 5, 20, 50, 100}
	for _, byKey := range []bool{false, true} {
		var tables []*Table
		for _, share := range shares {
			tables = append(tables, table(all, nil, growing(share, byKey)))
		}
		tables = append(tables, table(all, nil, next))
		moved, random := make([]int, len(tables)), draws(9)
		for i := range manyPicks {
			q, inside := Query{Key: fmt.Sprintf("user-%d", i)}, false
			for step, table := range tables { // read backwards it is the way back
				choice, err := table.Pick(q, random.Uint64())
				if err != nil {
					t.Fatal(err)
				}
				now := choice.Instance.Version == "v2.4.0"
				if inside && !now {
					t.Fatalf("%s is in the new version at step %d and not at step %d", q.Key, step-1, step)
				}
				if inside = now; now {
					moved[step]++
				}
			}
		}
		for step, share := range append(shares, 100) {
			if seen := float64(moved[step]) / manyPicks * 100; seen < float64(share)-1 || seen > float64(share)+1 {
				t.Errorf("by key %v: %.2f %% of the keys at %d", byKey, seen, share)
			}
		}
	}
}

// Who grows on the same version after an abort does not hit the same people first.
func TestFirstKeysOfGraysDiffer(t *testing.T) {
	t.Parallel()
	all := made(version("v2.3.1"), version("v2.4.0"), version("v2.4.1"))
	second := rules.Effective(split(100, -1), rules.Gray{Version: "v2.4.1", Share: 5})
	a, b, again := table(all, nil, growing(5, true)), table(all, nil, second), 0
	for i := range 10_000 {
		q := Query{Key: fmt.Sprint(i)}
		one, _ := a.Pick(q, 0)
		other, _ := b.Pick(q, 0)
		if one.Reason == ByGray && other.Reason == ByGray {
			again++
		}
	}
	if again > 60 { // 25 by chance, of 500
		t.Errorf("%d of the same keys are first again", again)
	}
}

// By key alone, calls without one stay where they were.
func TestGrayByKeyLeavesOthers(t *testing.T) {
	t.Parallel()
	all := old3new2()
	for _, share := range []int{5, 20, 50} {
		wantShares(t, tally(t, table(all, nil, growing(share, true)), Query{}, versionOf), map[string]float64{"v2.3.1": 1})
	}
	wantShares(t, tally(t, table(all, nil, growing(100, true)), Query{}, versionOf), map[string]float64{"v2.4.0": 1})
	left := made(times(2, version("v2.4.0"))...)
	wantShares(t, tally(t, table(left, nil, growing(5, true)), Query{}, versionOf), map[string]float64{"v2.4.0": 1})
}

// Each version stands by for the other, in the same coordinates.
func TestVersionsOfAGrayStandBy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		share     int
		instances []func(*discovery.Instance)
		version   string
		reason    Reason
	}{
		{"the new one is gone", 20, times(2, version("v2.3.1")), "v2.3.1", ByRule},
		{"the new one is gone after the last step", 100, times(2, version("v2.3.1")), "v2.3.1", ByFallback},
		{"the old one is gone", 5, times(2, version("v2.4.0")), "v2.4.0", ByGray},
	} {
		choice, err := table(made(c.instances...), nil, growing(c.share, false)).Pick(Query{}, 1<<63)
		if err != nil || choice.Instance.Version != c.version || choice.Reason != c.reason {
			t.Errorf("%s: %+v, %v", c.name, choice, err)
		}
	}
}

// A record's reason tells the versions apart; its rule names the share.
func TestReasonsOfAGray(t *testing.T) {
	t.Parallel()
	table, seen := table(old3new2(), nil, growing(20, false)), map[Reason]string{}
	random := draws(3)
	for range 1000 {
		choice, err := table.Pick(Query{}, random.Uint64())
		if err != nil || choice.Rule.ID() != "order-core/prod@2026-11-30T09:00:00Z+20%" {
			t.Fatalf("%+v, %v", choice.Rule, err)
		}
		if was, known := seen[choice.Reason]; known && was != choice.Instance.Version {
			t.Fatalf("%s is %s and %s", choice.Reason, was, choice.Instance.Version)
		}
		seen[choice.Reason] = choice.Instance.Version
	}
	if len(seen) != 2 || seen[ByGray] != "v2.4.0" || seen[ByRule] != "v2.3.1" {
		t.Errorf("%v", seen)
	}
}
