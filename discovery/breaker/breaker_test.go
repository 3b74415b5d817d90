package breaker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const ms = time.Millisecond

// day is when replays begin. Nothing sleeps: now is an argument.
var day = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func at(t time.Duration) time.Time { return day.Add(t) }

// stretch is calls at an even rate, the bad ones spread evenly among them.
type stretch struct {
	from, to     time.Duration
	rate         int // a second
	failed, slow int // of each hundred
	took         time.Duration
}

// replay makes the calls and says when it was first found open.
func replay(b *Breaker, all ...stretch) (opened time.Duration, ok bool) {
	for _, s := range all {
		every := time.Second / time.Duration(s.rate)
		for i := 0; s.from+time.Duration(i)*every < s.to; i++ {
			t := s.from + time.Duration(i)*every
			p, allowed := b.Allow(at(t))
			if !allowed {
				_, until := b.State(at(t))
				return until.Sub(day) - 30*time.Second, true
			}
			took := time.Millisecond
			if (i+1)*s.slow/100 > i*s.slow/100 {
				took = s.took
			}
			b.Done(p, (i+1)*s.failed/100 > i*s.failed/100, took, at(t))
		}
		if state, until := b.State(at(s.to)); state != Closed {
			return until.Sub(day) - 30*time.Second, true
		}
	}
	return 0, false
}

// C02, C17: what opens, and when, to the second.
func TestOpens(t *testing.T) {
	t.Parallel()
	s := time.Second
	for name, c := range map[string]struct {
		calls []stretch
		after time.Duration // 0: never
	}{
		"801 ms for 10 s":                {[]stretch{{0, 10 * s, 50, 0, 100, 801 * ms}}, 10 * s},
		"801 ms for 9 s":                 {[]stretch{{0, 9 * s, 50, 0, 100, 801 * ms}, {9 * s, 30 * s, 50, 0, 0, 0}}, 0},
		"800 ms for a minute":            {[]stretch{{0, 60 * s, 50, 0, 100, 800 * ms}}, 0},
		"9 s that touch ten tenths":      {[]stretch{{0, 500 * ms, 100, 0, 0, 0}, {500 * ms, 9500 * ms, 100, 0, 100, s}, {9500 * ms, 30 * s, 100, 0, 0, 0}}, 0},
		"10 s that touch eleven tenths":  {[]stretch{{0, 500 * ms, 100, 0, 0, 0}, {500 * ms, 10500 * ms, 100, 0, 100, s}, {10500 * ms, 30 * s, 100, 0, 0, 0}}, 11 * s},
		"a well second between":          {[]stretch{{0, 5 * s, 50, 0, 100, s}, {5 * s, 6 * s, 50, 0, 0, 0}, {6 * s, 15 * s, 50, 0, 100, s}}, 0},
		"9 s, a well while, 9 s":         {[]stretch{{0, 9 * s, 100, 0, 5, s}, {9 * s, 17 * s, 100, 0, 0, 0}, {17 * s, 26 * s, 100, 0, 5, s}}, 0},
		"9 s, a well while, 10 s":        {[]stretch{{0, 9 * s, 100, 0, 5, s}, {9 * s, 17 * s, 100, 0, 0, 0}, {17 * s, 30 * s, 100, 0, 5, s}}, 27 * s},
		"2 % slow for 10 s":              {[]stretch{{0, 10 * s, 1000, 0, 2, s}}, 10 * s},
		"1 % slow for a minute":          {[]stretch{{0, 60 * s, 1000, 0, 1, s}}, 0},
		"99 calls in 10 s":               {[]stretch{{0, 60 * s, 9, 0, 100, s}}, 0},
		"100 calls in 10 s":              {[]stretch{{0, 12 * s, 10, 0, 100, s}}, 10 * s},
		"a burst of slow calls":          {[]stretch{{0, s, 1000, 0, 100, s}, {s, 30 * s, 1, 0, 0, 0}}, 0},
		"7 % of 10 calls a second":       {[]stretch{{0, 60 * s, 10, 0, 7, 2 * s}}, 12 * s},
		"2 % of 10 calls a second":       {[]stretch{{0, 60 * s, 10, 0, 2, 2 * s}}, 15 * s},
		"slow and failed":                {[]stretch{{0, 10 * s, 50, 100, 100, 3 * s}}, 19 * s / 50},
		"51 % of 100 calls in 5 s":       {[]stretch{{0, 5 * s, 20, 51, 0, 0}}, 2500 * ms},
		"50 % of 100 calls in 5 s":       {[]stretch{{0, 5 * s, 20, 50, 0, 0}}, 0},
		"50 % for a minute":              {[]stretch{{0, 60 * s, 20, 50, 0, 0}}, 0},
		"19 failed calls":                {[]stretch{{0, 19 * s / 20, 20, 100, 0, 0}}, 0},
		"20 failed calls":                {[]stretch{{0, s, 20, 100, 0, 0}}, 19 * s / 20},
		"20 failed calls in 6 s":         {[]stretch{{0, 60 * s, 3, 100, 0, 0}}, 0},
		"4 failed calls a second":        {[]stretch{{0, 60 * s, 4, 100, 0, 0}}, 4750 * ms},
		"60 % errors after a long peace": {[]stretch{{0, 60 * s, 100, 0, 0, 0}, {60 * s, 70 * s, 100, 60, 0, 0}}, 64100 * ms},
	} {
		opened, ok := replay(New(Settings{}), c.calls...)
		if ok != (c.after > 0) || opened != c.after {
			t.Errorf("%s: opened %v after %s, want %s", name, ok, opened, c.after)
		}
	}
}

