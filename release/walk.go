package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// sampled is which part of the golden requests an app is asked whose rules are as
// before: every seventh, 1,429, which takes 1 ms instead of 8. Seven shares no
// factor with the three and the ten by which requests have ids, so the sample is
// like the whole.
const sampled = 7

// walked is where the golden requests of an app went.
type walked struct {
	set    *goldenSet
	name   string // the values of the set in writing; equal sets make equal requests
	region []string
}

// walker sends the golden requests of every app through its table and refuses a
// release that sends one of them nowhere, or to a host outside the suffixes.
type walker struct {
	golden  []GoldenRequest
	allowed func(host string) bool // nil: a draft may name any
}

// walk walks the apps of next. One with the table of the snapshot before was
// walked then.
func (w walker) walk(next, cur *Snapshot) error {
	for key, app := range next.Apps {
		if app.walked != nil {
			continue
		}
		var before *Served
		if cur != nil {
			before = cur.Apps[key]
		}
		if err := w.app(app, before, next.Created); err != nil {
			return fmt.Errorf("app %s: %w", key, err)
		}
	}
	return nil
}

// app sends all requests through the table. After a swap of endpoints or a patch
// of a list nobody should go elsewhere than before, so a sample goes first; only
// if one of it strays do all go.
func (w walker) app(s, before *Served, created time.Time) error {
	to := s.landings(w.allowed)
	if before != nil && before.routing == s.routing {
		switch err := s.retrace(before.walked, to); {
		case err == nil:
			s.walked = before.walked
			return nil
		case !errors.Is(err, errStrayed):
			return err
		}
	}
	set := &goldenSet{requests: w.golden, speaks: spokenOf(s.App, created)}
	went := &walked{set: set, name: set.speaks.name(), region: make([]string, len(w.golden))}
	err := set.run(1, s.IDs, func(n int, req *policy.Request) (err error) {
		went.region[n], err = to.arrive(s.Table.Decide(req))
		return err
	})
	if err != nil {
		return err
	}
	s.walked = went
	return nil
}

var errStrayed = errors.New("a golden request goes to another region")

// retrace sends a sample of the requests and is errStrayed if one of them goes to
// another region than in w.
func (s *Served) retrace(w *walked, to landings) error {
	return w.set.run(sampled, s.IDs, func(n int, req *policy.Request) error {
		region, err := to.arrive(s.Table.Decide(req))
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
		Salts  map[string]string `json:",omitempty"`
		Tables map[string]Digest
		Absent []string
	}{&regions, serves, m.Operational.Apps[app.Key].Salts, m.Tables, m.Document.AbsentIDs})
	if err != nil {
		return "", fmt.Errorf("compare the rules of app %s: %w", app.Key, err)
	}
	return string(text), nil
}

// Moved says for each app of both snapshots how many of the 10,000 golden requests
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

// regionsOf is where the requests of another snapshot's walk go in this one. They
// are known if both walks were made of the same set.
func (s *Served) regionsOf(w *walked) []string {
	if s.walked != nil && s.walked.name == w.name && w.name != "" {
		return s.walked.region
	}
	region := make([]string, len(w.region))
	to := s.landings(nil)
	_ = w.set.run(1, s.IDs, func(n int, req *policy.Request) error { // what went wrong here counts as the fallback
		region[n], _ = to.arrive(s.Table.Decide(req))
		return nil
	})
	return region
}

// landings are where decisions about an app may lead: an error for each region
// and endpoint that no request may get, nil for those that it may.
type landings struct {
	regions   []domain.Region
	endpoints [][]error
	fallback  error
}

func (s *Served) landings(allowed func(host string) bool) landings {
	to := landings{regions: s.App.Regions, endpoints: make([][]error, len(s.App.Regions))}
	outside := func(host string) error {
		if allowed == nil || allowed(host) {
			return nil
		}
		return fault.New(fault.Denied, "host_outside_suffixes", "a golden request got the host %q", host).WithHint(suffixHint)
	}
	if to.fallback = outside(s.App.Fallback); len(s.Fallback.Bodies) == 0 {
		to.fallback = lost("a fallback without an answer")
	}
	for i := range s.App.Regions {
		r := &s.App.Regions[i]
		to.endpoints[i] = make([]error, len(r.Endpoints))
		for j := range r.Endpoints {
			e := &r.Endpoints[j]
			switch {
			case r.Condition() == domain.Off:
				to.endpoints[i][j] = lost("region %s, which is off", r.Key)
			case !e.Serves():
				to.endpoints[i][j] = lost("endpoint %s/%s, which does not serve", r.Key, e.Key)
			case len(s.Answer[i][j].Bodies) == 0:
				to.endpoints[i][j] = lost("endpoint %s/%s, which has no answer", r.Key, e.Key)
			default:
				to.endpoints[i][j] = outside(e.Domain)
			}
		}
	}
	return to
}

// arrive is the region that a decision leads to, empty for the fallback, and an
// error for one that leads nowhere.
func (to *landings) arrive(d policy.Decision) (region string, err error) {
	if d.Region < 0 {
		return "", to.fallback
	}
	if int(d.Region) >= len(to.endpoints) {
		return "", lost("a region that does not exist")
	}
	key, endpoints := to.regions[d.Region].Key, to.endpoints[d.Region]
	if d.Endpoint < 0 || int(d.Endpoint) >= len(endpoints) {
		return "", lost("no endpoint of region %s", key)
	}
	return key, endpoints[d.Endpoint]
}

func lost(format string, args ...any) error {
	return fault.New(fault.Invalid, "golden_failed", "a golden request got "+format, args...).
		WithHint("this is a mistake in the program, not in the document: report it with the release")
}

// inParallel splits 0 to n-1 among the processors and waits for them. A panic is
// an error, because the recover of a caller does not see other goroutines.
func inParallel(n int, f func(from, to int) error) error {
	parts := runtime.GOMAXPROCS(0)
	var g errgroup.Group
	for p := range parts {
		g.Go(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = panicked(r)
				}
			}()
			return f(n*p/parts, n*(p+1)/parts)
		})
	}
	return g.Wait()
}
