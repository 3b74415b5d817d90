package policy

import (
	"net/netip"
	"time"
)

// Request is all that a decision may depend on besides the release and the
// replica. Ids are in normal form (whitelist.Normalizer); empty means absent.
type Request struct {
	Now        time.Time
	Device     string
	User       string
	AppVersion string
	Platform   string
	Channel    string
	Carrier    string
	Locale     string
	Hint       string // origin hint; empty unless a trusted proxy gave it
	Addr       netip.Addr
	Attrs      []Attr // for attr conditions, in order of arrival; the first of a name counts
	Session    Session
}

// Attr is one attr.NAME input.
type Attr struct{ Name, Value string }

// Replica is where this process stands. It is part of what a decision depends on.
type Replica struct{ Cluster, Region, Env, Version string }

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

// Decision is the outcome of one walk. Indexes are into the Table's rules; -1 is none.
type Decision struct {
	Reason   Reason
	Region   int16 // -1: the app's fallback
	Endpoint int16 // in the region; -1 with Region
	Policy   int32 // that named a region; -1: otherwise, or a session
	Named    int16 // region named before failover
	Bucket   int16 // that chose the region, 0..9999
	Notes    Notes
}

// Notes counts what could not be read on the way, one bit each.
type Notes uint16

// What a walk may note.
const (
	BadVersion   Notes = 1 << iota
	BadSession         // a session token that was unreadable, forged, foreign or expired
	StaleSession       // its region is off or an epoch has passed
	DeviceAbsent
	UserAbsent
	AddrAbsent
)
