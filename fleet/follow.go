package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// Disk is the replica's own copy of releases. What is fetched for a release is
// kept there before it has loaded, so that it is fetched once. *release.Disk is one.
type Disk interface {
	release.Blobs
	Keep(d release.Digest, blob []byte) error
	Restore(ctx context.Context, accept func(context.Context, release.Signed, release.Blobs) error) error
}

// FollowerOptions say whom a Follower keeps up to date.
type FollowerOptions struct {
	Keeper   *release.Keeper // required
	Self     Replica         // ID and Boot are required
	Disk     Disk            // the Keeper's; default none: every blob is fetched
	Describe func(*Report)   // fills in what only the process knows: Override, Databases, Errors
	Counts   *Outbox         // what control nodes are told to keep; default: nothing
	// Try judges a draft by the requests that came here lately. It ends with ctx.
	// Default: this replica has none.
	Try      func(ctx context.Context, t Trial) Verdict
	Log      *slog.Logger         // default: discard
	Registry *prometheus.Registry // default: no metrics
}

// Follower asks every source for newer releases, again and again, and hands what
// they bring to the Keeper. Its methods may be called by several goroutines.
type Follower struct {
	opt   FollowerOptions
	loads sync.WaitGroup // Accepts and trials under way; Run waits for them
	turn  chan struct{}  // has a token while a trial runs

	mu     sync.Mutex            // guards what follows; taken before a link's and the Keeper's
	links  map[string]*link      // by the source's name
	run    func(*link)           // starts a link; nil while Run does not run
	load   map[*loading]struct{} // releases that are being loaded
	served *release.Signed       // the last one that came from a source and was taken into use
}

// loading is a release on its way into the Keeper.
type loading struct {
	release.Signed
	stop context.CancelCauseFunc
}

// NewFollower checks the options. Use gives it sources.
func NewFollower(opt FollowerOptions) (*Follower, error) {
	var p fault.Problems
	if opt.Keeper == nil {
		p.Addf("Keeper", "is missing")
	}
	if opt.Self.ID == "" {
		p.Addf("--replica-id", "is missing")
	}
	if opt.Self.Boot == "" {
		p.Addf("Self.Boot", "is missing")
	}
	if err := p.Err("bad_follower", "releases cannot be followed"); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Self.Format = cmp.Or(opt.Self.Format, release.Format)
	f := &Follower{opt: opt, turn: make(chan struct{}, 1), links: map[string]*link{}, load: map[*loading]struct{}{}}
	if opt.Registry != nil {
		if err := opt.Registry.Register(newFollowerCollector(f)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Use replaces the set of sources, also while Run runs. One whose name is in use
// goes on undisturbed; one that is no longer named is not asked again. Of two
// with one name the first counts.
func (f *Follower) Use(sources []Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	named := map[string]bool{}
	for _, s := range sources {
		named[s.Name()] = true
		if f.links[s.Name()] != nil {
			continue
		}
		l := newLink(s)
		f.links[s.Name()] = l
		if f.run != nil {
			f.run(l)
		}
	}
	for name, l := range f.links {
		if !named[name] {
			delete(f.links, name)
			l.leave()
		}
	}
}

// Run asks until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	f.mu.Lock()
	if f.run != nil {
		f.mu.Unlock()
		return errors.New("run follower: it runs already")
	}
	f.run = func(l *link) {
		ctx, stop := context.WithCancel(ctx)
		l.leave = stop
		asking.Go(func() {
			defer stop()
			f.follow(ctx, l)
		})
	}
	for _, l := range f.links {
		f.run(l)
	}
	f.mu.Unlock()

	f.watchKeeper(ctx)
	f.mu.Lock()
	f.run = nil // no link starts any more
	f.mu.Unlock()
	asking.Wait()
	f.loads.Wait()
	return nil
}

// watchKeeper tells the sources at once what the Keeper takes into use, whoever brought it.
func (f *Follower) watchKeeper(ctx context.Context) {
	for {
		changed := f.opt.Keeper.Changed()
		f.wake()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// wake cuts every question short that says something else than what is true now.
func (f *Follower) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := saidOf(f.opt.Keeper.Status())
	for _, l := range f.links {
		l.cutShort(now)
	}
}

// Report is what this replica says of itself now.
func (f *Follower) Report() Report {
	s := f.opt.Keeper.Status()
	r := Report{Replica: f.opt.Self, Number: s.Number, Seq: s.Seq, Digest: s.Digest, Age: s.Age.Seconds(), Source: s.Source,
		Refusal: s.Refusal, Sources: f.States(), DiskError: shorten(s.DiskErr)}
	if r.Refusal != nil {
		r.Refusal.Reason = shorten(r.Refusal.Reason)
	}
	if f.opt.Describe != nil {
		f.opt.Describe(&r)
	}
	return r
}

// States are the sources, sorted by name.
func (f *Follower) States() []SourceState {
	links := f.all()
	states := make([]SourceState, 0, len(links))
	for _, l := range links {
		state, _ := l.state()
		states = append(states, state)
	}
	return states
}

// all are the links, sorted by the names of their sources.
func (f *Follower) all() []*link {
	f.mu.Lock()
	defer f.mu.Unlock()
	links := make([]*link, 0, len(f.links))
	for _, l := range f.links {
		links = append(links, l)
	}
	slices.SortFunc(links, func(a, b *link) int { return cmp.Compare(a.source.Name(), b.source.Name()) })
	return links
}

// maxText bounds a text in a report. The whole stands in the replica's own log.
const maxText = 500

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	cut := maxText
	for cut > 0 && text[cut]&0xC0 == 0x80 { // not inside a rune
		cut--
	}
	return text[:cut] + "…"
}

// said is the part of a report that acknowledges: what is served, and what was refused.
type said struct {
	number, seq               uint64
	refusedNumber, refusedSeq uint64
	code                      string
}

func saidOf(s release.Status) said {
	out := said{number: s.Number, seq: s.Seq}
	if s.Refusal != nil {
		out.refusedNumber, out.refusedSeq, out.code = s.Refusal.Number, s.Refusal.Seq, s.Refusal.Code
	}
	return out
}

// signed is the release that is served as it came, nil if that cannot be had.
func (f *Follower) signed(ctx context.Context) *release.Signed {
	number := f.opt.Keeper.Status().Number
	f.mu.Lock()
	served := f.served
	f.mu.Unlock()
	if served != nil && served.Number == number {
		return served
	}
	if f.opt.Disk == nil {
		return nil
	}
	var found *release.Signed
	err := f.opt.Disk.Restore(ctx, func(_ context.Context, s release.Signed, _ release.Blobs) error {
		if s.Number != number {
			return errors.New("another release is served")
		}
		found = &s
		return nil
	})
	if err != nil {
		f.opt.Log.WarnContext(ctx, "a control node asks for the release that is served, and it is not on the disk", "number", number, "err", err,
			"try", "ask for it on another replica: GET /api/v1/fleet")
	}
	return found
}

// pause waits, and reports false as soon as ctx ends.
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
