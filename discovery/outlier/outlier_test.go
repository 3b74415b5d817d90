package outlier

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
)

// lab is an artificial clock and a Watch of instances 0 to n-1 in one group.
type lab struct {
	*Watch[int]
	t   testing.TB
	now time.Time
}

func newLab(t testing.TB, n int) *lab {
	l := &lab{Watch: New[int](), t: t, now: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	l.list(n)
	return l
}

// list makes instances 0 to n-1 the list.
func (l *lab) list(n int) {
	l.See(listed(n, func(int) discovery.Coordinates { return discovery.Coordinates{Env: "prod"} }), l.now)
}

// listed is instances 0 to n-1, each where at has it.
func listed(n int, at func(int) discovery.Coordinates) (all []Listed[int]) {
	for i := range n {
		all = append(all, Listed[int]{Key: i, At: Place{Coordinates: at(i)}})
	}
	return all
}

// note tells so many outcomes of instance k, and returns the last change.
func (l *lab) note(k int, o Outcome, times int) (c Change) {
	for range times {
		if change := l.Note(l.all[k], o, l.now); change.Step != Same {
			c = change
		}
	}
	return c
}

func (l *lab) pass(d time.Duration) { l.now = l.now.Add(d) }

// due is whom to dial now, in order, and in how long to ask again.
func (l *lab) due() (keys []int, wait time.Duration) {
	keys, next := l.Due(100, l.now)
	slices.Sort(keys)
	if !next.IsZero() {
		wait = next.Sub(l.now)
	}
	return keys, wait
}

// dial has those that are due dialled, with that end, until instance k changed.
func (l *lab) dial(k int, connected bool) Change {
	l.t.Helper()
	for range 10 {
		keys, wait := l.due()
		var end Change
		for _, other := range keys {
			if c := l.Dialed(other, connected, l.now); other == k {
				end = c
			}
		}
		if end.Step != Same {
			return end
		}
		if wait == 0 {
			if _, wait = l.due(); wait == 0 {
				return Change{}
			}
		}
		l.pass(wait)
	}
	l.t.Fatal("dials do not end")
	return Change{}
}

// want checks who is lowered, and to what.
func (l *lab) want(what string, lowered map[int]int) {
	l.t.Helper()
	if got := l.Lowered(); fmt.Sprint(got) != fmt.Sprint(lowered) {
		l.t.Errorf("%s: lowered are %v, want %v", what, got, lowered)
	}
}

// C10: what is told in 200 ms steps, and when it is out.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		calls int // that failed before the first dial
		dials []bool
		out   bool
	}{
		{"a call and two dials", 1, []bool{false, false}, true},
		{"a call and one dial", 1, []bool{false}, false},
		{"calls alone: a dial has the last word", 100, nil, false},
		{"calls and a dial", 3, []bool{false}, true},
		{"a dial that succeeds ends the row", 2, []bool{true, false}, false},
		{"the row begins anew", 1, []bool{false, true}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, 3)
			began := l.now
			if c := l.note(0, Unreachable, row.calls); c.Step != Suspected {
				t.Fatalf("%+v, want a suspect", c)
			}
			var last Change
			for i, connected := range row.dials {
				keys, wait := l.due()
				if i > 0 && len(keys) == 0 && wait > 0 {
					l.pass(wait)
					keys, _ = l.due()
				}
				if !slices.Equal(keys, []int{0}) {
					if connected || i == 0 || !row.dials[i-1] {
						t.Fatalf("dial %d: due are %v", i, keys)
					}
					break // it is a suspect no longer
				}
				if again, _ := l.due(); len(again) > 0 {
					t.Fatal("it is dialled twice at a time")
				}
				last = l.Dialed(0, connected, l.now)
			}
			if out := last.Step == PutOut; out != row.out {
				t.Fatalf("out: %v (%+v)", out, last)
			}
			if row.out {
				l.want("one is out", map[int]int{0: 0})
				if last.Kind != NoConnection || last.Term != 1 || last.Until != l.now.Add(30*time.Second) || l.now.Sub(began) >= 2*time.Second {
					t.Errorf("after %v: %+v", l.now.Sub(began), last)
				}
			} else {
				l.want("nobody is out", map[int]int{})
			}
		})
	}
}

