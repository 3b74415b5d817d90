package guard

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/breaker"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// instances is a Caller over a list, that takes what it is told.
type instances struct {
	all []discovery.Instance

	mu       sync.Mutex // guards the rest
	next     int
	outcomes []caller.Outcome
	refused  int
}

func (i *instances) Pick(context.Context, string) (caller.Pick, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.all) == 0 {
		return caller.Pick{}, &route.NoMatch{Service: "order-core"}
	}
	i.next++
	return caller.Pick{Choice: route.Choice{Instance: &i.all[i.next%len(i.all)]}}, nil
}

func (i *instances) PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error) {
	for range 16 {
		if p, err := i.Pick(ctx, service); err != nil || p.Instance.Address != not.Address {
			return p, err
		}
	}
	return i.Pick(ctx, service)
}

func (i *instances) Done(_ context.Context, _ *caller.Pick, o caller.Outcome) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.outcomes = append(i.outcomes, o)
}

func (i *instances) Refused(context.Context, string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refused++
	return "abc-1"
}

func (i *instances) Lane(context.Context) route.Query { return route.Query{} }

// servers are n instances of order-core.
func servers(n int) *instances {
	i := &instances{}
	for at := range n {
		i.all = append(i.all, discovery.Instance{Service: "order-core", Address: discovery.Address{Host: "10.0.0.1", Port: uint16(at + 1)}})
	}
	return i
}

// made is a Guard of these instances.
func made(t testing.TB, i *instances, opt Options) *Guard {
	t.Helper()
	g, err := New(i, opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// attempts makes one call whose attempts all end in this way, and returns why there
// was no other.
func attempts(g *Guard, ctx context.Context, o caller.Outcome) (n int, err error) {
	call, err := g.Begin(ctx, "order-core")
	defer call.End()
	if err != nil {
		return 0, err
	}
	for {
		if err := call.Next(ctx); err != nil {
			return call.Attempts, err
		}
		call.Done(ctx, o, call.Took())
		if o == caller.Answered || o == caller.Canceled {
			return call.Attempts, nil
		}
	}
}

// unbreakable makes order-core's breaker one that never opens, so that a test sees
// what the budget does alone.
func unbreakable(g *Guard) {
	g.serviceOf("order-core").breaker = breaker.New(breaker.Settings{FailedCalls: 1 << 30, SlowCalls: 1 << 30})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		servers int
		retries int
		outcome caller.Outcome
		want    int
		why     error
	}{
		{"once by default", 5, 0, caller.Unreachable, 2, UsedUp},
		{"none", 5, -1, caller.Unreachable, 1, UsedUp},
		{"twice", 5, 2, caller.Failed, 3, UsedUp},
		{"never where it was before", 3, 3, caller.Failed, 3, Single},
		{"T80 single instance", 1, 2, caller.Failed, 1, Single},
		{"not what was answered", 5, 2, caller.Answered, 1, nil},
		{"not what was given up", 5, 2, caller.Canceled, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := servers(c.servers)
			n, err := attempts(made(t, i, Options{Default: Settings{Retries: c.retries}}), t.Context(), c.outcome)
			if n != c.want || err != c.why || len(i.outcomes) != c.want {
				t.Errorf("%d attempts, %v; told of %v", n, err, i.outcomes)
			}
		})
	}
}

// Of three instances a call that fails at one is never made there again: T92.
func TestEachAttemptGoesElsewhere(t *testing.T) {
	t.Parallel()
	g := made(t, servers(4), Options{Default: Settings{Retries: 3}})
	call, err := g.Begin(t.Context(), "order-core")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[discovery.Address]bool{}
	for call.Next(t.Context()) == nil {
		if seen[call.Pick.Instance.Address] {
			t.Errorf("%s is tried again", call.Pick.Instance.Address)
		}
		seen[call.Pick.Instance.Address] = true
		call.Done(t.Context(), caller.Failed, call.Took())
	}
	call.End()
	if len(seen) != 4 {
		t.Errorf("%d instances were tried, want 4", len(seen))
	}
}

