// Package directory is the control side of the inner layer: it follows every
// registry of a region, makes one list of each service out of them, keeps what looks
// wrong in queues for people, and hands the lists to callers.
//
//	registries ── discovery.Watcher each ──► Directory ── merge, judge ──► lists
//	reports of instances ─► Memory (shared) ─┘     │
//	                                                ├─ Server: tables by long poll, http_sd
//	                                                └─ Services, Map, Queues for pages and CLI
package directory

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// Registry is one registry that is followed.
type Registry struct {
	Name   string // as people call it; Instances have it as their Source
	Source discovery.Catalog
}

// Options say what a Directory follows.
type Options struct {
	Region     string     // a directory holds its own region only; others are rejected
	Registries []Registry // in order of belief: of two entries for one address the first counts
	Memory     Memory     // nil: reports and verdicts are this process's own, and nothing is called a ghost
	Log        *slog.Logger
	Metrics    prometheus.Registerer
}

// Memory is what several control nodes share.
type Memory interface {
	// SaveReports keeps what instances said of themselves, for ReportLives.
	SaveReports(ctx context.Context, reports []wire.Report) error
	// Reports are those that have not expired.
	Reports(ctx context.Context) ([]wire.Report, error)
	// Verdicts are what people decided about instances.
	Verdicts(ctx context.Context) ([]Verdict, error)
	// SaveRecords keeps picks, and the views and lists that they name.
	SaveRecords(ctx context.Context, b wire.Batch, lists map[string][]discovery.Instance) error
}

// ReportLives is how long a report counts.
const ReportLives = 3 * wire.ReportEvery

// Verdict is what a person decided about an instance, by its fingerprint.
type Verdict struct {
	Fingerprint
	Service string    `json:"service"`
	Isolate bool      `json:"isolate,omitempty"` // takes no traffic until lifted, whatever it registers
	Accept  bool      `json:"accept,omitempty"`  // suspicious no longer
	Refuse  bool      `json:"refuse,omitempty"`  // stays out, and leaves the queue
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Fingerprint tells a process from another at the same address.
type Fingerprint struct {
	ID      string            `json:"id"`
	Address discovery.Address `json:"address"`
	Started time.Time         `json:"started"`
}

// Directory follows registries. Run it; its lists outlive Run.
type Directory struct{ opt Options }

// New checks the options. It connects to nobody.
func New(opt Options) (*Directory, error) { panic("unbuilt") }

// Run follows all registries until ctx ends.
func (d *Directory) Run(ctx context.Context) error { panic("unbuilt") }

// Service is one service as people see it.
type Service struct {
	Name      string     `json:"name"`
	Instances []Instance `json:"instances"`
}

// Instance is one entry and what the directory thinks of it.
type Instance struct {
	discovery.Instance
	Load    discovery.Load `json:"load"`
	Scale   *route.Scale   `json:"scale,omitempty"`
	Sources []string       `json:"sources"` // every registry that names its address
}

// View is everything that the directory knows at one moment. It is never changed.
type View struct {
	At         time.Time `json:"at"`
	Region     string    `json:"region"`
	Registries []State   `json:"registries"`
	Services   []Service `json:"services"`   // by name
	Suspicious []Suspect `json:"suspicious"` // cannot be used: a coordinate is missing or unmapped
	Queue      []Suspect `json:"queue"`      // wait for a person: the fingerprint does not fit
	Isolated   []Verdict `json:"isolated"`
	Calls      []Call    `json:"calls"` // by From, then To
}

// Call says that a service asked for the instances of another: who calls whom.
type Call struct {
	From string    `json:"from"` // service of the caller
	Env  string    `json:"env"`  // of the caller
	To   string    `json:"to"`
	Last time.Time `json:"last"`
}

// State is how one registry and the directory get along.
type State struct {
	Name     string        `json:"name"`
	Kind     string        `json:"kind"`
	OK       bool          `json:"ok"`
	Age      time.Duration `json:"age"`
	Problem  string        `json:"problem,omitempty"`
	Services int           `json:"services"`
}

// Suspect is an entry that nobody is sent to.
type Suspect struct {
	Fingerprint
	Service  string    `json:"service"`
	Registry string    `json:"registry"`
	Why      string    `json:"why"`
	Since    time.Time `json:"since"`
}

// View is the newest, and a channel that is closed when there is another.
func (d *Directory) View() (v *View, changed <-chan struct{}) { panic("unbuilt") }

// Recheck reads the verdicts again now, not within the second.
func (d *Directory) Recheck() { panic("unbuilt") }

// Directory is what rules.Lint asks.
var _ rules.Directory = (*View)(nil)

// Values implements rules.Directory.
func (v *View) Values(coordinate string) []string { panic("unbuilt") }

// Match implements rules.Directory.
func (v *View) Match(service string, s rules.Selector, version string) int { panic("unbuilt") }

// Service implements rules.Directory.
func (v *View) Service(name string) (known bool, names []string) { panic("unbuilt") }
