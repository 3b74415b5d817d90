package caller

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// gauge is heat with a clock of its own, which goes on by ten seconds with each report.
type gauge struct {
	heat
	list []discovery.Instance
	of   map[string]target
	now  time.Time
}

func newGauge(of *rules.Rule, list ...discovery.Instance) *gauge {
	g := &gauge{list: list, now: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	if of != nil {
		g.of = targets([]rules.Rule{*of})
	}
	return g
}

// say is one report of each instance; a negative load is unknown.
func (g *gauge) say(cpu ...float64) {
	said := map[string]wire.Load{}
	for i, percent := range cpu {
		l := wire.Load{Heard: g.now}
		if percent >= 0 {
			l.CPU = &percent
		}
		said[g.list[i].ID] = l
	}
	g.take(said)
}

func (g *gauge) take(said map[string]wire.Load) {
	g.move(g.list, g.of, g.hear(g.list, said, g.now), g.now)
	g.now = g.now.Add(wire.ReportEvery)
}

// wait lets time pass without a report, in the steps of keepTables.
func (g *gauge) wait(d time.Duration) {
	for end := g.now.Add(d); g.now.Before(end); g.now = g.now.Add(tickEvery) {
		g.move(g.list, g.of, g.hear(g.list, nil, g.now), g.now)
	}
}

func (g *gauge) part(i int) int { return g.scale(fingerprintOf(&g.list[i])).Thousandths }

func (g *gauge) tenths() int { return g.shifts["prod"].tenths }

// A43: a step for each report over 85 %, down to a hundredth, and back up the same way.
func TestHeatGoesByReports(t *testing.T) {
	t.Parallel()
	g := newGauge(nil, instances(2, "orders", "prod", "v1")...)
	var seen []int
	for range 14 {
		g.say(85.1, 85)
		seen = append(seen, g.part(0))
	}
	if want := []int{700, 490, 343, 240, 168, 117, 81, 56, 39, 27, 18, 12, 10, 10}; !slices.Equal(seen, want) {
		t.Errorf("down: %v, want %v", seen, want)
	}
	if g.part(1) != wholePart {
		t.Errorf("at 85 %% it has %d", g.part(1))
	}
	seen = nil
	for range 15 {
		g.say(85, 85)
		seen = append(seen, g.part(0))
	}
	if want := []int{14, 20, 28, 40, 57, 81, 115, 164, 234, 334, 477, 681, 972, 1000, 1000}; !slices.Equal(seen, want) {
		t.Errorf("up: %v, want %v", seen, want)
	}
}

func TestWhatIsANewReport(t *testing.T) {
	t.Parallel()
	full, again, ninety := 100.0, 100.0, 90.0
	start := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		next wire.Load
		gap  time.Duration
		want int
	}{
		{"the same again", wire.Load{Load: discovery.Load{CPU: &again}, Heard: start}, wire.ReportEvery, 700},
		{"another that says the same", wire.Load{Load: discovery.Load{CPU: &again}, Heard: start.Add(time.Second)}, wire.ReportEvery, 490},
		{"as far apart as the poll makes it", wire.Load{Load: discovery.Load{CPU: &again}, Heard: start.Add(time.Second)}, wire.ReportEvery - wire.HoldFor, 490},
		{"one that comes too soon", wire.Load{Load: discovery.Load{CPU: &again}, Heard: start.Add(time.Second)}, 5 * time.Second, 700},
		{"an older node's, with another load", wire.Load{Load: discovery.Load{CPU: &ninety}}, wire.ReportEvery, 490},
	} {
		g := newGauge(nil, instances(1, "orders", "prod", "v1")...)
		g.take(map[string]wire.Load{g.list[0].ID: {Load: discovery.Load{CPU: &full}, Heard: start}})
		g.now = g.now.Add(c.gap - wire.ReportEvery)
		g.take(map[string]wire.Load{g.list[0].ID: c.next})
		if got := g.part(0); got != c.want {
			t.Errorf("%s: %d thousandths, want %d", c.name, got, c.want)
		}
	}
}

// A10: unknown is not 0 and not hot: a load that nobody knows any more lets go of the
// weight by steps, and not at once.
func TestUnknownLoadLetsGo(t *testing.T) {
	t.Parallel()
	g := newGauge(nil, instances(2, "orders", "prod", "v1")...)
	for range 3 {
		g.say(100, 100)
	}
	g.say(-1, 100) // the first can measure its CPU no longer
	if g.part(0) != 490 || g.part(1) != 240 {
		t.Errorf("parts %d and %d, want 490 and 240", g.part(0), g.part(1))
	}
	g.wait(40 * time.Second)
	if g.part(0) != 1000 || g.part(1) != 240 {
		t.Errorf("40 s later %d and %d: the second's load still counts", g.part(0), g.part(1))
	}
	g.wait(20 * time.Second)
	if got := g.part(1); got != 342 {
		t.Errorf("a minute after its last report it has %d, want one step up, 342", got)
	}
	g.wait(50 * time.Second)
	if g.part(1) != 1000 || g.active() {
		t.Errorf("in the end it has %d", g.part(1))
	}
}

func TestWhoIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	g := newGauge(nil, instances(2, "orders", "prod", "v1")...)
	g.say(100, 100)
	restarted := g.list[0]
	restarted.Started = restarted.Started.Add(time.Hour)
	g.list = []discovery.Instance{restarted}
	if g.say(50); g.part(0) != wholePart || len(g.heat.of) != 1 {
		t.Errorf("another process at its address has %d, %d are known", g.part(0), len(g.heat.of))
	}
}

// A40: 80 moves nothing and 81 does; what was moved stays down to 70.
func TestConditionWithHysteresis(t *testing.T) {
	t.Parallel()
	r := accident(over(80))
	for _, c := range []struct {
		name     string
		operator string
		loads    []float64
		want     []int
	}{
		{"80", ">", []float64{80, 80}, []int{0, 0}},
		{"81", ">", []float64{81, 81}, []int{1, 2}},
		{"80 with >=", ">=", []float64{80, 79.9}, []int{1, 1}},
		{"back only below 70", ">", []float64{95, 95, 75, 70, 69.9, 69.9, 0}, []int{1, 2, 2, 2, 1, 0, 0}},
		{"nine tenths at most", ">", []float64{99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9}},
		{"unknown stays for a minute", ">", []float64{99, 99, 99, -1, -1, -1}, []int{1, 2, 3, 2, 1, 0}},
		// The way back led over 80 again: the second one waits 30 s from there.
		{"a relapse", ">", []float64{99, 60, 99, 60, 60, 60}, []int{1, 0, 1, 1, 1, 0}},
		{"a relapse after a minute is none", ">", []float64{99, 60, 60, 60, 60, 60, 60, 60, 60, 99, 60}, []int{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}},
	} {
		r.Fallback.Condition.Operator = c.operator
		g := newGauge(&r, append(instances(2, "orders", "prod", "v2.4.0"), instances(5, "orders", "prod", "v2.3.1")[4])...)
		var got []int
		for _, load := range c.loads {
			if load < 0 {
				g.say(-1, -1, 99)
			} else {
				g.say(max(load-10, 0), min(load+10, 2*load), 99) // the mean; the fallback's own load is nothing to it
			}
			got = append(got, g.tenths())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Small numbers let go too: no load is 10 points below 8.
func TestSmallConditionsLetGo(t *testing.T) {
	t.Parallel()
	for number, eases := range map[float64]float64{1: 0.4, 8: 3.9, 10: 4.9, 19: 9.4, 20: 9.9, 30: 19.9} {
		r := accident(over(number))
		g := newGauge(&r, instances(1, "orders", "prod", "v2.4.0")...)
		for range 9 {
			g.say(number + 1)
		}
		if g.say(eases + 0.2); g.tenths() != 9 {
			t.Errorf("> %v: a load of %v leaves %d tenths", number, eases+0.2, g.tenths())
		}
		for range 9 {
			g.say(eases)
		}
		if g.tenths() != 0 {
			t.Errorf("> %v: a load of %v leaves %d tenths", number, eases, g.tenths())
		}
	}
}

func TestShiftGoesBackWithoutReports(t *testing.T) {
	t.Parallel()
	r := accident(over(80))
	g := newGauge(&r, instances(1, "orders", "prod", "v2.4.0")...)
	for range 3 {
		g.say(90)
	}
	if g.wait(45 * time.Second); g.tenths() != 3 {
		t.Errorf("55 s after the last report %d tenths", g.tenths())
	}
	if g.wait(10 * time.Second); g.tenths() != 2 {
		t.Errorf("65 s after the last report %d tenths", g.tenths())
	}
	if g.wait(30 * time.Second); g.tenths() != 0 {
		t.Errorf("in the end %d tenths", g.tenths())
	}
}

// A rule with another main version or condition begins at nothing; another weight does not.
func TestShiftBelongsToItsRule(t *testing.T) {
	t.Parallel()
	r := accident(over(80))
	g := newGauge(&r, instances(1, "orders", "prod", "v2.4.0")...)
	g.say(90)
	g.say(90)
	if tenths, load := g.shift([]rules.Rule{r}); tenths["prod"] != 2 || load["prod"] != 90 {
		t.Errorf("shift %v, load %v", tenths, load)
	}
	lighter, condition, other := accident(over(80)), accident(over(70)), accident(over(80))
	lighter.Strategy.Weight, other.Strategy.Version = 50, "v2.5.0"
	plain := accident(nil)
	for name, c := range map[string]struct {
		list []rules.Rule
		want int
	}{"another weight": {[]rules.Rule{lighter}, 2}, "another condition": {[]rules.Rule{condition}, 0}, "another version": {[]rules.Rule{other}, 0},
		"no condition": {[]rules.Rule{plain}, 0}, "shadowed": {[]rules.Rule{plain, r}, 0}, "nothing": {nil, 0}} {
		if tenths, _ := g.shift(c.list); tenths["prod"] != c.want {
			t.Errorf("%s: %v", name, tenths)
		}
	}
	g.of = targets([]rules.Rule{condition})
	if g.say(71); g.tenths() != 1 {
		t.Errorf("%d tenths of the new condition", g.tenths())
	}
	g.of = nil
	if g.say(99); len(g.shifts) != 0 {
		t.Errorf("kept %v of a rule without condition", g.shifts)
	}
}

// T73, A39: all of a version's instances are hot and there is nobody else: shares stay.
func TestEquallyHotShareAlike(t *testing.T) {
	t.Parallel()
	g := newGauge(nil, instances(4, "orders", "prod", "v1")...)
	for range 20 {
		g.say(100, 100, 100, 100)
	}
	l := &list{instances: g.list, heat: g.heat}
	in := route.Input{Service: "orders", Home: home(), Instances: l.instances, Scale: l.scale(g.now)}
	for _, one := range route.Compile(in).Explain(route.Query{}, 0).Candidates {
		if one.Score != 0.25 || one.Scale == nil || one.Scale.Why != route.Hot || one.Scale.Thousandths != leastPart {
			t.Errorf("%+v", one)
		}
	}
}

// A39: the main version is put out, then goes: its fallback takes everything at once.
func TestFallbackTakesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, nil)
		out := map[string]route.Scale{}
		for _, in := range w.all[:perVersion] {
			out[in.ID] = route.Scale{Why: route.Isolated}
		}
		for name, s := range map[string]wire.Service{"isolated": {Instances: w.all, Scale: out}, "gone": {Instances: w.all[perVersion:]}} {
			w.n.change(func() { w.n.put("orders", s) })
			time.Sleep(time.Second)
			for range 1000 {
				p, err := w.callers[0].Pick(t.Context(), "orders")
				if err != nil || p.Instance.Version != "v2.3.1" || p.Reason != route.ByFallback {
					t.Fatalf("%s: %+v, %v", name, p.Choice, err)
				}
			}
		}
	})
}