// Only the first hop that sees a failure tries again; behind a retry nobody does.
func TestRetriesDoNotMultiply(t *testing.T) {
	t.Parallel()
	g := made(t, servers(4), Options{})
	if n, err := attempts(g, AsRetry(t.Context()), caller.Failed); n != 1 || err != Nested {
		t.Errorf("%d attempts, %v", n, err)
	}
	if n, err := attempts(g, t.Context(), caller.Failed); n != 2 || err != UsedUp {
		t.Errorf("%d attempts, %v", n, err)
	}
}

// T92: everything fails, at 1,000 calls a second with two retries each. Whenever one
// looks, retries are a fifth at most.
func TestTotalOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := servers(8)
		g := made(t, i, Options{Default: Settings{Retries: 2}})
		unbreakable(g)
		for calls := 1; calls <= 60_000; calls++ {
			if _, err := attempts(g, t.Context(), caller.Failed); err == nil {
				t.Fatal("a call went well")
			}
			time.Sleep(time.Millisecond)
			if extra := len(i.outcomes) - calls; extra > max(calls/5, stored) {
				t.Fatalf("%d retries of %d calls", extra, calls)
			}
		}
		if extra := len(i.outcomes) - 60_000; extra < 11_900 {
			t.Errorf("%d retries of 60000 calls: the budget is hardly used", extra)
		}
	})
}

// With the breaker, an outage costs hardly a call: T89.
func TestTotalOutageOpensTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := servers(8)
		g := made(t, i, Options{Default: Settings{Retries: 2}})
		var open int
		for range 10_000 {
			_, err := attempts(g, t.Context(), caller.Unreachable)
			if e, ok := errors.AsType[*Open](err); ok {
				open++
				if e.Service != "order-core" || e.Record != "abc-1" || e.Until.Sub(e.Since) != 30*time.Second || !strings.Contains(err.Error(), "\ntry: ") {
					t.Fatalf("%+v: %s", e, err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		if n := len(i.outcomes); n > 30 || open != i.refused || open < 9_970 {
			t.Errorf("%d attempts, %d refused, told of %d", n, open, i.refused)
		}
	})
}

// A service with few calls may retry, although a fifth of one call is none.
func TestAQuietServiceRetries(t *testing.T) {
	t.Parallel()
	g := made(t, servers(3), Options{})
	for range stored {
		if n, err := attempts(g, t.Context(), caller.Unreachable); n != 2 {
			t.Fatalf("%d attempts, %v", n, err)
		}
	}
	unbreakable(g)
	if n, err := attempts(g, t.Context(), caller.Unreachable); n != 1 || err != Budget {
		t.Errorf("with an empty store: %d attempts, %v", n, err)
	}
}

// A retry that finds nobody else costs nothing of the budget.
func TestNobodyElseCostsNoBudget(t *testing.T) {
	t.Parallel()
	g := made(t, servers(1), Options{})
	unbreakable(g)
	for range 100 {
		if _, err := attempts(g, t.Context(), caller.Failed); err != Single {
			t.Fatal(err)
		}
	}
	if left := g.State()["order-core"].Retries; left != stored {
		t.Errorf("%d retries left, want %d", left, stored)
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := made(t, servers(3), Options{Default: Settings{Deadline: time.Second}, Services: map[string]Settings{"stock": {Deadline: 2 * time.Second}}})
		own, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, c := range []struct {
			guard   *Guard
			ctx     context.Context
			service string
			want    time.Duration
		}{
			{g, t.Context(), "order-core", time.Second}, {g, t.Context(), "stock", 2 * time.Second},
			{Default(servers(3)), t.Context(), "order-core", DefaultDeadline}, {g, own, "order-core", 10 * time.Second},
		} {
			for range 2 { // before and after the first pick
				call, err := c.guard.Begin(c.ctx, c.service)
				if err != nil || time.Until(call.Deadline) != c.want || call.Own != (c.ctx == own) {
					t.Errorf("%s: %s, own %v, %v", c.service, time.Until(call.Deadline), call.Own, err)
				}
				if err := call.Next(c.ctx); err != nil {
					t.Error(err)
				}
				call.End()
			}
		}
		// No retry that has no time for a connection.
		call, _ := g.Begin(t.Context(), "order-core")
		_ = call.Next(t.Context())
		time.Sleep(501 * time.Millisecond)
		call.Done(t.Context(), caller.Unreachable, call.Took())
		if err := call.Next(t.Context()); err != NoTime {
			t.Errorf("499 ms before the deadline: %v", err)
		}
		call.End()
		// What is short by nature is tried again while half of it is left.
		for spent, want := range map[time.Duration]error{99 * time.Millisecond: nil, 101 * time.Millisecond: NoTime} {
			short, done := context.WithTimeout(t.Context(), 200*time.Millisecond)
			call, _ := g.Begin(short, "order-core")
			_ = call.Next(short)
			time.Sleep(spent)
			call.Done(short, caller.Unreachable, call.Took())
			if err := call.Next(short); err != want {
				t.Errorf("%s of 200 ms spent: %v", spent, err)
			}
			call.End()
			done()
		}
		cancel()
		if _, err := g.Begin(own, "order-core"); err != context.Canceled {
			t.Errorf("a context that ended: %v", err)
		}
	})
}

