package admin_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/release"
)

// crew is a fleet in this process: keepers that load and verify as those of edges
// do, and no network between.
type crew struct {
	t       *testing.T
	blobs   release.Blobs
	mu      sync.Mutex
	edges   []*edge // sorted by id; the first one that serves is the canary
	changed chan struct{}
	lowest  int // manifest format
}

// edge is one replica.
type edge struct {
	id       string
	boot     string
	keeper   *release.Keeper
	took     []uint64 // the numbers that it served
	errors   uint64
	gone     time.Time // since when it neither asks nor hears; zero: it does
	seen     fleet.Report
	override *release.Override
}

// newCrew is a fleet of edges that follow c. The suffixes that each allows are its own.
func newCrew(c *control, suffixes map[string][]string) *crew {
	w := &crew{t: c.t, blobs: c.store, changed: make(chan struct{})}
	for id, hosts := range suffixes {
		allowed, err := domain.NewSuffixes(hosts)
		must(c.t, err)
		loader, err := release.NewLoader(release.LoaderOptions{Deployment: deployment, Suffixes: allowed, Trust: c.keys.Trust(), Keys: c.keys})
		must(c.t, err)
		keeper, err := release.NewKeeper(loader, nil)
		must(c.t, err)
		w.edges = append(w.edges, &edge{id: id, boot: "1", keeper: keeper})
	}
	slices.SortFunc(w.edges, func(a, b *edge) int { return strings.Compare(a.id, b.id) })
	c.do.Fleet = w
	return w
}

// everything is what the edges of most tests allow.
var everything = []string{"a.com.cn", "b.com.cn", "bank.example"}

func (w *crew) of(id string) *edge {
	i := slices.IndexFunc(w.edges, func(e *edge) bool { return e.id == id })
	return w.edges[i]
}

// change changes the crew and tells of it.
func (w *crew) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// Unheard is nobody: there is no registry.
func (w *crew) Unheard() []fleet.Unheard { return nil }

// Offer hands each edge what is for it.
func (w *crew) Offer(ctx context.Context, o fleet.Offer) error {
	w.change(func() {
		for _, e := range w.edges {
			s := o.All
			if e.id == o.Replica && o.Canary.Number > 0 {
				s = o.Canary
			}
			cur := e.keeper.Current()
			if !e.gone.IsZero() || cur != nil && (cur.Number > s.Number || cur.Number == s.Number && cur.Seq >= s.Records.Seq) {
				continue
			}
			if e.keeper.Accept(ctx, s, w.blobs, "test") == nil {
				e.took = append(e.took, s.Number)
			}
		}
	})
	return nil
}

// Canary is the first edge that serves something and no control node.
func (w *crew) Canary() (string, bool) {
	for _, m := range w.Members() {
		if m.Number > 0 && m.State != fleet.Silent {
			return m.ID, true
		}
	}
	return "", false
}

func (w *crew) Format() int { return w.lowest }

func (w *crew) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *crew) Members() (members []fleet.Member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.edges {
		m := fleet.Member{State: fleet.Current, Seen: time.Now()}
		if e.gone.IsZero() {
			s := e.keeper.Status()
			e.seen = fleet.Report{Replica: fleet.Replica{ID: e.id, Boot: e.boot, Role: "edge", Format: release.Format}, Number: s.Number, Seq: s.Seq,
				Digest: s.Digest, Age: s.Age.Seconds(), Refusal: s.Refusal, Errors: e.errors, Override: e.override}
		} else if m.Seen = e.gone; time.Since(e.gone) >= fleet.SilentAfter {
			m.State = fleet.Silent
		}
		m.Report = e.seen
		members = append(members, m)
	}
	return members
}

