// Package outlier finds the instances of a service that do not answer, from the
// calls of this process alone, seconds before the registry knows.
//
//	lists ── See ─────►┌───────┐
//	calls ── Note ────►│ Watch │── Lowered ──► weights that the table of the service lowers
//	dials ── Dialed ──►└───────┘── Due ──────► whom to dial now
//
// Two kinds are put out:
//
//   - Unreachable: three connections in a row failed, of calls and of dials, and the
//     last word had a dial. The first failure makes a suspect, which is dialled until
//     three failed or one succeeded. Silence (three calls in a row without an answer
//     before their deadline) makes a suspect too, and there one failed dial is enough.
//     There is no cap: a fallback takes over, and the table lets those that are out
//     serve when nobody else is left.
//   - Failing: more than half of at least 20 calls in 5 s failed; or three calls were
//     silent, a dial succeeded, and the next call was silent too. At most half of
//     those of a group that can be reached are out for this, counted after one more
//     went; one may always be, but never the last. Who takes nothing anyway is of
//     another group.
//
// While a suspect waits for its dial it is not judged as failing: an instance that is
// gone fails all its calls as well, and must not use up the cap of those that only fail.
//
//	serving ──► out for 30 s × how often in a row, at most 5 min ──► dialled
//	   ▲  ▲          ▲  ▲                                             │   │
//	   │  │          │  └──── longer, the dial failed ────────────────┘   │
//	   │  │          └─────── longer, one call failed ─── on trial ◄──────┘
//	   │  └────────────────── three calls went well ──────────┘
//
// Who comes into a group that is called is dialled once, at some moment of its first
// 20 s: a registry takes anybody's word, and a laptop that reaches itself may be out of
// its callers' reach. Callers warm it up meanwhile, so no call is lost. Into groups that
// this process never calls nobody is dialled: a firewall may be between.
//
// On trial it has a tenth of its weight. Five minutes after it was let back the count
// of terms starts anew.
//
// Where nobody of a group is left the table lets all serve, and all have long terms
// when what cut them off ends. The first one back would get everything. So an answer
// from one that is unreachable, while nobody of its group serves, brings its dial
// forward; that dial costs it nothing if it fails.
//
// A Watch is counters, has no goroutine and reads no clock: now is an argument. It
// remembers who is in the list, and for ten minutes who left it while it had a term,
// so that a registry that flaps lets nobody back without a dial.
package outlier

import (
	"errors"
	"syscall"
	"time"
)

const (
	failuresOut  = 3   // connections that failed in a row
	silentOut    = 3   // calls without an answer in a row: one is a slow call
	failingOf    = 20  // calls from which a ratio means something
	trialCalls   = 3   // that go well before an instance is whole again
	trialShare   = 100 // thousandths of its weight meanwhile
	termFor      = 30 * time.Second
	longestTerm  = 5 * time.Minute
	quietFor     = 5 * time.Minute // after which the next term is a first one
	rememberFor  = 10 * time.Minute
	earliest     = 5 * time.Second        // into a term; who flaps is not let back faster
	untriedFor   = 20 * time.Second       // in which its first dial is; callers warm it up for 30
	dialEvery    = 200 * time.Millisecond // of one instance: three dials are done in half a second
	faultFor     = time.Second            // before a dial that this process could not make is made again
	defaultShare = 50                     // percent of a group that may be out as failing
)

// Outcome is how a call to an instance ended, as far as it says something about the
// instance.
type Outcome int

const (
	// Answered is any answer that shows a working instance, also "not found".
	Answered Outcome = iota
	// Failed is an answer that it cannot (HTTP 5xx, gRPC Internal, Unavailable, …), or
	// a connection that broke.
	Failed
	// Unreachable is that no connection was made within the dial limit, or was refused.
	Unreachable
	// Silent is that no answer came before the deadline.
	Silent
	// Canceled is that the caller gave up. It says nothing.
	Canceled
)

// String is the outcome as logs, metrics and records name it.
func (o Outcome) String() string {
	switch o {
	case Answered:
		return "answered"
	case Failed:
		return "failed"
	case Unreachable:
		return "unreachable"
	case Silent:
		return "silent"
	}
	return "canceled"
}

// OwnFault says whether a connection was not made for want of something here: of
// file descriptors, of ports or of memory. It says nothing about the instance.
func OwnFault(err error) bool {
	for _, want := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

// Kind is why an instance is out.
type Kind string

// The kinds.
const (
	NoConnection Kind = "unreachable"
	Failing      Kind = "failing"
)

// Step is what changed about an instance.
type Step int

const (
	// Same is nothing that anybody must act on.
	Same Step = iota
	// Suspected is that it is to be dialled.
	Suspected
	// PutOut is that it takes nothing, or goes on taking nothing, for a term.
	PutOut
	// OnTrial is that it takes a tenth of its weight.
	OnTrial
	// Returned is that it takes its whole weight again.
	Returned
)

// Change is what a call or a dial did.
type Change struct {
	Step  Step
	Kind  Kind      // of PutOut, and of what ended with OnTrial and Returned
	Until time.Time // of PutOut
	Term  int       // of PutOut: how many in a row
	Stays bool      // of PutOut: it was out before
}
