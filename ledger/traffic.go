package ledger

import (
	"time"

	"dispatch.example/dispatch/fleet"
)

// CountFilter chooses counters. Zero fields do not narrow. What is known by the hour
// counts as of the hour's first minute.
type CountFilter struct {
	App, Region, Policy string
	Release             uint64
	Since, Until        time.Time     // Since ≤ minute < Until
	By                  []string      // any of app, region, endpoint, policy, reason, release; others are summed over
	Every               time.Duration // a multiple of a minute: one Count for so long; 0: one for all the time
}

// Retention of counters: by the minute for a day, then by the hour.
const (
	CountsByMinute = 24 * time.Hour
	CountsKept     = 90 * 24 * time.Hour
)

// Probe is what one prober knows of one host.
type Probe struct {
	Host    string      `json:"host"`
	Prober  string      `json:"prober"` // replica id
	State   string      `json:"state" enum:"unknown,up,down"`
	Since   time.Time   `json:"since"`             // when it came into the state
	Last    time.Time   `json:"last"`              // of the last probe
	Problem string      `json:"problem,omitempty"` // of the last probe, if it failed
	Expires time.Time   `json:"expires,omitzero"`  // of the certificate
	Recent  []ProbeShot `json:"recent"`            // the last five, newest first
}

// ProbeShot is one probe.
type ProbeShot struct {
	At      time.Time `json:"at"`
	OK      bool      `json:"ok"`
	Millis  int       `json:"millis"`
	Problem string    `json:"problem,omitempty"`
}

// Counts are what replicas report: see fleet.Count.
type Counts struct {
	Replica, Boot string
	Counts        []fleet.Count
}
