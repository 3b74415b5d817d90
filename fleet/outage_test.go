package fleet

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/release"
)

// P14: a replica behind a cut network serves on and says how old its release is,
// is red after 15 s, holds nobody up, and has what is new within 6 s of the repair.
func TestP14PartitionedReplicaServesOnAndConverges(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{SilentAfter, time.Minute, 10*time.Minute + 777*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b, board, roster := newBank(t, 10), NewBoard(), must(NewRoster(RosterOptions{}))
			w := serve(t, must(NewServer(ServerOptions{Board: board, Roster: roster, Token: testToken})))
			r := b.replica(t, "r1", nil)
			r.Use([]Source{w.source("a")})
			stop := start(t, r.Run)
			defer stop()
			state := func() State {
				return roster.Members(func(id string) uint64 { s, _ := board.For(id); return s.Number })[0].State
			}
			offer := func(s release.Signed) {
				if err := board.Offer(t.Context(), Offer{All: s}, b.blobs); err != nil {
					t.Fatal(err)
				}
			}
			offer(b.now())
			time.Sleep(20 * time.Second)
			if state() != Current || !r.States()[0].OK {
				t.Fatalf("before the cut it is %s", state())
			}
			w.cut()
			time.Sleep(outage)
			if state() != Silent {
				t.Errorf("%v after the cut it is %s", outage, state())
			}
			if self := r.Report(); self.Number != 1 || self.Age < outage.Seconds() || self.Sources[0].OK || self.Sources[0].Age < outage.Seconds()-PollEvery.Seconds()*1.3 {
				t.Errorf("it says of itself %+v", self)
			}
			offer(b.next(nil))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if ack := roster.Await(ctx, 2, ""); ack.Of != 0 {
				t.Errorf("somebody waits for it: %+v", ack)
			}
			w.heal()
			time.Sleep(6 * time.Second)
			if r.keeper.Status().Number != 2 || state() != Current || !r.States()[0].OK {
				t.Errorf("6 s after the repair it serves %d and is %s; its source: %+v", r.keeper.Status().Number, state(), r.States()[0])
			}
		})
	}
}

// e47: a source that answers nonsense, late or never for an hour: the release
// stays, its age grows, and the source is asked at most twice a second.
func TestSourceThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		problem string
	}{
		"404": {status(404), "ask a: it answers 404 Not Found"},
		"500": {status(500), "ask a: it answers 500 Internal Server Error"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere/", http.StatusFound)
		}, "ask a: it answers 302 Found"},
		"html":           {body("<html>"), "read answer of a: invalid character '<' looking for beginning of value"},
		"nothing":        {body(""), "read answer of a: unexpected end of JSON input"},
		"hangs":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "ask a: it does not answer in time"},
		"hangs half-way": {func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() }, "ask a: it does not answer in time"},
		"at once":        {body("{}"), ""}, // an answer that says that nothing is new, without waiting
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				w := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					_, _ = io.Copy(io.Discard, r.Body) // or net/http does not notice that the caller leaves
					c.handler(w, r)
				}))
				b, registry := newBank(t, 10), prometheus.NewRegistry()
				r := b.replica(t, "r1", func(o *FollowerOptions) { o.Registry = registry })
				if err := r.keeper.Accept(t.Context(), b.now(), b.blobs, "publisher"); err != nil {
					t.Fatal(err)
				}
				served := r.keeper.Current()
				r.Use([]Source{w.source("a")})
				stop := start(t, r.Run)
				time.Sleep(time.Hour)
				if r.keeper.Current() != served || r.keeper.Status().Age < time.Hour || r.keeper.Status().Refusal != nil {
					t.Errorf("the keeper has %+v", r.keeper.Status())
				}
				state, up := r.States()[0], metric(t, registry, "dispatch_source_up", "a")
				age, errs := metric(t, registry, "dispatch_source_age_seconds", "a"), metric(t, registry, "dispatch_source_errors_total", "a")
				switch {
				case c.problem == "" && (!state.OK || up != 1 || errs != 0 || age > 2):
					t.Errorf("state %+v, up %v, %v errors, age %v", state, up, errs, age)
				case c.problem != "" && (state.OK || state.Problem != c.problem || up != 0 || errs < 40 || age < 3599):
					t.Errorf("state %+v, up %v, %v errors, age %v; want the problem %q", state, up, errs, age, c.problem)
				}
				if n := asked.Load(); n > 7200 {
					t.Errorf("asked %d times in an hour", n)
				}
				stop()
			})
		})
	}
}