// Other outcomes neither end a row of failed connections nor make one.
func TestDialsJudgeConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.note(0, Unreachable, 1)
	l.note(0, Answered, 50) // over connections that it had
	l.note(0, Canceled, 50)
	if c := l.dial(0, false); c.Step != PutOut || c.Kind != NoConnection {
		t.Errorf("%+v", c)
	}
	if c := l.note(1, Canceled, 1000); c != (Change{}) {
		t.Errorf("calls that were given up: %+v", c)
	}
	if keys, wait := l.due(); len(keys) > 0 || wait != 30*time.Second {
		t.Errorf("due: %v, in %v", keys, wait)
	}
}

// Silence needs three calls, and a dial to say of which kind it is.
func TestSilent(t *testing.T) {
	t.Parallel()
	t.Run("a failed dial confirms", func(t *testing.T) {
		l := newLab(t, 3)
		if c := l.note(0, Silent, 2); c != (Change{}) {
			t.Fatalf("two: %+v", c)
		}
		if c := l.note(0, Silent, 1); c.Step != Suspected {
			t.Fatalf("three: %+v", c)
		}
		if c := l.dial(0, false); c.Step != PutOut || c.Kind != NoConnection {
			t.Errorf("%+v", c)
		}
	})
	t.Run("an answer ends the row", func(t *testing.T) {
		l := newLab(t, 3)
		for range 20 {
			if l.note(0, Silent, 2); l.note(0, Answered, 1) != (Change{}) {
				t.Fatal("a change")
			}
			l.pass(time.Second)
		}
	})
	t.Run("it accepts connections and stays silent: failing", func(t *testing.T) {
		l := newLab(t, 3)
		l.note(0, Silent, 3)
		if c := l.dial(0, true); c.Step != Same {
			t.Fatalf("one more call decides, got %+v", c)
		}
		if c := l.note(0, Silent, 1); c.Step != PutOut || c.Kind != Failing {
			t.Errorf("%+v", c)
		}
	})
	t.Run("it accepts connections and answers", func(t *testing.T) {
		l := newLab(t, 3)
		l.note(0, Silent, 3)
		l.dial(0, true)
		l.note(0, Answered, 1)
		if c := l.note(0, Silent, 2); c != (Change{}) {
			t.Errorf("%+v", c)
		}
	})
}

// T71: more than half of at least 20 calls in 5 s.
func TestFailing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		good, failed int
		every        time.Duration
		out          bool
	}{
		{"20 of 20", 0, 20, time.Millisecond, true},
		{"19 of 19", 0, 19, time.Millisecond, false},
		{"half", 15, 15, time.Millisecond, false},
		{"just over half", 15, 16, time.Millisecond, true},
		{"20 in 10 s", 0, 20, 500 * time.Millisecond, false},
		{"20 in 4 s", 0, 20, 200 * time.Millisecond, true},
		{"one in a hundred", 200, 2, time.Millisecond, false},
	} {
		l := newLab(t, 5)
		l.note(0, Answered, row.good)
		var last Change
		for range row.failed {
			last = l.note(0, Failed, 1)
			l.pass(row.every)
		}
		if out := last.Step == PutOut && last.Kind == Failing; out != row.out {
			t.Errorf("%s: %+v", row.name, last)
		}
	}
}

// A suspect is judged by its dial: it does not use up what those that fail may.
func TestSuspectsAreNotFailing(t *testing.T) {
	t.Parallel()
	l := newLab(t, 8)
	for k := range 8 {
		l.note(k, Failed, 19)
		if c := l.note(k, Unreachable, 40); c.Step != Suspected {
			t.Fatalf("%+v", c)
		}
	}
	l.want("before the dials", map[int]int{})
	l.Due(8, l.now)
	for k := range 4 {
		if c := l.Dialed(k, false, l.now); c.Kind != NoConnection {
			t.Errorf("%+v", c)
		}
	}
	for k := 4; k < 8; k++ {
		l.Dialed(k, true, l.now)
	}
	if got := l.Out(); got[NoConnection] != 4 || got[Failing] != 2 {
		t.Errorf("out are %v; half of the four that can be reached may be out as failing", got)
	}
}

