package discovery

import "context"

// Catalog is a Source that can name its services; every registry of Open is one.
// What it names is a list to watch, never a list to call: a catalogue knows no
// health.
type Catalog interface {
	Source
	// Services returns the names as the registry spells them, sorted. An answer that
	// may lack some is an error. A name that NewWatcher refuses is nobody's to call.
	Services(ctx context.Context) ([]string, error)
}

// Load is how busy an instance is. A nil figure is unknown, which is not 0.
type Load struct {
	CPU         *float64 `json:"cpu,omitempty"`         // percent of all processors that the process may use, 0 to 100
	Memory      *float64 `json:"memory,omitempty"`      // percent of the memory that it may use, 0 to 100
	Connections *int64   `json:"connections,omitempty"` // requests or connections in work
}