// Records of picks name what load did, so that whoever has list and rules makes the
// same choice again.
func TestLoadIsInRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, log, registry := newNode(t), &logged{}, prometheus.NewRegistry()
		all := instances(2, "orders", "prod", "v2.4.0")
		all[1].Version = "v2.3.1"
		r := accident(over(80))
		n.list("orders", all...)
		n.publish(1, r)
		opt := options(n)
		opt.Log, opt.Metrics = log.logger(), registry
		c := started(t, one(n), opt)
		ready(t, c)
		say := func(cpu float64) {
			n.load("orders", map[string]wire.Load{all[0].ID: {Load: discovery.Load{CPU: &cpu}, Heard: time.Now()}})
			time.Sleep(wire.ReportEvery)
		}
		say(99)
		say(99)
		p, err := c.Pick(Keep(t.Context()), "orders")
		if err != nil {
			t.Fatal(err)
		}
		record, x, err := c.Explain(p.ID())
		if err != nil || x.Shift == nil || x.Shift.Tenths != 2 || *x.Shift.Load != 99 || x.Sides[0].Weight != 70 {
			t.Fatalf("%+v, %v", x, err)
		}
		// 70 × 8/10 × 49/100 : 30 + 14
		if want := 27.44 / (27.44 + 44); math.Abs(x.Sides[0].Effective-want) > 1e-6 {
			t.Errorf("v2.4.0 has %v, want %v", x.Sides[0].Effective, want)
		}
		time.Sleep(10 * time.Second)
		n.mu.Lock()
		var view route.View
		for _, b := range n.batches {
			for _, v := range b.Views {
				if v.Key == record.View {
					view = v
				}
			}
		}
		n.mu.Unlock()
		again := route.Compile(route.Input{Service: view.Service, Home: view.Home, Instances: all, Rules: []rules.Rule{r}, Number: view.Number, Scale: view.Scale,
			Shift: view.Shift, Load: view.Load}).Explain(record.Lane, record.Draw)
		if a, b := asText(t, again), asText(t, x); a != b {
			t.Errorf("control says\n%s\nthe caller\n%s", a, b)
		}
		if heat, shift := metric(t, registry, "dispatch_discovery_heat_ratio", "orders"), metric(t, registry, "dispatch_discovery_shift_ratio", "orders", "prod"); heat != 0.49 || shift != 0.2 {
			t.Errorf("heat %v, shift %v", heat, shift)
		}
		for range 5 {
			say(40)
		}
		if heat, shift := metric(t, registry, "dispatch_discovery_heat_ratio", "orders"), metric(t, registry, "dispatch_discovery_shift_ratio", "orders", "prod"); heat != 1 || shift != 0 {
			t.Errorf("afterwards heat %v, shift %v", heat, shift)
		}
		for _, line := range []string{"an instance is hot", "an instance has its whole weight again", "the fallback takes more than its own part", "the fallback takes its own part alone again"} {
			if got := strings.Count(log.String(), line); got != 1 {
				t.Errorf("the log says %d times that %s:\n%s", got, line, log)
			}
		}
		n.publish(2)
		time.Sleep(2 * time.Second)
		say(40)
		if families, err := registry.Gather(); err != nil || strings.Contains(fmt.Sprint(families), "shift_ratio") {
			t.Errorf("without a rule there is still a shift, %v", err)
		}
	})
}

func asText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
