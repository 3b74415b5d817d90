package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
)

// word is one of few, so that filters both match and miss; now and then empty.
func word(random *rand.Rand, letter string) string {
	if random.IntN(12) == 0 {
		return ""
	}
	return fmt.Sprint(letter, random.IntN(3))
}

// randomInput has everything that an Input may have.
func randomInput(random *rand.Rand) Input {
	in := Input{Service: "order-core", Number: 1, Scale: map[string]Scale{},
		Home: discovery.Coordinates{Cluster: "c0", Region: "r0", Env: "e0", Version: "v0"}}
	for i := range random.IntN(40) {
		inst := discovery.Instance{ID: fmt.Sprintf("i%04d", i), Service: "order-core", Address: discovery.Address{Host: fmt.Sprintf("10.0.0.%d", i+1), Port: 80}}
		inst.Coordinates = discovery.Coordinates{Cluster: word(random, "c"), Region: word(random, "r"), Env: word(random, "e"), Version: word(random, "v")}
		if random.IntN(4) == 0 {
			inst.Version = Base
		}
		if random.IntN(2) == 0 {
			w := random.IntN(4) * 50
			inst.Weight = &w
		}
		if random.IntN(3) == 0 {
			why := []string{Warming, Isolated, Suspicious, Ejected, Hot}[random.IntN(5)]
			in.Scale[inst.ID] = Scale{random.IntN(3) * 500, why}
		}
		in.Instances = append(in.Instances, inst)
	}
	for range random.IntN(5) {
		r := rules.Rule{Service: "order-core", Selector: rules.Selector{Cluster: word(random, "c"), Region: word(random, "r"), Env: word(random, "e")},
			Strategy: rules.Strategy{Version: word(random, "v"), Weight: random.IntN(3) * 50}}
		if random.IntN(2) == 0 {
			r.Fallback = &rules.Fallback{Version: word(random, "v"), Weight: random.IntN(3) * 50}
		}
		if random.IntN(3) == 0 {
			r = rules.Effective(r, rules.Gray{Version: word(random, "v"), Share: []int{5, 50, 100}[random.IntN(3)], ByKey: random.IntN(2) == 0})
		}
		in.Rules = append(in.Rules, r)
	}
	in.Direct, in.Isolate = random.IntN(8) == 0, random.IntN(4) == 0
	return in
}

func randomQuery(random *rand.Rand) Query {
	q := Query{Env: word(random, "e"), Key: word(random, "k")}
	if random.IntN(2) == 0 {
		q.Base = word(random, "e")
	}
	if random.IntN(2) == 0 {
		q.Person = word(random, "v")
	}
	return q
}

// A05: who is left is the intersection of four sets, counted in their order, whatever
// the list. Weights and scales are left out: everybody serves.
func TestFiltersAreAnIntersection(t *testing.T) {
	t.Parallel()
	random, matched := draws(21), 0
	for range 1000 {
		in := randomInput(random)
		in.Scale, in.Direct, in.Isolate = nil, false, false
		for i := range in.Instances {
			in.Instances[i].Weight = nil
		}
		for i := range in.Rules {
			in.Rules[i].Strategy.Weight = 50
			if f := in.Rules[i].Fallback; f != nil {
				f.Weight = 50
			}
		}
		table := Compile(in)
		for _, lane := range []string{"e0", "e1", "e2"} {
			sets := naiveSets(in, lane)
			step := table.Explain(Query{Env: lane}, 0).Steps[0]
			want := Counts{len(sets[0]), len(sets[1]), len(sets[2]), len(sets[3])}
			if step.Counts != want || step.Known != len(in.Instances) {
				t.Fatalf("explain counts %+v, want %+v of %d\n%+v", step.Counts, want, len(in.Instances), in)
			}
			seen := map[string]bool{}
			for range 20 * len(sets[3]) {
				choice, err := table.Pick(Query{Env: lane}, random.Uint64())
				if err != nil || !slices.Contains(sets[3], choice.Instance.ID) {
					t.Fatalf("%v, %v is not one of %v", choice, err, sets[3])
				}
				seen[choice.Instance.ID] = true
			}
			if len(sets[3]) == 0 {
				if _, err := table.Pick(Query{Env: lane}, random.Uint64()); err == nil {
					t.Fatal("nobody matches, and somebody was picked")
				}
				continue
			}
			matched++
			// 20 picks for each: with a part of half among n, one is missed once in e^10.
			if len(sets[3]) == 1 && len(seen) != 1 {
				t.Fatalf("%v of %v", seen, sets[3])
			}
		}
	}
	if matched < 300 {
		t.Errorf("only %d lanes matched anything", matched)
	}
}

// naiveSets are the ids after each filter, one set at a time.
func naiveSets(in Input, lane string) (sets [4][]string) {
	cluster, region, versions := in.Home.Cluster, in.Home.Region, []string(nil)
	for _, r := range in.Rules {
		if r.Selector.Env == lane {
			cluster, region, versions = r.Selector.Cluster, r.Selector.Region, []string{r.Strategy.Version}
			if r.Fallback != nil {
				versions = append(versions, r.Fallback.Version)
			}
			break
		}
	}
	sees := [4]func(discovery.Instance) bool{
		func(i discovery.Instance) bool { return i.Cluster != "" && i.Cluster == cluster },
		func(i discovery.Instance) bool { return i.Region != "" && i.Region == region },
		func(i discovery.Instance) bool { return i.Env != "" && i.Env == lane },
		func(i discovery.Instance) bool {
			return i.Version != "" && (versions == nil || slices.Contains(versions, i.Version))
		},
	}
	for filter := range sets {
		for _, inst := range in.Instances {
			passes := true
			for _, sees := range sees[:filter+1] {
				passes = passes && sees(inst)
			}
			if passes {
				sets[filter] = append(sets[filter], inst.ID)
			}
		}
	}
	return sets
}