// e48: a control node that hangs at the start does not keep the copy on disk from serving.
func TestCopyServesWhileEverySourceHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, disk := newBank(t, 1000), newDisk(t)
		if err := b.keeper(disk).Accept(t.Context(), b.now(), b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		keeper := b.keeper(disk)
		f := must(NewFollower(FollowerOptions{Keeper: keeper, Disk: disk, Self: Replica{ID: "r", Boot: "2"}}))
		hangs := func(ctx context.Context, _ Report) (*release.Signed, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		f.Use([]Source{&scripted{name: "a", next: hangs}, &scripted{name: "b", next: hangs}})
		stop := start(t, f.Run)
		began := time.Now()
		if err := keeper.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if keeper.Current() == nil || time.Since(began) > 2*time.Second {
			t.Error("it does not serve")
		}
		time.Sleep(time.Hour)
		if state := f.States(); state[0].OK || state[1].OK || state[0].Age < 3600 {
			t.Errorf("sources %+v", state)
		}
		stop()
	})
}

// SEC04 at the source: yesterday's release, signed as ever, is refused and
// counted, and what is served stays, also after a restart.
func TestSEC04ReplayedReleaseIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		yesterday := b.now()
		today := b.next(nil)
		replay := &scripted{name: "redis", Blobs: b.blobs, next: func(context.Context, Report) (*release.Signed, error) { return &yesterday, nil }}
		r := b.replica(t, "r1", nil)
		if err := r.keeper.Accept(t.Context(), today, b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		served := r.keeper.Current()
		r.Use([]Source{replay})
		stop := start(t, r.Run)
		time.Sleep(30 * time.Second)
		status := r.keeper.Status()
		if r.keeper.Current() != served || status.Refused["stale"] != 1 || status.Refusal == nil || status.Refusal.Source != "redis" || status.Refusal.Number != 1 {
			t.Errorf("the keeper has %+v", status)
		}
		if report := r.Report(); report.Number != 2 || report.Refusal == nil || report.Refusal.Code != "stale" {
			t.Errorf("it reports %+v", report)
		}
		time.Sleep(time.Hour)
		if n := r.keeper.Status().Refused["stale"]; n < 30 || n > 61 {
			t.Errorf("looked at %d times in an hour, want about once a minute", n)
		}
		stop()

		keeper := b.keeper(r.disk)
		if err := keeper.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := must(NewFollower(FollowerOptions{Keeper: keeper, Disk: r.disk, Self: Replica{ID: "r1", Boot: "2"}}))
		f.Use([]Source{replay})
		stop = start(t, f.Run)
		time.Sleep(30 * time.Second)
		if s := keeper.Status(); s.Number != 2 || s.Refused["stale"] != 1 {
			t.Errorf("after a restart: %+v", s)
		}
		stop()
	})
}

// The pauses between questions to a source that fails grow to 5 s and differ.
func TestBackOff(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]time.Duration{1: firstBackOff, 2: time.Second, 3: 2 * time.Second, 4: 4 * time.Second, 5: 8 * time.Second, 1000: 8 * time.Second} {
		var got []time.Duration
		for range 100 {
			d := backOff(fails)
			if got = append(got, d); d < min(want*7/10, lastBackOff) || d > min(want*13/10, lastBackOff) {
				t.Fatalf("after %d failures it waits %v", fails, d)
			}
		}
		if want < lastBackOff && slices.Min(got) == slices.Max(got) {
			t.Errorf("after %d failures it always waits %v", fails, got[0])
		}
	}
}