// T79, T80, T81: how many of a group may be out as failing, counted afterwards.
func TestCap(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		group, share int
		always       bool
		want         int
	}{
		{3, 67, false, 2}, {3, 50, false, 1}, {3, 10, false, 0}, {3, 10, true, 1},
		{1, 50, true, 0}, {1, 100, true, 0}, {2, 50, true, 1}, {2, 100, true, 1},
		{8, 50, true, 4}, {8, 75, true, 6}, {10, 10, false, 1}, {0, 50, true, 0},
	} {
		l := newLab(t, row.group)
		l.share, l.always = row.share, row.always
		for range 3 {
			for k := range row.group {
				l.note(k, Failed, 30)
			}
			l.pass(time.Second)
		}
		if got := len(l.Lowered()); got != row.want {
			t.Errorf("of %d at %d %% (one always: %v) are out %d, want %d", row.group, row.share, row.always, got, row.want)
		}
	}
}

// Groups do not stand in for one another: the only one of its version stays.
func TestGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.See(listed(4, func(k int) discovery.Coordinates { return discovery.Coordinates{Version: fmt.Sprint(min(k, 1))} }), l.now)
	for k := range 4 {
		l.note(k, Failed, 30)
	}
	if got := l.Lowered(); len(got) != 1 || got[0] != 0 {
		t.Errorf("%v", got)
	}
	if _, is := l.Lowered()[0]; is {
		t.Error("the only one of its version is out")
	}
}

// All unreachable are out, whatever else is: the table has the panic rule.
func TestAllUnreachable(t *testing.T) {
	t.Parallel()
	l := newLab(t, 8)
	for k := range 8 {
		l.note(k, Unreachable, 3)
	}
	l.dial(0, false)
	if got := l.Out(); got[NoConnection] != 8 {
		t.Errorf("%v", got)
	}
	// Somebody answers in the panic: it is dialled now and not at the end of its term.
	l.pass(5 * time.Second)
	if c := l.note(3, Answered, 2); c.Step != Suspected {
		t.Fatalf("%+v", c)
	}
	if keys, _ := l.due(); !slices.Equal(keys, []int{3}) {
		t.Fatalf("due: %v", keys)
	}
	if c := l.Dialed(3, false, l.now); c != (Change{}) {
		t.Fatalf("a dial ahead of time costs %+v", c)
	}
	l.note(3, Answered, 1)
	if c := l.dial(3, true); c.Step != OnTrial {
		t.Fatalf("%+v", c)
	}
}

// Terms: 30 s × how often in a row, at most 5 minutes; then a dial, then a trial.
func TestTerms(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	l.note(0, Unreachable, 1)
	c := l.dial(0, false)
	for term := 1; term <= 12; term++ {
		want := min(time.Duration(term)*30*time.Second, 5*time.Minute)
		if c.Step != PutOut || c.Term != term || c.Until.Sub(l.now) != want || c.Stays != (term > 1) {
			t.Fatalf("term %d: %+v, %v", term, c, c.Until.Sub(l.now))
		}
		l.pass(want - time.Millisecond)
		if keys, _ := l.due(); len(keys) > 0 {
			t.Fatalf("term %d: it is dialled too early", term)
		}
		l.pass(time.Millisecond)
		c = l.dial(0, false)
	}
	l.pass(5 * time.Minute)
	if c = l.dial(0, true); c.Step != OnTrial {
		t.Fatalf("%+v", c)
	}
	l.want("on trial", map[int]int{0: 100})
	if c = l.note(0, Answered, 2); c.Step != Same {
		t.Fatalf("%+v", c)
	}
	if c = l.note(0, Answered, 1); c.Step != Returned || c.Kind != NoConnection {
		t.Fatalf("%+v", c)
	}
	l.want("back", map[int]int{})
	l.pass(5*time.Minute - time.Second)
	l.note(0, Unreachable, 1)
	if c = l.dial(0, false); c.Term != 14 {
		t.Errorf("soon after: %+v", c)
	}
	l.pass(5 * time.Minute)
	l.dial(0, true)
	l.note(0, Answered, 3)
	l.pass(5 * time.Minute)
	l.note(0, Unreachable, 1)
	if c = l.dial(0, false); c.Term != 1 {
		t.Errorf("after five quiet minutes: %+v", c)
	}
}

