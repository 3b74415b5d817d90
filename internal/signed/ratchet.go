package signed

import (
	"errors"
	"fmt"
	"sync"
)

const (
	// MaxNumber is the highest number of a release: the largest integer that
	// JavaScript, and with it every JSON reader, holds exactly.
	MaxNumber = 1<<53 - 1
	// MaxJump bounds how far one step may raise the number. A leaked key that
	// signs a huge number would otherwise lock everyone out of all later ones.
	MaxJump = 100_000
)

// What a ratchet refuses.
var (
	ErrNumber = errors.New("number out of range")
	ErrStale  = errors.New("older than what is known")
	ErrFork   = errors.New("same number with other content")
)

// Mark is a place in a series: the number of a release, what it contains, and
// the sequence of its records.
type Mark struct {
	Number, Seq uint64
	Digest      [32]byte
}

// Ratchet remembers the highest Mark believed, one for each name (a stream, or a
// stream and a key). Call Check with the other checks and Move after all of
// them have passed: a refused release must leave no trace (CVE-2025-2888).
// The zero value is ready and may be used by several goroutines.
type Ratchet struct {
	mu   sync.Mutex
	high map[string]Mark
}

// Check refuses a mark that is not above the highest known one. The same number
// with the same digest passes if its Seq is higher, which is a renewal of records.
func (r *Ratchet) Check(name string, m Mark) error {
	if m.Number == 0 || m.Number > MaxNumber || m.Seq == 0 || m.Seq > MaxNumber {
		return fmt.Errorf("%s %d (records %d): %w", name, m.Number, m.Seq, ErrNumber)
	}
	high, ok := r.High(name)
	switch {
	case !ok:
		return nil
	case m.Number == high.Number && m.Digest != high.Digest:
		return fmt.Errorf("%s %d: %w", name, m.Number, ErrFork)
	case m.Number < high.Number, m.Number == high.Number && m.Seq <= high.Seq:
		return fmt.Errorf("%s %d (records %d), known is %d (records %d): %w",
			name, m.Number, m.Seq, high.Number, high.Seq, ErrStale)
	case m.Number-high.Number > MaxJump:
		return fmt.Errorf("%s %d, known is %d: %w: a step of more than %d", name, m.Number, high.Number, ErrNumber, MaxJump)
	}
	return nil
}

// Move raises the mark after every check has passed. It never lowers it.
func (r *Ratchet) Move(name string, m Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	high, ok := r.high[name]
	if ok && (m.Number < high.Number || m.Number == high.Number && m.Seq <= high.Seq) {
		return
	}
	if r.high == nil {
		r.high = map[string]Mark{}
	}
	r.high[name] = m
}

// High is the highest mark known of a name.
func (r *Ratchet) High(name string) (Mark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.high[name]
	return m, ok
}
