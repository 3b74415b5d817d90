package release

import (
	"time"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// Snapshot is a release compiled for answering. It is immutable; a request takes
// it once from the Keeper and sees one consistent world.
type Snapshot struct {
	Number  uint64
	Seq     uint64 // of its records
	Digest  Digest // of the manifest bytes
	Created time.Time
	Apps    map[string]*Served // by key
	Hosts   map[string]*Served // by request host
	Default *Served            // nil: no default
	Lists   *whitelist.Index
}

// Served is one app, ready to answer.
type Served struct {
	App    *App // of the document, operational state applied to its regions
	Table  *policy.Table
	IDs    *whitelist.Normalizer
	Life   policy.SessionLife
	Answer [][]Answer // by region and endpoint index; standby ones included
	// Fallback is the answer that names no region.
	Fallback Answer
}

// Answer is a pre-rendered body: everything before ,"ttl":N,"session":"…"}.
// Bodies holds one for each active record key, current first; Kids their ids.
type Answer struct {
	Kids   []string
	Bodies [][]byte
}
