// Package domain holds the regions of an app and the domains that serve them.
//
// A Region has a state, a capacity, a failover list and Endpoints. Region.Pick
// chooses among its serving endpoints by weight; a Plan, computed once from all
// regions of an app, says where the users of a region go that takes none. Both
// receive a bucket as a number and know nothing of ids or hashes. NormalHost,
// Suffixes and CheckKey say which hosts and names may appear at all, and
// Validate lists everything wrong with a set of regions at once.
//
// Everything here is a value or immutable, starts no goroutine and touches
// nothing outside memory. A host or region that is wrong is a *fault.Error of
// kind Invalid; a choice that cannot be made is ok == false.
package domain

// RegionState says what a region does for sessions. Empty means Active.
type RegionState string

// The states of a region.
const (
	Active   RegionState = "active"   // takes new sessions
	Draining RegionState = "draining" // keeps its sessions, takes no new ones
	Off      RegionState = "off"      // serves nobody; its sessions are void
)

// EndpointState says whether an endpoint serves. Empty means Serving.
type EndpointState string

// The states of an endpoint.
const (
	Serving EndpointState = "active"
	Standby EndpointState = "standby" // ready to be swapped in; never chosen
	Closed  EndpointState = "off"     // never chosen, never swapped in
)

// DefaultWeight is an endpoint's weight where the document gives none.
const DefaultWeight = 100

// The largest values a document may hold. They keep sums inside 32 bits and
// indexes inside the 16 bits of a decision, with room to spare.
const (
	MaxWeight    = 10_000
	MaxCapacity  = 1_000_000
	MaxRegions   = 1_000 // of an app
	MaxEndpoints = 1_000 // of a region
)

// Endpoint is a domain that serves a region.
type Endpoint struct {
	Key     string        `json:"key"`
	Domain  string        `json:"domain"`            // normal form, see NormalHost
	Cluster string        `json:"cluster,omitempty"` // several endpoints may share a cluster
	State   EndpointState `json:"state,omitempty"`   // default Serving
	Weight  *int          `json:"weight,omitempty"`  // share among the region's serving endpoints; default DefaultWeight
}

// Serves says whether requests may be sent to e now.
func (e *Endpoint) Serves() bool { return e.State == Serving || e.State == "" }

// share is e's weight with the default applied; a negative one, which Validate
// refuses, counts as 0.
func (e *Endpoint) share() int {
	if e.Weight == nil {
		return DefaultWeight
	}
	return max(0, *e.Weight)
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

// Condition is r's state with the default applied.
func (r *Region) Condition() RegionState {
	if r.State == "" {
		return Active
	}
	return r.State
}

// Serves says whether some endpoint of r serves, so that Pick finds one.
func (r *Region) Serves() bool {
	for i := range r.Endpoints {
		if r.Endpoints[i].Serves() {
			return true
		}
	}
	return false
}
