package route

import "dispatch.example/dispatch/discovery"

// View names the Input of a table without its lists, so that it travels once and a
// record can name it by Key. Whoever has the list of that digest and the release of
// that number can compile the table again.
type View struct {
	Key     string                `json:"key"` // unique: the caller's ID and a count
	Service string                `json:"service"`
	Home    discovery.Coordinates `json:"home"`
	Digest  string                `json:"digest"` // of the list of instances; empty: it never came from a control node
	Number  uint64                `json:"number"` // of the release of rules
	Direct  bool                  `json:"direct,omitempty"`
	Isolate bool                  `json:"isolate,omitempty"`
	Scale   map[string]Scale      `json:"scale,omitempty"`
	Shift   map[string]int        `json:"shift,omitempty"` // by env
	Load    map[string]float64    `json:"load,omitempty"`  // by env
}
