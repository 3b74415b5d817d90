package signed

import (
	"errors"
	"sync"
	"testing"
)

// SEC4 and P7 of safety.md: nothing older than what is known.
func TestRatchet(t *testing.T) {
	t.Parallel()
	a, b := [32]byte{1}, [32]byte{2}
	known := Mark{Number: 412, Seq: 3, Digest: a}
	for _, c := range []struct {
		name string
		mark Mark
		want error
	}{
		{"next", Mark{413, 1, b}, nil},
		{"renewal", Mark{412, 4, a}, nil},
		{"far but within a jump", Mark{412 + MaxJump, 1, b}, nil},
		{"the same again", Mark{412, 3, a}, ErrStale},
		{"an older renewal", Mark{412, 2, a}, ErrStale},
		{"yesterday's", Mark{411, 9, b}, ErrStale},
		{"a fork", Mark{412, 4, b}, ErrFork},
		{"too far", Mark{413 + MaxJump, 1, b}, ErrNumber},
		{"the largest", Mark{MaxNumber, 1, b}, ErrNumber},
		{"above the largest", Mark{MaxNumber + 1, 1, b}, ErrNumber},
		{"negative", Mark{^uint64(0), 1, b}, ErrNumber},
		{"zero", Mark{0, 1, b}, ErrNumber},
		{"no seq", Mark{413, 0, b}, ErrNumber},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var r Ratchet
			r.Move("edge", known)
			if err := r.Check("edge", c.mark); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if high := r.High("edge"); high != known {
				t.Errorf("a check moved the ratchet to %v", high)
			}
			if err := r.Check("rules/sh", Mark{1, 1, b}); err != nil {
				t.Errorf("another stream: %v", err)
			}
		})
	}
}

func TestRatchetNeverTurnsBack(t *testing.T) {
	t.Parallel()
	var r Ratchet
	var all sync.WaitGroup
	for n := uint64(1); n <= 100; n++ {
		all.Go(func() { r.Move("edge", Mark{Number: n, Seq: 1}) })
	}
	all.Wait()
	r.Move("edge", Mark{Number: 99, Seq: 7})
	if high := r.High("edge"); high.Number != 100 {
		t.Errorf("high is %v", high)
	}
}

func TestRatchetTakesAnyFirstNumber(t *testing.T) {
	t.Parallel()
	var r Ratchet
	if err := r.Check("edge", Mark{Number: 3 * MaxJump, Seq: 1}); err != nil {
		t.Errorf("a new edge meets an old fleet: %v", err)
	}
}
