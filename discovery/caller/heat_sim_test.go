package caller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"dispatch.example/dispatch/discovery"
)

// A38, A44: all instances of v2.4.0 are at 100 % whatever they get, and nobody does
// anything. Of 70 % of the calls fewer than 5 % are left within 180 s.
func TestSickVersionLosesItsTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
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
		if got := strings.Count(w.log.String(), "an instance is hot"); got != worldCallers*perVersion {
			t.Errorf("%d lines about hot instances, want one of each caller and instance", got)
		}
	})
}

// A43: CPU goes from 80 to 100 and back. The share falls without a jump and recovers.
func TestHeatFollowsRamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
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
		if got := strings.Count(w.log.String(), "has its whole weight again"); got != worldCallers*perVersion {
			t.Errorf("%d lines about whole weights", got)
		}
	})
}

// CPU follows traffic in both versions. Where both together can carry it the shift
// finds its place; where nothing can (from 640 on, all would be over 80 %), it stays
// calm all the same.
func TestShiftSettles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total   float64 // CPU in percent if one instance had all calls; v2.4.0 has total × 0.7 / 4 at first
		turns   int     // of the shift in ten minutes, at most
		settles bool
	}{{450, 0, true}, {500, 2, true}, {540, 2, true}, {580, 4, true}, {620, 8, true}, {680, 12, false}} {
		t.Run(fmt.Sprint(c.total), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, over(80))
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