func (w *crew) Await(ctx context.Context, number uint64, only string) fleet.Acknowledgement {
	start := time.Now()
	for {
		changed := w.Changed()
		ack := fleet.Acknowledgement{After: time.Since(start).Seconds()}
		waiting := false
		for _, m := range w.Members() {
			if only != "" && m.ID != only || m.State == fleet.Silent {
				continue
			}
			ack.Of++
			switch {
			case m.Number >= number:
				ack.Replicas++
			case m.Refusal != nil && m.Refusal.Number == number:
				ack.Lagging = append(ack.Lagging, fleet.Lag{Replica: m.ID, Number: m.Number, Why: "refused: " + m.Refusal.Code})
			default:
				ack.Lagging = append(ack.Lagging, fleet.Lag{Replica: m.ID, Number: m.Number, Why: "has not taken it yet"})
				waiting = true
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ack
		default:
			if !waiting {
				return ack
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ack
			}
		}
	}
}

// serve fails unless every edge serves the number, and never served any but those.
func (w *crew) serve(number uint64, only ...uint64) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.edges {
		if got := e.keeper.Status().Number; got != number {
			w.t.Errorf("%s serves release %d, want %d", e.id, got, number)
		}
		for _, n := range e.took {
			if !slices.Contains(only, n) {
				w.t.Errorf("%s served release %d", e.id, n)
			}
		}
	}
}

// await waits until every edge serves the number.
func (w *crew) await(number uint64) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.Await(ctx, number, "")
}

// virtual runs a test in virtual time: a control node that has published bank, and
// three edges that serve it. The node's rollouts run until the test ends.
func virtual(t *testing.T, test func(t *testing.T, c *control, w *crew)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &control{t: t, kind: "sqlite", dir: t.TempDir(), log: new(printed), clock: new(clock)}
		c.dsn = "sqlite:" + filepath.Join(c.dir, "dispatch.db")
		c.build(nil)
		c.approveAll()
		c.approve("wapabst3.a.com.cn")
		// The first edge knows the hosts of bank alone.
		w := newCrew(c, map[string][]string{"e1": {"wapabst.a.com.cn", "wapabst2.a.com.cn", "b.com.cn", "bank.example"}, "e2": everything, "e3": everything})
		c.rollouts()
		must2(c.release(0, bank))(t)
		synctest.Wait()
		w.serve(1, 1)
		test(t, c, w)
	})
}

// rollouts runs the rollouts of a node; the function it returns ends them.
func (c *control) rollouts() (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.do.RunRollouts(ctx, slog.New(slog.NewJSONHandler(c.log, nil))) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("rollouts ended with %v", err)
		}
	})
	c.t.Cleanup(end)
	return end
}

// engineer is who publishes without HTTP.
var engineer = actions.Write{Actor: actions.Actor{Name: "engineer", Roles: []string{actions.ReleaseEngineer}}, Reason: "test"}

// confirmed is the write with what a person would type.
func confirmed(w actions.Write, what string) actions.Write {
	w.Confirm = what
	return w
}

// release publishes a document.
func (c *control) release(base uint64, document string) (actions.Outcome, error) {
	return c.do.Publish(c.t.Context(), engineer, actions.Publication{File: "bank.yaml", Document: []byte(document), Base: base, BigMove: true, RegionRemoved: true})
}

// swap swaps sh-main out.
func (c *control) swap() (actions.Outcome, error) {
	return c.do.Emergency(c.t.Context(), actions.Write{Actor: actions.Actor{Name: "night", Roles: []string{actions.OnCall}}, Reason: "sh-main burns", Confirm: "sh"},
		actions.Emergency{Action: actions.SwapEndpoints, Targets: []actions.Target{{App: "mobile", Region: "sh", Expect: "sh-main", From: "sh-main", To: "sh-spare"}}})
}

// twin is another control node on the same database and with the same fleet.
func (c *control) twin() *control {
	c.t.Helper()
	other := *c
	other.log = new(printed)
	loader, err := release.NewLoader(release.LoaderOptions{Deployment: deployment, Suffixes: c.do.Suffixes, Trust: c.keys.Trust(), Keys: c.keys})
	must(c.t, err)
	other.keeper, err = release.NewKeeper(loader, nil)
	must(c.t, err)
	opt := c.do.Options
	opt.Keeper, opt.Loader = other.keeper, loader
	other.do, err = actions.New(opt)
	must(c.t, err)
	return &other
}
