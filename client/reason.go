package client

import (
	"fmt"
	"slices"
	"strings"
)

// Reason says why a question got no usable answer. The set is closed; it is also what the
// X-Fallback-Reason header reports.
type Reason string

// The reasons that are reported.
const (
	Unreachable    Reason = "unreachable"  // no connection, or it broke
	Timeout        Reason = "timeout"      // no answer in time
	BadStatus      Reason = "status"       // anything but 200: 5xx, 204, a redirect, 404
	BadContentType Reason = "content_type" // not JSON, such as a portal's page
	TooLarge       Reason = "too_large"    // more than an answer can be
	BadAnswer      Reason = "bad_answer"   // empty, broken JSON, or a field is missing
	Expired        Reason = "expired"      // the record is over and its domain is new to the app
	Rollback       Reason = "rollback"     // the record is of an older release than one already believed
	BadDomain      Reason = "bad_domain"   // a domain outside the suffixes, or not in normal form
	BadRecord      Reason = "bad_record"   // not signed by a pinned key, or for another app or deployment
	Mismatch       Reason = "mismatch"     // the answer says something else than its record
)

// The reasons that concern one caller only and are not reported.
const (
	Canceled Reason = "canceled" // the caller's context ended first
	Closed   Reason = "closed"   // Close was called
)

// maxCount bounds what a report may grow to while no server answers.
const maxCount = 9999

// gravity orders the reported reasons: the later, the more it smells of an attack.
func gravity() []Reason {
	return []Reason{Unreachable, Timeout, BadStatus, BadContentType, TooLarge, BadAnswer,
		Expired, Rollback, BadDomain, BadRecord, Mismatch}
}

// graver picks what to report of two failed attempts: of a dead host and a forged answer,
// the forgery.
func graver(a, b Reason) Reason {
	if slices.Index(gravity(), a) > slices.Index(gravity(), b) {
		return a
	}
	return b
}

// report writes fallbacks as a structured field (RFC 9651): timeout;count=2, mismatch;count=1.
func report(fallbacks map[Reason]int) string {
	var parts []string
	for _, why := range gravity() {
		if n := fallbacks[why]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s;count=%d", why, n))
		}
	}
	return strings.Join(parts, ", ")
}