// One failed call ends a trial, whatever kind it was.
func TestTrial(t *testing.T) {
	t.Parallel()
	for o, kind := range map[Outcome]Kind{Failed: Failing, Silent: Failing, Unreachable: NoConnection} {
		l := newLab(t, 4)
		l.note(0, Failed, 20)
		l.pass(30 * time.Second)
		l.dial(0, true)
		l.note(0, Answered, 2)
		if c := l.note(0, o, 1); c.Step != PutOut || c.Kind != kind || c.Term != 2 || c.Stays || c.Until.Sub(l.now) != time.Minute {
			t.Errorf("%v: %+v", o, c)
		}
		if got := l.Out(); got[kind] != 1 || got[Failing]+got[NoConnection] != 1 {
			t.Errorf("%v: out are %v", o, got)
		}
	}
	l := newLab(t, 4)
	l.note(0, Failed, 20)
	l.pass(30 * time.Second)
	l.dial(0, true)
	l.note(0, Answered, 2)
	l.note(0, Canceled, 1)
	if c := l.note(0, Answered, 1); c.Step != Returned {
		t.Errorf("a call that was given up: %+v", c)
	}
}

// Trials keep to the cap too: a partition that ends puts nobody out as failing
// beyond it.
func TestTrialsKeepToTheCap(t *testing.T) {
	t.Parallel()
	l := newLab(t, 8)
	for k := range 8 {
		l.note(k, Unreachable, 1)
	}
	l.dial(0, false)
	l.pass(30 * time.Second)
	keys, _ := l.due()
	for _, k := range keys {
		l.Dialed(k, true, l.now)
	}
	for k := range 8 {
		l.note(k, Failed, 1)
	}
	if got := l.Out(); got[Failing] > 4 {
		t.Errorf("out are %v", got)
	}
}

// T16: a check that flips each second for a minute puts it out once a term.
func TestFlappingIsPutOutOnceATerm(t *testing.T) {
	t.Parallel()
	for _, group := range []int{1, 3} {
		flap(t, newLab(t, group))
	}
}

func flap(t *testing.T, l *lab) {
	puts := 0
	for second := range 60 {
		up := second%2 == 1
		for range 10 {
			if o := map[bool]Outcome{true: Answered, false: Unreachable}[up]; l.note(0, o, 1).Step == PutOut {
				puts++
			}
			keys, _ := l.due()
			for _, k := range keys {
				if l.Dialed(k, up, l.now).Step == PutOut {
					puts++
				}
			}
			l.pass(100 * time.Millisecond)
		}
	}
	if puts < 1 || puts > 2 { // one for each of the terms of 30 s and 60 s
		t.Errorf("it was put out %d times in a minute", puts)
	}
}

// T21: a registry that flaps lets nobody back without a dial, for ten minutes.
func TestWhoLeavesKeepsItsTerm(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.note(2, Unreachable, 1)
	l.dial(2, false)
	l.list(2)
	l.want("it left", map[int]int{})
	if keys, wait := l.due(); len(keys) > 0 || wait > 0 {
		t.Errorf("who is not in the list is dialled: %v in %v", keys, wait)
	}
	if c := l.note(2, Unreachable, 3); c != (Change{}) {
		t.Errorf("a call to one that left: %+v", c)
	}
	l.pass(9 * time.Minute)
	l.list(3)
	l.want("it came back", map[int]int{2: 0})
	if keys, _ := l.due(); !slices.Equal(keys, []int{2}) {
		t.Fatalf("due: %v", keys)
	}
	if c := l.Dialed(2, false, l.now); c.Term != 2 {
		t.Errorf("%+v", c)
	}
	l.list(2)
	l.pass(10*time.Minute + time.Second)
	l.list(2)
	if len(l.all) != 2 {
		t.Errorf("%d are remembered", len(l.all))
	}
}

// A dial that ends after its instance left does nothing, also when that is back.
func TestDialOfOneThatLeft(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.note(1, Unreachable, 1)
	if keys, _ := l.due(); len(keys) != 1 {
		t.Fatal("not due")
	}
	l.list(1)
	l.list(2)
	if keys, _ := l.due(); len(keys) > 0 {
		t.Error("two dials at a time")
	}
	l.Dialed(1, false, l.now)
	l.Dialed(7, false, l.now)
	l.list(1)
	l.list(1)
	if len(l.all) != 1 || len(l.ill) != 0 {
		t.Errorf("remembered: %d, %d", len(l.all), len(l.ill))
	}
}

