package fleet

import (
	"time"

	"dispatch.example/dispatch/release"
)

// Count is how many answers of one kind a replica gave in one minute. A minute may
// be reported more than once; the larger number is right.
type Count struct {
	Minute   time.Time `json:"minute"`
	App      string    `json:"app"`
	Region   string    `json:"region"`   // empty: the app's fallback
	Endpoint string    `json:"endpoint"` // empty with the region
	Policy   string    `json:"policy"`   // empty: otherwise
	Reason   string    `json:"reason"`
	Release  uint64    `json:"release"`
	N        uint64    `json:"n"`
}

// Trial asks replicas what a draft would do to the requests that they had lately.
// The requests stay with the replicas.
type Trial struct {
	ID       string         `json:"id"` // random
	Manifest []byte         `json:"manifest"`
	Base     release.Digest `json:"base"` // of the manifest to compare with, which the replica serves
	// Blobs has what the manifest names. A replica reads them where it fetches those
	// of releases.
	Blobs release.Blobs `json:"-"`
}

// Verdict is a replica's answer to a Trial.
type Verdict struct {
	ID      string        `json:"id"`
	Replica string        `json:"replica,omitempty"` // who says so
	Problem string        `json:"problem,omitempty"` // why it could not be judged
	Apps    []AppVerdict  `json:"apps"`
	Since   time.Duration `json:"since"` // age of the oldest request in the sample
	Each    uint64        `json:"each"`  // how many requests each of the sampled stands for
}

// AppVerdict counts the sampled requests of one app.
type AppVerdict struct {
	App     string `json:"app"`
	Sampled uint64 `json:"sampled"` // requests
	Moved   uint64 `json:"moved"`   // of them, to another region
	Listed  uint64 `json:"listed"`  // of the moved, with an id in some list
	Moves   []Move `json:"moves"`
	// Held is how many of the rest stay only by their session: they move when it ends.
	Held uint64 `json:"held"`
	// After is how many of the sampled would get each region.
	After map[string]uint64 `json:"after"`
	// Before is how many got each.
	Before map[string]uint64 `json:"before"`
	// Later is After, once the held have moved too.
	Later map[string]uint64 `json:"later"`
	// Examples are up to ten of the moved, as keyed hashes of their ids.
	Examples []string `json:"examples,omitempty"`
}

// Move is how many of a sample go from one region to another.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
	N    uint64 `json:"n"`
}
