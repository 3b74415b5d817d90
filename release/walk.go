package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// sampled is which part of the probes walks an app whose rules are as before:
// every seventh, 1,429. Seven shares no factor with the three and the ten by
// which probes have ids, so the sample is like the whole.
const sampled = 7

// walked is where the probes of a set went.
type walked struct {
	set    *probeSet
	name   string // the set in writing; equal sets make equal probes
	region []string
}

// walk sends the probes of every app through its table and refuses a release that
// sends one of them nowhere. An app with the table of the snapshot before was
// walked then.
func walk(next, cur *Snapshot) error {
	for key, app := range next.Apps {
		if app.walked != nil {
			continue
		}
		var before *Served
		if cur != nil {
			before = cur.Apps[key]
		}
		if err := app.walk(before, next.Created); err != nil {
			return fmt.Errorf("app %s: %w", key, err)
		}
	}
	return nil
}

// walk sends all probes through the table. After a swap of endpoints or a patch
// of a list nobody should go elsewhere than before, so a sample goes first; only
// if one of it strays do all go.
func (s *Served) walk(before *Served, created time.Time) error {
	if before != nil && before.routing == s.routing {
		switch err := s.retrace(before.walked); {
		case err == nil:
			s.walked = before.walked
			return nil
		case !errors.Is(err, errStrayed):
			return err
		}
	}
	set := newProbeSet(s.App, created)
	w := &walked{set: set, name: set.name(), region: make([]string, probes)}
	err := set.run(1, func(n int, req *policy.Request) (err error) {
		w.region[n], err = s.arrive(s.Table.Decide(req))
		return err
	})
	if err != nil {
		return err
	}
	s.walked = w
	return nil
}

var errStrayed = errors.New("a probe goes to another region")

// retrace sends a sample of the probes and is errStrayed if one of them goes to
// another region than in w.
func (s *Served) retrace(w *walked) error {
	return w.set.run(sampled, func(n int, req *policy.Request) error {
		region, err := s.arrive(s.Table.Decide(req))
		if err == nil && region != w.region[n] {
			err = errStrayed
		}
		return err
	})
}

// routingOf is everything in a manifest that decides which region a first
// request of app gets, in writing, but for who is on the lists. Operational state
// is applied to app. Of a region's endpoints it matters only whether one serves.
func routingOf(m *Manifest, app *App) (string, error) {
	regions := *app
	regions.Regions = make([]domain.Region, len(app.Regions))
	serves := make([]bool, len(app.Regions))
	for i := range app.Regions {
		regions.Regions[i], serves[i] = app.Regions[i], app.Regions[i].Serves()
		regions.Regions[i].Endpoints = nil
	}
	text, err := json.Marshal(struct {
		App    *App
		Serves []bool
		Salts  map[string]string
		Tables map[string]Digest
	}{&regions, serves, m.Operational.Apps[app.Key].Salts, m.Tables})
	if err != nil {
		return "", fmt.Errorf("compare the rules of app %s: %w", app.Key, err)
	}
	return string(text), nil
}

// Moved says for each app of both snapshots how many of 10,000 synthetic requests
// would get another region from b than from a, each its first request. A swap of
// endpoints inside a region moves nobody, and nobody moves from a nil snapshot.
func Moved(a, b *Snapshot) map[string]int {
	moved := map[string]int{}
	a, b = a.released(), b.released()
	if a == nil {
		return moved
	}
	for key, after := range b.Apps {
		before := a.Apps[key]
		if before == nil || after.walked == nil {
			continue
		}
		moved[key] = 0
		if before.walked == after.walked {
			continue
		}
		was := before.regionsOf(after.walked)
		for n, region := range after.walked.region {
			if region != was[n] {
				moved[key]++
			}
		}
	}
	return moved
}

// regionsOf is where the probes of another snapshot's walk go in this one. They
// are known if both walks were made of the same set.
func (s *Served) regionsOf(w *walked) []string {
	if s.walked != nil && s.walked.name == w.name && w.name != "" {
		return s.walked.region
	}
	region := make([]string, probes)
	_ = w.set.run(1, func(n int, req *policy.Request) error { // what went wrong here counts as the fallback
		region[n], _ = s.arrive(s.Table.Decide(req))
		return nil
	})
	return region
}

// arrive is the region that a decision leads to, empty for the fallback, and an
// error for one that leads nowhere.
func (s *Served) arrive(d policy.Decision) (region string, err error) {
	if d.Region < 0 {
		if len(s.Fallback.Bodies) == 0 {
			return "", lost("a fallback without an answer")
		}
		return "", nil
	}
	if int(d.Region) >= len(s.App.Regions) {
		return "", lost("a region that does not exist")
	}
	r := &s.App.Regions[d.Region]
	if d.Endpoint < 0 || int(d.Endpoint) >= len(r.Endpoints) {
		return "", lost("no endpoint of region %s", r.Key)
	}
	e := &r.Endpoints[d.Endpoint]
	switch {
	case r.Condition() == domain.Off:
		return "", lost("region %s, which is off", r.Key)
	case !e.Serves():
		return "", lost("endpoint %s/%s, which does not serve", r.Key, e.Key)
	case len(s.Answer[d.Region][d.Endpoint].Bodies) == 0:
		return "", lost("endpoint %s/%s, which has no answer", r.Key, e.Key)
	}
	return r.Key, nil
}

func lost(format string, args ...any) error {
	return fault.New(fault.Invalid, "probe_failed", "a synthetic request got "+format, args...).
		WithHint("this is a mistake in the program, not in the document: report it with the release")
}
