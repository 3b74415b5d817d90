package pages

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/fleet"
)

// The size of a chart in its own units; the page scales it.
const (
	chartWidth, chartHeight = 640.0, 200.0
	plotLeft, plotBottom    = 44.0, 22.0
	plotTop                 = 8.0
	// maxSeries are told apart by colour; the rest are one.
	maxSeries = 5
	// tableEvery is what one row of a chart's table sums up, in minutes.
	tableEvery = 5
)

// chart is the geometry of one drawing and the numbers beside it.
type chart struct {
	Name   string // an id of the catalogue
	Width  float64
	Height float64
	Left   float64
	Series []series
	X, Y   []tick
	Times  []time.Time // of the table's rows
	Empty  bool
}

// series is one thing that is drawn and how much there is of it.
type series struct {
	Name  string
	Class string // of the style sheet: s1 to s6
	Path  string
	Total uint64
	Rows  []uint64 // as many as chart.Times
}

// tick is one mark on an axis.
type tick struct {
	At   float64
	Text string
}

func newChart(name string) chart {
	return chart{Name: name, Width: chartWidth, Height: chartHeight, Left: plotLeft}
}

// x and y are where a part of the width and of the height are drawn.
func (c chart) x(part float64) float64 { return plotLeft + part*(c.Width-plotLeft) }
func (c chart) y(part float64) float64 {
	return c.Height - plotBottom - part*(c.Height-plotBottom-plotTop)
}

// window is so many minutes from an instant on.
type window struct {
	since   time.Time
	minutes int
}

// stacked draws counts by the minute, one on top of the other. name says which series
// a count belongs to.
func stacked(title string, counts []fleet.Count, over window, name func(fleet.Count) string) chart {
	c := newChart(title)
	since, minutes := over.since, over.minutes
	values := map[string][]uint64{}
	for _, count := range counts {
		at := int(count.Minute.Sub(since) / time.Minute)
		if at < 0 || at >= minutes {
			continue
		}
		key := name(count)
		if values[key] == nil {
			values[key] = make([]uint64, minutes)
		}
		values[key][at] += count.N
	}
	if c.Empty = len(values) == 0; c.Empty {
		return c
	}
	c.Series = ordered(values, minutes)
	tops := make([]float64, minutes)
	peak := 1.0
	for _, v := range values {
		for i, n := range v {
			tops[i] += float64(n)
			peak = max(peak, tops[i])
		}
	}
	scale := ceiling(peak)
	base := make([]float64, minutes)
	for i := range c.Series {
		s := &c.Series[i]
		s.Path, base = c.area(base, s.Rows, scale)
		s.Rows = summed(s.Rows)
	}
	for i := 0; i < minutes; i += tableEvery {
		c.Times = append(c.Times, since.Add(time.Duration(i)*time.Minute))
	}
	c.axes(since, minutes, scale)
	return c
}

// ordered are the series, the largest first; above maxSeries they are summed up.
func ordered(values map[string][]uint64, minutes int) []series {
	var all []series
	for name, v := range values {
		s := series{Name: name, Rows: v}
		for _, n := range v {
			s.Total += n
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y series) int {
		return cmp.Or(cmp.Compare(y.Total, x.Total), cmp.Compare(x.Name, y.Name))
	})
	if len(all) > maxSeries+1 {
		rest := series{Name: "…", Rows: make([]uint64, minutes)}
		for _, s := range all[maxSeries:] {
			rest.Total += s.Total
			for i, n := range s.Rows {
				rest.Rows[i] += n
			}
		}
		all = append(all[:maxSeries], rest)
	}
	for i := range all {
		all[i].Class = fmt.Sprintf("s%d", i+1)
	}
	return all
}

// area is the outline of values on top of base, and what the next one stands on.
func (c chart) area(base []float64, values []uint64, scale float64) (path string, top []float64) {
	last := float64(max(len(values)-1, 1))
	top = make([]float64, len(values))
	var b strings.Builder
	for i, n := range values {
		top[i] = base[i] + float64(n)
		fmt.Fprintf(&b, "%s%.1f %.1f", cmp.Or(map[bool]string{i == 0: "M"}[true], "L"), c.x(float64(i)/last), c.y(top[i]/scale))
	}
	for i := len(values) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "L%.1f %.1f", c.x(float64(i)/last), c.y(base[i]/scale))
	}
	return b.String() + "Z", top
}

