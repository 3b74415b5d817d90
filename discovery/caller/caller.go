// Package caller is the inner layer inside a service: it keeps the tables of the
// services that it calls, and picks.
//
//	c, err := caller.New(caller.Options{Self: self, Control: urls, …})
//	group.Go(func() error { return c.Run(ctx) })
//	if err := c.Ready(ctx); err != nil { … }      // one full table, before the first call
//	client := &http.Client{Transport: httpcall.New(c, nil)}
//	client.Get("http://order-core/path")
//
// What it knows comes in at one end and goes out at the other:
//
//	control nodes ──────────┐
//	copy on disk ───────────┼─► lists, rules ── route.Compile ──► slots ── Pick ──► ring of records
//	registry, rules folder ─┘   (under mu)      (one goroutine)   (no lock)               │
//	                                  ▲                                control nodes ◄── batches
//	Done ──► watch ── who is out ─────┘
//	dials ─────┘
//
// Goroutines: Run owns all, and ends them with its context: one follows control
// nodes, or one each registry watch and the folder; one compiles; one writes the
// copy; one sends records; one dials who could not be reached and who is due back,
// with one more for each dial. New starts none. Pick uses its caller's, takes no lock
// unless it is recorded, and does no I/O ever. Done takes one lock of its service.
//
// What a failure does:
//
//   - Whatever cannot be asked, read, verified or parsed changes nothing: the last
//     lists and rules stay. Each is logged when it begins and when it ends, and counted.
//   - Control nodes away at the start: the copy on disk, else the registry's lists.
//   - Rules that could never be loaded, or the kill switch: picks skip rules,
//     weights and versions, and keep cluster and env. dispatch_discovery_degraded is 1.
//   - A panic of the engine: the same call is served in that way too, and it is counted.
//   - An instance that cannot be reached, or whose calls fail, takes none for a while:
//     package outlier. When nobody else is left it serves all the same.
//   - A pick without a match is a *route.NoMatch. A pick before anything was loaded
//     is a *fault.Error not_loaded, which is another matter: Ready waits for that.
//
// DESIGN.md has the tables.
package caller

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/signed"
)

