package admin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/probe"
)

// sky is what three probers see, every five seconds.
type sky struct {
	c      *control
	mu     sync.Mutex
	broken map[string]bool // hosts that do not answer, to PROBER/HOST or HOST
	rows   map[string]*ledger.Probe
}

// watched lets three probers and the automation run over a bank whose regions want failover.
func watched(t *testing.T, test func(t *testing.T, c *control, s *sky)) {
	t.Helper()
	virtual(t, func(t *testing.T, c *control, w *crew) {
		must2(c.release(1, edit(t, "capacity: 60", "capacity: 60\n        auto_failover: true", "capacity: 40", "capacity: 40\n        auto_failover: true")))(t)
		time.Sleep(20 * time.Second) // its canary
		w.serve(2, 1, 2, 3)
		c.do.Probes = true
		c.strict.Store(true)
		s := &sky{c: c, broken: map[string]bool{}, rows: map[string]*ledger.Probe{}}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		running.Go(func() { s.shine(ctx) })
		running.Go(func() {
			if err := c.do.RunFailover(ctx, slog.New(slog.NewJSONHandler(c.log, nil))); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer cancel()
		time.Sleep(20 * time.Second)
		test(t, c, s)
	})
}

func (s *sky) shine(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		s.round()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *sky) round() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ledger.Probe
	for _, prober := range []string{"a", "b", "d"} {
		for _, up := range allUp(prober) {
			key := prober + "/" + up.Host
			r := s.rows[key]
			if r == nil {
				r = &ledger.Probe{Host: up.Host, Prober: prober, State: probe.Unknown}
				s.rows[key] = r
			}
			ok := !s.broken[up.Host] && !s.broken[key]
			r.Last, r.Problem = time.Now(), map[bool]string{false: "timeout: no answer in time"}[ok]
			r.Recent = append([]ledger.ProbeShot{{At: r.Last, OK: ok, Problem: r.Problem}}, r.Recent[:min(len(r.Recent), 4)]...)
			state := r.State
			if ok {
				state = probe.Up
			} else if len(r.Recent) > 2 && !r.Recent[1].OK && !r.Recent[2].OK {
				state = probe.Down
			}
			if state != r.State {
				r.State, r.Since = state, r.Last
			}
			all = append(all, *r)
		}
	}
	if err := s.c.store.SaveProbes(context.Background(), all); err != nil {
		s.c.t.Error(err)
	}
}

func (s *sky) set(broken bool, hosts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, host := range hosts {
		s.broken[host] = broken
	}
}

// still fails if a release came within the time.
func (s *sky) still(within time.Duration, why string) {
	s.c.t.Helper()
	before := s.c.current()
	time.Sleep(within)
	synctest.Wait()
	if now := s.c.current(); now != before {
		s.c.t.Errorf("%s: release %d came: %+v", why, now, s.c.keeper.Current().Manifest.Cause)
	}
}

// regionOf is a region of mobile as it serves.
func regionOf(c *control, key string) actions.RegionView {
	app, err := c.do.App("mobile")
	must(c.t, err)
	for _, r := range app.Regions {
		if r.Key == key {
			return r
		}
	}
	return actions.RegionView{}
}

func TestARegionThatAsksForItMovesToItsStandby(t *testing.T) {
	watched(t, func(t *testing.T, c *control, s *sky) {
		s.set(true, "a/"+mainHost)
		s.still(5*time.Minute, "one of three probers sees it down")
		s.set(true, mainHost)
		s.still(40*time.Second, "15 s until it is down, 30 s of patience")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		m := c.keeper.Current().Manifest
		if m.Number != 3 || m.Cause.Action != "swap" || m.Cause.By != "dispatch" || !strings.HasPrefix(m.Cause.Reason, "auto_failover: every endpoint of mobile/sh is down since ") || !strings.Contains(m.Cause.Reason, "timeout") {
			t.Fatalf("release %d: %+v", m.Number, m.Cause)
		}
		rows, err := c.do.Audit(t.Context(), ledger.AuditFilter{Action: "swap"})
		must(t, err)
		if len(rows) != 1 || rows[0].Actor != "dispatch" || rows[0].Target != "mobile/sh" || !strings.Contains(string(rows[0].Details), `"to":"sh-spare"`) {
			t.Errorf("the trail has %+v", rows)
		}
		s.set(false, mainHost, "a/"+mainHost)
		s.still(time.Hour, "nothing comes back by itself")
	})
}

// Where no standby is up the users go to other regions: at first the new ones, and
// everybody when the region stays down.
func TestARegionWithoutAStandbyIsDrainedAndThenTurnedOff(t *testing.T) {
	watched(t, func(t *testing.T, c *control, s *sky) {
		s.set(true, hefei)
		time.Sleep(55 * time.Second)
		synctest.Wait()
		if r := regionOf(c, "hf"); r.State != "draining" || c.current() != 3 {
			t.Fatalf("hf is %s in release %d", r.State, c.current())
		}
		s.still(90*time.Second, "its sessions are kept for a while")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if r := regionOf(c, "hf"); r.State != "off" || c.current() != 4 {
			t.Fatalf("hf is %s in release %d", r.State, c.current())
		}
		s.set(false, hefei)
		s.still(30*time.Minute, "nothing comes back by itself")

		// The last region stays, whatever probes say.
		s.set(true, mainHost, spareHost)
		s.still(30*time.Minute, "sh is the last region")
		if log := c.log.String(); !strings.Contains(log, "mobile/sh is the last region that takes anybody") && !strings.Contains(log, "do not answer") {
			t.Errorf("nobody hears why nothing was done:\n%s", log)
		}
	})
}

func TestARegionIsMovedOnceInTenMinutes(t *testing.T) {
	watched(t, func(t *testing.T, c *control, s *sky) {
		s.set(true, mainHost)
		time.Sleep(time.Minute)
		synctest.Wait()
		if c.current() != 3 {
			t.Fatalf("release %d", c.current())
		}
		s.set(false, mainHost)
		s.set(true, spareHost) // the standby burns in its turn
		s.still(8*time.Minute, "it was moved a moment ago")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if cause := c.keeper.Current().Manifest.Cause; c.current() != 4 || cause.Action != "swap" {
			t.Errorf("release %d is %+v", c.current(), cause)
		}
	})
}

func TestFreezeStopsAutomation(t *testing.T) {
	watched(t, func(t *testing.T, c *control, s *sky) {
		freeze := actions.Emergency{Action: actions.Freeze, Targets: []actions.Target{{Expect: "open", State: "frozen"}}}
		must2(c.do.Emergency(t.Context(), confirmed(engineer, "freeze"), freeze))(t)
		s.set(true, mainHost)
		s.still(10*time.Minute, "changes are frozen")
	})
}

// A region that a person drains stays as that person left it.
func TestAutomationLeavesAPersonsWorkAlone(t *testing.T) {
	watched(t, func(t *testing.T, c *control, s *sky) {
		drain := actions.Emergency{Action: actions.SetRegionState, Targets: []actions.Target{{App: "mobile", Region: "hf", Expect: "active", State: "draining"}}}
		must2(c.do.Emergency(t.Context(), confirmed(engineer, "hf"), drain))(t)
		s.set(true, hefei)
		s.still(30*time.Minute, "a person drains it")
	})
}

// P22: when all or most probes fail at once, nothing is changed: the fault may be ours.
func TestP22AllProbesFailingChangesNothing(t *testing.T) {
	for name, hosts := range map[string][]string{
		"all":         {mainHost, spareHost, hefei, "wap.bank.example", "corp.bank.example", "corp-sh.bank.example", "corp-hf.bank.example"},
		"most":        {mainHost, hefei, "corp-sh.bank.example", "corp-hf.bank.example"},
		"our regions": {mainHost, spareHost, hefei},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, c *control, s *sky) {
				s.set(true, hosts...)
				s.still(30*time.Minute, name+" fail at once")
				health, err := c.do.Health(t.Context())
				must(t, err)
				if name == "all" && !health.Distrusted {
					t.Error("the probers are trusted")
				}
			})
		})
	}
}

