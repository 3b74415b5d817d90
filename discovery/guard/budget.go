package guard

import "sync/atomic"

const (
	// perRetry first attempts pay for one retry: retries are at most a fifth.
	perRetry = 5
	// stored is how many retries a service saves up, so that one with few calls can
	// retry at all.
	stored = 10
)

// budget lets retries be a fifth of first attempts. It begins full, and the first 50
// first attempts pay that back: from there on the sum of retries is never above a
// fifth of the sum of first attempts.
type budget struct {
	tokens atomic.Int64 // perRetry of them are a retry
	owed   atomic.Int64
}

func (b *budget) fill() {
	b.tokens.Store(stored * perRetry)
	b.owed.Store(stored * perRetry)
}

// earn is told of each first attempt.
func (b *budget) earn() {
	if b.owed.Load() > 0 && b.owed.Add(-1) >= 0 {
		return
	}
	b.add(1)
}

func (b *budget) refund() { b.add(perRetry) }

func (b *budget) add(n int64) {
	for {
		now := b.tokens.Load()
		if now >= stored*perRetry || b.tokens.CompareAndSwap(now, min(now+n, stored*perRetry)) {
			return
		}
	}
}

// spend takes a retry out, if there is one.
func (b *budget) spend() bool {
	for {
		now := b.tokens.Load()
		if now < perRetry {
			return false
		}
		if b.tokens.CompareAndSwap(now, now-perRetry) {
			return true
		}
	}
}

func (b *budget) left() int { return int(b.tokens.Load() / perRetry) }