// Options say who calls and where tables come from: from control nodes, or
// from a registry and a folder of rules.
type Options struct {
	ID      string                // of this process; default: host name and a random part
	Service string                // that this process is, for the map; empty: none
	Self    discovery.Coordinates // required, apart from the version: the home of every pick
	Lane    route.Query           // the process's own; what the traffic carries counts before it

	Control    []string      // URLs of fleet listeners, asked in turn
	Token      string        // of the fleet listener
	TLS        *tls.Config   // nil: the system's
	Trust      *signed.Trust // whose releases of rules are believed; required with Control
	Deployment string        // default: dispatch

	Registry discovery.Source // without control: where instances are found. With it: the degraded path
	RulesDir string           // without control: a folder of rule files (.yaml), followed
	Services []string         // those that are called; empty: all that control knows. Required with Registry

	Dir       string   // where the last lists and rules of control are kept; empty: nowhere
	Overrides []string // NAME@IP:PORT;IP:PORT, before everything else
	AllowProd bool     // overrides also where Self.Env is prod
	Isolate   bool     // developers' instances are their own; SetIsolate changes it
	Sample    int      // one in so many ordinary picks is recorded; 0: DefaultSample

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// DefaultSample of ordinary picks. Errors, fallbacks, overrides and picks without
// rules are recorded always.
const DefaultSample = 1000

// Caller picks instances for one process. It may be used by many at once.
type Caller struct {
	opt       Options
	overrides map[string][]discovery.Instance // by service
	prefix    string                          // of decision IDs and names of tables: random, of this process
	sample    uint64
	transport http.RoundTripper // to control nodes
	dial      func(ctx context.Context, address string) error
	began     time.Time
	log       *slog.Logger
	metrics   *metrics
	troubles  troubles
	ring      ring

	slots   atomic.Pointer[map[string]*slot] // what Pick reads; the map is replaced, never changed
	tables  atomic.Uint64                    // compiled so far, for their names
	running atomic.Bool
	tried   atomic.Bool  // RulesDir has been read once, well or badly
	current atomic.Int64 // index in Control of the node that answers; -1: none does

	wake     chan struct{} // capacity 1: something is dirty
	copying  chan struct{} // capacity 1: the copy on disk is old
	dials    chan struct{} // capacity 1: somebody is to be dialled
	answered chan struct{} // closed at the first answer of a control node
	passed   chan struct{} // closed when all control nodes have failed once
	ready    chan struct{} // closed when every service has its table

	mu       sync.Mutex // guards the rest; held for no I/O and no compiling
	lists    map[string]*list
	watches  map[string]*watch // by service
	book     book
	mark     signed.Mark // of the rules in use
	place    place       // in what control tells
	heard    heard
	direct   bool
	isolate  bool
	dirty    map[string]bool
	appeared chan struct{} // closed and replaced when slots come or go

	degraded []string // why rules are skipped; of keepTables alone
}

// New checks the options. It connects to nobody.
func New(opt Options) (*Caller, error) {
	overrides, err := checkOptions(&opt)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(opt.Metrics)
	if err != nil {
		return nil, err
	}
	c := &Caller{
		opt: opt, overrides: overrides, prefix: randomText(12), sample: uint64(opt.Sample),
		transport: newTransport(opt.TLS), dial: dialTCP, began: time.Now(), log: opt.Log.With("caller", opt.ID), metrics: m,
		wake: make(chan struct{}, 1), copying: make(chan struct{}, 1), dials: make(chan struct{}, 1),
		answered: make(chan struct{}), passed: make(chan struct{}), ready: make(chan struct{}),
		lists: map[string]*list{}, watches: map[string]*watch{}, isolate: opt.Isolate, dirty: map[string]bool{}, appeared: make(chan struct{}),
	}
	// Who names no source of rules expects none: that is not degraded.
	c.book.known = len(opt.Control) == 0 && opt.RulesDir == ""
	c.troubles = troubles{log: c.log, count: m.problems}
	c.current.Store(-1)
	slots := map[string]*slot{}
	for name, instances := range overrides {
		slots[name] = c.newSlot(name)
		slots[name].override = instances
	}
	c.slots.Store(&slots)
	return c, nil
}

// Run keeps tables up to date, sends records, and ends with ctx. The tables outlive
// it as they are. A Caller runs once.
func (c *Caller) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return errors.New("run caller: it ran already")
	}
	for name, instances := range c.overrides {
		c.log.Warn("calls go to addresses of the configuration, not of the registry", "of", name, "addresses", addresses(instances))
	}
	kept := c.restore()
	var tasks sync.WaitGroup
	tasks.Go(func() { c.keepTables(ctx) })
	tasks.Go(func() { c.probe(ctx) })
	if len(c.opt.Control) > 0 {
		tasks.Go(func() { c.follow(ctx) })
		tasks.Go(func() { c.standIn(ctx, kept) })
		tasks.Go(func() { c.sendRecords(ctx) })
		if c.opt.Dir != "" {
			tasks.Go(func() { c.keepCopy(ctx) })
		}
	} else {
		tasks.Go(func() { c.watchRegistry(ctx) })
	}
	if c.opt.RulesDir != "" {
		tasks.Go(func() { c.readRules(ctx) })
	}
	tasks.Wait()
	if idle, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
	return nil
}

// SetDirect throws the kill switch of this process, or takes it back. It counts
// within a second, while Run runs.
func (c *Caller) SetDirect(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.direct != on {
		c.direct = on
		c.soil()
		c.log.Warn("the kill switch of this process was moved", "direct", on)
	}
}

// SetIsolate switches developer isolation, while Run runs.
func (c *Caller) SetIsolate(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isolate != on {
		c.isolate = on
		c.soil()
	}
}

// soil says which services must be compiled again: those named, or all. c.mu is held.
func (c *Caller) soil(names ...string) {
	if len(names) == 0 {
		for name := range c.names() {
			c.dirty[name] = true
		}
	}
	for _, name := range names {
		c.dirty[name] = true
	}
	signal(c.wake)
}

// signal leaves a token for whoever waits next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
