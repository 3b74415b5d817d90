package client

import (
	"maps"
	"slices"
	"time"
)

// mark is the most recent that was believed under one key.
type mark struct {
	Release uint64 `json:"release"` // highest
	Issued  int64  `json:"iat"`     // highest, seconds since 1970
}

// marks are the ratchets by key id. Each key has its own: a leaked key that signs release
// 2^53−1 locks nobody out of the others.
type marks map[string]mark

// now is the wall clock, or the highest iat that was believed when the clock lags behind it.
func (m marks) now(wall time.Time) time.Time {
	now := wall
	for _, k := range m {
		if issued := time.Unix(k.Issued, 0); issued.After(now) {
			now = issued
		}
	}
	return now
}

// admit refuses what is older than something already believed, and returns the marks moved
// up to a. It is the last check, so a refused answer moves nothing.
//
// An expired record vouches for its domain alone, and only if that domain is known, i.e.
// the last good or the built-in one: then its alternates and fallback are dropped, and it
// moves no mark.
func (m marks) admit(a *answer, wall time.Time, known []string) (marks, error) {
	if a.kid == "" {
		return m, nil
	}
	if at := m[a.kid]; a.Release < at.Release {
		return nil, refuse(Rollback, "release %d is older than %d, already seen under key %q", a.Release, at.Release, a.kid)
	}
	if m.expired(a, wall) {
		if !slices.Contains(known, a.Domain) {
			return nil, refuse(Expired, "record of %q expired at %s", a.Domain, time.Unix(a.end, 0).UTC().Format(time.RFC3339))
		}
		a.Alternates, a.Fallback = nil, ""
		return m, nil
	}
	next := maps.Clone(m)
	next[a.kid] = mark{Release: a.Release, Issued: max(a.issued, m[a.kid].Issued)}
	return next, nil
}

func (m marks) expired(a *answer, wall time.Time) bool {
	return a.kid != "" && m.now(wall).Unix() >= a.end
}
