package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// inner is the inner layer's part of a control node: the region's directory, and
// the board that its newest rules hang on. Callers find both on the fleet listener.
type inner struct {
	p         *process
	directory *directory.Directory
	server    *directory.Server
	board     *rulesBoard
	sources   []discovery.Catalog
}

// newInner opens the registries; nil where none is followed. It connects to nobody.
func newInner(p *process) (in *inner, err error) {
	names, urls, _ := named(p.cfg.Inner.Registry) // Validate has looked
	if len(names) == 0 || !p.cfg.Role.controls() {
		return nil, nil
	}
	in = &inner{p: p, board: newRulesBoard()}
	opt := directory.Options{Region: p.cfg.Inner.InnerRegion, Memory: lateInner{p}, Log: p.log, Metrics: p.registry}
	for i, name := range names {
		source, err := in.open(name, urls[i])
		if err != nil {
			in.close()
			return nil, fmt.Errorf("--registry %s: %w", name, err)
		}
		in.sources = append(in.sources, source)
		opt.Registries = append(opt.Registries, directory.Registry{Name: name, Source: source})
	}
	if in.directory, err = directory.New(opt); err != nil {
		in.close()
		return nil, fmt.Errorf("keep the directory: %w", err)
	}
	in.server, err = directory.NewServer(in.directory, in.board)
	return in, err
}

// open opens one registry with its dialect.
func (in *inner) open(name, url string) (discovery.Catalog, error) {
	opt := discovery.Options{Log: in.p.log.With("registry", name), Registry: in.p.registry}
	dialects, files, _ := named(in.p.cfg.Inner.RegistryDialect)
	for i, of := range dialects {
		if of != name {
			continue
		}
		var err error
		if opt.Dialect, err = discovery.ReadDialect(files[i]); err != nil {
			return nil, err
		}
	}
	return discovery.Open(url, opt)
}

// run owns the goroutines.
func (in *inner) run(ctx context.Context, g *errgroup.Group) {
	if in == nil {
		return
	}
	g.Go(func() error { return in.directory.Run(ctx) })
	g.Go(func() error { return in.board.run(ctx, in.p) })
}

// close lets go of connections, after run.
func (in *inner) close() {
	if in == nil {
		return
	}
	for _, source := range in.sources {
		source.Close()
	}
}

// stop answers every question that waits.
func (in *inner) stop() {
	if in != nil {
		in.server.Stop()
	}
}

// options adds what actions want of the inner layer.
func (in *inner) options(opt actions.Options) actions.Options {
	if in != nil {
		opt.Region, opt.Inner, opt.RulesMade = in.p.cfg.Inner.InnerRegion, in.directory, in.board.made
		opt.RulesHeard, opt.PicksKept = in.server.Heard, in.p.cfg.Inner.PicksKept
	}
	return opt
}

// handler answers callers; nil where no registry is followed.
func (in *inner) handler() http.Handler {
	if in == nil {
		return nil
	}
	return in.server
}

// rulesEvery is how often a control node looks for rules that another published:
// half of the 2 s within which they must be in use everywhere.
const rulesEvery = time.Second

// rulesBoard is where callers find the region's newest rules. What this node
// publishes hangs there at once.
type rulesBoard struct {
	look chan struct{} // holds one token when the database shall be asked now

	mu      sync.Mutex // guards the rest
	newest  rules.Signed
	changed chan struct{}
	read    bool // the database has been asked
}

func newRulesBoard() *rulesBoard {
	return &rulesBoard{look: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Current implements directory.RulesBoard.
func (b *rulesBoard) Current() (rules.Signed, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest, b.changed
}

// Read implements directory.RulesBoard.
func (b *rulesBoard) Read() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read
}

// made says that this node published rules.
func (b *rulesBoard) made() {
	select {
	case b.look <- struct{}{}:
	default: // it is about to look anyway
	}
}

// run asks the database until ctx ends. While that is away the last rules stay.
func (b *rulesBoard) run(ctx context.Context, p *process) error {
	tick := time.NewTicker(rulesEvery)
	defer tick.Stop()
	var before error
	for {
		err := b.ask(ctx, p)
		if err != nil && before == nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "rules of internal calls cannot be read; the last ones stay", "err", err)
		}
		before = err
		select {
		case <-tick.C:
		case <-b.look:
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *rulesBoard) ask(ctx context.Context, p *process) error {
	st := p.store.Load()
	if st == nil {
		return nil // its own absence is logged elsewhere
	}
	stream := rules.Stream(p.cfg.Inner.InnerRegion)
	head, err := st.Head(ctx, stream)
	if err != nil {
		return err
	}
	if current, _ := b.Current(); head <= current.Number {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.read = true
		return nil
	}
	s, err := st.Release(ctx, stream, head)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = true
	b.newest = rules.Signed{Number: s.Number, Manifest: s.Manifest, Signature: s.Signature}
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// lateInner keeps in the database, once there is one, what control nodes share.
type lateInner struct{ p *process }

func (l lateInner) memory() (directory.Memory, error) {
	if st := l.p.store.Load(); st != nil {
		return st.Inner(), nil
	}
	return nil, errNoDatabase
}

// SaveReports fails while the database is away.
func (l lateInner) SaveReports(ctx context.Context, reports []wire.Report) error {
	m, err := l.memory()
	if err != nil {
		return err
	}
	return m.SaveReports(ctx, reports)
}

// Reports fails while the database is away.
func (l lateInner) Reports(ctx context.Context) ([]wire.Report, error) {
	m, err := l.memory()
	if err != nil {
		return nil, err
	}
	return m.Reports(ctx)
}

// Verdicts fails while the database is away.
func (l lateInner) Verdicts(ctx context.Context) ([]directory.Verdict, error) {
	m, err := l.memory()
	if err != nil {
		return nil, err
	}
	return m.Verdicts(ctx)
}

// SaveRecords fails while the database is away.
func (l lateInner) SaveRecords(ctx context.Context, b wire.Batch, lists map[string][]discovery.Instance) error {
	m, err := l.memory()
	if err != nil {
		return err
	}
	return m.SaveRecords(ctx, b, lists)
}