// Fifty callers that wait 2.5 s each, all at once, leave tenths without a call.
func TestSlowInWaves(t *testing.T) {
	t.Parallel()
	wave := func(b *Breaker, t time.Duration) {
		for range 50 {
			b.Done(Permit{}, false, 2500*ms, at(t))
		}
	}
	b := New(Settings{})
	b.Allow(at(0))
	for t := 2500 * ms; t <= 12500*ms; t += 2500 * ms {
		wave(b, t)
	}
	if s, until := b.State(at(13 * time.Second)); s != Open || !until.Equal(at(43*time.Second)) {
		t.Errorf("after 10 s of waves: %s until %s", s, until)
	}
	for between, want := range map[time.Duration]bool{6 * time.Second: true, 11 * time.Second: false} {
		b = New(Settings{})
		b.Allow(at(0))
		opened := false
		for t := between; t <= time.Minute; t += between {
			wave(b, t)
			wave(b, t)
			s, _ := b.State(at(t + time.Second))
			opened = opened || s != Closed
		}
		if opened != want {
			t.Errorf("waves with %s of nothing between open: %v", between, opened)
		}
	}
}

// What hangs for some seconds does not last, whatever its phase, and although single
// calls are slow before and after it.
func TestBurstAmongStraySlowCalls(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{500, 1000} {
		for hangs := time.Second; hangs <= 8*time.Second; hangs += time.Second {
			for phase := time.Duration(0); phase < time.Second; phase += 100 * ms {
				b, every := New(Settings{}), time.Second/time.Duration(rate)
				from := 20*time.Second + phase
				for now := time.Duration(0); now < time.Minute; now += every {
					took := ms
					if now >= from && now < from+hangs || now%(2*time.Second) == 0 {
						took = time.Second
					}
					p, ok := b.Allow(at(now))
					if !ok {
						t.Fatalf("%d a second, of which all were slow for %s from %s on: open at %s", rate, hangs, from, now)
					}
					b.Done(p, false, took, at(now))
				}
			}
		}
	}
}

