// Package discovery finds the instances of a service by its name, and announces
// our own. It stands alone: a service that is no part of dispatch can use it.
//
//	registry ── Source.Watch ──► Watcher ── Current, Changed ──► any number of readers
//	registry ◄─ Source.Register ─ Registration ── renewed until its context ends
//
// A Source speaks to one registry: a file, Consul or Nacos; Open makes one from a
// URL, with a Dialect for what teams write there. A Watcher keeps the
// last list of one service. Register checks and enters our own instances, and
// Registration.Run keeps them entered.
//
// Goroutines: Watcher.Run and Registration.Run own theirs and end them with
// their context. Nothing else has one; the constructors only check.
//
// What a failure does:
//
//   - A registry that cannot be asked, or whose answer cannot be believed, changes
//     nothing: the last list stays, the State of the Watcher says what is wrong and
//     since when. An empty list means "nobody", never "could not ask".
//   - A Watcher that ends leaves its last list as it is.
//   - A registration that cannot be checked or entered is an error of Register.
//     Later, a renewal that fails is tried again every RenewEvery, and what the
//     registry has forgotten is registered again. After three that failed the lease
//     is given up and the instance entered anew with all checks, or Run ends.
//
// DESIGN.md says how an empty or shrunken list is judged.
package discovery

import (
	"context"
	"slices"
)

// Source is a registry.
type Source interface {
	// Name is shown to operators and marks what came from here: consul, nacos, static.
	Name() string
	// Watch tells out the full list of a service as soon as it is known, and again
	// whenever it changed; on failure it tells the problem and no list. It
	// returns nil when ctx ends, after its own goroutines, and tells nothing from
	// then on. An error means that asking again would not help.
	Watch(ctx context.Context, service string, out Observer) error
	// Register enters an instance that has been checked. Use the function Register.
	Register(ctx context.Context, in Instance) (Lease, error)
	// Close lets go of connections. Watches and leases end before it.
	Close()
}

// Observer is told by one Watch, from one goroutine.
type Observer interface {
	// Publish replaces what was known.
	Publish(Snapshot)
	// Checked is called after each look: with nil when the registry was believed.
	Checked(error)
}

// Lease is one entry in a registry.
type Lease interface {
	// Renew says that the instance lives. If the registry has forgotten the entry,
	// it is made again.
	Renew(ctx context.Context) error
	// Release removes the entry.
	Release(ctx context.Context) error
}

// Snapshot is all that a registry says about one service. It is never changed.
type Snapshot struct {
	Service   string     `json:"service"`
	Source    string     `json:"source"`
	Version   uint64     `json:"version"` // 1, 2, … within a Watch; 0: nothing is known yet
	Instances []Instance `json:"instances"`
	// Rejected are entries that nobody may use, and why.
	Rejected []Rejected `json:"rejected,omitempty"`
	// LastResort are instances that vanished together with more than half of the
	// others and still accept connections. Use them when all Instances fail.
	LastResort []Instance `json:"last_resort,omitempty"`
}

// Rejected is an entry of a registry that is never used.
type Rejected struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Why     string `json:"why"`
}

// publisher turns what a Source reads into Snapshots: sorted, each instance once,
// and none that equals the one before.
type publisher struct {
	out     Observer
	metrics *metrics
	last    Snapshot
}

func newPublisher(source, service string, out Observer, m *metrics) *publisher {
	return &publisher{out: out, metrics: m, last: Snapshot{Source: source, Service: service}}
}

// publish tells the lists of s if they are new, and says whether they were.
func (p *publisher) publish(s Snapshot) bool {
	s.Source, s.Service, s.Version = p.last.Source, p.last.Service, p.last.Version+1
	s.Instances, s.LastResort = tidy(s.Instances), tidy(s.LastResort)
	s.Rejected = slices.SortedFunc(slices.Values(s.Rejected), func(a, b Rejected) int { return compare(a.ID+a.Address, b.ID+b.Address) })
	if p.last.Version > 0 && slices.EqualFunc(s.Instances, p.last.Instances, Instance.Equal) &&
		slices.EqualFunc(s.LastResort, p.last.LastResort, Instance.Equal) && slices.Equal(s.Rejected, p.last.Rejected) {
		return false
	}
	p.last = s
	p.metrics.size(s)
	p.out.Publish(s)
	return true
}

// tidy sorts instances by id and address and keeps the first of those that share both.
func tidy(instances []Instance) []Instance {
	sorted := append([]Instance{}, instances...) // never nil: an empty list is a list
	slices.SortStableFunc(sorted, compareInstances)
	return slices.CompactFunc(sorted, func(a, b Instance) bool { return compareInstances(a, b) == 0 })
}
