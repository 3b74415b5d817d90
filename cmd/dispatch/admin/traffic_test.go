package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// counts keeps what a replica counted.
func (c *control) counts(replica string, counts ...fleet.Count) {
	c.t.Helper()
	must(c.t, c.store.AddCounts(c.t.Context(), ledger.Counts{Replica: replica, Boot: "1", Counts: counts}))
}

func TestTrafficIsWhatReplicasCounted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *control) {
		minute := time.Now().UTC().Truncate(time.Minute)
		of := func(ago int, app, region, reason string, n uint64) fleet.Count {
			return fleet.Count{Minute: minute.Add(-time.Duration(ago) * time.Minute), App: app, Region: region, Endpoint: region + "-main", Reason: reason, Release: 1, N: n}
		}
		c.counts("sh-1", of(2, "mobile", "sh", "DEFAULT", 10), of(1, "mobile", "sh", "DEFAULT", 3), of(1, "mobile", "hf", "POLICY", 2))
		c.counts("hf-1", of(1, "mobile", "sh", "DEFAULT", 4), of(1, "corporate", "sh", "DEFAULT", 1), of(90, "mobile", "sh", "DEFAULT", 100))
		c.counts("sh-1", of(1, "mobile", "sh", "DEFAULT", 5), of(1, "mobile", "sh", "DEFAULT", 5)) // told again, and grown
		ask := func(query string) []string {
			var out struct{ Counts []fleet.Count }
			c.get(actions.Viewer, "/traffic?"+query).ok().into(&out)
			lines := []string{}
			for _, n := range out.Counts {
				lines = append(lines, fmt.Sprintf("%d %s %s %s %d", int(minute.Sub(n.Minute).Minutes()), n.App, n.Region, n.Reason, n.N))
			}
			return lines
		}
		for query, want := range map[string][]string{
			"app=mobile":                  {"2    10", "1    11"},
			"app=mobile&by=region,reason": {"2  sh DEFAULT 10", "1  hf POLICY 2", "1  sh DEFAULT 9"},
			"by=app&every=0&since=2h":     {"120 corporate   1", "120 mobile   121"},
			"region=hf":                   {"1    2"},
			"release=9":                   {},
			"policy=staff":                {},
		} {
			if got := ask(query); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", query, got, want)
			}
		}
		for _, query := range []string{"by=colour", "since=0s", "since=2161h", "since=soon", "every=90s", "every=-1m", "every=x", "since=2160h&every=1m"} {
			if r := c.get(actions.Viewer, "/traffic?"+query); r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity {
				t.Errorf("%s: %d %s", query, r.status, r.body)
			}
		}
	})
}

// trials are replicas that a test plays.
type trials func(ctx context.Context, t fleet.Trial) ([]fleet.Verdict, int)

func (f trials) Try(ctx context.Context, t fleet.Trial) ([]fleet.Verdict, int) { return f(ctx, t) }