// A tenth's end opens without a further call: the 30 s count from there.
func TestOpensWithoutACall(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	for i := range 500 {
		b.Done(Permit{}, false, time.Second, at(time.Duration(i)*20*ms))
	}
	if s, _ := b.State(at(9999 * ms)); s != Closed {
		t.Errorf("before the tenth tenth is over: %s", s)
	}
	if s, until := b.State(at(20 * time.Second)); s != Open || !until.Equal(at(40*time.Second)) {
		t.Errorf("asked 10 s later: %s until %s", s, until)
	}
}

// T90: what was refused, given up or let through in another state is in no window.
func TestCountsForNothing(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	for range 1000 {
		p, _ := b.Allow(at(0))
		b.Release(p)
	}
	old, _ := b.Allow(at(0))
	for range 19 {
		b.Done(Permit{}, true, 0, at(0))
	}
	if s, _ := b.State(at(0)); s != Closed {
		t.Fatalf("after 19 failures: %s", s)
	}
	open(t, b, at(0))
	for range 1000 {
		if _, ok := b.Allow(at(time.Second)); ok {
			t.Fatal("let through while open")
		}
	}
	for range 3 {
		p, _ := b.Allow(at(30 * time.Second))
		b.Done(p, false, ms, at(30*time.Second))
	}
	if s, _ := b.State(at(30 * time.Second)); s != Closed {
		t.Fatalf("after three probes: %s", s)
	}
	for range 100 {
		b.Done(old, true, 0, at(30*time.Second))
	}
	if s, _ := b.State(at(30 * time.Second)); s != Closed {
		t.Errorf("after calls of before: %s", s)
	}
	for i := range 20 {
		p, _ := b.Allow(at(31 * time.Second))
		b.Done(p, i > 9, 0, at(31*time.Second))
	}
	if s, _ := b.State(at(31 * time.Second)); s != Closed {
		t.Errorf("10 of 20 failed: %s", s)
	}
	p, _ := b.Allow(at(31 * time.Second))
	b.Done(p, true, 0, at(31*time.Second))
	if s, _ := b.State(at(31 * time.Second)); s != Open {
		t.Errorf("11 of 21 failed: %s", s)
	}
}

// open makes it fail until it is open.
func open(t *testing.T, b *Breaker, now time.Time) {
	t.Helper()
	for range 50 {
		if p, ok := b.Allow(now); ok {
			b.Done(p, true, 0, now)
		}
	}
	if s, until := b.State(now); s != Open || !until.Equal(now.Add(30*time.Second)) {
		t.Fatalf("%s until %s after 50 failures", s, until)
	}
}

// T87: half-open comes with the time and not with a call, and stays.
func TestHalfOpenByTheClock(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	open(t, b, at(0))
	for after, want := range map[time.Duration]State{
		0: Open, 29999 * ms: Open, 30 * time.Second: HalfOpen, time.Minute: HalfOpen, time.Hour: HalfOpen,
	} {
		s, until := b.State(at(after))
		if s != want || (want == HalfOpen) != until.IsZero() {
			t.Errorf("after %s: %s until %s", after, s, until)
		}
		if s.String() != map[State]string{Open: "open", HalfOpen: "half_open"}[want] {
			t.Errorf("%d is called %s", s, s)
		}
	}
}

// T83, T86: three probes in all; three that pass close, the first that does not opens.
func TestProbes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends  []string // of the probes, in their order, 10 ms apart
		want  State
		after time.Duration // the 30th second it opened again
	}{
		"none ended":         {nil, HalfOpen, 0},
		"two passed":         {[]string{"good", "good"}, HalfOpen, 0},
		"three passed":       {[]string{"good", "good", "good"}, Closed, 0},
		"the third failed":   {[]string{"good", "good", "failed"}, Open, 30 * ms},
		"the first failed":   {[]string{"failed"}, Open, 10 * ms},
		"the first was slow": {[]string{"slow"}, Open, 10 * ms},
		"others came later":  {[]string{"failed", "good", "good"}, Open, 10 * ms},
		"one was given up":   {[]string{"good", "good", "given up"}, HalfOpen, 0},
	} {
		b := New(Settings{})
		open(t, b, at(0))
		now := at(30 * time.Second)
		var permits []Permit
		for range 50 {
			if p, ok := b.Allow(now); ok {
				permits = append(permits, p)
			}
		}
		if len(permits) != 3 {
			t.Fatalf("%s: %d of 50 callers were let through", name, len(permits))
		}
		for i, end := range c.ends {
			now = now.Add(10 * ms)
			switch end {
			case "given up":
				b.Release(permits[i])
			default:
				took := 10 * ms
				if end == "slow" {
					took = 801 * ms
				}
				b.Done(permits[i], end == "failed", took, now)
			}
			b.Done(permits[i], false, 0, now) // again: counts for nothing
			b.Release(permits[i])
		}
		if s, until := b.State(now); s != c.want || s == Open && !until.Equal(at(time.Minute+c.after)) {
			t.Errorf("%s: %s until %s", name, s, until)
		}
	}
}

