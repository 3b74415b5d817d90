package discovery

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// firstBackoff is wide because everybody loses a registry in the same second:
	// spread over 8 s, a second sees an eighth of them.
	firstBackoff = 8 * time.Second
	maxBackoff   = 16 * time.Second
)

// pause waits d and reports true, or reports false as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is how long to wait after so many failures in a row: anything up to a
// limit that doubles.
func backoff(failures int) time.Duration {
	limit := maxBackoff
	if shift := failures - 1; shift < 4 {
		limit = min(limit, firstBackoff<<max(shift, 0))
	}
	return jitter(0, limit)
}

// jitter is a random time from low up to high.
func jitter(low, high time.Duration) time.Duration {
	return low + rand.N(high-low)
}
