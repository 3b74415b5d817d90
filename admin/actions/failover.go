package actions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/probe"
	"dispatch.example/dispatch/release"
)

// What dispatch waits for before it acts by itself; docs/adr/0035 gives the reasons.
const (
	failoverEvery  = 5 * time.Second
	failoverAfter  = 30 * time.Second // that every endpoint of a region is down
	failoverOff    = 2 * time.Minute  // that a region stays down which dispatch drained
	failoverPause  = 10 * time.Minute // between two outages of a region
	mostProbesFail = "more than half of the hosts of the release do not answer: the fault may be ours"
)

// RunFailover acts for regions that say auto_failover, until ctx ends. Every control
// node does so: what one has done is not as the other expects it, and changes nothing
// twice. It never takes a change back.
func (a *Actions) RunFailover(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(failoverEvery)
	defer tick.Stop()
	said := "" // so that a state that lasts is logged once
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if !a.Probes {
			continue
		}
		why, err := a.failover(ctx, log)
		if err != nil {
			why = err.Error()
		}
		if why != said && why != "" && ctx.Err() == nil {
			log.WarnContext(ctx, "a region is down and nothing was done by itself", "why", why, "try", "look at GET /api/v1/probes, and decide: dispatchctl region")
		}
		said = why
	}
}

// failover does what is due, and says why it left something.
func (a *Actions) failover(ctx context.Context, log *slog.Logger) (left string, err error) {
	cur := a.Keeper.Current()
	if cur == nil || !wantsFailover(cur.Manifest) {
		return "", nil
	}
	s, err := a.settings(ctx)
	if err != nil {
		return "", err
	}
	health, err := a.health(ctx, s.Safety)
	if err != nil {
		return "", err
	}
	w := watch{safety: s.Safety, health: health, apps: release.Apply(&cur.Manifest.Document, cur.Manifest.Operational), now: a.now()}
	due := w.down()
	switch {
	case len(due) == 0:
		return "", nil
	case cur.Manifest.Operational.Frozen:
		return "changes are frozen", nil
	case health.Distrusted:
		return "the probers are distrusted", nil
	case w.mostFail():
		return mostProbesFail, nil
	}
	if w.history, err = a.history(ctx, s.Safety, failoverPause); err != nil {
		return "", err
	}
	var refused []string
	for _, d := range due {
		e, why := w.answer(d)
		if e == nil {
			if why != "" {
				refused = append(refused, why)
			}
			continue
		}
		reason := fmt.Sprintf("auto_failover: every endpoint of %s is down since %sZ: %s", d.name(), d.since.UTC().Format(time.TimeOnly), d.why)
		out, err := a.Emergency(ctx, Write{Actor: dispatcher, Reason: shortReason(reason), Confirm: a.Confirmation(*e)}, *e)
		if err != nil {
			refused = append(refused, d.name()+": "+shortError(err))
			continue
		}
		log.WarnContext(ctx, "a region was moved by itself", "region", d.name(), "action", e.Action, "to", e.Targets[0].To+e.Targets[0].State, "release", out.Release, "why", d.why,
			"try", "mend it, then move it back: nothing does so by itself")
	}
	return strings.Join(refused, "; "), nil
}

func wantsFailover(m *release.Manifest) bool {
	for i := range m.Document.Apps {
		for k := range m.Document.Apps[i].Regions {
			if m.Document.Apps[i].Regions[k].AutoFailover {
				return true
			}
		}
	}
	return false
}

// maxReason is what a reason may be long in the audit trail, in bytes.
const maxReason = 500

func shortReason(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason-3], "") + "…"
}

func shortError(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Detail
	}
	return err.Error()
}

// watch is what failover looks at.
type watch struct {
	safety  SafetySettings
	health  Health
	apps    []release.App
	history []past
	now     time.Time
}

// outage is a region of which no endpoint answers.
type outage struct {
	app   *release.App
	r     *domain.Region
	since time.Time // that the last of them is down
	why   string
}

func (o outage) name() string { return o.app.Key + "/" + o.r.Key }

