package caller

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// world is callers of orders, four instances of v2.4.0 and four of v2.3.1, whose
// CPU is what a model makes of their traffic. Each instance reports the mean of its
// last ten seconds, each at its own second; the control node tells all loads each 11 s,
// which is what a pace of ten seconds that is looked at each second comes to.
type world struct {
	t       *testing.T
	n       *node
	callers []*Caller
	splits  []split // by caller
	all     []discovery.Instance
	model   func(in *discovery.Instance, traffic float64, second int) float64 // CPU in percent
	second  int
	log     *logged            // of all callers
	used    map[string]float64 // CPU seconds since the last report, by ID
	said    map[string]wire.Load
}

const perVersion = 4

// accident is the rule of the accident: v2.4.0 has 70, v2.3.1 has 30.
func accident(condition *rules.Condition) rules.Rule {
	r := rule("orders", "v2.4.0")
	r.Strategy.Weight = 70
	r.Fallback = &rules.Fallback{Version: "v2.3.1", Weight: 30, Condition: condition}
	return r
}

// over is target-load > number.
func over(number float64) *rules.Condition {
	return &rules.Condition{Metric: "target-load", Operator: ">", Number: number}
}

func newWorld(t *testing.T, callers int, condition *rules.Condition) *world {
	t.Helper()
	w := &world{t: t, n: newNode(t), log: &logged{}, used: map[string]float64{}, said: map[string]wire.Load{}, splits: make([]split, callers)}
	for i := range 2 * perVersion {
		version := "v2.4.0"
		if i >= perVersion {
			version = "v2.3.1"
		}
		w.all = append(w.all, instance("orders", fmt.Sprintf("10.0.0.%d:80", i+1), "prod", version))
	}
	w.n.list("orders", w.all...)
	w.n.publish(1, accident(condition))
	for i := range callers {
		opt := options(w.n)
		opt.ID, opt.Log = fmt.Sprint("caller-", i), w.log.logger()
		w.callers = append(w.callers, started(t, one(w.n), opt))
	}
	for _, c := range w.callers {
		ready(t, c)
	}
	time.Sleep(time.Second)
	return w
}

// split is what the table of a caller makes of its calls.
type split struct {
	table *entry
	of    map[string]float64 // by ID, 1 in total
	share float64            // of v2.4.0
}

func splitOf(t *testing.T, e *entry) split {
	s := split{table: e, of: map[string]float64{}}
	for i, draw := range []uint64{0, math.MaxUint64} {
		x := e.table.Explain(route.Query{}, draw)
		if len(x.Sides) != 2 {
			t.Fatalf("sides %+v", x.Sides)
		}
		for _, one := range x.Candidates {
			s.of[one.ID] += x.Sides[i].Effective * one.Score
		}
		s.share = x.Sides[0].Effective
	}
	return s
}

// traffic is each instance's part of all calls, 1 in total, and share that of v2.4.0.
func (w *world) traffic() (of map[string]float64, share float64) {
	of = map[string]float64{}
	for i, c := range w.callers {
		if e := (*c.slots.Load())["orders"].now.Load(); w.splits[i].table != e {
			w.splits[i] = splitOf(w.t, e)
		}
		for id, part := range w.splits[i].of {
			of[id] += part / float64(len(w.callers))
		}
		share += w.splits[i].share / float64(len(w.callers))
	}
	return of, share
}

// tick is one second: instances work, some report, and perhaps control tells.
func (w *world) tick() (share float64) {
	of, share := w.traffic()
	w.second++
	for i := range w.all {
		in := &w.all[i]
		w.used[in.ID] += min(max(w.model(in, of[in.ID], w.second), 0), 100)
		if (w.second+i)%10 == 0 {
			w.said[in.ID] = wire.Load{Load: discovery.Load{CPU: new(w.used[in.ID] / 10)}, Heard: time.Now()}
			w.used[in.ID] = 0
		}
	}
	if w.second%11 == 0 {
		told := map[string]wire.Load{}
		for id, l := range w.said {
			told[id] = l
		}
		w.n.load("orders", told)
	}
	time.Sleep(time.Second)
	return share
}

// row is what is seen each ten seconds.
type row struct {
	second int
	share  float64 // of v2.4.0
	cpu    float64 // its mean, as reported
	tenths float64 // shifted, mean over callers
}

// run lets the world go on and prints a line each ten seconds.
func (w *world) run(seconds int) (rows []row) {
	w.t.Helper()
	var text strings.Builder
	for range seconds {
		share := w.tick()
		if w.second%10 != 0 {
			continue
		}
		r := row{second: w.second, share: share}
		for i := range perVersion {
			if l := w.said[w.all[i].ID]; l.CPU != nil {
				r.cpu += *l.CPU / perVersion
			}
		}
		for _, c := range w.callers {
			c.mu.Lock()
			r.tenths += float64(c.lists["orders"].heat.shifts["prod"].tenths) / float64(len(w.callers))
			c.mu.Unlock()
		}
		rows = append(rows, r)
		fmt.Fprintf(&text, "%4d s  v2.4.0 %5.1f %%  its CPU %5.1f %%  shift %.1f\n", r.second, 100*r.share, r.cpu, r.tenths)
	}
	w.t.Log("\n" + text.String())
	return rows
}

