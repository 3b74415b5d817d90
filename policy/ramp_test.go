package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// morning is a ramp of ten hours from 9:00 in Shanghai: a bucket each 3.6 s.
func morning() *Ramp {
	start := time.Date(2027, 1, 1, 9, 0, 0, 0, time.FixedZone("", 8*3600))
	return &Ramp{From: 0, To: 10_000, Start: start, End: start.Add(10 * time.Hour)}
}

func ramp(r *Ramp) Policy {
	return Policy{Key: "gray", MatchAll: true, Then: Action{Share: &Share{Region: "hf", Ramp: r}}}
}

func TestRampStandsWhereItsTimeSays(t *testing.T) {
	t.Parallel()
	r := morning()
	part := *r
	part.From, part.To = 500, 2000
	ages := &Ramp{From: 0, To: Whole, Start: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), End: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	instant := &Ramp{From: 1, To: 2, Start: r.Start, End: r.Start.Add(time.Millisecond)}
	for _, row := range []struct {
		name  string
		ramp  *Ramp
		after time.Duration // of 9:00
		want  int
	}{
		{"before", r, -time.Hour, 0},
		{"at the start", r, 0, 0},
		{"a moment before the first bucket", r, 3600*time.Millisecond - 1, 0},
		{"the first bucket", r, 3600 * time.Millisecond, 1},
		{"a quarter", r, 150 * time.Minute, 2500},
		{"a moment before the end", r, 10*time.Hour - 1, 9999},
		{"at the end", r, 10 * time.Hour, 10_000},
		{"long after", r, math.MaxInt64, 10_000},
		{"a part, before", &part, -time.Hour, 500},
		{"a part, half", &part, 5 * time.Hour, 1250},
		{"a part, after", &part, 11 * time.Hour, 2000},
		{"all years that can be written", ages, 0, 2026 * Whole / 9999},
		{"one millisecond, before", instant, 0, 1},
		{"one millisecond, after", instant, time.Millisecond, 2},
	} {
		if got := row.ramp.At(r.Start.Add(row.after)); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}

// Each bucket enters at the moment that explain names, and not a millisecond earlier.
func TestRampEnters(t *testing.T) {
	t.Parallel()
	odd := morning()
	odd.From, odd.To, odd.End = 37, 9_961, odd.Start.Add(26*time.Hour+7*time.Millisecond)
	for _, r := range []*Ramp{morning(), odd} {
		for b := range Whole {
			at, ever := r.Enters(b)
			switch {
			case b < r.From && (!ever || !at.IsZero()), b >= r.To && ever:
				t.Fatalf("bucket %d: %s, %v", b, at, ever)
			case b < r.From || b >= r.To:
			case !ever || r.At(at) <= b || r.At(at.Add(-time.Millisecond)) > b:
				t.Fatalf("bucket %d enters at %s: the ramp goes from %d to %d then", b, at, r.At(at.Add(-time.Millisecond)), r.At(at))
			}
		}
	}
}

// A ramp decides as the share that it stands at, with and without an id (e5, e7, e18).
func TestRampDecidesAsTheShareItStandsAt(t *testing.T) {
	t.Parallel()
	r := morning()
	table := compile(t, rules(ramp(r)), Env{})
	for _, of := range []int{0, 1, 500, 9_999, 10_000} {
		now := r.Start.Add(time.Duration(of) * 3600 * time.Millisecond)
		still := compile(t, rules(gray(of)), Env{})
		for i := range 20_000 {
			req := Request{Now: now, Device: "d" + strconv.Itoa(i)}
			if i == 0 {
				req.Device = ""
			}
			if got, want := table.Decide(&req), still.Decide(&req); got != want {
				t.Fatalf("at %d, %q: %+v, want %+v", of, req.Device, got, want)
			}
		}
	}
}

// P20: a ramp moves nobody back, whatever the instants at which people come.
func TestP20RampMovesNobodyBack(t *testing.T) {
	t.Parallel()
	r := morning()
	r.To = 5_000
	table := compile(t, rules(ramp(r)), Env{})
	var instants []time.Time
	for minute := -30; minute <= 11*60; minute += 30 {
		instants = append(instants, r.Start.Add(time.Duration(minute)*time.Minute))
	}
	inside := 0
	for i := range million / 10 {
		req := Request{Device: "d" + strconv.Itoa(i)}
		was := false
		for _, req.Now = range instants {
			in := table.Decide(&req).Reason == ByPolicy
			if was && !in {
				t.Fatalf("%s leaves at %s", req.Device, req.Now)
			}
			was = in
		}
		if was {
			inside++
		}
	}
	if inside < 49_368 || inside > 50_632 { // half of 100,000 ± 4 sigma of 158
		t.Errorf("%d of 100,000 are inside in the end", inside)
	}
}

func TestRampAllocatesNothing(t *testing.T) {
	r := morning()
	table := compile(t, rules(ramp(r)), Env{})
	req := Request{Now: r.Start.Add(time.Hour), Device: "d-1001"}
	if n := testing.AllocsPerRun(1000, func() { table.Decide(&req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRampExplains(t *testing.T) {
	t.Parallel()
	r := morning()
	r.From, r.To = 100, 5_100 // a bucket each 7.2 s
	table := compile(t, rules(ramp(r)), Env{})
	for _, row := range []struct {
		bucket uint16
		wants  []string
	}{
		{99, []string{"decides hf", "its ramp begins at 100", "the ramp from 100 to 5100 has reached 600"}},
		{599, []string{"decides hf", "[0, 599] hf", "enters when the share reaches 600, at 2027-01-01T02:00:00Z"}},
		{812, []string{"passes on", "enters when the share reaches 813, at 2027-01-01T02:25:33Z"}},
		{5100, []string{"passes on", "its ramp ends at 5100"}},
	} {
		req := Request{Now: r.Start.Add(time.Hour), Device: deviceIn(t, "mobile/gray", row.bucket)}
		_, trace := table.Explain(&req)
		for _, want := range row.wants {
			if !strings.Contains(trace.String(), want) {
				t.Errorf("bucket %d: no %q in\n%s", row.bucket, want, trace.String())
			}
		}
	}
}

// What a ramp takes in the end counts where policies are weighed against each
// other, but one that will take everybody still lets the rules behind it be met.
func TestRampAmongOtherPolicies(t *testing.T) {
	t.Parallel()
	behind := rules(ramp(morning()), Policy{Key: "rest", MatchAll: true, Then: toRegion("gz")})
	if got, _ := where(compile(t, behind, Env{}), Request{Device: "d1"}); got != "gz" {
		t.Errorf("before the ramp: %s, want gz", got)
	}
	r := morning()
	r.To = 600
	second := Policy{Key: "second", MatchAll: true, Salt: "mobile/gray", Then: shareOf("gz", [2]int{500, 999})}
	_, err := Compile(rules(ramp(r), second), Env{})
	if problems := problemsOf(t, err); !slices.ContainsFunc(problems, func(p fault.Problem) bool { return strings.Contains(p.Detail, "overlap") }) {
		t.Errorf("a share over buckets that a ramp takes: %v", problems)
	}
}
