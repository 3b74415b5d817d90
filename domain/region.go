// Package domain is a part of dispatch.
package domain

// RegionState says what a region does for sessions.
type RegionState string

// The states of a region.
const (
	Active   RegionState = "active"   // takes new sessions
	Draining RegionState = "draining" // keeps its sessions, takes no new ones
	Off      RegionState = "off"      // serves nobody; its sessions are void
)

// EndpointState says whether an endpoint serves.
type EndpointState string

// The states of an endpoint.
const (
	Serving EndpointState = "active"
	Standby EndpointState = "standby" // ready to be swapped in; never chosen
	Closed  EndpointState = "off"     // never chosen, never swapped in
)

// DefaultWeight is an endpoint's weight where the document gives none.
const DefaultWeight = 100

// Endpoint is a domain that serves a region.
type Endpoint struct {
	Key     string        `json:"key"`
	Domain  string        `json:"domain"`            // normal form, see NormalHost
	Cluster string        `json:"cluster,omitempty"` // several endpoints may share a cluster
	State   EndpointState `json:"state,omitempty"`   // default Serving
	Weight  *int          `json:"weight,omitempty"`  // share among the region's serving endpoints; default DefaultWeight
}

// Region is one place that serves a whole session.
type Region struct {
	Key          string      `json:"key"`
	Name         string      `json:"name,omitempty"`
	State        RegionState `json:"state,omitempty"`    // default Active
	Epoch        uint32      `json:"-"`                  // operational: raising it voids the region's sessions
	Capacity     int         `json:"capacity,omitempty"` // relative; shares a failing region's users
	AutoFailover bool        `json:"auto_failover,omitempty"`
	Failover     []string    `json:"failover,omitempty"` // keys of regions, one level
	Endpoints    []Endpoint  `json:"endpoints"`
}
