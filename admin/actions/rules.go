package actions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// usableRegion counts the regions that take new sessions. That there is one at all
// is release's business, and refused before rules are asked.
func (j *judge) usableRegion() RuleResult {
	r := RuleResult{Rule: UsableRegion, OK: true, Never: true}
	r.says(fault.Textf("every app keeps a region that takes new sessions"), fault.Text{})
	before, after := j.before(), j.after()
	for i := range after {
		was, is := usableRegions(&before[i]), usableRegions(&after[i])
		if is < was && is < j.safety.MinUsableRegions {
			r.OK = false
			r.says(fault.Textf("%s would have %d regions that take new sessions, the settings ask for %d", after[i].Key, is, j.safety.MinUsableRegions),
				fault.Textf("make another region active first"))
		}
	}
	return r
}

func usableRegions(app *release.App) (n int) {
	for i := range app.Regions {
		if r := &app.Regions[i]; r.Condition() == domain.Active && r.Serves() {
			n++
		}
	}
	return n
}

// takers are hosts of which at least one must be there: they take over the users of
// one target.
type takers struct {
	of    string // what the target is called
	hosts []string
}

// takers of every target, from what the change does.
func (j *judge) takers() []takers {
	before, after := j.before(), j.after()
	var all []takers
	for i := range after {
		for k := range after[i].Regions {
			r := &after[i].Regions[k]
			t := takers{of: after[i].Key + "/" + r.Key}
			switch was := &before[i].Regions[k]; {
			case r.Condition() == domain.Active && was.Condition() == domain.Active:
				t.hosts = j.entering(was, r)
			case r.Condition() == domain.Active:
				t.hosts = serving(r)
			case was.Condition() == domain.Active:
				t.hosts = successors(&after[i], r)
			}
			if len(t.hosts) > 0 {
				all = append(all, t)
			}
		}
	}
	return all
}

// entering are the hosts that begin to serve an active region, or those that are
// left of it.
func (j *judge) entering(was, is *domain.Region) []string {
	before, after := serving(was), serving(is)
	fresh := slices.DeleteFunc(slices.Clone(after), func(host string) bool { return slices.Contains(before, host) })
	switch {
	case len(fresh) > 0:
		return fresh
	case len(after) < len(before):
		return after
	default:
		return nil
	}
}

func serving(r *domain.Region) (hosts []string) {
	for i := range r.Endpoints {
		if e := &r.Endpoints[i]; e.Serves() {
			hosts = append(hosts, e.Domain)
		}
	}
	return hosts
}

// successors are the hosts of the regions that take over from one that goes.
func successors(app *release.App, gone *domain.Region) (hosts []string) {
	for i := range app.Regions {
		if r := &app.Regions[i]; r.Condition() == domain.Active && slices.Contains(gone.Failover, r.Key) {
			hosts = append(hosts, serving(r)...)
		}
	}
	if len(hosts) > 0 {
		return hosts
	}
	for i := range app.Regions {
		if r := &app.Regions[i]; r.Condition() == domain.Active {
			hosts = append(hosts, serving(r)...)
		}
	}
	return hosts
}

// danglingName refuses to begin to send people to a name that somebody else may own
// tomorrow.
func (j *judge) danglingName() RuleResult {
	r := RuleResult{Rule: DanglingName, OK: true, Never: true}
	r.says(fault.Textf("no host that takes over is an alias of a name that does not exist"), fault.Text{})
	for _, t := range j.takers() {
		for _, host := range t.hosts {
			if seen := j.health.Hosts[host]; seen.Dangling {
				r.OK = false
				r.says(fault.Word(seen.Problem), fault.Textf("take another host, or mend the alias in the zone"))
			}
		}
	}
	return r
}

// probeFresh wants to know of every target that somebody is there who takes over.
func (j *judge) probeFresh() RuleResult {
	r := RuleResult{Rule: ProbeFresh, OK: true}
	if !j.health.On {
		r.Warns = true
		r.says(fault.Textf("nobody knows whether the hosts that take over are up: probes are off"), fault.Textf("serve --probes on"))
		return r
	}
	var fine, lacking []fault.Text
	for _, t := range j.takers() {
		var why []fault.Text
		there := false
		for _, host := range t.hosts {
			if lack, lacks := j.health.lacks(host, j.safety); lacks {
				why = append(why, lack)
				continue
			}
			there = true
			seen := j.health.Hosts[host]
			fine = append(fine, fault.Textf("%s is up, seen by %d of %d %s ago", host, seen.Up, seen.Of, j.now.Sub(seen.Last).Round(time.Second)))
		}
		if !there {
			lacking = append(lacking, fault.Textf("%s: %s", t.of, fault.Join("%s; %s", why)))
		}
	}
	switch {
	case len(lacking) > 0:
		r.OK = false
		r.says(fault.Join("%s; %s", lacking), fault.Textf("wait until probers see it up (GET /api/v1/probes shows why they do not), or take another host"))
	case len(fine) > 0:
		r.says(fault.Join("%s, %s", fine), fault.Text{})
	default:
		r.says(fault.Textf("no host takes over"), fault.Text{})
	}
	return r
}