// A47: explain says what the pick did, for any input, lane and draw, also when the
// table was compiled again from the same input in another order.
func TestExplainIsThePick(t *testing.T) {
	t.Parallel()
	random, reasons := draws(22), map[Reason]int{}
	for range 10_000 {
		in := randomInput(random)
		q, draw := randomQuery(random), random.Uint64()
		choice, err := Compile(in).Pick(q, draw)
		in.Instances = slices.Clone(in.Instances) // the choice points into the first
		random.Shuffle(len(in.Instances), func(i, j int) { in.Instances[i], in.Instances[j] = in.Instances[j], in.Instances[i] })
		x := Compile(in).Explain(q, draw)
		reasons[choice.Reason]++
		if x.Reason != choice.Reason || (x.Rule == nil) != (choice.Rule == nil) || len(x.Steps) != choice.Step {
			t.Fatalf("%+v, but explain says %+v\nof %+v", choice, x, in)
		}
		if err != nil {
			if x.Chosen != "" || x.Problem != err.Error() {
				t.Fatalf("%v, but explain says %+v", err, x)
			}
			continue
		}
		if x.Chosen != choice.Instance.Address.String() || x.Problem != "" {
			t.Fatalf("%s, but explain says %+v", choice.Instance.Address, x)
		}
		holdTogether(t, x, choice)
	}
	for _, reason := range []Reason{ByRule, ByGray, ByFallback, ByHome, ByPerson, ByBase, ByDirect, ByNobody} {
		if reasons[reason] < 20 {
			t.Errorf("%s came %d times: %v", reason, reasons[reason], reasons)
		}
	}
}

// holdTogether checks that scores and parts add up, and that nobody who is out has one.
func holdTogether(t *testing.T, x Explanation, choice Choice) {
	t.Helper()
	score, share := 0.0, 0.0
	for _, c := range x.Candidates {
		score += c.Score
		if c.Score > 0 && c.Scale != nil && (c.Scale.Why == Isolated || c.Scale.Why == Suspicious) || c.Score > 0 && c.Weight == 0 {
			t.Fatalf("%+v has a part", c)
		}
		if c.Address == x.Chosen && c.Score == 0 {
			t.Fatalf("%s was chosen without a chance: %+v", x.Chosen, x)
		}
	}
	for _, s := range x.Sides {
		share += s.Effective
		twice := x.Rule != nil && x.Rule.Fallback != nil && x.Rule.Fallback.Version == x.Rule.Strategy.Version
		if s.Version == choice.Instance.Version && s.Effective == 0 && !twice {
			t.Fatalf("version %s was chosen without a part: %+v", s.Version, x)
		}
	}
	if score < 0.999_999 || score > 1.000_001 || share < 0.999_999 || share > 1.000_001 {
		t.Fatalf("scores add up to %g, parts to %g: %+v", score, share, x)
	}
}

// linear picks without a compiled table: it filters the list, adds up the weights and
// walks to the draw. It is what "grouping off" means, for rules alone.
func linear(in Input, lane string, random *rand.Rand) *discovery.Instance {
	sides := map[string]float64{}
	r := in.Rules[0]
	left := func(version string) (list []*discovery.Instance, total int) {
		for i := range in.Instances {
			inst := &in.Instances[i]
			if inst.Cluster == r.Selector.Cluster && inst.Region == r.Selector.Region && inst.Env == lane && inst.Version == version {
				list = append(list, inst)
				total += inst.Share()
			}
		}
		return list, total
	}
	sides[r.Strategy.Version], sides[r.Fallback.Version] = float64(r.Strategy.Weight), float64(r.Fallback.Weight)
	version := r.Fallback.Version
	if random.Float64() < sides[r.Strategy.Version]/(sides[r.Strategy.Version]+sides[version]) {
		version = r.Strategy.Version
	}
	list, total := left(version)
	at := random.IntN(total)
	for _, inst := range list {
		if at -= inst.Share(); at < 0 {
			return inst
		}
	}
	return nil
}

// A37: a compiled table and a walk over the list share alike, at 40 and at 1,000.
func TestGroupingChangesNoShare(t *testing.T) {
	t.Parallel()
	for _, n := range []int{40, 1000} {
		in := large(n, 3)
		table, random := Compile(in), draws(23)
		compiled, walked := make([]int, n), make([]int, n)
		index := map[string]int{}
		for i, inst := range in.Instances {
			index[inst.ID] = i
		}
		for range 30 * 1000 {
			choice, err := table.Pick(Query{}, random.Uint64())
			if err != nil {
				t.Fatal(err)
			}
			compiled[index[choice.Instance.ID]]++
			walked[index[linear(in, "prod", random).ID]]++
		}
		scores := make([]float64, n)
		for _, draw := range []uint64{0, 1<<64 - 1} { // one of each version
			x := table.Explain(Query{}, draw)
			for _, c := range x.Candidates {
				side := x.Sides[0]
				if x.Reason == ByFallback {
					side = x.Sides[1]
				}
				scores[index[c.ID]] = c.Score * side.Effective
			}
		}
		if p := chiP(compiled, scores); p < 0.01 {
			t.Errorf("%d compiled: p = %.5f", n, p)
		}
		if p := chiP(walked, scores); p < 0.01 {
			t.Errorf("%d walked: p = %.5f", n, p)
		}
	}
}
