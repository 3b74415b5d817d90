package policy

import (
	"fmt"
	"iter"
	"slices"
)

// Reason says which step decided.
type Reason uint8

// The reasons, in the order of the walk.
const (
	None Reason = iota
	Sticky
	ByPolicy
	Default
	Failover
	Fallback
	NoID // a split had no id to bucket by and used the client's prefix
)

// String is the reason as records and metrics name it.
func (r Reason) String() string {
	names := [...]string{"NONE", "STICKY", "POLICY", "DEFAULT", "FAILOVER", "FALLBACK", "NO_ID"}
	if int(r) >= len(names) {
		return names[None]
	}
	return names[r]
}

// MarshalText writes the reason by its name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the reason by its name.
func (r *Reason) UnmarshalText(text []byte) error {
	for n := None; n <= NoID; n++ {
		if n.String() == string(text) {
			*r = n
			return nil
		}
	}
	return fmt.Errorf("unknown reason %q", text)
}

// Decision is the outcome of one walk. Indexes are into the Table's rules; -1 is none.
type Decision struct {
	Reason   Reason
	Region   int16 // -1: the app's fallback
	Endpoint int16 // in the region; -1 with Region
	Policy   int32 // that named a region; -1: otherwise, or a session
	Named    int16 // region named before failover
	Bucket   int16 // that chose the region, 0..9999; -1: no share, split or failover did
	Notes    Notes
}

// Notes counts what could not be read on the way, one bit each.
type Notes uint16

// What a walk may note.
const (
	BadVersion   Notes = 1 << iota // an app_version condition met a version that was absent or unreadable
	BadSession                     // a session token that was unreadable, forged, foreign or expired
	StaleSession                   // its region is off, gone or cannot serve, or an epoch has passed
	DeviceAbsent                   // a list, share or split needed the device id
	UserAbsent                     // the same of the user id
	AddrAbsent                     // a condition, or the stand-in for an id, needed the address
	FactAbsent                     // a condition on platform, channel, carrier, locale or attr met none
	OriginAbsent                   // no origin answered, or the replica does not know its region
	GeoAbsent                      // no database, or the address is not in it
)

// All names the bits that are set, in order, as metrics label them.
func (n Notes) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, name := range noteNames {
			if n&(1<<i) != 0 && !yield(name) {
				return
			}
		}
	}
}

// noteNames are the names of the bits, in their order.
var noteNames = [...]string{"bad_version", "bad_session", "stale_session", "device_absent", "user_absent",
	"addr_absent", "fact_absent", "origin_absent", "geo_absent"}

// Strings is All in a slice, nil for none.
func (n Notes) Strings() []string { return slices.Collect(n.All()) }