// down are the regions that say auto_failover and are down for long enough.
func (w *watch) down() (found []outage) {
	for i := range w.apps {
		for k := range w.apps[i].Regions {
			r := &w.apps[i].Regions[k]
			if !r.AutoFailover || r.Condition() == domain.Off {
				continue
			}
			o := outage{app: &w.apps[i], r: r}
			if w.isDown(&o) && w.now.Sub(o.since) >= failoverAfter {
				found = append(found, o)
			}
		}
	}
	return found
}

// isDown says whether every endpoint that serves is seen down, and notes since when and why.
func (w *watch) isDown(o *outage) bool {
	hosts := serving(o.r)
	var why []string
	for _, host := range hosts {
		seen := w.health.Hosts[host]
		if seen.State != probe.Down {
			return false
		}
		if seen.Since.After(o.since) {
			o.since = seen.Since
		}
		why = append(why, host+": "+seen.Problem)
	}
	o.why = strings.Join(why, ", ")
	return len(hosts) > 0
}

// mostFail says whether more than half of the release's hosts fail: then something
// else is wrong than a region. A host that nobody is sent to and that was down before
// is no news.
func (w *watch) mostFail() bool {
	hosts := map[string]bool{} // whether it fails
	for i := range w.apps {
		for k := range w.apps[i].Regions {
			for m := range w.apps[i].Regions[k].Endpoints {
				e := &w.apps[i].Regions[k].Endpoints[m]
				seen := w.health.Hosts[e.Domain]
				if fails := seen.State != probe.Up; e.Serves() || !fails || w.now.Sub(seen.Since) < failoverPause {
					hosts[e.Domain] = fails
				}
			}
		}
	}
	failing := 0
	for _, fails := range hosts {
		if fails {
			failing++
		}
	}
	return failing*2 > len(hosts)
}

// answer is the emergency for an outage; nil: there is none now, and why.
func (w *watch) answer(o outage) (*Emergency, string) {
	drained := false
	for _, p := range w.history {
		if !p.touches(Target{App: o.app.Key, Region: o.r.Key}) || w.now.Sub(p.at) >= failoverPause {
			continue
		}
		drained = p.by == dispatcher.Name && p.action == SetRegionState && o.r.Condition() == domain.Draining
		if !drained {
			return nil, fmt.Sprintf("%s was changed within %s, by %s", o.name(), failoverPause, p.by)
		}
		if w.now.Sub(p.at) < failoverOff {
			return nil, ""
		}
		break
	}
	if o.r.Condition() == domain.Draining && !drained {
		return nil, "" // a person drains it
	}
	if e := w.swap(o); e != nil && !drained {
		return e, ""
	}
	if !w.others(o) {
		return nil, o.name() + " is the last region that takes anybody, or no other is up"
	}
	next := domain.Draining
	if drained {
		next = domain.Off
	}
	return &Emergency{Action: SetRegionState, Targets: []Target{{App: o.app.Key, Region: o.r.Key, Expect: string(o.r.Condition()), State: string(next)}}}, ""
}

// swap brings in standby endpoints that are up, if there is one for each that serves.
func (w *watch) swap(o outage) *Emergency {
	var out, in []*domain.Endpoint
	for i := range o.r.Endpoints {
		switch e := &o.r.Endpoints[i]; {
		case e.Serves():
			out = append(out, e)
		case e.State == domain.Standby && w.health.up(e.Domain, w.safety):
			in = append(in, e)
		}
	}
	if len(in) < len(out) {
		return nil
	}
	e := &Emergency{Action: SwapEndpoints}
	for i := range out {
		e.Targets = append(e.Targets, Target{App: o.app.Key, Region: o.r.Key, Expect: out[i].Key, From: out[i].Key, To: in[i].Key})
	}
	return e
}

// others says whether a region that is up takes the users over.
func (w *watch) others(o outage) bool {
	for _, host := range successors(o.app, o.r) {
		if w.health.up(host, w.safety) {
			return usableRegions(o.app) > 1 || o.r.Condition() != domain.Active
		}
	}
	return false
}