// flapWait lets a region rest.
func (j *judge) flapWait() RuleResult {
	r := RuleResult{Rule: FlapWait, OK: true}
	r.says(fault.Textf("no target was changed a moment ago"), fault.Text{})
	latest := j.now
	for _, t := range j.e.Targets {
		until, times := j.restsUntil(t)
		if until.After(j.now) && (r.OK || until.After(latest)) {
			latest, r.OK = until, false
			r.says(fault.Textf("%s was changed %s ago, %d times within %s", t.name(), j.now.Sub(j.lastOf(t)).Round(time.Second), times, time.Duration(j.safety.FlapWindow)),
				fault.Textf("wait until %sZ", until.UTC().Format(time.TimeOnly)))
		}
	}
	return r
}

// restsUntil is when the target may be changed again, and how often it was lately.
func (j *judge) restsUntil(t Target) (until time.Time, times int) {
	last := j.lastOf(t)
	for _, p := range j.history {
		if p.touches(t) && j.now.Sub(p.at) <= time.Duration(j.safety.FlapWindow) {
			times++
		}
	}
	if last.IsZero() {
		return last, times
	}
	wait := j.safety.FlapWait
	if times >= 2 {
		wait = max(wait, j.safety.FlapWaitAfterTwo)
	}
	return last.Add(time.Duration(wait)), times
}

func (j *judge) lastOf(t Target) (last time.Time) {
	for _, p := range j.history {
		if p.touches(t) && p.at.After(last) {
			last = p.at
		}
	}
	return last
}

// touches says whether the emergency was about the target's region. A cluster
// without an app is in every app.
func (p past) touches(t Target) bool {
	return slices.ContainsFunc(p.targets, func(was Target) bool {
		return was.Region == t.Region && (was.App == t.App || was.App == "" || t.App == "")
	})
}

// rate lets one person do a few, and then a second one decide. What dispatch does by
// itself has its own limit.
func (j *judge) rate() RuleResult {
	window := time.Duration(j.safety.EmergencyWindow)
	r := RuleResult{Rule: Rate, OK: true}
	n, oldest := 0, j.now
	for _, p := range j.history {
		if strings.EqualFold(p.by, j.who.Name) && j.now.Sub(p.at) < window {
			if n++; n <= j.safety.EmergenciesPerPerson {
				oldest = p.at
			}
		}
	}
	var satisfy fault.Text
	if n >= j.safety.EmergenciesPerPerson && j.who.Name != dispatcher.Name {
		r.OK, satisfy = false, fault.Textf("let a second person do it, or wait until %sZ", oldest.Add(window).UTC().Format(time.TimeOnly))
	}
	r.says(fault.Textf("%s did %d emergencies within %s, of %d", j.who.Name, n, window, j.safety.EmergenciesPerPerson), satisfy)
	return r
}

const (
	// nowSpan is what counts as the traffic of now.
	nowSpan = 5 * time.Minute
	// peakSpan is where the busiest hour is looked for, which capacity has coped with.
	peakSpan = 7 * 24 * time.Hour
)

// capacity compares who takes over with what all regions together coped with in the
// busiest hour of the last week: capacities are parts of that. It warns and stops
// nobody: users of a city that burns are better off in one that is slow.
func (a *Actions) capacity(ctx context.Context, j *judge) RuleResult {
	r := RuleResult{Rule: Capacity, OK: true}
	before, after := j.before(), j.after()
	var heavy, fine []fault.Text
	for i := range after {
		gone := goneRegions(&before[i], &after[i])
		if len(gone) == 0 {
			continue
		}
		busy, err := a.traffic(ctx, after[i].Key, j.now)
		if err != nil || busy.now == 0 {
			fine = append(fine, fault.Textf("%s: no traffic is known", after[i].Key))
			continue
		}
		loads := busy.loads(&after[i], gone)
		for _, key := range slices.Sorted(maps.Keys(loads)) {
			text := fault.Textf("%s/%s would stand at %.0f %% of its capacity", after[i].Key, key, 100*loads[key])
			if loads[key] > 1 {
				heavy = append(heavy, text)
			} else {
				fine = append(fine, text)
			}
		}
	}
	switch {
	case len(heavy) > 0:
		r.Warns = true
		r.says(fault.Join("%s, %s", heavy), fault.Textf("take less at once, or expect slow answers there"))
	case len(fine) > 0:
		r.says(fault.Join("%s, %s", fine), fault.Text{})
	default:
		r.says(fault.Textf("no region takes over the users of another"), fault.Text{})
	}
	return r
}

