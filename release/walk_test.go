package release

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

func TestGoldenRequestsMeetTheRules(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	app := b.load(t, b.first, nil).Apps["mobile"]
	seen := map[string]int{}
	record := func(set *goldenSet) []string {
		reqs := make([]string, goldenCount)
		if err := set.run(1, app.IDs, func(n int, req *policy.Request) error {
			reqs[n] = fmt.Sprintln(req.Device, req.User, req.Platform, req.AppVersion, req.Hint, req.Addr)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return reqs
	}
	set := &goldenSet{requests: must(GoldenRequests()), speaks: spokenOf(app.App, madeAt())}
	for n := range goldenCount {
		var req policy.Request
		set.fill(&req, n, app.IDs)
		d := app.Table.Decide(&req)
		seen[app.Table.PolicyKey(d.Policy)+" "+d.Reason.String()]++
	}
	for _, want := range []string{"home POLICY", "gray-10-2 POLICY", " DEFAULT", " NO_ID"} {
		if seen[want] == 0 {
			t.Errorf("no request met %q: %v", want, seen)
		}
	}
	again := &goldenSet{requests: set.requests, speaks: spokenOf(app.App, madeAt().Add(time.Hour))}
	if !slices.Equal(record(set), record(again)) || set.speaks.name() != again.speaks.name() {
		t.Error("the same rules make other requests")
	}
}

// A table that sends somebody nowhere, or panics, must not come into use.
func TestWalkRefusesLostRequests(t *testing.T) {
	t.Parallel()
	b, golden := newBank(t), must(GoldenRequests())
	for name, c := range map[string]struct {
		breakIt func(*Served)
		code    string
	}{
		"no answer for an endpoint": {func(s *Served) { s.Answer[0][0] = Answer{} }, "golden_failed"},
		"region is off":             {func(s *Served) { s.App.Regions[0].State = domain.Off }, "golden_failed"},
		"endpoint does not serve": {func(s *Served) {
			e := &s.App.Regions[0].Endpoints
			*e = slices.Clone(*e) // the table keeps its own
			(*e)[0].State = domain.Standby
		}, "golden_failed"},
		"region is missing":   {func(s *Served) { s.App.Regions = s.App.Regions[:1] }, "golden_failed"},
		"endpoint is missing": {func(s *Served) { s.App.Regions[0].Endpoints = nil }, "golden_failed"},
		"no table":            {func(s *Served) { s.Table = nil }, "load_panic"},
	} {
		for _, cur := range []*Snapshot{nil, b.load(t, b.first, nil)} { // all requests, and a sample
			snap := b.load(t, b.first, nil)
			app := snap.Apps["mobile"]
			app.walked = nil
			c.breakIt(app)
			if err := (walker{golden: golden}).walk(snap, cur); fault.CodeOf(err) != c.code {
				t.Errorf("%s: got %v, want %s", name, err, c.code)
			}
		}
	}
}

// A sample of the requests may stand for all of them only where nobody moves.
func TestSampleStandsForRequestsThatStay(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	cur := b.load(t, b.first, nil)
	devices := func(yield func(string) bool) {
		for _, r := range must(GoldenRequests()) {
			if id, why := cur.Apps["mobile"].IDs.Normalize(r.Device); why == whitelist.Present && !yield(id) {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		change  func(*Document, *Operational, *Change)
		sampled bool
	}{
		"swap": {func(_ *Document, o *Operational, _ *Change) { *o = swapped() }, true},
		"weight": {func(d *Document, _ *Operational, _ *Change) {
			weight := 7
			d.Apps[0].Regions[0].Endpoints[0].Weight = &weight
		}, true},
		"patch of a list": {func(_ *Document, _ *Operational, c *Change) {
			c.Lists = map[string]Digest{"staff-devices": b.list(slices.Values([]string{"d-1001", "d-7"}))}
		}, true},
		"list of the golden devices": {func(_ *Document, _ *Operational, c *Change) {
			c.Lists, c.Approve.BigMove = map[string]Digest{"staff-devices": b.list(devices)}, true
		}, false},
		"region drains": {func(_ *Document, o *Operational, c *Change) {
			o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: domain.Draining}}}}
			c.Approve.BigMove = true
		}, false},
		"region without endpoints": {func(_ *Document, o *Operational, c *Change) {
			o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: domain.Draining}},
				Endpoints: map[string]EndpointOps{"hf/hf-main": {State: domain.Standby}}}}
			c.Approve.BigMove = true
		}, false},
		"gray": {func(_ *Document, o *Operational, _ *Change) {
			share := 501
			o.Apps = map[string]AppState{"mobile": {Policies: map[string]PolicyOps{"gray-10-2": {Share: &share}}}}
		}, false},
		"salt": {func(_ *Document, o *Operational, c *Change) {
			o.Apps = map[string]AppState{"mobile": {Salts: map[string]string{"otherwise": "new"}}}
			c.Approve.BigMove = true
		}, false},
		"table": {func(_ *Document, _ *Operational, c *Change) {
			c.Tables = map[string]Digest{"cn-prefixes": b.blobs.Add([]byte("198.51.100.0/24,hf\n"))}
		}, false},
	} {
		snap := b.load(t, next(b.first, c.change), cur)
		app, before := snap.Apps["mobile"], cur.Apps["mobile"]
		if app.Table == before.Table {
			t.Errorf("%s: the table is the old one", name)
		}
		if sampled := app.walked == before.walked; sampled != c.sampled {
			t.Errorf("%s: sampled %v, want %v", name, sampled, c.sampled)
		}
		whole := *app
		if err := (walker{golden: must(GoldenRequests())}).app(&whole, nil, snap.Created); err != nil || !slices.Equal(whole.walked.region, app.walked.region) {
			t.Errorf("%s: all requests together go elsewhere: %v", name, err)
		}
	}
}

