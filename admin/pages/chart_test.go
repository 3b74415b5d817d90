package pages

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/fleet"
)

func TestStackedCountsEverythingOnce(t *testing.T) {
	t.Parallel()
	since := time.Date(2027, 3, 1, 2, 0, 0, 0, time.UTC)
	at := func(minute int, region string, n uint64) fleet.Count {
		return fleet.Count{Minute: since.Add(time.Duration(minute) * time.Minute), Region: region, N: n}
	}
	c := stacked("home.byregion", []fleet.Count{at(0, "sh", 10), at(0, "sh", 5), at(59, "sh", 1), at(3, "hf", 100),
		at(-1, "sh", 1000), at(60, "sh", 1000)}, window{since, 60}, func(c fleet.Count) string { return c.Region })
	if len(c.Series) != 2 || c.Series[0].Name != "hf" || c.Series[0].Total != 100 || c.Series[1].Total != 16 {
		t.Fatalf("series: %+v", c.Series)
	}
	if len(c.Times) != 12 || len(c.Series[1].Rows) != 12 || c.Series[1].Rows[0] != 15 || c.Series[1].Rows[11] != 1 {
		t.Errorf("the table: %v", c.Series[1].Rows)
	}
	for _, s := range c.Series {
		if strings.Contains(s.Path, "NaN") || strings.Contains(s.Path, "Inf") || !strings.HasSuffix(s.Path, "Z") {
			t.Errorf("path %s", s.Path)
		}
	}
	if !stacked("x", nil, window{since, 60}, nil).Empty {
		t.Error("nothing is not empty")
	}
}

func TestStackedSumsUpTheSmallOnes(t *testing.T) {
	t.Parallel()
	since := time.Date(2027, 3, 1, 2, 0, 0, 0, time.UTC)
	var counts []fleet.Count
	for i := range 40 {
		counts = append(counts, fleet.Count{Minute: since, Region: fmt.Sprintf("r%02d", i), N: uint64(100 - i)})
	}
	c := stacked("x", counts, window{since, 60}, func(c fleet.Count) string { return c.Region })
	total := uint64(0)
	for _, s := range c.Series {
		total += s.Total
	}
	if len(c.Series) != maxSeries+1 || total != 40*100-39*40/2 {
		t.Errorf("%d series with %d", len(c.Series), total)
	}
}

func TestAxisIsRound(t *testing.T) {
	t.Parallel()
	for peak, want := range map[float64]float64{1: 1, 1.5: 2, 3: 4, 5: 6, 7: 8, 8.1: 10, 4100: 6000, 99: 100} {
		if got := ceiling(peak); math.Abs(got-want) > 1e-9 {
			t.Errorf("ceiling(%v) = %v, want %v", peak, got, want)
		}
	}
}

// 95 % of what chance gives lies in the band: 1.96 standard deviations of a share.
func TestShareHasItsBand(t *testing.T) {
	t.Parallel()
	low, high := sharePoint{Expected: 0.05, Of: 500}.chance()
	if math.Abs(low-0.0309) > 0.0001 || math.Abs(high-0.0691) > 0.0001 {
		t.Errorf("%.4f to %.4f", low, high)
	}
	if low, high := (sharePoint{Expected: 1, Of: 0}).chance(); low != 1 || high != 1 {
		t.Errorf("a full share: %v to %v", low, high)
	}
	s := shareChart("x", []sharePoint{{Expected: 0.05}, {Expected: 0.05, Seen: 30, Of: 500}})
	if s.Empty || s.Seen == "" || strings.Contains(s.Band+s.Seen, "NaN") {
		t.Errorf("%+v", s)
	}
}

func TestOneMinuteIsDrawnToo(t *testing.T) {
	t.Parallel()
	s := shareChart("x", []sharePoint{{Expected: 0.05, Seen: 5, Of: 100}})
	c := stacked("x", []fleet.Count{{N: 1}}, window{time.Time{}, 1}, func(fleet.Count) string { return "" })
	if strings.Contains(s.Band+s.Seen+c.Series[0].Path, "NaN") {
		t.Errorf("%+v %+v", s, c)
	}
}

func TestDurationsAreSpelledWhole(t *testing.T) {
	t.Parallel()
	c := must(readCatalogue(files))
	for d, want := range map[time.Duration][2]string{
		5 * time.Second: {"5\u202fs", "5\u202f秒"}, 10 * time.Minute: {"10\u202fmin", "10\u202f分钟"}, 90 * time.Minute: {"1\u202fh 30\u202fmin", "1\u202f小时 30\u202f分钟"},
		24 * time.Hour: {"24\u202fh", "24\u202f小时"}, 25 * time.Hour: {"25\u202fh", "25\u202f小时"}, 72 * time.Hour: {"3\u202fd", "3\u202f天"},
	} {
		for i, lang := range []string{"en", "zh"} {
			if got := spelled(func(id string, pairs ...any) string { return c.say(lang, id, pairs...) }, d); got != want[i] {
				t.Errorf("%s in %s is %q, want %q", d, lang, got, want[i])
			}
		}
	}
}

func TestNumbersReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		number(1234567): "1\u202f234\u202f567", number(-1200): "-1\u202f200", number(12): "12", number("1234.5"): "1\u202f234.5", number(uint64(1000)): "1\u202f000",
		percent(0.051): "5.1\u202f%", percent(1): "100\u202f%", share(500): "5\u202f%", share("1020"): "10.2\u202f%", share("0"): "0\u202f%", share("5 to 20"): "5 to 20",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