// goneRegions are the regions that stop taking new sessions.
func goneRegions(before, after *release.App) (keys []string) {
	for i := range after.Regions {
		if was, is := &before.Regions[i], &after.Regions[i]; was.Condition() == domain.Active && is.Condition() != domain.Active {
			keys = append(keys, is.Key)
		}
	}
	return keys
}

// busy is the traffic of an app in requests an hour.
type busy struct {
	now  float64
	peak float64 // of all regions together
	part map[string]float64
}

func (a *Actions) traffic(ctx context.Context, app string, now time.Time) (busy, error) {
	b := busy{part: map[string]float64{}}
	counts, err := a.Ledger.Counts(ctx, ledger.CountFilter{App: app, Since: now.Add(-nowSpan).Truncate(time.Minute), By: []string{"region"}})
	if err != nil {
		return b, err
	}
	for _, c := range counts {
		n := float64(c.N) * float64(time.Hour) / float64(nowSpan)
		b.now += n
		b.part[c.Region] += n
	}
	hours, err := a.Ledger.Counts(ctx, ledger.CountFilter{App: app, Since: now.Add(-peakSpan).Truncate(time.Hour), Every: time.Hour})
	if err != nil {
		return b, err
	}
	b.peak = b.now
	for _, c := range hours {
		b.peak = max(b.peak, float64(c.N))
	}
	return b, nil
}

// loads are the parts of their capacities that the regions which take over would
// stand at. What goes is shared among its failover, as decisions share it.
func (b busy) loads(app *release.App, gone []string) map[string]float64 {
	capacity, taking := 0, map[string]float64{}
	for i := range app.Regions {
		capacity += app.Regions[i].Capacity
	}
	for _, key := range gone {
		shares := heirs(app, key)
		for heir, share := range shares {
			taking[heir] += share * b.part[key]
		}
	}
	loads := map[string]float64{}
	for i := range app.Regions {
		r := &app.Regions[i]
		if taken, takes := taking[r.Key]; takes && r.Capacity > 0 && b.peak > 0 {
			room := b.peak * float64(r.Capacity) / float64(capacity)
			loads[r.Key] = (b.part[r.Key] + taken) / room
		}
	}
	return loads
}

// heirs are the shares of a region's users that other regions get: by capacity,
// equally where no capacity is stated.
func heirs(app *release.App, gone string) map[string]float64 {
	i := slices.IndexFunc(app.Regions, func(r domain.Region) bool { return r.Key == gone })
	shares, sum := map[string]float64{}, 0.0
	for k := range app.Regions {
		r := &app.Regions[k]
		if r.Condition() == domain.Active && r.Serves() && slices.Contains(app.Regions[i].Failover, r.Key) {
			shares[r.Key] = float64(r.Capacity)
			sum += float64(r.Capacity)
		}
	}
	for key := range shares {
		if shares[key] /= sum; sum == 0 {
			shares[key] = 1 / float64(len(shares))
		}
	}
	return shares
}

// requireNames refuses a document that sends people to an alias of a name that does
// not exist: whoever registers that name answers for the bank.
func (a *Actions) requireNames(ctx context.Context, doc *release.Document, source *release.Source) error {
	health, err := a.Health(ctx)
	if err != nil {
		return err
	}
	var p fault.Problems
	find := func(path, host string) {
		if seen := health.Hosts[host]; seen.Dangling {
			p = append(p, fault.ProblemOf(path, fault.Textf("rule %s: %s", DanglingName, seen.Problem),
				fault.Textf("mend the alias in the zone, or let the endpoint stand by")))
		}
	}
	for i := range doc.Apps {
		app := &doc.Apps[i]
		find(fmt.Sprintf("apps[%d].fallback", i), app.Fallback)
		for k := range app.Regions {
			for m := range app.Regions[k].Endpoints {
				if e := &app.Regions[k].Endpoints[m]; e.Serves() {
					find(fmt.Sprintf("apps[%d].regions[%d].endpoints[%d].domain", i, k, m), e.Domain)
				}
			}
		}
	}
	source.Locate(p)
	return p.Err(DanglingName, "some hosts are aliases of names that do not exist; nothing was changed")
}