// The figures of replicas are weighed by their traffic, who has none is named, and
// capacities are said in parts of today's traffic.
func TestImpactIsMergedOverReplicas(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.counts("sh-1", fleet.Count{Minute: time.Now().UTC().Truncate(time.Minute).Add(-9 * time.Minute), App: "mobile", Region: "sh", Reason: "DEFAULT", Release: 1, N: 900})
	c.do.Trials = trials(func(_ context.Context, trial fleet.Trial) ([]fleet.Verdict, int) {
		verdict := func(sampled, moved, held uint64, example string) []fleet.AppVerdict {
			return []fleet.AppVerdict{{App: "mobile", Sampled: sampled, Moved: moved, Held: held, Listed: moved, Moves: []fleet.Move{{From: "sh", To: "hf", N: moved}},
				Before: map[string]uint64{"sh": sampled}, After: map[string]uint64{"sh": sampled - moved, "hf": moved},
				Later: map[string]uint64{"sh": sampled - moved - held, "hf": moved + held}, Examples: []string{example, "both"}}}
		}
		return []fleet.Verdict{
			{Replica: "sh-2", Each: 9, Since: time.Hour, Apps: verdict(100, 10, 20, "b")}, // stands for 900 requests
			{Replica: "sh-1", Each: 1, Since: time.Minute, Apps: verdict(100, 60, 0, "a")},
			{Replica: "sh-3", Problem: "it serves nothing yet"},
		}, 3
	})
	var out struct {
		Preview struct{ Impact *actions.Impact }
	}
	c.publish(1, edit(t, "of: 6000", "of: 5000", "of: 4000", "of: 5000"), "dry_run=true").ok().into(&out)
	i := out.Preview.Impact
	if i == nil || i.Sampled != 200 || i.Replicas != 2 || i.Of != 3 || i.Since != time.Hour || !slices.Equal(i.Problems, []string{"sh-3: it serves nothing yet"}) {
		t.Fatalf("impact %+v", i)
	}
	// (9·10 + 60) of 1,000 requests move: 15 % of the 200 that were tried.
	m := i.Apps[0]
	if m.Moved != 30 || m.Held != 36 || m.Listed != 30 || m.After["hf"] != 30 || m.Later["hf"] != 66 || m.Moves[0] != (fleet.Move{From: "sh", To: "hf", N: 30}) ||
		!slices.Equal(m.Examples, []string{"a", "both", "b"}) {
		t.Errorf("impact on mobile %+v", m)
	}
	hf := m.Regions[1]
	if hf.Region != "hf" || hf.Before != 0 || hf.After != 0.15 || hf.Later != 0.33 || hf.LoadAfter < 0.824 || hf.LoadAfter > 0.826 || hf.PerMinute < 29 || hf.PerMinute > 34 {
		t.Errorf("hefei %+v", hf) // 33 % of the requests, 40 % of the capacity, 100 requests a minute in all
	}
	c.do.Trials = trials(func(context.Context, fleet.Trial) ([]fleet.Verdict, int) { return nil, 0 })
	if c.publish(1, kept, "dry_run=true").ok().into(&out); out.Preview.Impact.Sampled != 0 || len(out.Preview.Impact.Apps) != 0 {
		t.Errorf("without data: %+v", out.Preview.Impact)
	}
}

// What replicas are given is the draft as it would be released, with lists that
// nothing has stored yet, and says against what to compare it.
func TestATrialHasAllThatADraftNeeds(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var problem error
	c.do.Trials = trials(func(ctx context.Context, trial fleet.Trial) ([]fleet.Verdict, int) {
		problem = func() error {
			cur := c.keeper.Current()
			if trial.Base != cur.Digest || trial.ID == "" {
				return fmt.Errorf("trial %q against %s", trial.ID, trial.Base)
			}
			m, err := release.DecodeManifest(trial.Manifest)
			if err != nil {
				return err
			}
			draft, err := c.do.Loader.Draft(ctx, m, trial.Blobs, cur)
			if err != nil {
				return err
			}
			if draft.Lists.Lookup(whitelist.Device, "d-1003").Empty() || !cur.Lists.Lookup(whitelist.Device, "d-1003").Empty() {
				return errors.New("the new id is not on the draft's list alone")
			}
			return nil
		}()
		return nil, 1
	})
	c.untouched(func() {
		c.publish(1, strings.Replace(bank, "d-1002]", "d-1002, d-1003]", 1), "dry_run=true").ok()
	})
	must(t, problem)
}

// An emergency does not wait for replicas that try somebody's draft.
func TestADryRunHoldsUpNobody(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	trying, swapped := make(chan struct{}), make(chan struct{})
	c.do.Trials = trials(func(ctx context.Context, _ fleet.Trial) ([]fleet.Verdict, int) {
		close(trying)
		<-swapped
		return nil, 1
	})
	type result struct {
		reply *reply
		err   error
	}
	done := make(chan result, 1)
	go func() {
		r, err := c.try(t.Context(), request{role: actions.ReleaseEngineer, method: http.MethodPost, path: "/releases?reason=test&dry_run=true",
			headers: []string{"If-Match", "1"}}, strings.NewReader(kept))
		done <- result{r, err}
	}()
	<-trying
	c.post(actions.OnCall, "/emergency", `{"action":"swap","reason":"it burns","targets":[{"app":"mobile","region":"sh","expect":"sh-main","from":"sh-main","to":"sh-spare"}]}`).ok()
	close(swapped)
	r := <-done
	must(t, r.err)
	r.reply.ok()
}
