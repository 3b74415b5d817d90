// Package wire is what travels between callers and control nodes: JSON over the
// fleet listener, under its token or certificates.
//
//	POST TablesPath    Ask → Tables     long poll; the first answer is full
//	POST ReportsPath   []Report → 204   each instance about itself, every 10 s
//	POST RecordsPath   Batch → 204      picks, in batches
//	GET  PrometheusPath                 http_sd of all instances
//
// It holds types, and does nothing but check where they are sent.
package wire

import (
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// The paths of the fleet listener.
const (
	TablesPath     = "/discovery/tables"
	ReportsPath    = "/discovery/reports"
	RecordsPath    = "/discovery/records"
	PrometheusPath = "/discovery/prometheus"
)

const (
	// HoldFor is how long a control node lets an Ask wait for news. It is the safety
	// poll too: rules are used within 2 s although a wake-up was lost.
	HoldFor = 1800 * time.Millisecond
	// ReportEvery is how often an instance reports its load.
	ReportEvery = 10 * time.Second
)

// Ask is a caller's question for what changed.
type Ask struct {
	Caller   string                `json:"caller"`            // its ID, for people
	Service  string                `json:"service,omitempty"` // that the caller is, for the map
	Home     discovery.Coordinates `json:"home"`
	Services []string              `json:"services,omitempty"` // empty: all of the region
	Epoch    string                `json:"epoch,omitempty"`    // of the last answer; empty: the first question
	Version  uint64                `json:"version,omitempty"`
	Number   uint64                `json:"number,omitempty"` // of the rules in use
}

// Tables is what changed since. With Full it is everything, and what is absent is
// gone, unless Partial says that the node could not hear of it.
type Tables struct {
	Epoch    string             `json:"epoch"` // changes when a node starts anew; versions of two epochs do not compare
	Version  uint64             `json:"version"`
	Full     bool               `json:"full,omitempty"`
	Services map[string]Service `json:"services,omitempty"`
	// Loads are those of services whose load changed and nothing else: by service, then
	// instance ID, in place of all that were known. They never end a wait early.
	Loads map[string]map[string]Load `json:"loads,omitempty"`
	Rules *rules.Signed              `json:"rules,omitempty"` // newer than the asked Number
	// Unread says that the node has not read the rules yet: that none came means nothing.
	Unread bool `json:"unread,omitempty"`
	// Partial names registries that the node does not hear from now, and why.
	Partial map[string]string `json:"partial,omitempty"`
}

// Service is the list of one service in the node's region.
type Service struct {
	Digest    string               `json:"digest"` // of the list: names it in records
	Instances []discovery.Instance `json:"instances"`
	// Scale is what every caller must lower: suspicious and isolated instances, and
	// those that vanished.
	Scale map[string]route.Scale `json:"scale,omitempty"`
	Load  map[string]Load        `json:"load,omitempty"` // by instance ID; absent: unknown
	Gone  bool                   `json:"gone,omitempty"` // nobody registers it any more
}

// Load is what an instance reported last. Loads that differ in anything are two
// reports; without Heard, which older nodes leave out, two that are equal look like one.
type Load struct {
	discovery.Load
	Heard time.Time `json:"heard,omitzero"` // by a control node
}

// Report is what a running instance says of itself.
type Report struct {
	ID      string            `json:"id"`
	Service string            `json:"service"`
	Address discovery.Address `json:"address"`
	Started time.Time         `json:"started"` // with ID and address the fingerprint
	Load    discovery.Load    `json:"load"`
	Heard   time.Time         `json:"heard,omitzero"` // set by the control node that is told it
}

// Batch is what a caller sends of its picks. Dropped counts those that it could not keep.
type Batch struct {
	Caller  string       `json:"caller"`
	Records []Record     `json:"records"`
	Views   []route.View `json:"views,omitempty"` // tables that records name and that were not sent before
	Dropped uint64       `json:"dropped,omitempty"`
}

// Record is one pick.
type Record struct {
	ID      string        `json:"id"`
	At      time.Time     `json:"at"`
	Caller  string        `json:"caller"`
	Service string        `json:"service"`
	View    string        `json:"view,omitempty"` // key of the route.View
	Lane    route.Query   `json:"lane"`
	Draw    uint64        `json:"draw,string"`
	Rule    string        `json:"rule,omitempty"`
	Reason  route.Reason  `json:"reason"`
	Chosen  string        `json:"chosen,omitempty"`
	Counts  *route.Counts `json:"counts,omitempty"` // of an error
	// Outcome is how the call ended, if that was known in time and not well: failed,
	// unreachable or silent.
	Outcome string `json:"outcome,omitempty"`
}