// A dial that began before a term says nothing about its end, however it ends.
func TestDialFromBeforeTheTerm(t *testing.T) {
	t.Parallel()
	for _, connected := range []bool{true, false} {
		l := newLab(t, 3)
		l.note(0, Answered, 1)
		l.list(4)
		l.pass(untriedFor)
		if keys, _ := l.due(); !slices.Equal(keys, []int{3}) {
			t.Fatalf("due: %v", keys)
		}
		if c := l.note(3, Failed, 30); c.Step != PutOut {
			t.Fatalf("%+v", c)
		}
		l.pass(400 * time.Millisecond)
		if c := l.Dialed(3, connected, l.now); c != (Change{}) {
			t.Errorf("connected %v: %+v", connected, c)
		}
		l.want("its term goes on", map[int]int{3: 0})
		l.pass(termFor)
		if c := l.dial(3, true); c.Step != OnTrial {
			t.Errorf("at the end of its term: %+v", c)
		}
	}
}

// A dial that this process could not make says nothing, and is made again.
func TestDialThatWasNotMade(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.note(0, Unreachable, 2)
	for range 10 {
		if keys, _ := l.due(); !slices.Equal(keys, []int{0}) {
			t.Fatalf("due: %v", keys)
		}
		l.NotDialed(0, l.now)
		if keys, wait := l.due(); len(keys) > 0 || wait != faultFor {
			t.Fatalf("due: %v, in %s", keys, wait)
		}
		l.pass(faultFor)
	}
	l.want("nobody is out", map[int]int{})
	c := l.dial(0, false)
	if c.Step != PutOut {
		t.Fatalf("%+v", c)
	}
	l.pass(termFor)
	l.due()
	if l.NotDialed(0, l.now); l.dial(0, true).Step != OnTrial {
		t.Error("its term does not end")
	}
	l.NotDialed(7, l.now)
}

func TestOwnFault(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOBUFS: true, syscall.ENOMEM: true, syscall.EADDRNOTAVAIL: true,
		syscall.ECONNREFUSED: false, syscall.ECONNRESET: false, syscall.EHOSTUNREACH: false, syscall.ENETUNREACH: false, syscall.ETIMEDOUT: false,
		context.DeadlineExceeded: false,
	} {
		if got := OwnFault(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", err)}); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if OwnFault(nil) {
		t.Error("no error is no fault")
	}
}

// Instances that come and go leave nothing behind, ill or not.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	for i := range 5000 {
		l.See([]Listed[int]{{Key: i}, {Key: -1}}, l.now)
		if l.note(i, Unreachable, 1); i%2 == 0 {
			l.dial(i, false)
		}
		l.pass(time.Second)
		if most := int(rememberFor/time.Second)/2 + 5; len(l.all) > most {
			t.Fatalf("after %d instances %d are remembered, at most %d", i, len(l.all), most)
		}
	}
	l.See(nil, l.now)
	l.pass(time.Hour)
	if l.See(nil, l.now); !l.Empty() || len(l.groups) > 0 || len(l.ill) > 0 {
		t.Errorf("%d are remembered", len(l.all))
	}
}

// No more than asked for are dialled together, and the others' turn comes.
func TestDialsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, 100)
	for k := range 100 {
		l.note(k, Unreachable, 1)
	}
	all := map[int]bool{}
	for range 10 {
		keys, _ := l.Due(10, l.now)
		if len(keys) != 10 {
			t.Fatalf("%d are dialled", len(keys))
		}
		for _, k := range keys {
			all[k] = true
			l.Dialed(k, true, l.now)
		}
	}
	if len(all) != 100 {
		t.Errorf("%d had their turn", len(all))
	}
}