// summed are the rows of the table.
func summed(minutes []uint64) (rows []uint64) {
	for part := range slices.Chunk(minutes, tableEvery) {
		var sum uint64
		for _, n := range part {
			sum += n
		}
		rows = append(rows, sum)
	}
	return rows
}

// axes marks quarters of an hour and quarters of the height.
func (c *chart) axes(since time.Time, minutes int, scale float64) {
	last := float64(max(minutes-1, 1))
	for i := range minutes {
		if at := since.Add(time.Duration(i) * time.Minute); at.Minute()%15 == 0 {
			c.X = append(c.X, tick{c.x(float64(i) / last), at.UTC().Format("15:04")})
		}
	}
	for i := range 5 {
		part := float64(i) / 4
		c.Y = append(c.Y, tick{c.y(part), number(math.Round(scale * part))})
	}
}

// ceiling is the next of 1, 2, 4, 6, 8 times a power of ten: its quarters are round.
func ceiling(peak float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(peak)))
	for _, step := range []float64{1, 2, 4, 6, 8} {
		if peak <= step*power {
			return step * power
		}
	}
	return 10 * power
}

// sharePoint is what a gray was meant to get and got in one minute.
type sharePoint struct {
	At       time.Time
	Expected float64 // 0 to 1
	Seen, Of uint64  // requests that got the gray's region by it, of all that it judged
}

// shares is a chart of a share over time: expected, seen, and between which values
// chance alone puts 95 % of what is seen.
type shares struct {
	chart
	Band, Expected, Seen string // paths
	Points               []sharePoint
}

// shareChart draws points in their order.
func shareChart(title string, points []sharePoint) shares {
	s := shares{chart: newChart(title), Points: points}
	if s.Empty = len(points) == 0; s.Empty {
		return s
	}
	peak := 0.01
	for _, p := range points {
		_, high := p.chance()
		peak = min(1, max(peak, high, p.seen()))
	}
	last := float64(max(len(points)-1, 1))
	var upper, lower, expected, seen []string
	for i, p := range points {
		low, high := p.chance()
		at := s.x(float64(i) / last)
		point := func(v float64) string { return fmt.Sprintf("%.1f %.1f", at, s.y(min(v, peak)/peak)) }
		upper, lower = append(upper, point(high)), append(lower, point(low))
		expected = append(expected, point(p.Expected))
		if p.Of > 0 {
			seen = append(seen, point(p.seen()))
		}
	}
	slices.Reverse(lower)
	s.Band = "M" + strings.Join(append(upper, lower...), "L") + "Z"
	s.Expected = "M" + strings.Join(expected, "L")
	if len(seen) > 0 {
		s.Seen = "M" + strings.Join(seen, "L")
	}
	s.axes(points[0].At, len(points), 1)
	for i := range s.Y {
		s.Y[i].Text = percent(peak * float64(i) / 4)
	}
	return s
}

func (p sharePoint) seen() float64 { return float64(p.Seen) / float64(max(p.Of, 1)) }

// Part is the same for templates.
func (p sharePoint) Part() float64 { return p.seen() }

// chance is the interval that holds 95 % of what is seen when the share is as expected.
func (p sharePoint) chance() (low, high float64) {
	const z = 1.96 // of the normal distribution
	spread := z * math.Sqrt(p.Expected*(1-p.Expected)/float64(max(p.Of, 1)))
	return max(0, p.Expected-spread), min(1, p.Expected+spread)
}

// bars compares lengths.
type bars struct {
	Name string
	Rows []barRow
}

type barRow struct {
	Label, Text, Class string
	Y, Width           float64
}

const barHeight = 22.0

// newBars scales the rows' values to the longest.
func newBars(title string, rows []barRow, values []float64) bars {
	longest := slices.Max(append(slices.Clone(values), 1))
	for i, v := range values {
		rows[i].Y, rows[i].Width = float64(i)*barHeight, max(2, v/longest*(chartWidth-260))
	}
	return bars{Name: title, Rows: rows}
}

// Height of the whole drawing.
func (b bars) Height() float64 { return max(1, float64(len(b.Rows))) * barHeight }
