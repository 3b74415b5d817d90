package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

// says is a report of a replica that serves a release.
func says(id, boot string, number uint64) Report {
	return Report{Replica: Replica{ID: id, Boot: boot, Role: "edge", Format: 1}, Number: number, Seq: 1}
}

func refusing(r Report, number uint64, code string) Report {
	r.Refusal = &release.Refusal{Number: number, Seq: 1, Source: "a", Code: code, Reason: "because"}
	return r
}

// all offers everybody one number.
func all(number uint64) func(string) uint64 { return func(string) uint64 { return number } }

func TestStatesOfAMember(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report  Report
		offered uint64
		want    State
	}{
		"serves what is on offer":          {says("r", "1", 7), 7, Current},
		"nothing is on offer yet":          {says("r", "1", 7), 0, Current},
		"serves an older one":              {says("r", "1", 6), 7, Behind},
		"serves nothing":                   {says("r", "1", 0), 0, Behind},
		"refused the one on offer":         {refusing(says("r", "1", 6), 7, "bad_manifest"), 7, Refusing},
		"refused another of its number":    {refusing(says("r", "1", 7), 7, "fork"), 7, Refusing},
		"refused one that is gone":         {refusing(says("r", "1", 6), 5, "bad_manifest"), 7, Behind},
		"was shown an old one":             {refusing(says("r", "1", 7), 7, "stale"), 7, Current},
		"serves one that nobody has":       {says("r", "1", 9), 7, Ahead},
		"refused while it serves a higher": {refusing(says("r", "1", 9), 7, "bad_manifest"), 7, Ahead},
	} {
		t.Run(name, func(t *testing.T) {
			r := must(NewRoster(RosterOptions{}))
			r.Saw(c.report)
			if got := r.Members(all(c.offered)); len(got) != 1 || got[0].State != c.want {
				t.Errorf("got %+v, want %s", got, c.want)
			}
		})
	}
}

// Who serves the canary's release is not ahead: another replica is offered it.
func TestFormerCanaryIsNotAhead(t *testing.T) {
	t.Parallel()
	r := must(NewRoster(RosterOptions{}))
	r.Saw(says("a", "1", 8))
	r.Saw(says("b", "1", 7))
	members := r.Members(func(id string) uint64 { return map[string]uint64{"a": 7, "b": 8}[id] })
	if members[0].State != Current || members[1].State != Behind {
		t.Errorf("got %+v", members)
	}
}

func TestReplicaIsSilentAfterFifteenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := must(NewRoster(RosterOptions{}))
		r.Saw(says("r", "1", 7))
		time.Sleep(SilentAfter - time.Millisecond)
		if got := r.Members(all(7))[0].State; got != Current {
			t.Errorf("just before it is %s", got)
		}
		time.Sleep(time.Millisecond)
		if got := r.Members(all(7))[0].State; got != Silent {
			t.Errorf("after 15 s it is %s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ack := r.Await(ctx, 8, "")
		if ack.Of != 0 || ack.Replicas != 0 {
			t.Errorf("somebody waits for it: %+v", ack)
		}
		r.Saw(says("r", "1", 8))
		if got := r.Members(all(8))[0].State; got != Current {
			t.Errorf("back again it is %s", got)
		}
	})
}

