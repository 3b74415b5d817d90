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

// After refuses a mark that is not above a known one, which is the zero Mark
// when nothing is known yet. The same number with the same digest passes if its
// Seq is higher, which is a renewal of records.
func (m Mark) After(known Mark) error {
	switch {
	case m.Number == 0 || m.Number > MaxNumber || m.Seq == 0 || m.Seq > MaxNumber:
		return fmt.Errorf("%v: %w", m, ErrNumber)
	case known == Mark{}:
		return nil
	case m.Number == known.Number && m.Digest != known.Digest:
		return fmt.Errorf("%v: %w", m, ErrFork)
	case m.Number < known.Number, m.Number == known.Number && m.Seq <= known.Seq:
		return fmt.Errorf("%v, known is %v: %w", m, known, ErrStale)
	case m.Number-known.Number > MaxJump:
		return fmt.Errorf("%v, known is %v: %w: a step of more than %d", m, known, ErrNumber, MaxJump)
	}
	return nil
}

// String names the mark as people do.
func (m Mark) String() string { return fmt.Sprintf("release %d (records %d)", m.Number, m.Seq) }

// Ratchet remembers the highest Mark believed, one for each name (a stream, or a
// stream and a key). Call Check with the other checks and Move after all of
// them have passed: a refused release must leave no trace (CVE-2025-2888).
// The zero value is ready and may be used by several goroutines.
type Ratchet struct {
	mu   sync.Mutex
	high map[string]Mark
}

// Check refuses what is not after the highest mark known, see Mark.After.
func (r *Ratchet) Check(name string, m Mark) error {
	if err := m.After(r.High(name)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Move raises the mark after every check has passed. It never lowers it.
func (r *Ratchet) Move(name string, m Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if high := r.high[name]; m.Number < high.Number || m.Number == high.Number && m.Seq <= high.Seq {
		return
	}
	if r.high == nil {
		r.high = map[string]Mark{}
	}
	r.high[name] = m
}

// High is the highest mark known of a name, the zero Mark if none is.
func (r *Ratchet) High(name string) Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.high[name]
}
