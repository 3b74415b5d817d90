package release

import (
	"context"
	"time"
)

// Override is break glass on one replica, or signed for all: emergency actions
// laid over whatever release is in use, until a time. It chooses among domains
// whose records are already signed and can bring no new one.
type Override struct {
	ID      string           `json:"id"`
	Actions []OverrideAction `json:"actions"`
	By      string           `json:"by"` // a login of the machine, or the id of the key that signed it
	Reason  string           `json:"reason"`
	Created time.Time        `json:"created"`
	Until   time.Time        `json:"until"`
}

// OverrideAction is exactly one of its fields.
type OverrideAction struct {
	Swap   *Swap      `json:"swap,omitempty"`
	Region *SetRegion `json:"region_state,omitempty"`
}

// Override lays o over what is served, now and after every later release, until
// its time is over or a release clears it. nil takes the one in force away.
func (k *Keeper) Override(ctx context.Context, o *Override) error { panic("unbuilt") }