// broken opens the breaker of order-core.
func broken(t *testing.T, g *Guard) {
	t.Helper()
	for range 40 {
		if _, err := attempts(g, t.Context(), caller.Failed); err != nil {
			if _, open := errors.AsType[*Open](err); open {
				return
			}
		}
	}
	t.Fatal("the breaker stays closed")
}

// T87: time changes the state and its metric, nobody calls. T83, T84: three probes, and
// each gives its permit back.
func TestTimeOpensHalf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		var log strings.Builder
		i := servers(3)
		g := made(t, i, Options{Metrics: reg, Log: slog.New(slog.NewTextHandler(&log, nil))})
		broken(t, g)
		if s := g.State()["order-core"]; s.Breaker != breaker.Open || s.Word != "open" || time.Until(s.Until) != 30*time.Second {
			t.Errorf("%+v", s)
		}
		gauge := func(state string) float64 {
			return value(t, reg, "dispatch_guard_breakers", "service=order-core", "state="+state)
		}
		time.Sleep(30*time.Second - time.Millisecond)
		if gauge("open") != 1 || gauge("half_open") != 0 {
			t.Error("the metric says half-open before 30 s")
		}
		time.Sleep(time.Millisecond)
		if gauge("half_open") != 1 || gauge("open") != 0 || gauge("closed") != 0 {
			t.Error("the metric does not say half-open after 30 s")
		}
		// Probes that are given up, or panic, or find nobody, hold no permit.
		for range 10 {
			if _, err := attempts(g, t.Context(), caller.Canceled); err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				call, err := g.Begin(t.Context(), "order-core")
				if err != nil {
					t.Fatal(err)
				}
				defer call.End()
				panic("in the transport")
			}()
		}
		var calls []Call
		for range 50 {
			call, err := g.Begin(t.Context(), "order-core")
			if e, open := errors.AsType[*Open](err); open {
				if !e.Until.IsZero() {
					t.Errorf("%+v", e)
				}
				continue
			}
			if err := call.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call)
		}
		if len(calls) != 3 {
			t.Fatalf("%d probes", len(calls))
		}
		for at := range calls {
			calls[at].Done(t.Context(), caller.Answered, time.Millisecond)
			calls[at].End()
		}
		if gauge("closed") != 1 {
			t.Error("three probes passed, and it is not closed")
		}
		for _, line := range []string{"the breaker opened", "the breaker lets probes through", "the breaker closed"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", line, n, log.String())
			}
		}
	})
}

// What is slow is the service's to say.
func TestSlowIsOfTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := made(t, servers(3), Options{Services: map[string]Settings{"order-core": {Slow: 50 * time.Millisecond}}})
		for _, service := range []string{"order-core", "stock"} {
			for range 1200 {
				call, err := g.Begin(t.Context(), service)
				if err != nil {
					break
				}
				_ = call.Next(t.Context())
				call.Done(t.Context(), caller.Answered, 60*time.Millisecond)
				call.End()
				time.Sleep(10 * time.Millisecond)
			}
		}
		if s := g.State(); s["order-core"].Breaker != breaker.Open || s["stock"].Breaker != breaker.Closed {
			t.Errorf("%+v", s)
		}
	})
}

