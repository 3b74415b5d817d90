package route

import (
	"fmt"
	"strconv"

	"dispatch.example/dispatch/discovery/rules"
)

const (
	tenths = 10
	// maxShift leaves the main version a tenth: without traffic its load would say
	// nothing, and it would go cold.
	maxShift = 9
)

// Shift is what the condition of a rule moves at the moment.
type Shift struct {
	Condition string   `json:"condition"`
	Tenths    int      `json:"tenths"`         // of the main version's part, 1 to 9
	Load      *float64 `json:"load,omitempty"` // percent, when the shift last changed; nil: unknown
}

// String is the shift in words.
func (s Shift) String() string {
	load := "unknown"
	if s.Load != nil {
		load = strconv.FormatFloat(*s.Load, 'f', 1, 64) + " %"
	}
	return fmt.Sprintf("%s: the fallback takes %d tenths of the main version's part besides its own; the load was %s when that last changed", s.Condition, s.Tenths, load)
}

// shift is how many tenths of the main part of a rule the fallback takes besides its
// own. A rule without a condition moves nothing, whatever the input says.
func (in *Input) shift(r *rules.Rule) int {
	if r == nil || r.Fallback == nil || r.Fallback.Condition == nil {
		return 0
	}
	return min(max(in.Shift[r.Selector.Env], 0), maxShift)
}

// shifted are the parts of the rule after the shift, in tenths of its weights.
func (in *Input) shifted(r *rules.Rule) (main, second uint64) {
	main, second = parts(r)
	moved := uint64(in.shift(r))
	return main * (tenths - moved), second*tenths + main*moved
}

// explainShift is the shift of a cell that has one.
func (in *Input) explainShift(r *rules.Rule) *Shift {
	moved := in.shift(r)
	if moved == 0 {
		return nil
	}
	s := &Shift{Condition: r.Fallback.Condition.String(), Tenths: moved}
	if load, known := in.Load[r.Selector.Env]; known {
		s.Load = &load
	}
	return s
}
