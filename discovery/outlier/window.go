package outlier

import "time"

const (
	slots   = 10
	slotFor = 500 * time.Millisecond // ten make the 5 s in which calls are judged
)

// window counts the calls of the last 4.5 to 5 s.
type window struct {
	began time.Time // of the first slot's first turn
	turn  int64     // of the newest slot: how many there were before it
	slot  [slots]struct{ calls, failed uint32 }
}

// roll makes the slot of now the newest.
func (w *window) roll(now time.Time) int64 {
	if w.began.IsZero() {
		w.began = now
	}
	turn := int64(now.Sub(w.began) / slotFor)
	for fresh := max(w.turn+1, turn-slots+1); fresh <= turn; fresh++ {
		w.slot[fresh%slots] = struct{ calls, failed uint32 }{}
	}
	w.turn = max(w.turn, turn)
	return w.turn % slots
}

func (w *window) add(failed bool, now time.Time) {
	s := &w.slot[w.roll(now)]
	s.calls++
	if failed {
		s.failed++
	}
}

// failing says whether more than half of enough calls failed.
func (w *window) failing(now time.Time) bool {
	w.roll(now)
	var calls, failed uint32
	for _, s := range w.slot {
		calls += s.calls
		failed += s.failed
	}
	return calls >= failingOf && 2*failed > calls
}