func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := must(NewRoster(RosterOptions{Self: func() (Report, bool) { return says("me", "1", 8), true }}))
		r.Saw(says("a", "1", 7))
		r.Saw(says("b", "1", 7))
		r.Saw(says("c", "1", 7))
		var ack Acknowledgement
		done := make(chan struct{})
		go func() {
			defer close(done)
			ack = r.Await(t.Context(), 8, "")
		}()
		time.Sleep(300 * time.Millisecond)
		r.Saw(says("b", "1", 8))
		time.Sleep(80 * time.Millisecond)
		r.Saw(says("a", "1", 9)) // a newer one is as good
		time.Sleep(time.Second)
		r.Saw(refusing(says("c", "1", 7), 8, "bad_manifest"))
		<-done
		if ack.Replicas != 3 || ack.Of != 4 || ack.After != 0.38 || len(ack.Lagging) != 1 ||
			ack.Lagging[0] != (Lag{Replica: "c", Number: 7, Why: "refused: bad_manifest: because"}) {
			t.Errorf("got %+v", ack)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		report := says("c", "1", 7)
		report.Sources = []SourceState{{Name: "control x", Problem: "it does not answer in time"}}
		r.Saw(report)
		ack = r.Await(ctx, 9, "")
		if time.Since(began) != 3*time.Second || ack.Replicas != 1 || len(ack.Lagging) != 3 ||
			!strings.Contains(ack.Lagging[1].Why, "control x: it does not answer in time") {
			t.Errorf("after %v: %+v", time.Since(began), ack)
		}
		ack = r.Await(t.Context(), 8, "b")
		if ack.Replicas != 1 || ack.Of != 1 {
			t.Errorf("of one: %+v", ack)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ack = r.Await(short, 8, "nobody"); ack.Of != 1 || len(ack.Lagging) != 1 {
			t.Errorf("of somebody unknown: %+v", ack)
		}
	})
}

// Nobody waits for a replica that dies meanwhile.
func TestAwaitGivesUpTheSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := must(NewRoster(RosterOptions{}))
		r.Saw(says("dies", "1", 7))
		time.Sleep(14 * time.Second)
		r.Saw(says("lives", "1", 8))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ack := r.Await(ctx, 8, "")
		if took := time.Since(began); took > time.Second+recheckEvery || ack.Replicas != 1 || ack.Of != 1 {
			t.Errorf("%+v after %v", ack, took)
		}
	})
}

func TestCanaryIsChosen(t *testing.T) {
	t.Parallel()
	me := func() (Report, bool) { return says("a-me", "1", 7), true }
	override := says("b", "1", 7)
	override.Override = &release.Override{ID: "x"}
	control := says("b", "1", 7)
	control.Role = "control"
	for name, c := range map[string]struct {
		saw  []Report
		want string
	}{
		"nobody but this node":              {nil, ""},
		"the smallest id":                   {[]Report{says("c", "1", 7), says("b", "1", 7)}, "b"},
		"not one that lags":                 {[]Report{says("b", "1", 6), says("c", "1", 7), says("d", "1", 7)}, "c"},
		"not one with a wild number":        {[]Report{says("b", "1", 1<<50), says("c", "1", 7), says("d", "1", 7)}, "c"},
		"not one that serves nothing":       {[]Report{says("b", "1", 0), says("c", "1", 7)}, "c"},
		"not a control node":                {[]Report{control, says("c", "1", 7)}, "c"},
		"not one under an override":         {[]Report{override, says("c", "1", 7)}, "c"},
		"not one that has refused":          {[]Report{refusing(says("b", "1", 7), 8, "x"), says("c", "1", 7)}, "c"},
		"all have refused: still a canary":  {[]Report{refusing(says("c", "1", 7), 8, "x"), refusing(says("b", "1", 7), 8, "x")}, "b"},
		"not an id that two processes have": {[]Report{says("b", "1", 7), says("b", "2", 7), says("b", "1", 7), says("c", "1", 7)}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			r := must(NewRoster(RosterOptions{Self: me}))
			for _, report := range c.saw {
				r.Saw(report)
			}
			if id, ok := r.Canary(); id != c.want || ok != (c.want != "") {
				t.Errorf("got %q, want %q", id, c.want)
			}
		})
	}
}

// Two machines with one id: both are shown, counted and logged. A restart is not that.
func TestTwoProcessesWithOneID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		r := must(NewRoster(RosterOptions{Registry: registry, Offered: all(7)}))
		boots := func() (boots []string) {
			for _, m := range r.Members(all(7)) {
				boots = append(boots, m.Boot)
			}
			return boots
		}
		r.Saw(says("r", "1", 7))
		first := r.Members(all(7))[0].First
		time.Sleep(3 * time.Second)
		r.Saw(says("r", "2", 7)) // a restart
		if got := r.Members(all(7)); len(got) != 1 || got[0].Boot != "2" || got[0].First != first {
			t.Errorf("after a restart: %+v", got)
		}
		time.Sleep(3 * time.Second)
		r.Saw(says("r", "1", 7)) // it is there still
		if got := boots(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("two machines: boots %v", got)
		}
		if n := metric(t, registry, "dispatch_fleet_duplicate_replicas", ""); n != 2 {
			t.Errorf("the metric counts %v", n)
		}
		time.Sleep(14 * time.Second)
		r.Saw(says("r", "1", 7))
		time.Sleep(2 * time.Second)
		if got := boots(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("one of them has gone: boots %v", got)
		}
	})
}