// A probe that fails is not tried again elsewhere: the breaker is open.
func TestAFailedProbeIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := servers(3)
		g := made(t, i, Options{Default: Settings{Retries: 2}})
		broken(t, g)
		time.Sleep(30 * time.Second)
		for range 100 { // fills the store again
			g.serviceOf("order-core").budget.earn()
		}
		if n, err := attempts(g, t.Context(), caller.Failed); n != 1 || err != Breaker {
			t.Errorf("%d attempts, %v", n, err)
		}
	})
}

func TestOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, by := range []string{"settings", "switch"} {
			i := servers(3)
			reg := prometheus.NewRegistry()
			g := made(t, i, Options{Services: map[string]Settings{"order-core": {Off: by == "settings", Deadline: time.Second}}, Metrics: reg})
			g.SetOff(by == "switch")
			for range 100 {
				call, err := g.Begin(t.Context(), "order-core")
				if err != nil || time.Until(call.Deadline) != time.Second {
					t.Fatalf("%s: %v", by, err)
				}
				call.End()
				if n, err := attempts(g, t.Context(), caller.Failed); n != 1 || err != UsedUp {
					t.Fatalf("%s: %d attempts, %v", by, n, err)
				}
			}
			if s := g.State()["order-core"]; len(i.outcomes) != 100 || !s.Off || s.Breaker != breaker.Closed {
				t.Errorf("%s: %+v, told of %d", by, s, len(i.outcomes))
			}
			if off := value(t, reg, "dispatch_guard_off"); (off == 1) != (by == "switch") {
				t.Errorf("%s: the metric says %v", by, off)
			}
			if g.SetOff(false); by == "switch" {
				broken(t, g)
				g.SetOff(true)
				if n, err := attempts(g, t.Context(), caller.Answered); n != 1 || err != nil {
					t.Errorf("past an open breaker: %d attempts, %v", n, err)
				}
			}
		}
	})
}

// A name that nobody serves is kept nowhere, whatever clients type.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	g := made(t, servers(0), Options{Metrics: reg})
	if _, err := attempts(g, t.Context(), caller.Answered); err == nil {
		t.Error("a pick of nobody")
	} else if _, ok := errors.AsType[*route.NoMatch](err); !ok {
		t.Error(err)
	}
	if len(g.State()) != 0 || value(t, reg, "dispatch_guard_calls_total", "outcome=nobody", "service=") != 1 {
		t.Errorf("%v", g.State())
	}
	g.serviceOf("order-core") // it had instances once
	_, _ = attempts(g, t.Context(), caller.Answered)
	if value(t, reg, "dispatch_guard_calls_total", "outcome=nobody", "service=order-core") != 1 {
		t.Error("a service that lost its instances is not counted by name")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g := made(t, servers(3), Options{Metrics: reg})
		other := made(t, servers(3), Options{Metrics: reg}) // of another transport in the process
		_, _ = attempts(g, t.Context(), caller.Answered)
		_, _ = attempts(other, t.Context(), caller.Answered)
		_, _ = attempts(g, t.Context(), caller.Canceled)
		_, _ = attempts(made(t, servers(1), Options{Metrics: reg}), t.Context(), caller.Failed)
		call, _ := g.Begin(t.Context(), "order-core")
		_ = call.Next(t.Context())
		time.Sleep(790 * time.Millisecond)
		call.Done(t.Context(), caller.Unreachable, call.Took())
		_ = call.Next(t.Context())
		time.Sleep(20 * time.Millisecond)
		took := call.Took()
		time.Sleep(time.Second) // of reading the body
		call.Done(t.Context(), caller.Answered, took)
		call.End()
		call.End()
		g.Degraded("order-core", Refused)
		ended, giveUp := context.WithCancel(t.Context())
		giveUp()
		_, _ = attempts(g, ended, caller.Answered)
		lame := made(t, servers(3), Options{Default: Settings{Retries: -1}, Metrics: reg})
		for range 25 {
			_, _ = attempts(lame, t.Context(), caller.Failed)
		}
		for _, c := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"dispatch_guard_calls_total", []string{"outcome=nobody", "service="}, -1},
			{"dispatch_guard_calls_total", []string{"outcome=answered", "service=order-core"}, 3},
			{"dispatch_guard_calls_total", []string{"outcome=canceled", "service=order-core"}, 1},
			{"dispatch_guard_calls_total", []string{"outcome=failed", "service=order-core"}, 21},
			{"dispatch_guard_calls_total", []string{"outcome=breaker", "service=order-core"}, 5},
			{"dispatch_guard_retries_total", []string{"service=order-core"}, 1},
			{"dispatch_guard_retries_refused_total", []string{"reason=single_instance", "service=order-core"}, 1},
			{"dispatch_guard_degraded_total", []string{"reason=breaker", "service=order-core"}, 1},
			{"dispatch_guard_breakers", []string{"service=order-core", "state=closed"}, 3},
			{"dispatch_guard_breakers", []string{"service=order-core", "state=open"}, 1},
			{"dispatch_guard_call_seconds", []string{"service=order-core"}, 24},
		} {
			if got := value(t, reg, c.name, c.labels...); got != c.want {
				t.Errorf("%s %v is %v, want %v", c.name, c.labels, got, c.want)
			}
		}
		if slow := over(t, reg, 0.8); slow != 1 {
			t.Errorf("%d calls over 800 ms, want the one of 810 ms", slow)
		}
	})
}

