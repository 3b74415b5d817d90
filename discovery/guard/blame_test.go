package guard

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery/breaker"
	"dispatch.example/dispatch/discovery/caller"
)

// Who comes with little time left blames nobody when it passes; who had as much as the
// service takes, or was given it by the guard, does.
func TestSilenceAfterLittleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			set  Settings
			own  time.Duration // 0: that of the service
			want caller.Outcome
		}{
			{"late in a chain", Settings{}, 3 * time.Millisecond, caller.Canceled},
			{"less than slow", Settings{}, 799 * time.Millisecond, caller.Canceled},
			{"as much as slow", Settings{}, 800 * time.Millisecond, caller.Silent},
			{"less than a quick service's own", Settings{Deadline: 100 * time.Millisecond}, 99 * time.Millisecond, caller.Canceled},
			{"as much as a quick service's own", Settings{Deadline: 100 * time.Millisecond}, 100 * time.Millisecond, caller.Silent},
			{"the guard's", Settings{Deadline: 100 * time.Millisecond}, 0, caller.Silent},
			{"less than a slow service's slow", Settings{Slow: 2 * time.Second}, time.Second, caller.Canceled},
		} {
			reg := prometheus.NewRegistry()
			i := servers(3)
			g := made(t, i, Options{Default: c.set, Metrics: reg})
			for range 3 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.own > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.own)
				}
				var calls []Call
				for range 10 {
					if call, err := g.Begin(ctx, "order-core"); err == nil {
						_ = call.Next(ctx)
						calls = append(calls, call)
					}
				}
				for at := range calls {
					time.Sleep(time.Until(calls[at].Deadline))
					calls[at].Done(ctx, caller.Silent, calls[at].Took())
					calls[at].End()
				}
				cancel()
			}
			blamed := c.want == caller.Silent
			if s := g.State()["order-core"]; i.outcomes[0] != c.want || (s.Breaker == breaker.Open) != blamed {
				t.Errorf("%s: told %s, the breaker is %s", c.name, i.outcomes[0], s.Word)
			}
			if n := value(t, reg, "dispatch_guard_calls_total", "outcome=silent", "service=order-core"); n != float64(len(i.outcomes)) {
				t.Errorf("%s: %v of %d calls are counted as silent", c.name, n, len(i.outcomes))
			}
		}
	})
}

// A probe counts when its answer begins. Bodies of four seconds outlast its permit.
func TestLongAnswersCloseTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := servers(3)
		g := made(t, i, Options{})
		broken(t, g)
		before := len(i.outcomes)
		time.Sleep(30 * time.Second)
		var calls []Call
		for range 3 {
			call, err := g.Begin(t.Context(), "order-core")
			if err != nil {
				t.Fatal(err)
			}
			_ = call.Next(t.Context())
			calls = append(calls, call)
		}
		for at := range calls {
			calls[at].Began(10 * time.Millisecond)
		}
		if s := g.State()["order-core"]; s.Breaker != breaker.Closed || len(i.outcomes) != before {
			t.Errorf("%s, told of %d", s.Word, len(i.outcomes)-before)
		}
		time.Sleep(4 * time.Second)
		for range 20 { // ends of answers are the instance's
			for at := range calls {
				calls[at].Done(t.Context(), caller.Failed, 10*time.Millisecond)
			}
		}
		if s := g.State()["order-core"]; s.Breaker != breaker.Closed || i.outcomes[before] != caller.Failed {
			t.Errorf("%s, told %s", s.Word, i.outcomes[before])
		}
	})
}

// The log has each change of a breaker although nobody looks at State.
func TestChangesAreLoggedByCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g := made(t, servers(3), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		broken(t, g)
		time.Sleep(30 * time.Second)
		for range 3 {
			if _, err := attempts(g, t.Context(), caller.Answered); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range []string{"the breaker opened", "the breaker lets probes through", "the breaker closed"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", line, n, log.String())
			}
		}
	})
}

// The mark of a retry goes on with whatever is called for it.
func TestTheMarkOfARetryGoesOn(t *testing.T) {
	t.Parallel()
	g := made(t, servers(3), Options{})
	for _, retry := range []bool{false, true} {
		ctx := t.Context()
		if retry {
			ctx = AsRetry(ctx)
		}
		call, err := g.Begin(ctx, "order-core")
		if err != nil {
			t.Fatal(err)
		}
		_ = call.Next(ctx)
		if call.Again(ctx) != retry {
			t.Errorf("the first attempt for a retry (%v) is marked: %v", retry, !retry)
		}
		call.Done(ctx, caller.Failed, call.Took())
		if err := call.Next(ctx); (err == nil) == retry || !call.Again(ctx) {
			t.Errorf("the second attempt, for a retry (%v): %v", retry, err)
		}
		call.End()
	}
}