// T84: a probe's permit is free again when it is given back, and at its deadline.
func TestPermitsComeBack(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	open(t, b, at(0))
	granted := func(now time.Time) (all []Permit) {
		for p, ok := b.Allow(now); ok; p, ok = b.Allow(now) {
			all = append(all, p)
		}
		return all
	}
	first := granted(at(30 * time.Second)) // never return
	if n := len(granted(at(32999 * ms))); len(first) != 3 || n != 0 {
		t.Fatalf("%d probes, and %d before their deadline", len(first), n)
	}
	second := granted(at(33 * time.Second))
	if len(second) != 3 {
		t.Fatalf("%d probes at the deadline of the first", len(second))
	}
	b.Done(first[0], false, 10*ms, at(33*time.Second)) // too late to pass
	b.Release(first[1])                                // has nothing to give
	if n := len(granted(at(33 * time.Second))); n != 0 {
		t.Errorf("%d more after late ends", n)
	}
	b.Release(second[0]) // panicked, or was given up
	third := granted(at(34 * time.Second))
	if len(third) != 1 {
		t.Fatalf("%d more after one was given back", len(third))
	}
	b.Done(second[1], false, 10*ms, at(34*time.Second))
	b.Done(second[2], false, 10*ms, at(34*time.Second))
	b.Done(third[0], false, 10*ms, at(34*time.Second))
	if s, _ := b.State(at(34 * time.Second)); s != Closed {
		t.Errorf("after three that passed: %s", s)
	}
}

// A probe that hangs until its call's deadline ends when its permit has just come
// back. It opens all the same, and one of an earlier round does not.
func TestLateProbes(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	open(t, b, at(0))
	a, _ := b.Allow(at(30 * time.Second))
	c, _ := b.Allow(at(30 * time.Second))
	b.Done(a, true, 3001*ms, at(33001*ms))
	if s, until := b.State(at(33001 * ms)); s != Open || !until.Equal(at(63001*ms)) {
		t.Fatalf("after a probe that hung: %s until %s", s, until)
	}
	b.Done(c, true, 20*time.Second, at(50*time.Second))
	b.Release(c)
	if s, until := b.State(at(50 * time.Second)); s != Open || !until.Equal(at(63001*ms)) {
		t.Errorf("after one of the earlier round: %s until %s", s, until)
	}
	for range 3 {
		p, ok := b.Allow(at(64 * time.Second))
		b.Done(c, false, 0, at(64*time.Second))
		b.Done(c, true, 0, at(64*time.Second))
		b.Done(p, false, 0, at(64*time.Second))
		if !ok {
			t.Fatal("a probe was refused")
		}
	}
	if s, _ := b.State(at(64 * time.Second)); s != Closed {
		t.Errorf("after three that passed: %s", s)
	}
	b.Done(c, true, 0, at(64*time.Second))
}