// The counts of groups follow the states, whatever happens.
func FuzzCounts(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	f.Add([]byte("a Watch of six instances in two groups, and what is told of them"))
	f.Fuzz(func(t *testing.T, told []byte) {
		l := newLab(t, 6)
		for i := 0; i+1 < len(told); i += 2 {
			k, what := int(told[i]%6), told[i+1]
			switch what % 8 {
			case 0, 1, 2, 3:
				c := l.note(k, Outcome(what%4), 1+int(what)/16)
				if s := l.all[k]; s == nil {
					continue
				} else if g := *s.group; c.Step == PutOut && c.Kind == Failing && g.failing+g.unreachable >= g.all {
					t.Fatalf("the last one was put out as failing: %+v", g)
				}
			case 4, 5:
				keys, _ := l.due()
				for _, k := range keys {
					l.Dialed(k, what%8 == 4, l.now)
				}
			case 6:
				l.pass(time.Duration(what) * time.Second)
			case 7:
				all := listed(k, func(n int) discovery.Coordinates { return discovery.Coordinates{Version: fmt.Sprint(n % 2)} })
				for n := range all {
					all[n].At.Idle = what>>3>>n&1 == 1
				}
				l.See(all, l.now)
			}
			check(t, l)
		}
	})
}

func check(t *testing.T, l *lab) {
	if *l.blank != (state{}) {
		t.Fatalf("what nothing happened to is %+v", *l.blank)
	}
	want := map[*group]group{}
	for k, s := range l.all {
		g := want[s.group]
		g.all++
		switch {
		case s.phase != serving && s.kind == Failing:
			g.failing++
		case s.phase != serving:
			g.unreachable++
		}
		want[s.group] = g
		if (l.ill[k] != nil) != s.ill() {
			t.Fatalf("instance %d is on the wrong list: %+v", k, s)
		}
	}
	for g, counts := range want {
		if l.groups != nil && slices.Contains(mapValues(l.groups), g) && (g.all != counts.all || g.unreachable != counts.unreachable || g.failing != counts.failing) {
			t.Fatalf("a group counts %+v, it has %+v", *g, counts)
		}
	}
}

func mapValues(m map[Place]*group) (all []*group) {
	for _, g := range m {
		all = append(all, g)
	}
	return all
}

// The way of nearly all calls.
func BenchmarkAnswered(b *testing.B) {
	l := newLab(b, 1000)
	all := make([]*Instance[int], 1000)
	for k := range all {
		all[k] = l.all[k]
	}
	b.ReportAllocs()
	for i := range b.N {
		l.Note(all[i%1000], Answered, l.now)
	}
}

// What Done of every call waits for when a list changes by one.
func BenchmarkSee(b *testing.B) {
	type process struct {
		host    string
		port    uint16
		started int64
	}
	for _, size := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, now := New[process](), time.Now()
			list := make([]Listed[process], size)
			for i := range list {
				list[i] = Listed[process]{Key: process{host: fmt.Sprintf("10.0.%d.%d", i/250, i%250), port: 80},
					At: Place{Coordinates: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod"}}}
			}
			b.ReportAllocs()
			for i := range b.N {
				list[i%size].Key.started++
				w.See(list, now)
			}
		})
	}
}

// Most of a list are never called from here, and cost next to nothing.
func TestWhoIsNeverCalledIsSmall(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1000)
	l.note(7, Answered, 3)
	l.note(8, Canceled, 3)
	states := 0
	for _, s := range l.all {
		if s.state != l.blank {
			states++
		}
	}
	if states != 1 {
		t.Errorf("%d of 1000 have a state after calls to one", states)
	}
	check(t, l)
}

// An address that two entries name is one instance.
func TestWhoStandsTwice(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	at := l.See([]Listed[int]{{Key: 1}, {Key: 1}, {Key: 2}}, l.now)
	if at[0] != at[1] || at[0] == at[2] || at[0].group.all != 2 {
		t.Errorf("%+v", at)
	}
}

