// Package outlier finds the instances of a service that do not answer, from the
// calls of this process alone, seconds before the registry knows.
//
//	calls ── Note ──► Watch ── Scale ──► what the table of the service must lower
//	dials ── Dialed ──┘  └── Suspects: whom to dial now
//
// Two kinds are put out:
//
//   - Unreachable: three connections in a row failed, of calls or of dials; the first
//     failure makes it a suspect, which is dialled until three failed or one succeeded.
//     Silence (three calls in a row without an answer before their deadline) makes a
//     suspect too. There is no cap within a version: a fallback takes over, and the
//     table lets those that are out serve when nobody else is left.
//   - Failing: more than half of at least 20 calls in 5 s failed. At most half of the
//     instances are out for this, at least one may be, and never the last.
//
// Out for 30 s × how often in a row, at most 5 minutes. Who is due back is dialled
// first; then it is on trial, with a tenth of its weight, until three calls went well.
//
// A Watch is counters, has no goroutine and reads no clock: now is an argument.
package outlier
