package admin_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// day is the day of all schedules here.
const day = "2099-07-01"

// set moves the clock to a time of the day, in UTC.
func (c *clock) set(t *testing.T, hour string) {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04", day+"T"+hour)
	must(t, err)
	c.ahead.Store(int64(time.Until(at)))
}

// at schedules a draft for a time of the day.
func (c *control) at(d actions.DraftView, hour string) actions.DraftView {
	c.t.Helper()
	return c.turn(actions.ReleaseEngineer, d.ID, "schedule", digest(d)+`,"at":"`+day+`T`+hour+` UTC"`).view()
}

// look publishes what is due.
func (c *control) look() {
	c.t.Helper()
	must2(c.do.PublishDue(c.t.Context(), c.logger()))(c.t)
}

// running runs the schedules until what it returns is called.
func (c *control) running(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() { _ = c.do.RunSchedules(ctx, c.logger()) })
	stop = sync.OnceFunc(func() { cancel(); g.Wait() })
	t.Cleanup(stop)
	return stop
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(40 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// share is the document's share of Shanghai that is served.
func (c *control) share() int {
	return *c.keeper.Current().Manifest.Document.Apps[0].Otherwise.Split[0].Of
}

// e53: steps that were written in the order 12:00, 10:00 happen in the order of time.
func TestSchedulesHappenInTheOrderOfTime(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		noon := c.approved(split(t, 1000), 1)
		c.at(noon, "12:00")
		ten := c.approved(split(t, 5000), 1)
		c.at(ten, "10:00")
		for _, step := range []struct {
			at   string
			want int
		}{{"09:59", 6000}, {"11:00", 5000}, {"11:59", 5000}, {"12:00", 1000}, {"13:00", 1000}} {
			c.clock.set(t, step.at)
			c.look()
			if got := c.share(); got != step.want {
				t.Errorf("at %s Shanghai has %d, want %d\n%s", step.at, got, step.want, tail(c.log.String()))
			}
		}
		by := c.keeper.Current().Manifest.Cause.By
		if v := c.draftAt(noon.ID); v.State != actions.Published || v.Release != 3 || v.Late || by != "scheduler for "+actions.ReleaseEngineer {
			t.Errorf("the noon step is %+v, made by %s", v.DraftSummary, by)
		}
	})
}

// e55: what was due while the process was down collapses to the newest of the same parts.
func TestLateSchedulesCollapseToTheNewest(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		ten, eleven := c.approved(split(t, 5000), 1), c.approved(split(t, 1000), 1)
		other := c.approved(edit(t, "capacity: 60", "capacity: 61"), 1) // another part
		c.at(ten, "10:00")
		c.at(eleven, "11:00")
		c.at(other, "10:30")
		c.clock.set(t, "12:00")
		c.look()
		if got := c.share(); got != 1000 || c.current() != 3 {
			t.Errorf("Shanghai has %d in release %d\n%s", got, c.current(), tail(c.log.String()))
		}
		if v := c.draftAt(ten.ID); v.State != actions.Superseded || !v.Late || !strings.Contains(v.Why, eleven.ID) {
			t.Errorf("the step of ten is %+v", v.DraftSummary)
		}
		if v := c.draftAt(eleven.ID); v.State != actions.Published || !v.Late || v.Release != 3 {
			t.Errorf("the step of eleven is %+v", v.DraftSummary)
		}
		if v := c.draftAt(other.ID); v.State != actions.Published || !v.Late {
			t.Errorf("the other one is %+v", v.DraftSummary)
		}
		if n := strings.Count(c.log.String(), "a schedule is late"); n != 3 {
			t.Errorf("%d are logged as late", n)
		}
	})
}