// Nobody is dialled in a group that this process never calls, and those of one that it
// calls are also after all of them were replaced.
func TestNewcomersOfOtherGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	list := func(prod, test []int) {
		var all []Listed[int]
		for _, k := range prod {
			all = append(all, Listed[int]{Key: k, At: Place{Coordinates: discovery.Coordinates{Env: "prod"}}})
		}
		for _, k := range test {
			all = append(all, Listed[int]{Key: k, At: Place{Coordinates: discovery.Coordinates{Env: "test"}}})
		}
		l.See(all, l.now)
	}
	dialled := func() (all []int) {
		for end := l.now.Add(untriedFor + time.Second); l.now.Before(end); l.pass(100 * time.Millisecond) {
			keys, _ := l.due()
			for _, k := range keys {
				all = append(all, k)
				l.Dialed(k, true, l.now)
			}
		}
		slices.Sort(all)
		return all
	}
	list([]int{1}, []int{11})
	l.note(1, Answered, 1)
	for _, step := range []struct {
		name       string
		prod, test []int
		after      time.Duration
		want       []int
	}{
		{"one more of each", []int{1, 2}, []int{11, 12}, 0, []int{2}},
		{"all of prod go", nil, []int{11, 12, 13}, 0, nil},
		{"others come", []int{3, 4}, []int{12, 14}, 0, []int{3, 4}},
		{"a day later all are replaced", []int{5, 6}, []int{15, 16}, 24 * time.Hour, []int{5, 6}},
		{"all of prod go again", nil, []int{15, 16}, 0, nil},
		{"and come back when nobody remembers", []int{7}, []int{15, 17}, time.Hour, nil},
	} {
		l.pass(step.after)
		list(step.prod, step.test)
		if got := dialled(); !slices.Equal(got, step.want) {
			t.Errorf("%s: dialled are %v, want %v", step.name, got, step.want)
		}
	}
	if len(l.groups) != 2 {
		t.Errorf("%d groups", len(l.groups))
	}
}

// Those that take nothing stand in for nobody: the only one that serves is never out
// as failing, and may be when another serves again.
func TestIdleOnesStandInForNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	idle := func(all ...int) {
		list := listed(3, func(int) discovery.Coordinates { return discovery.Coordinates{Env: "prod"} })
		for _, k := range all {
			list[k].At.Idle = true
		}
		l.See(list, l.now)
	}
	idle(1, 2)
	l.note(0, Failed, 50)
	l.want("the only one", map[int]int{})
	idle(2)
	l.note(0, Failed, 50)
	l.want("two serve", map[int]int{0: 0})
	idle(1, 2)
	l.want("it stays out; the table lets it serve", map[int]int{0: 0})
	check(t, l)
}

// Nobody is dialled that takes nothing: neither who comes, nor who is out. When it
// takes calls again it is.
func TestIdleOnesAreNotDialled(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	idle := func(all ...int) {
		list := listed(4, func(int) discovery.Coordinates { return discovery.Coordinates{Env: "prod"} })
		for _, k := range all {
			list[k].At.Idle = true
		}
		l.See(list, l.now)
	}
	l.note(0, Unreachable, 1)
	l.dial(0, false)
	l.note(1, Unreachable, 1)
	l.note(2, Answered, 1)
	idle(0, 1, 3)
	l.pass(time.Minute)
	if keys, wait := l.due(); len(keys) > 0 || wait > 0 {
		t.Errorf("due: %v in %s", keys, wait)
	}
	idle()
	l.pass(untriedFor)
	if keys, _ := l.due(); !slices.Equal(keys, []int{0, 1, 3}) {
		t.Errorf("due: %v", keys)
	}
}

// D10: who comes later is dialled before it is warm, if anybody calls the service.
func TestNewcomersAreTried(t *testing.T) {
	l := newLab(t, 2)
	l.list(3)
	if keys, wait := l.due(); len(keys) > 0 || wait > 0 {
		t.Errorf("nobody calls the service: due are %v in %s", keys, wait)
	}
	l.note(0, Answered, 1)
	l.list(5)
	if _, wait := l.due(); wait > untriedFor {
		t.Errorf("the next dial is in %s", wait)
	}
	tried := map[int]int{}
	for end := l.now.Add(untriedFor + time.Second); l.now.Before(end); l.pass(100 * time.Millisecond) {
		keys, _ := l.due()
		for _, k := range keys {
			tried[k]++
			l.Dialed(k, k == 3, l.now)
		}
	}
	if tried[3] != 1 || tried[4] < failuresOut || len(tried) != 2 {
		t.Errorf("dialled are %v", tried)
	}
	l.want("3 accepts, 4 does not", map[int]int{4: 0})
}
