// Package breaker stops calls to a service that does not answer in time or fails,
// and lets a few through after a while to see whether it is well again.
//
//	closed ──more than 1 % slow for 10 s, or more than 50 % failed in 5 s──► open
//	open ──30 s──► half-open ──3 probes pass──► closed
//	                   └──one fails──► open, for another 30 s
//
// A Breaker is counters and no goroutine: its state is a function of what was noted
// and of the time, so it is half-open after 30 s although nobody calls, and a metric
// that asks State says so.
//
// Slow is what took longer than 800 ms. The 10 s are tenths, counted from the first
// call on, and looked at when a tenth with calls is over. It opens then, when
//
//   - there were 100 calls in the last ten tenths, and more than 1 % of them slow,
//   - first and last slow call are 9.5 s apart: what is slow for 9 s touches ten tenths
//     too, and the half leaves room for a few slow calls among many,
//   - and none of the ten was well: at most 1 % slow, and less than a tenth of the slow
//     calls that it would have by the share of all ten, which are five or more.
//
// Few calls prove nothing about a tenth: of ten calls a second one is slow now and
// then, and callers that wait for slow answers come in waves. But a second in which
// everything hung, between stray slow calls, does not last. It begins anew after 10 s
// without a slow call, and after so many calls in time that five slow ones would have
// been among them: 9 s that were slow are over, although they come again. A call is
// counted when it ends, so one that hangs is known by its deadline and not before.
//
// Failed calls are counted over the last 5 s, by tenths of a second, and looked at
// whenever a call ends: it opens at once.
//
// Half-open lets three probes through in all. The first that fails, or is slow, opens
// it again at once and the 30 s start anew; three that pass close it, with nothing
// counted. A probe has a deadline, after which its permit is free again, whatever
// became of the call: it panicked, was given up, never came back. When it ends badly
// after all, that still counts; when it ends well, it does not.
//
// Calls that were given up, and calls that were refused, count for nothing. Nor does
// a call that ends in another state than the one that let it through, or in the same
// one a round later.
//
// Nothing here fails. ADR 0043 says why it is ours.
package breaker

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// State of a Breaker.
type State int

// The states.
const (
	Closed State = iota
	Open
	HalfOpen
)

// String is the state as metrics and pages have it.
func (s State) String() string { return [...]string{"closed", "open", "half_open"}[s] }

// Settings of a Breaker. New fills in what is zero.
type Settings struct {
	Slow      time.Duration // a call that takes longer is slow; default 800 ms
	SlowShare float64       // more than this part of calls is too much; default 0.01
	SlowFor   time.Duration // for this time; default 10 s
	SlowCalls int           // at least so many in it; default 100

	FailedShare float64       // more than this part; default 0.5
	FailedIn    time.Duration // default 5 s
	FailedCalls int           // at least so many in it; default 20

	OpenFor  time.Duration // default 30 s
	Probes   int           // default 3
	ProbeFor time.Duration // after which a probe's permit is free again; default 3 s
}

const (
	slowParts   = 10 // of SlowFor
	failedParts = 50 // of FailedIn: 5 s are exact to 100 ms
)

// Permit is leave to make one call. Give it to Done or Release, once; what is given
// again counts for nothing.
type Permit struct {
	era   uint32 // of the Breaker, when it let the call through
	probe uint32 // number of the probe in it; 0: an ordinary call
}

// Breaker guards one callee. It may be used by many at once.
type Breaker struct {
	opt Settings

	// While closed, Allow needs no lock before this time: no tenth ends before. 0: it does.
	calm atomic.Int64
	era  atomic.Uint32 // one more at each change of state; written under mu

	mu     sync.Mutex // guards the rest
	begun  bool
	origin time.Time // of the first call; written before calm is set, then read without mu
	slow   window
	failed window
	first  time.Duration // slow call since it began anew; none: there is none
	last   time.Duration // slow call
	since  count         // calls from that first one to the last
	run    int           // calls since then, none of them slow
	open   bool          // or half-open
	until  time.Duration // when it becomes half-open
	probes []probe       // Settings.Probes of them
	number uint32        // of the last probe in this era
}

const none = time.Duration(-1)

// probe is one of those that half-open lets through.
type probe struct {
	number uint32 // 0: free
	until  time.Duration
	passed bool
}

// New returns a closed Breaker.
func New(opt Settings) *Breaker {
	opt = Settings{
		Slow:        cmp.Or(max(opt.Slow, 0), 800*time.Millisecond),
		SlowShare:   cmp.Or(max(opt.SlowShare, 0), 0.01),
		SlowFor:     cmp.Or(max(opt.SlowFor, 0), 10*time.Second),
		SlowCalls:   cmp.Or(max(opt.SlowCalls, 0), 100),
		FailedShare: cmp.Or(max(opt.FailedShare, 0), 0.5),
		FailedIn:    cmp.Or(max(opt.FailedIn, 0), 5*time.Second),
		FailedCalls: cmp.Or(max(opt.FailedCalls, 0), 20),
		OpenFor:     cmp.Or(max(opt.OpenFor, 0), 30*time.Second),
		Probes:      cmp.Or(max(opt.Probes, 0), 3),
		ProbeFor:    cmp.Or(max(opt.ProbeFor, 0), 3*time.Second),
	}
	return &Breaker{
		opt: opt, first: none, probes: make([]probe, opt.Probes),
		slow: newWindow(opt.SlowFor, slowParts), failed: newWindow(opt.FailedIn, failedParts),
	}
}