// Small moves could escape a sample, so whatever moves anybody must be in the text.
func TestRoutingIsAllThatChoosesRegions(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	routing := func(change func(*Document, *Operational, *Change)) string {
		m := next(b.first, change)
		return must(routingOf(m, &Apply(&m.Document, m.Operational)[0]))
	}
	before := routing(nil)
	state := func(s AppState) func(*Document, *Operational, *Change) {
		return func(_ *Document, o *Operational, _ *Change) { o.Apps = map[string]AppState{"mobile": s} }
	}
	share := 501
	for name, c := range map[string]struct {
		change func(*Document, *Operational, *Change)
		same   bool
	}{
		"swap":           {func(_ *Document, o *Operational, _ *Change) { *o = swapped() }, true},
		"list":           {func(_ *Document, _ *Operational, c *Change) { c.Lists = map[string]Digest{"staff-devices": {1}} }, true},
		"another app":    {func(d *Document, _ *Operational, _ *Change) { d.Apps[1].Otherwise = d.Apps[0].Otherwise }, true},
		"nothing serves": {state(AppState{Endpoints: map[string]EndpointOps{"hf/hf-main": {State: domain.Standby}}}), false},
		"state":          {state(AppState{Regions: map[string]RegionOps{"hf": {State: domain.Draining}}}), false},
		"gray":           {state(AppState{Policies: map[string]PolicyOps{"gray-10-2": {Share: &share}}}), false},
		"stored salt":    {state(AppState{Salts: map[string]string{"failover/hf": "new"}}), false},
		"stated salt": {func(d *Document, _ *Operational, _ *Change) {
			d.Apps[0].Salts = map[string]string{"failover/hf": "new"}
		}, false},
		"capacity":         {func(d *Document, _ *Operational, _ *Change) { d.Apps[0].Regions[1].Capacity++ }, false},
		"failover":         {func(d *Document, _ *Operational, _ *Change) { d.Apps[0].Regions[1].Failover = nil }, false},
		"order of regions": {func(d *Document, _ *Operational, _ *Change) { slices.Reverse(d.Apps[0].Regions) }, false},
		"condition":        {func(d *Document, _ *Operational, _ *Change) { d.Apps[0].Policies[1].When.AppVersion = ">=10.3, <11" }, false},
		"absent ids":       {func(d *Document, _ *Operational, _ *Change) { d.AbsentIDs = []string{"none"} }, false},
		"table":            {func(_ *Document, _ *Operational, c *Change) { c.Tables = map[string]Digest{"cn-prefixes": {1}} }, false},
	} {
		if same := routing(c.change) == before; same != c.same {
			t.Errorf("%s: the same routing: %v, want %v", name, same, c.same)
		}
	}
}
