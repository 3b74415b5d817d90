package actions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// Fleet is where releases go and who serves them. In a process that is alone with
// its data it is nil.
type Fleet interface {
	roster
	// Unheard are replicas of the registry that are no Members; of no registry, none.
	Unheard() []fleet.Unheard
	// Offer puts the offer before the replicas at once; outlets that take their time
	// follow by themselves. A newer offer ends its context.
	Offer(ctx context.Context, o fleet.Offer) error
}

// roster is who serves what.
type roster interface {
	// Canary is a replica that is current and not this process; false: there is none.
	Canary() (id string, ok bool)
	Members() []fleet.Member
	// Await waits until all replicas that are not silent, or only one, serve the
	// number or refused it, or ctx ends.
	Await(ctx context.Context, number uint64, only string) fleet.Acknowledgement
	// Format is the lowest manifest format that a replica reads; 0: there are none.
	Format() int
	// Changed is closed when a member changes.
	Changed() <-chan struct{}
}

// solo is the fleet of a process that is alone with its data.
type solo struct{}

func (solo) Canary() (string, bool)                   { return "", false }
func (solo) Members() []fleet.Member                  { return nil }
func (solo) Unheard() []fleet.Unheard                 { return nil }
func (solo) Format() int                              { return 0 }
func (solo) Changed() <-chan struct{}                 { return nil }
func (solo) Offer(context.Context, fleet.Offer) error { return nil }

// Await has nobody to wait for: this process serves a release before anybody asks.
func (solo) Await(context.Context, uint64, string) fleet.Acknowledgement {
	return fleet.Acknowledgement{Replicas: 1, Of: 1}
}

const (
	// emergencyWait and normalWait bound how long the answer to a change waits for
	// the replicas. A reachable one takes an emergency within 2 s; a normal change
	// has one poll, 5 s, to reach its canary.
	emergencyWait = 3 * time.Second
	normalWait    = 5 * time.Second
)

// acknowledge completes the answer to a change with who serves it. It is worked out
// anew for an answer that is repeated, so nobody reads how it was.
func (a *Actions) acknowledge(ctx context.Context, out *Outcome, wait time.Duration) {
	if out.Release == 0 {
		return
	}
	if o, _ := a.desk.look(); o.All.Number >= out.Release {
		out.Canary = "" // it is for everybody by now
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ack := a.Fleet.Await(limited, out.Release, out.Canary)
	out.Acknowledged = &ack
}

// FleetView is everybody who serves, and how far the newest release has come.
type FleetView struct {
	Rollout ledger.Rollout  `json:"rollout"`
	Served  uint64          `json:"served" doc:"by this node"`
	Lost    uint64          `json:"lost,omitempty" doc:"releases that are served and that the database lacks: it was restored from a backup, POST /api/v1/releases/adopt"`
	Members []MemberView    `json:"members"`
	Unheard []fleet.Unheard `json:"unheard" doc:"replicas that the registry sends apps to and that no control node has heard: no change reaches them; give them --control or --discovery, and the fleet token"`
}

// MemberView is one replica, as it reported last.
type MemberView struct {
	fleet.Replica
	State     fleet.State         `json:"state" enum:"current,behind,refusing,silent,ahead"`
	Seen      time.Time           `json:"seen" doc:"when it asked last"`
	First     time.Time           `json:"first" doc:"when it was first seen"`
	Number    uint64              `json:"number" doc:"the release that it serves; 0: none"`
	Seq       uint64              `json:"seq" doc:"of the records"`
	Digest    string              `json:"digest" doc:"of the manifest"`
	Age       float64             `json:"age" doc:"seconds since it took that into use"`
	Source    string              `json:"source,omitempty" doc:"who brought it"`
	Refusal   *release.Refusal    `json:"refusal,omitempty" doc:"what it refused last, and why"`
	Sources   []fleet.SourceState `json:"sources" doc:"how it gets along with each"`
	Override  *release.Override   `json:"override,omitempty" doc:"break glass in force: it does not answer as the release says"`
	DiskError string              `json:"disk_error,omitempty" doc:"why it could not keep its last copy"`
	Databases policy.GeoDigests   `json:"databases" doc:"of addresses; replicas that differ decide differently"`
	Errors    uint64              `json:"errors" doc:"answers of 500 and more since its start"`
}

// Members are the replicas and how far the newest release has come.
func (a *Actions) Members(ctx context.Context) (FleetView, error) {
	rollout, err := a.Ledger.Rollout(ctx, release.StreamEdge)
	if err != nil {
		return FleetView{}, fmt.Errorf("read rollout: %w", err)
	}
	v := FleetView{Rollout: rollout, Members: []MemberView{}, Unheard: orNone(a.Fleet.Unheard())}
	for _, m := range a.Fleet.Members() {
		v.Members = append(v.Members, MemberView{Replica: m.Replica, State: m.State, Seen: m.Seen, First: m.First,
			Number: m.Number, Seq: m.Seq, Digest: m.Digest.String(), Age: m.Age, Source: m.Source, Refusal: m.Refusal,
			Sources: append([]fleet.SourceState{}, m.Sources...), Override: m.Override, DiskError: m.DiskError,
			Databases: m.Databases, Errors: m.Errors})
	}
	if cur := a.Keeper.Current(); cur != nil {
		v.Served = cur.Number
		v.Lost = cur.Number - min(cur.Number, rollout.Head)
	}
	return v, nil
}

// desk holds what this process offers to the fleet. Whoever made a release puts it
// there, so that an emergency waits for no look into the ledger.
type desk struct {
	mu      sync.Mutex
	offer   fleet.Offer
	changed chan struct{} // closed by the next put
}

func newDesk() *desk { return &desk{changed: make(chan struct{})} }

// look is the offer, and what tells of the next one.
func (d *desk) look() (fleet.Offer, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.offer, d.changed
}

// put replaces an older offer. What the fleet may serve never goes back.
func (d *desk) put(o fleet.Offer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Compare(place(o), place(d.offer)) <= 0 {
		return
	}
	d.offer = o
	close(d.changed)
	d.changed = make(chan struct{})
}

// place orders offers: by their newest release, then by how far that has come, then
// by its records.
func place(o fleet.Offer) []uint64 {
	return []uint64{max(o.All.Number, o.Canary.Number), o.All.Number, o.All.Records.Seq, o.Canary.Records.Seq}
}
