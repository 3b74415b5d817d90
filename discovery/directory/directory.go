// Package directory is the control side of the inner layer: it follows every
// registry of a region, makes one list of each service out of them, keeps what looks
// wrong in queues for people, and hands the lists to callers.
//
//	registries ── discovery.Watcher each ──► Directory ── merge, judge ──► lists
//	reports of instances ─► Memory (shared) ─┘     │
//	                                                ├─ Server: tables by long poll, http_sd
//	                                                └─ View: for pages, CLI and rules.Lint
//
// Goroutines: Directory.Run owns all and ends them with its context. One for each
// registry asks for its names, two for each name keep its list, one talks to Memory,
// and one, the builder, makes lists and views out of what the others left. Server has
// none but those of its requests.
//
// What a failure does:
//
//   - A registry that is away changes no list. Its State says so, and Tables.Partial
//     names it to callers.
//   - Memory that is away: verdicts and reports stay as they were, nothing more is
//     called a ghost, reports wait here, records are refused with 503.
//   - An entry that cannot be used, or whose fingerprint does not fit, is never a
//     candidate. It stands in a queue of the View until it fits or a person decides.
//
// DESIGN.md has the table of judgements.
package directory

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// Registry is one registry that is followed.
type Registry struct {
	Name   string // as people call it; Instances have it as their Source
	Source discovery.Catalog
}

// Options say what a Directory follows.
type Options struct {
	Region     string     // a directory holds its own region only; others are counted and left out
	Registries []Registry // in order of belief: of two entries for one address the first counts
	Memory     Memory     // nil: reports are this process's own, there are no verdicts, and nothing is called a ghost
	Log        *slog.Logger
	Metrics    prometheus.Registerer
}

// Memory is what several control nodes share. Each call ends with its context.
type Memory interface {
	// SaveReports keeps what instances said of themselves, for ReportLives, by service and ID.
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

// Verdict is what a person decided about an instance. Of several for one service and
// ID the newest counts; one that says nothing lifts those before it.
type Verdict struct {
	Fingerprint
	Service string    `json:"service"`
	Isolate bool      `json:"isolate,omitempty"` // takes no traffic until lifted, whatever it registers
	Accept  bool      `json:"accept,omitempty"`  // this fingerprint is suspicious no longer
	Refuse  bool      `json:"refuse,omitempty"`  // this fingerprint stays out, and leaves the queue
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

const (
	// buildPace is the shortest time between two views: 20 a second at most.
	buildPace = 50 * time.Millisecond
	// lookAgain is how often ages, loads and fingerprints are looked at without news.
	lookAgain = time.Second
)

// Directory follows registries. Run it; its lists outlive Run.
type Directory struct {
	opt     Options
	log     *slog.Logger
	metrics *metrics
	tables  *tables
	calls   *calls

	wake     chan struct{} // has a token when there is something to build
	recheck  chan struct{} // has a token when Memory shall be read now
	complete chan struct{} // closed when every registry has been heard or is away
	edition  atomic.Pointer[edition]

	mu         sync.Mutex // guards the rest, and the fields of registries, watches and services
	registries []*registry
	services   map[string]*service
	names      []string // of services, sorted
	dirty      map[string]bool
	dropped    bool // services have room that they no longer need
	all        bool // the builder shall look at everything
	news       bool // the next view differs from the last in more than ages and loads
	reports    reports
	verdicts   verdicts
	suspects   []Suspect // of all registries; nil: must be listed anew
	states     []State
}

// edition is a view and the signal that ends it.
type edition struct {
	view    *View
	changed chan struct{}
}

// New checks the options. It connects to nobody.
func New(opt Options) (*Directory, error) {
	var p fault.Problems
	if opt.Region == "" {
		p.Addf("region", "is required: a directory keeps the services of one region")
	}
	if len(opt.Registries) == 0 {
		p.Addf("registries", "are required: at least one")
	}
	names := map[string]bool{}
	for i, r := range opt.Registries {
		at := fmt.Sprintf("registries[%d]", i)
		if r.Name == "" || names[r.Name] {
			p.Addf(at+".name", "%q is empty or taken: each registry has a name of its own", r.Name)
		}
		if r.Source == nil {
			p.Addf(at+".source", "is required")
		}
		names[r.Name] = true
	}
	if err := p.Err("invalid_directory", "the directory cannot be kept"); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(opt.Metrics)
	if err != nil {
		return nil, fmt.Errorf("keep the directory: %w", err)
	}
	d := &Directory{opt: opt, log: opt.Log, metrics: m, tables: newTables(), calls: newCalls(),
		wake: make(chan struct{}, 1), recheck: make(chan struct{}, 1), complete: make(chan struct{}),
		services: map[string]*service{}, dirty: map[string]bool{}, reports: newReports()}
	for i, r := range opt.Registries {
		d.registries = append(d.registries, &registry{Registry: r, order: i, own: []string{r.Name}, since: time.Now(), watches: map[string]*watch{}})
	}
	d.observe(time.Now())
	d.edition.Store(&edition{d.draw(time.Now()), make(chan struct{})})
	return d, nil
}

// Run follows all registries until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, r := range d.registries {
		all.Go(func() { d.follow(ctx, r) })
	}
	if d.opt.Memory != nil {
		all.Go(func() { d.remember(ctx) })
	}
	d.builder(ctx)
	all.Wait()
	return nil
}

// View is the newest, and a channel that is closed when there is another. A view is
// renewed every second without a signal, so that its ages and loads are true.
func (d *Directory) View() (v *View, changed <-chan struct{}) {
	e := d.edition.Load()
	return e.view, e.changed
}

// Recheck reads the verdicts again now, not within the second.
func (d *Directory) Recheck() { poke(d.recheck) }

// builder builds whenever there is something new, at most every buildPace, and looks
// at everything each second.
func (d *Directory) builder(ctx context.Context) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all = true
		case <-d.wake:
		}
		d.build(all)
		if !pause(ctx, buildPace) {
			return
		}
	}
}

// poke leaves a token unless there is one.
func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// pause waits d and reports true, or reports false as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