// Allow says whether a call may be made now.
func (b *Breaker) Allow(now time.Time) (Permit, bool) {
	if calm := b.calm.Load(); calm > 0 && int64(now.Sub(b.origin)) < calm {
		return Permit{era: b.era.Load()}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.look(now)
	switch {
	case !b.open:
		return Permit{era: b.era.Load()}, true
	case t < b.until:
		return Permit{}, false
	}
	for i := range b.probes {
		if p := &b.probes[i]; !p.passed && (p.number == 0 || t >= p.until) {
			b.number++
			*p = probe{number: b.number, until: t + b.opt.ProbeFor}
			return Permit{b.era.Load(), b.number}, true
		}
	}
	return Permit{}, false
}

// Done says how the call ended and how long it took. State is worth a look when it
// returns true: the state changed, or the call was a probe.
func (b *Breaker) Done(p Permit, failed bool, took time.Duration, now time.Time) (look bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.era.Load()
	t := b.look(now)
	switch {
	case p.era != b.era.Load():
	case p.probe != 0:
		b.probed(p, failed || took > b.opt.Slow, t)
	case !b.open: // open: it was let through as the breaker opened
		b.note(failed, took > b.opt.Slow, t)
	}
	return p.probe != 0 || b.era.Load() != before
}

// Release gives a permit back for a call that says nothing: it was given up, or
// never made.
func (b *Breaker) Release(p Permit) {
	if p.probe == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.probeOf(p); own != nil {
		*own = probe{}
	}
}

// State is the state at a time, and for Open when it becomes half-open.
func (b *Breaker) State(now time.Time) (s State, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.look(now)
	switch {
	case !b.open:
		return Closed, time.Time{}
	case t < b.until:
		return Open, b.origin.Add(b.until)
	}
	return HalfOpen, time.Time{}
}

// look is the time since the first call, with the tenth judged that ended before it.
func (b *Breaker) look(now time.Time) time.Duration {
	if !b.begun {
		b.begun, b.origin = true, now
		b.calm.Store(math.MaxInt64)
	}
	t := now.Sub(b.origin)
	if b.open || t < b.slow.end {
		return t
	}
	if b.slow.current().calls > 0 && b.tooSlow() {
		b.trip(b.slow.end)
		return t
	}
	b.slow.roll(t)
	b.calm.Store(math.MaxInt64) // the tenth that began has no call yet
	return t
}

// tellable slow calls are to be expected of some calls before these can be called well:
// by chance there are none of five once in 150 times.
const tellable = 5

// tooSlow judges the last ten tenths.
func (b *Breaker) tooSlow() bool {
	all := b.slow.sum
	long := b.opt.SlowFor - b.opt.SlowFor/slowParts/2
	if all.calls < b.opt.SlowCalls || all.share() <= b.opt.SlowShare || b.last-b.first < long {
		return false
	}
	for _, tenth := range b.slow.parts {
		expected := all.share() * float64(tenth.calls)
		if expected >= tellable && tenth.share() <= b.opt.SlowShare && float64(tenth.bad) < expected/10 {
			return false
		}
	}
	return true
}

// note counts an ordinary call while closed.
func (b *Breaker) note(failed, slow bool, t time.Duration) {
	if slow {
		if b.first == none || t-b.last > b.opt.SlowFor || b.since.bad >= tellable && b.since.share()*float64(b.run) >= tellable {
			b.first, b.since, b.run = t, count{}, 0
		}
		b.since.calls += b.run + 1
		b.since.bad++
		b.last, b.run = max(t, b.last), 0
	} else {
		b.run++
	}
	if b.slow.current().calls == 0 {
		b.calm.Store(int64(b.slow.end))
	}
	b.slow.add(slow)
	if t >= b.failed.end {
		b.failed.roll(t)
	}
	b.failed.add(failed)
	if sum := b.failed.sum; sum.calls >= b.opt.FailedCalls && sum.share() > b.opt.FailedShare {
		b.trip(t)
	}
}

// probed counts a probe of this round.
func (b *Breaker) probed(p Permit, bad bool, t time.Duration) {
	if bad {
		b.trip(t)
		return
	}
	own := b.probeOf(p)
	if own == nil || t >= own.until {
		return
	}
	*own = probe{passed: true}
	for _, one := range b.probes {
		if !one.passed {
			return
		}
	}
	b.close()
}

// probeOf is the place of a probe, if it has it still.
func (b *Breaker) probeOf(p Permit) *probe {
	if p.era != b.era.Load() || p.probe == 0 {
		return nil
	}
	for i := range b.probes {
		if b.probes[i].number == p.probe {
			return &b.probes[i]
		}
	}
	return nil
}

// trip opens.
func (b *Breaker) trip(t time.Duration) {
	b.open, b.until, b.number = true, t+b.opt.OpenFor, 0
	clear(b.probes)
	b.calm.Store(0)
	b.era.Add(1)
}

// close begins with nothing counted.
func (b *Breaker) close() {
	b.open, b.first = false, none
	b.slow.clear()
	b.failed.clear()
	b.era.Add(1)
	b.calm.Store(math.MaxInt64)
}