// A node that serves and asks other control nodes is one member.
func TestThisNodeIsListedOnce(t *testing.T) {
	t.Parallel()
	r := must(NewRoster(RosterOptions{Self: func() (Report, bool) { return says("me", "2", 7), true }}))
	r.Saw(says("me", "2", 7))
	if got := r.Members(all(7)); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
	r.Saw(says("me", "x", 7))
	if got := r.Members(all(7)); len(got) != 2 {
		t.Errorf("another machine with its id: %+v", got)
	}
}

func TestRosterIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := must(NewRoster(RosterOptions{}))
		for i := range MaxMembers {
			r.Saw(says(fmt.Sprint("r", i), "1", 7))
		}
		r.Saw(says("late", "1", 7))
		if got := len(r.Members(all(7))); got != MaxMembers {
			t.Errorf("%d members", got)
		}
		time.Sleep(SilentAfter)
		r.Saw(says("late", "1", 7))
		members := r.Members(all(7))
		if len(members) != MaxMembers || members[0].ID != "late" {
			t.Errorf("%d members, the first is %s", len(members), members[0].ID)
		}
		for i := range 100 { // a process that restarts in a circle
			r.Saw(says("late", fmt.Sprint(i), 7))
		}
		if r.count > MaxMembers+maxBoots {
			t.Errorf("%d processes are kept", r.count)
		}
	})
}

func TestFormatIsTheLowestOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := must(NewRoster(RosterOptions{}))
		if r.Format() != 0 {
			t.Errorf("of nobody: %d", r.Format())
		}
		old, recent := says("old", "1", 7), says("new", "1", 7)
		old.Format, recent.Format = 1, 2
		r.Saw(old)
		time.Sleep(23 * time.Hour)
		r.Saw(recent)
		if r.Format() != 1 {
			t.Errorf("after 23 h: %d", r.Format())
		}
		time.Sleep(time.Hour)
		if r.Format() != 2 {
			t.Errorf("after 24 h: %d", r.Format())
		}
	})
}

// memory is a Memory in memory.
type memory struct {
	mu    sync.Mutex
	rows  map[string]Member
	saves []int // how many at a time
	err   error
}

func (m *memory) SaveReplicas(_ context.Context, members []Member) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.saves = append(m.saves, len(members))
	for _, member := range members {
		m.rows[member.ID] = member
	}
	return nil
}

func (m *memory) Replicas(context.Context) (members []Member, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range m.rows {
		members = append(members, row)
	}
	return members, m.err
}

// set changes what is remembered, or whether it can be reached.
func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// row is what is remembered of a replica.
func (m *memory) row(id string) Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows[id]
}

// saved is how many were saved at a time.
func (m *memory) saved() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.saves)
}

func TestRosterIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := &memory{rows: map[string]Member{}}
		r := must(NewRoster(RosterOptions{Memory: mem}))
		stop := start(t, r.Run)
		r.Saw(says("a", "1", 7))
		r.Saw(says("b", "1", 7))
		time.Sleep(2 * time.Second)
		if !slices.Equal(mem.saved(), []int{2}) {
			t.Errorf("at first sight: saved %v", mem.saved())
		}
		r.Saw(says("a", "1", 8))
		time.Sleep(5 * time.Second)
		if len(mem.saved()) != 1 {
			t.Error("another number alone was saved at once")
		}
		r.Saw(refusing(says("a", "1", 8), 9, "bad_manifest"))
		time.Sleep(2 * time.Second)
		if len(mem.saved()) != 2 || mem.row("a").Refusal == nil {
			t.Errorf("a refusal: saved %v", mem.saved())
		}
		time.Sleep(45 * time.Second)
		r.Saw(says("b", "1", 8))
		time.Sleep(10 * time.Second)
		if mem.row("b").Number != 8 || mem.row("a").Number != 8 {
			t.Errorf("after a minute: %+v and %+v", mem.row("a"), mem.row("b"))
		}
		stop()

		// The control node restarts. a is there as silent before it asks, and may be canary.
		again := must(NewRoster(RosterOptions{Memory: mem}))
		stop = start(t, again.Run)
		synctest.Wait()
		members := again.Members(all(8))
		if len(members) != 2 || members[0].State != Silent || members[0].Number != 8 || members[0].Refusal == nil {
			t.Errorf("after a restart: %+v", members)
		}
		if id, ok := again.Canary(); id != "b" || !ok {
			t.Errorf("the canary after a restart is %q", id)
		}
		again.Saw(says("b", "1", 8))
		time.Sleep(48 * time.Hour)
		if got := again.Members(all(8)); len(got) != 2 {
			t.Errorf("memory keeps them: %+v", got)
		}
		if _, ok := again.Canary(); ok {
			t.Error("a silent replica is canary")
		}
		mem.set(func() { delete(mem.rows, "b") })
		time.Sleep(2 * time.Minute)
		if got := again.Members(all(8)); len(got) != 1 || got[0].ID != "a" {
			t.Errorf("b is forgotten: %+v", got)
		}
		stop()
	})
}

// e47: a database that is away costs the memory of the silent, and nothing else.
func TestRosterWithoutItsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := &memory{rows: map[string]Member{}, err: errors.New("database is away")}
		r := must(NewRoster(RosterOptions{Memory: mem}))
		stop := start(t, r.Run)
		r.Saw(says("a", "1", 7))
		time.Sleep(10 * time.Second)
		if got := r.Members(all(7)); len(got) != 1 || got[0].State != Current {
			t.Errorf("got %+v", got)
		}
		r.Saw(says("a", "1", 7))
		mem.set(func() { mem.err = nil })
		time.Sleep(45 * time.Second)
		r.Saw(says("a", "1", 7))
		time.Sleep(10 * time.Second)
		if mem.row("a").ID == "" {
			t.Error("it was not saved when the database came back")
		}
		stop()
	})
}

func TestChangedIsNotClosedByEveryPoll(t *testing.T) {
	t.Parallel()
	r := must(NewRoster(RosterOptions{}))
	closed := func(what func()) bool {
		changed := r.Changed()
		what()
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	later := says("a", "1", 7)
	later.Age, later.Errors = 5, 3
	for _, c := range []struct {
		name string
		what Report
		want bool
	}{
		{"it comes", says("a", "1", 7), true}, {"it asks again", later, false}, {"another number", says("a", "1", 8), true},
		{"a refusal", refusing(says("a", "1", 8), 9, "x"), true}, {"another one comes", says("b", "1", 8), true},
	} {
		if got := closed(func() { r.Saw(c.what) }); got != c.want {
			t.Errorf("%s: closed %v", c.name, got)
		}
	}
}

func TestFleetMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r := must(NewRoster(RosterOptions{Registry: registry}))
	for i, report := range []Report{says("a", "1", 7), says("b", "1", 7), says("c", "1", 6), refusing(says("d", "1", 6), 7, "x")} {
		if i == 1 {
			report.Databases = policy.GeoDigests{City: "other"}
		}
		r.Saw(report)
	}
	for state, want := range map[State]float64{Current: 2, Behind: 1, Refusing: 1, Silent: 0, Ahead: 0} {
		if n := metric(t, registry, "dispatch_fleet_replicas", string(state)); n != want {
			t.Errorf("%v are %s, want %v", n, state, want)
		}
	}
	if n := metric(t, registry, "dispatch_fleet_geo_variants", ""); n != 2 {
		t.Errorf("%v sets of address databases", n)
	}
}