// P21: whatever two control nodes and probes make of it, an app keeps a region.
func TestAutomationKeepsALastRegion(t *testing.T) {
	watched(t, func(t *testing.T, c *control, s *sky) {
		s.set(true, hefei)
		time.Sleep(5 * time.Minute)
		s.set(true, mainHost)
		time.Sleep(5 * time.Minute)
		s.set(true, spareHost)
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := regionOf(c, "sh"); r.State != "active" {
			t.Errorf("sh is %s", r.State)
		}
	})
}

// What dispatch does by itself passes the rules that people meet.
func TestAutomationMeetsTheSameRules(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.probed(append(allUp("a"), seen("a", spareHost, "down", "000", 0))...)
	c.untouched(func() {
		for role := range c.tokens {
			if err := (actions.Actor{Roles: []string{role}}).May("emergency"); err == nil {
				c.post(role, "/emergency", swapOut).refused(http.StatusConflict, "safety_rule")
			}
		}
		_, err := c.do.Emergency(t.Context(), actions.Write{Actor: actions.Actor{Name: "dispatch", Roles: []string{actions.Administrator}}, Reason: "test", Confirm: "sh"},
			actions.Emergency{Action: actions.SwapEndpoints, Targets: []actions.Target{{App: "mobile", Region: "sh", Expect: "sh-main", From: "sh-main", To: "sh-spare"}}})
		if err == nil || !strings.Contains(fmt.Sprint(err), "probe_fresh") {
			t.Errorf("automation hears %v", err)
		}
	})
}
