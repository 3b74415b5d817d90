package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// C08: a lease that has run out is never renewed: the entry is removed and made
// again, although the agent would still pass the old one.
func TestLostLeaseIsEnteredAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		r, end := registered(t, f, c, a)
		f.crash()
		time.Sleep(lostAfter*RenewEvery + time.Second)
		if r.Problem() == nil {
			t.Error("no problem is shown")
		}
		f.restart()
		a.happened()
		time.Sleep(RenewEvery)
		if got := strings.Join(a.happened(), " "); got != "service/deregister service/orders-10.0.0.1-80 service/register check/update" {
			t.Errorf("after it was lost: %s", got)
		}
		time.Sleep(RenewEvery)
		if got := strings.Join(a.happened(), " "); got != "check/update" || r.Problem() != nil {
			t.Errorf("after it was entered again: %s, problem %v", got, r.Problem())
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}))
}

// Two renewals that fail are not the end: the lease lives on as it is.
func TestLeaseSurvivesTwoLostRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		r, end := registered(t, f, c, a)
		f.crash()
		time.Sleep((lostAfter-1)*RenewEvery + time.Second)
		f.restart()
		a.happened()
		time.Sleep(RenewEvery)
		if got := strings.Join(a.happened(), " "); got != "check/update" || r.Problem() != nil {
			t.Errorf("after two: %s, problem %v", got, r.Problem())
		}
		_ = end()
	}))
}

// C08, the other policy: the process ends, and leaves the registry first if it can.
func TestEndWhenLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		first, end := registered(t, f, c, a)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		in := first.Instances()[0]
		lease, err := c.Register(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		var broken atomic.Bool
		broken.Store(true)
		f.mu.Lock()
		f.agent = func(q question) (int, string) {
			if broken.Load() && strings.Contains(q.path, "check/update") {
				return 500, "No cluster leader"
			}
			return a.answer(q)
		}
		f.mu.Unlock()
		a.happened()
		started := time.Now()
		r := &Registration{source: c, log: slog.New(slog.DiscardHandler), linger: DefaultLinger, endWhenLost: true, held: []*held{{in: in, lease: lease}}}
		stopped := time.Time{}
		err = r.RunThen(context.Background(), func(context.Context) error { stopped = time.Now(); return nil })
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "No cluster leader") {
			t.Errorf("Run = %v", err)
		}
		if took := stopped.Sub(started); took != lostAfter*RenewEvery+DefaultLinger {
			t.Errorf("it stopped after %s", took)
		}
		if got := strings.Join(a.happened(), " "); got != "service/deregister" {
			t.Errorf("at the end: %s", got)
		}
	}))
}

// T28: the order of leaving, with its limits: deregister, serve on, drain, stop.
func TestRunThenDrainsLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		r, end := registered(t, f, c, a)
		_ = end()
		r.held[0].lease, _ = c.Register(t.Context(), r.held[0].in)
		a.happened()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		started := time.Now()
		slow := errors.New("calls are still in work")
		err := r.RunThen(ctx, func(ctx context.Context) error {
			if got := strings.Join(a.happened(), " "); got != "service/deregister" || time.Since(started) != DefaultLinger {
				t.Errorf("before it drains, after %s: %s", time.Since(started), got)
			}
			<-ctx.Done()
			return slow
		})
		if took := time.Since(started); !errors.Is(err, slow) || took != DefaultLinger+DefaultDrain {
			t.Errorf("RunThen = %v after %s", err, took)
		}
	}))
}

// A09: 1,000 registrations that start and end leave nothing: a goroutine that stays
// would keep the bubble from ending.
func TestRegistrationsLeaveNothing(t *testing.T) {
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		cycle := func() {
			r, end := registered(t, f, c, newAgentState())
			time.Sleep(RenewEvery + time.Second)
			if err := errors.Join(r.Problem(), end()); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			f.asked = nil
			f.mu.Unlock()
		}
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		for range 20 {
			cycle()
		}
		goroutines, before := runtime.NumGoroutine(), heap()
		for range 1000 {
			cycle()
		}
		if n := runtime.NumGoroutine(); n > goroutines+10 { // other tests' are counted too
			t.Errorf("%d goroutines, %d before", n, goroutines)
		}
		if after := heap(); after > before+2<<20 {
			t.Errorf("the heap grew from %d to %d bytes", before, after)
		}
	}))
}

// lateSource is a registry that is away at first.
type lateSource struct {
	Source
	away int // how many more registrations fail
	err  error
}

func (s *lateSource) Name() string { return "late" }

func (s *lateSource) Register(context.Context, Instance) (Lease, error) {
	if s.away--; s.away >= 0 {
		return nil, s.err
	}
	return listedLease{}, nil
}

// A registry that is away at the start keeps nobody from serving, and what is
// wrong with an instance is told at once.
func TestRetryOutlastsARegistryThatIsAway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // outside of the bubble, where time would wait for it
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	in := instance("orders", listener.Addr().String())
	synctest.Test(t, func(t *testing.T) {
		opt, away := RegisterOptions{Force: true, Retry: true}, errors.New("connection refused")
		begin := time.Now()
		r, err := Register(t.Context(), &lateSource{away: 3, err: away}, opt, in)
		if err != nil || len(r.Instances()) != 1 {
			t.Fatalf("registered %v, %v", r, err)
		}
		if took := time.Since(begin); took > firstBackoff+2*maxBackoff {
			t.Errorf("three failures took %s", took)
		}
		if _, err := Register(t.Context(), &lateSource{away: 1, err: away}, RegisterOptions{Force: true}, in); !errors.Is(err, away) {
			t.Errorf("without Retry: %v", err)
		}
		wrong := in
		wrong.Region = ""
		if _, err := Register(t.Context(), &lateSource{}, opt, wrong); err == nil || !strings.Contains(err.Error(), "region") {
			t.Errorf("an instance without a region: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Register(ctx, &lateSource{away: 1000, err: away}, opt, in); !errors.Is(err, away) {
			t.Errorf("after its context ended: %v", err)
		}
	})
}