// turns is how often something that rose falls, or the other way round.
func turns(rows []row, of func(row) float64) (n int) {
	last := 0.0
	for i := 1; i < len(rows); i++ {
		d := of(rows[i]) - of(rows[i-1])
		if math.Abs(d) < 1e-9 {
			continue
		}
		if last != 0 && d*last < 0 {
			n++
		}
		last = d
	}
	return n
}

// A38, A44: all instances of v2.4.0 are at 100 % whatever they get, and nobody does
// anything. Of 70 % of the calls fewer than 5 % are left within 180 s.
func TestSickVersionLosesItsTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20, nil)
		w.model = func(in *discovery.Instance, traffic float64, _ int) float64 {
			if in.Version == "v2.4.0" {
				return 100
			}
			return 200 * traffic
		}
		rows := w.run(300)
		if first := rows[0].share; first < 0.699 || first > 0.701 {
			t.Errorf("in the beginning v2.4.0 has %.3f", first)
		}
		for i, r := range rows {
			switch {
			case i > 0 && r.share > rows[i-1].share+1e-9:
				t.Errorf("at %d s its share rose to %.3f", r.second, r.share)
			case r.second >= 180 && r.share >= 0.05:
				t.Errorf("at %d s its share is %.3f", r.second, r.share)
			case r.share <= 0:
				t.Errorf("at %d s it has nothing, and nobody would see it recover", r.second)
			}
		}
		if got := strings.Count(w.log.String(), "an instance is hot"); got != len(w.callers)*perVersion {
			t.Errorf("%d lines about hot instances, want one of each caller and instance", got)
		}
	})
}

// A43: CPU goes from 80 to 100 and back. The share falls without a jump and recovers.
func TestHeatFollowsRamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5, nil)
		w.model = func(in *discovery.Instance, _ float64, second int) float64 {
			if in.Version != "v2.4.0" {
				return 20
			}
			return 80 + float64(20-max(0, 20-second/6, second/6-40)) // up in two minutes, two of 100, two down
		}
		rows := w.run(560)
		lowest := 0
		for i, r := range rows {
			if r.share < rows[lowest].share {
				lowest = i
			}
		}
		if at := rows[lowest]; at.share <= 0 || at.share > 0.05 || at.cpu < 85 {
			t.Errorf("the least share is %.3f, at %d s and %.0f %%", at.share, at.second, at.cpu)
		}
		for i := 1; i < len(rows); i++ {
			before, now := rows[i-1].share, rows[i].share
			if i <= lowest && now > before+1e-9 || i > lowest && now < before-1e-9 {
				t.Errorf("at %d s the share goes from %.3f to %.3f", rows[i].second, before, now)
			}
			if now < before/2 {
				t.Errorf("at %d s it jumps from %.3f to %.3f", rows[i].second, before, now)
			}
		}
		if last := rows[len(rows)-1].share; last < 0.699 {
			t.Errorf("in the end the share is %.3f", last)
		}
		if got := strings.Count(w.log.String(), "has its whole weight again"); got != len(w.callers)*perVersion {
			t.Errorf("%d lines about whole weights", got)
		}
	})
}

// CPU follows traffic in both versions. Where both together can carry it the shift
// finds its place; close to where nothing can (from 640 on, all would be over 80 %), it
// may not have found it after ten minutes, and stays calm all the same.
func TestShiftSettles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total   float64 // CPU in percent if one instance had all calls; v2.4.0 has total × 0.7 / 4 at first
		turns   int     // of the shift in ten minutes, at most
		settles bool
	}{{450, 0, true}, {500, 2, true}, {540, 2, true}, {580, 4, true}, {620, 12, false}, {680, 12, false}} {
		t.Run(fmt.Sprint(c.total), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 5, over(80))
				w.model = func(_ *discovery.Instance, traffic float64, _ int) float64 { return c.total * traffic }
				rows := w.run(600)
				if got := turns(rows, func(r row) float64 { return r.tenths }); got > c.turns {
					t.Errorf("the shift turns %d times, at most %d are calm", got, c.turns)
				}
				last := rows[len(rows)-12:]
				for _, r := range last {
					if c.settles && (r.share != last[0].share || r.cpu > 80.1) {
						t.Errorf("at %d s the share is %.3f, its CPU %.1f %%", r.second, r.share, r.cpu)
					}
				}
			})
		})
	}
}
