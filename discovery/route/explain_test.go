package route

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/discovery/rules"
)

var update = flag.Bool("update", false, "write testdata/explanation.json anew")

// A46: rule, candidates, scores and choice are all there, in the form that people and
// programs read.
func TestExplanationAsJSON(t *testing.T) {
	t.Parallel()
	r := split(70, 30)
	r.Fallback.Condition = &rules.Condition{Metric: "target-load", Operator: ">", Number: 80}
	older := newer("v2.2.0")
	in := Input{Service: "order-core", Home: home(), Number: 7, Rules: []rules.Rule{r, older},
		Instances: made(version("v2.3.1"), weight(300), weight(0), version("v2.3.1"), version("v2.3.0"), version("v2.2.0"), region("cn-beijing"), env("test"), cluster("k2")),
		Scale:     map[string]Scale{"i0003": {0, Warming}, "i0001": {500, Hot}},
		Shift:     map[string]int{"prod": 3}, Load: map[string]float64{"prod": 93.25}}
	got, err := json.MarshalIndent(Compile(in).Explain(Query{Env: "t2", Base: "prod"}, 1<<62), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const name = "testdata/explanation.json"
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("explain gives\n%s\nwant\n%s", got, want)
	}
}

func TestExplainSaysWhyNobodyServes(t *testing.T) {
	t.Parallel()
	in := Input{Service: "order-core", Home: home(), Rules: []rules.Rule{split(70, 30)},
		Instances: made(weight(0), version("v2.3.0"), version("v9")), Scale: map[string]Scale{"i0001": {0, Isolated}}}
	x := Compile(in).Explain(Query{}, 5)
	if x.Reason != ByNobody || x.Chosen != "" || len(x.Candidates) != 2 || x.Candidates[0].Score != 0 || !x.Candidates[0].Stated ||
		x.Candidates[1].Scale == nil || x.Candidates[1].Scale.Why != Isolated || x.Candidates[1].Score != 0 {
		t.Errorf("%+v", x)
	}
	if want := []Side{{"v2.3.1", 70, 0, 1, 0}, {"v2.3.0", 30, 0, 1, 0}}; !slices.Equal(x.Sides, want) {
		t.Errorf("sides %+v, want %+v", x.Sides, want)
	}
	if !strings.Contains(x.Problem, "isolated (1), weight 0 (1)") {
		t.Error(x.Problem)
	}
}

func TestExplainSaysThatAllAreCold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scale map[string]Scale
		want  bool
		panic bool
	}{
		"all warm up":         {map[string]Scale{"i0000": {0, Warming}, "i0001": {700, Warming}}, true, false},
		"one is warm":         {map[string]Scale{"i0000": {0, Warming}}, false, false},
		"one is hot":          {map[string]Scale{"i0000": {0, Warming}, "i0001": {1, Hot}}, false, false},
		"all but who is out":  {map[string]Scale{"i0000": {0, Warming}, "i0001": {0, Ejected}}, true, false},
		"nobody is warming":   {nil, false, false},
		"all are out, anyway": {map[string]Scale{"i0000": {0, Ejected}, "i0001": {0, Ejected}}, false, true},
	} {
		if got := table(made(version("v1"), version("v1")), c.scale).Explain(Query{}, 0); got.AllCold != c.want || got.Panic != c.panic {
			t.Errorf("%s: all_cold is %v, panic %v", name, got.AllCold, got.Panic)
		}
	}
}

// Without a rule the sides are what versions get, for people who look at a map.
func TestSidesWithoutRule(t *testing.T) {
	t.Parallel()
	x := table(made(version("v2"), version("v1"), both(version("v1"), weight(0)), both(version("v3"), weight(200))), nil).Explain(Query{}, 0)
	if want := []Side{{"v1", 0, 0.25, 2, 1}, {"v2", 0, 0.25, 1, 1}, {"v3", 0, 0.5, 1, 1}}; !slices.Equal(x.Sides, want) {
		t.Errorf("%+v, want %+v", x.Sides, want)
	}
}

// The draw is the only chance there is: both its ends belong to a version.
func TestDrawsAtTheEnds(t *testing.T) {
	t.Parallel()
	table := table(made(version("v2.3.1"), version("v2.3.0")), nil, split(1, 9999))
	for draw, want := range map[uint64]Reason{0: ByRule, math.MaxUint64: ByFallback} {
		choice, err := table.Pick(Query{}, draw)
		if err != nil || choice.Reason != want {
			t.Errorf("draw %d: %+v, %v", draw, choice, err)
		}
	}
	lone := Compile(Input{Service: "order-core", Home: home(), Instances: made(version("v1")), Rules: []rules.Rule{}})
	for _, draw := range []uint64{0, 1, math.MaxUint32, math.MaxUint64} {
		if choice, err := lone.Pick(Query{}, draw); err != nil || choice.Instance.ID != "i0000" {
			t.Errorf("draw %d: %+v, %v", draw, choice, err)
		}
	}
}