// 10,000 callers at the 30th second make 3 calls.
func TestManyAtTheThirtiethSecond(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	open(t, b, at(0))
	var let atomic.Int64
	var permits sync.Map
	start := make(chan struct{})
	var all sync.WaitGroup
	for range 10_000 {
		all.Go(func() {
			<-start
			if p, ok := b.Allow(at(30 * time.Second)); ok {
				permits.Store(p, true)
				let.Add(1)
			}
		})
	}
	close(start)
	all.Wait()
	if let.Load() != 3 {
		t.Errorf("%d calls", let.Load())
	}
	permits.Range(func(p, _ any) bool {
		b.Done(p.(Permit), false, ms, at(30*time.Second))
		return true
	})
	if s, _ := b.State(at(30 * time.Second)); s != Closed {
		t.Errorf("after three that passed: %s", s)
	}
}

// Under contention nothing is lost and nothing is counted twice.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := New(Settings{FailedShare: 1, SlowShare: 1})
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			for i := range 500 {
				now := at(time.Duration(i) * ms)
				p, ok := b.Allow(now)
				if !ok {
					t.Error("refused while closed")
				}
				if i%10 == 9 {
					b.Release(p)
				} else {
					b.Done(p, i%2 == 0, time.Duration(g)*20*ms, now)
				}
				b.State(now)
			}
		})
	}
	all.Wait()
	if b.failed.sum != (count{64 * 450, 64 * 250}) || b.slow.sum != (count{64 * 450, 23 * 450}) {
		t.Errorf("counted %v and %v", b.failed.sum, b.slow.sum)
	}
}

func TestSettingsAreFilledIn(t *testing.T) {
	t.Parallel()
	want := Settings{800 * ms, 0.01, 10 * time.Second, 100, 0.5, 5 * time.Second, 20, 30 * time.Second, 3, 3 * time.Second}
	if got := New(Settings{OpenFor: -1}).opt; got != want {
		t.Errorf("%+v", got)
	}
	want.OpenFor, want.Probes = time.Minute, 5
	if got := New(Settings{OpenFor: time.Minute, Probes: 5}).opt; got != want {
		t.Errorf("%+v", got)
	}
}

// Clocks of several processors are read before the lock is had: a call may be a
// little older than the last.
func TestTimeThatIsALittleOlder(t *testing.T) {
	t.Parallel()
	b := New(Settings{})
	b.Allow(at(time.Second))
	for i := range 30 {
		p, _ := b.Allow(at(time.Second - time.Duration(i)*ms))
		b.Done(p, i%2 == 1, ms, at(time.Second-time.Duration(i)*ms))
	}
	if s, _ := b.State(at(0)); s != Closed {
		t.Errorf("half of the calls failed: %s", s)
	}
}

func TestAllocatesNothing(t *testing.T) {
	b := New(Settings{})
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		now := at(time.Duration(i) * 7 * ms)
		p, _ := b.Allow(now)
		b.Done(p, false, ms, now)
		b.State(now)
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// What a call costs: closed, by one and by many; and what a refusal costs.
func BenchmarkAllowDone(b *testing.B) {
	call := func(br *Breaker) {
		p, ok := br.Allow(time.Now())
		if ok {
			br.Done(p, false, ms, time.Now())
		}
	}
	b.Run("closed", func(b *testing.B) {
		br := New(Settings{})
		b.ReportAllocs()
		for b.Loop() {
			call(br)
		}
	})
	b.Run("closed, given time", func(b *testing.B) {
		br, now := New(Settings{}), time.Now()
		b.ReportAllocs()
		for b.Loop() {
			p, _ := br.Allow(now)
			br.Done(p, false, ms, now)
		}
	})
	for _, goroutines := range []int{8, 64} {
		b.Run(fmt.Sprintf("closed, by %d", goroutines), func(b *testing.B) {
			br := New(Settings{})
			b.SetParallelism(goroutines)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call(br)
				}
			})
		})
	}
	b.Run("open", func(b *testing.B) {
		br := New(Settings{OpenFor: time.Hour})
		for range 50 {
			br.Done(Permit{}, true, 0, time.Now())
		}
		b.ReportAllocs()
		for b.Loop() {
			call(br)
		}
	})
}