// e54: a time has a zone, exists, and exists once; it is kept as an instant and shown in its zone.
func TestATimeHasAZoneAndExistsOnce(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite").twoPeople()
	d := c.draft(actions.ReleaseEngineer, edit(t, "capacity: 60", "capacity: 61"), 1)
	at := func(when string) *reply {
		return c.turn(actions.ReleaseEngineer, d.ID, "schedule", digest(d)+`,"at":"`+when+`"`)
	}
	c.untouched(func() {
		for when, hint := range map[string]string{
			"2099-07-01T02:30":                    "zone",
			"2099-07-01T02:30 CST":                "IANA",
			"2099-07-01T02:30 Asia/Shanghia":      "IANA",
			"2027-03-28T02:30 Europe/Berlin":      "2027-03-28T01:30 or 2027-03-28T03:30",
			"2027-10-31T02:30 Europe/Berlin":      "2027-10-31T02:30+02:00 Europe/Berlin or 2027-10-31T02:30+01:00 Europe/Berlin",
			"2099-07-01T02:30+03:00 Asia/Bangkok": "write 2099-07-01T06:30 Asia/Bangkok",
			"2001-01-01T00:00 UTC":                "later",
			"tomorrow Asia/Shanghai":              "2027",
		} {
			if p := at(when); p.status != http.StatusUnprocessableEntity || !strings.Contains(string(p.body), hint) {
				t.Errorf("%s: %d %s, want a hint with %q", when, p.status, p.body, hint)
			}
		}
	})
	for when, want := range map[string]string{
		"2099-07-01T02:30 Asia/Shanghai":       "2099-06-30T18:30:00Z 2099-07-01T02:30+08:00 Asia/Shanghai",
		"2027-10-31T02:30+01:00 Europe/Berlin": "2027-10-31T01:30:00Z 2027-10-31T02:30+01:00 Europe/Berlin",
		"2027-10-31T02:30+02:00 Europe/Berlin": "2027-10-31T00:30:00Z 2027-10-31T02:30+02:00 Europe/Berlin",
	} {
		v := at(when).view()
		if got := v.Due.Format(time.RFC3339) + " " + v.DueLocal(); got != want {
			t.Errorf("%s is %s, want %s", when, got, want)
		}
	}
}

// What can no longer be published as it was meant is held, and somebody hears of it.
func TestASchedulePublishesOnlyWhatWasMeant(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, c *control)
		code      string
	}{
		"the same part was changed": {func(t *testing.T, c *control) {
			c.publish(1, split(t, 5900), "").ok()
		}, "target_changed"},
		"the app was changed by hand": {func(t *testing.T, c *control) {
			c.post(actions.OnCall, "/emergency", swapOut).ok()
		}, ""}, // another part
		"another part was changed": {func(t *testing.T, c *control) {
			c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok()
		}, ""},
		"changes are frozen": {func(t *testing.T, c *control) {
			c.post(actions.OnCall, "/emergency", `{"action":"freeze","reason":"find out","targets":[{"expect":"open","state":"frozen"}]}`).ok()
		}, "frozen"},
		"a rule became stricter": {func(t *testing.T, c *control) {
			s := actions.DefaultSettings()
			s.Safety.MaxMovePercent = 1
			body := strings.Replace(jsonOf(t, s), "{", `{"reason":"because of a test",`, 1)
			c.call(request{role: actions.ReleaseEngineer, method: http.MethodPut, path: "/settings", body: body, headers: []string{"If-Match", "0"}}).ok()
		}, "needs_approval"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := published(t, "sqlite").twoPeople()
			d := c.draft(actions.ReleaseEngineer, split(t, 5500), 1) // 5 %: one person
			c.at(d, "10:00")
			test.meanwhile(t, c)
			before := c.current()
			c.clock.set(t, "10:00")
			c.look()
			v := c.draftAt(d.ID)
			if test.code == "" {
				if v.State != actions.Published || c.share() != 5500 {
					t.Errorf("it is %+v\n%s", v.DraftSummary, tail(c.log.String()))
				}
				return
			}
			if v.State != actions.Suspended || !strings.HasPrefix(v.Why, test.code) || c.current() != before || !strings.Contains(c.log.String(), "a schedule was suspended") {
				t.Errorf("it is %+v at release %d\n%s", v.DraftSummary, c.current(), tail(c.log.String()))
			}
			c.look()
			if c.current() != before {
				t.Error("a suspended draft was published")
			}
		})
	}
}