// value is that of a series, of a histogram the number of calls; -1 if there is none.
func value(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
			switch {
			case f.GetName() != name || !slices.Equal(has, labels):
			case m.Counter != nil:
				return m.GetCounter().GetValue()
			case m.Histogram != nil:
				return float64(m.GetHistogram().GetSampleCount())
			default:
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// over is how many calls took longer than a bucket.
func over(t *testing.T, reg *prometheus.Registry, bound float64) uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "dispatch_guard_call_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			for _, b := range h.GetBucket() {
				if b.GetUpperBound() == bound {
					return h.GetSampleCount() - b.GetCumulativeCount()
				}
			}
		}
	}
	t.Fatalf("no bucket ends at %v", bound)
	return 0
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := New(servers(1), Options{Default: Settings{Deadline: -1, Retries: 4}, Services: map[string]Settings{"a": {Slow: -1}, "": {}}})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != "invalid_guard" || len(e.Problems) != 4 {
		t.Errorf("%v", err)
	}
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_guard_retries_total", Help: "of others"}))
	if _, err := New(servers(1), Options{Metrics: taken}); err == nil {
		t.Error("a metric of others was taken for ours")
	}
}

// A Call that lives in its transport's own struct costs nothing.
func TestAGuardedCallAllocatesNothing(t *testing.T) {
	g := made(t, servers(3), Options{Metrics: prometheus.NewRegistry()})
	quiet := &instances{all: servers(3).all}
	g.caller = still{quiet}
	ctx := t.Context()
	var call Call
	if n := testing.AllocsPerRun(1000, func() {
		var err error
		if call, err = g.Begin(ctx, "order-core"); err != nil {
			t.Fatal(err)
		}
		if err := call.Next(ctx); err != nil {
			t.Fatal(err)
		}
		call.Done(ctx, caller.Answered, call.Took())
		call.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// still forgets what it is told.
type still struct{ *instances }

func (still) Done(context.Context, *caller.Pick, caller.Outcome) {}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	i := servers(4)
	g := made(t, i, Options{Metrics: prometheus.NewRegistry()})
	var calls sync.WaitGroup
	for at := range 8 {
		calls.Go(func() {
			for n := range 500 {
				_, _ = attempts(g, t.Context(), []caller.Outcome{caller.Answered, caller.Failed, caller.Canceled}[(at+n)%3])
				if n%100 == 0 {
					g.State()
				}
			}
		})
	}
	calls.Wait()
}

func BenchmarkGuard(b *testing.B) {
	g := made(b, servers(3), Options{Metrics: prometheus.NewRegistry()})
	g.caller = still{servers(3)}
	ctx := b.Context()
	var call Call
	b.ReportAllocs()
	for b.Loop() {
		call, _ = g.Begin(ctx, "order-core")
		_ = call.Next(ctx)
		call.Done(ctx, caller.Answered, call.Took())
		call.End()
	}
}
