package breaker

import "time"

// count is calls, and those of them that were bad.
type count struct{ calls, bad int }

// share of the bad ones. Divided, 1 of 100 is what the constant 0.01 is; multiplied
// it may be a bit more or less.
func (c count) share() float64 { return float64(c.bad) / float64(c.calls) }

// window counts calls over a time, in parts of it that are aligned to zero.
type window struct {
	width time.Duration // of a part
	at    int           // number of the current part
	end   time.Duration // of the current part
	parts []count       // the last ones, by number modulo length
	sum   count         // of all parts
}

func newWindow(of time.Duration, parts int) window {
	width := max(of/time.Duration(parts), 1)
	return window{width: width, end: width, parts: make([]count, parts)}
}

// current is the part that is being counted.
func (w *window) current() count { return w.parts[w.at%len(w.parts)] }

// roll moves on to the part that t is in, and forgets those that are too old.
func (w *window) roll(t time.Duration) {
	to := int(t / w.width)
	for n := range min(to-w.at, len(w.parts)) {
		old := &w.parts[(w.at+1+n)%len(w.parts)]
		w.sum.calls -= old.calls
		w.sum.bad -= old.bad
		*old = count{}
	}
	w.at, w.end = to, time.Duration(to+1)*w.width
}

// add counts a call in the current part.
func (w *window) add(bad bool) {
	part := &w.parts[w.at%len(w.parts)]
	part.calls++
	w.sum.calls++
	if bad {
		part.bad++
		w.sum.bad++
	}
}

func (w *window) clear() {
	clear(w.parts)
	w.sum = count{}
}