// A part that somebody changed by hand at night is changed.
func TestAScheduleSeesWhatWasDoneByHand(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.approved(strings.Replace(kept, "{key: sh-spare, domain: wapabst2.a.com.cn, state: standby}", "{key: sh-spare, domain: wapabst2.a.com.cn, state: \"off\"}", 1), 1)
		c.at(d, "10:00")
		c.post(actions.OnCall, "/emergency", swapOut).ok()
		c.clock.set(t, "10:00")
		c.look()
		if v := c.draftAt(d.ID); v.State != actions.Suspended || c.current() != 2 {
			t.Errorf("it is %+v", v.DraftSummary)
		}
	})
}

// An edit takes the time away: what was edited is not what was meant to happen then.
func TestAnEditEndsTheSchedule(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.at(c.draft(actions.ReleaseEngineer, split(t, 5500), 1), "10:00")
		if d.State != actions.Scheduled {
			t.Fatalf("it is %s", d.State)
		}
		d = c.editDraft(actions.ReleaseEngineer, d, split(t, 5600), 1).view()
		moved := c.at(c.draft(actions.ReleaseEngineer, edit(t, "capacity: 60", "capacity: 61"), 1), "10:00")
		c.at(moved, "11:00") // another time
		c.clock.set(t, "10:30")
		c.look()
		if c.current() != 1 || c.draftAt(d.ID).State != actions.Drafted || c.draftAt(moved.ID).State != actions.Scheduled {
			t.Errorf("release %d, %s", c.current(), c.draftAt(d.ID).State)
		}
	})
}

// Several control nodes look at the same time: one release.
func TestTwoNodesPublishAScheduleOnce(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.at(c.draft(actions.ReleaseEngineer, split(t, 5500), 1), "10:00")
		other := c.second().twoPeople()
		c.clock.set(t, "10:00")
		var g sync.WaitGroup
		for _, n := range []*control{c, other, c, other} {
			g.Go(func() { _, _ = n.do.PublishDue(t.Context(), n.logger()) })
		}
		g.Wait()
		c.look()
		other.look()
		released := c.auditRows("action=publish&target=draft+" + d.ID)
		if v := c.draftAt(d.ID); v.State != actions.Published || v.Release != 2 || len(released) != 1 {
			t.Errorf("it is %+v after %d releases", v.DraftSummary, len(released))
		}
	})
}

// P16: a clock that jumps makes nothing happen early, and nothing happen twice.
func TestP16ClockJumpsMakeNoScheduleEarlyOrRepeated(t *testing.T) {
	strict(t, func(t *testing.T, c *control) {
		d := c.draft(actions.ReleaseEngineer, split(t, 5500), 1)
		due := time.Date(2099, 7, 1, 10, 0, 0, 0, time.UTC)
		c.clock.set(t, "09:59")
		c.clock.ahead.Add(int64(45 * time.Second))
		right := c.clock.ahead.Load() // by this much the clock is ahead when it is right
		c.at(d, "10:00")
		c.running(t)
		<-time.After(time.Second) // it has looked at the clock
		jump := func(by time.Duration) {
			c.clock.ahead.Add(int64(by))
			c.draft(actions.ReleaseEngineer, kept, 1) // a change wakes the schedules, so the jump is seen at once
			<-time.After(300 * time.Millisecond)
		}
		for _, by := range []time.Duration{time.Hour, 24 * time.Hour, -time.Hour} {
			jump(by)
			if early := time.Now().Add(time.Duration(right)).Before(due); early && c.current() != 1 {
				t.Fatalf("the clock jumped by %s and release %d came early", by, c.current())
			}
			jump(-by)
		}
		if !strings.Contains(c.log.String(), "the clock jumped forward") {
			t.Error("nobody heard of the jumps")
		}
		waitFor(t, func() bool { return c.draftAt(d.ID).State == actions.Published })
		if c.current() != 2 || c.clock.now().Before(due) {
			t.Fatalf("release %d at %s", c.current(), c.clock.now())
		}
		for _, by := range []time.Duration{-time.Hour, 2 * time.Hour, -24 * time.Hour} {
			jump(by)
		}
		c.look()
		if c.current() != 2 {
			t.Errorf("it was repeated: release %d", c.current())
		}
	})
}
