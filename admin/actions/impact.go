package actions

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Trials asks replicas what a draft would do to the requests that they had lately.
type Trials interface {
	// Try returns the verdicts that came before ctx ended, and of how many replicas.
	Try(ctx context.Context, t fleet.Trial) (verdicts []fleet.Verdict, of int)
}

// Impact is what a change would have done to real requests: those of the last hour
// that replicas remember, tried again as they were, with their sessions. With Sampled
// 0 there is no data: the synthetic figures of the Preview are all there is.
//
// Where the samples of replicas are not equally dense, figures are weighed by the
// traffic of each, so that parts of Sampled are parts of all requests.
type Impact struct {
	Sampled  uint64        `json:"sampled" doc:"requests that replicas remembered and tried again; 0: no data, Moved of the preview is made up of synthetic requests"`
	Since    time.Duration `json:"since" doc:"age of the oldest of them in nanoseconds"`
	Replicas int           `json:"replicas" doc:"that answered"`
	Of       int           `json:"of" doc:"replicas that serve"`
	Problems []string      `json:"problems,omitempty" doc:"why a replica has no verdict"`
	Apps     []AppImpact   `json:"apps"`
}

// AppImpact is the part of one app.
type AppImpact struct {
	fleet.AppVerdict
	Regions []RegionLoad `json:"regions" doc:"in the order of the draft; regions that it lacks last"`
}

// RegionLoad is a region's part of the requests before and after a change, and what
// that is of its capacity.
//
// Capacities of a document are relative: they say how much more one region can take
// than another, not how many requests. So all regions together are taken to be as
// large as the app's requests of the last hour, and a region with 40 of 100 is full,
// LoadAfter 1, with 40 % of them. LoadAfter 0.71 leaves it 29 % of its size. It
// counts those as well who move only when their session ends.
type RegionLoad struct {
	Region    string  `json:"region" doc:"empty: the app's fallback"`
	Before    float64 `json:"before" doc:"part of the app's requests, 0 to 1"`
	After     float64 `json:"after" doc:"at once"`
	Later     float64 `json:"later" doc:"once sessions have ended"`
	LoadAfter float64 `json:"load_after" doc:"Later, of the region's capacity, where the requests of today fill all capacities together: 1 is full; -1 where no capacity is stated"`
	PerMinute float64 `json:"per_minute" doc:"requests a minute once sessions have ended, as many as replicas counted in the last hour; -1 if they counted none"`
}

const (
	// trialWait is how long a preview waits for replicas, and urgentWait that of an
	// emergency. One that is well needs a fifth of a second.
	trialWait  = 2 * time.Second
	urgentWait = time.Second
	// maxExamples is how many of those that move an Impact names.
	maxExamples = 10
)

// impact tries a draft on the requests that replicas had lately; nil where nobody can.
// It waits for replicas, so whoever calls it must not have the turn.
func (a *Actions) impact(ctx context.Context, d draft) (*Impact, error) {
	if a.Trials == nil || d.from == nil {
		return nil, nil
	}
	next, err := a.next(ctx, d)
	if err != nil {
		return nil, err
	}
	data, err := next.Encode()
	if err != nil {
		return nil, fmt.Errorf("try the draft: %w", err)
	}
	wait := trialWait
	if d.emergency {
		wait = urgentWait
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	verdicts, of := a.Trials.Try(limited, fleet.Trial{ID: rand.Text(), Manifest: data, Base: release.DigestOf(d.all.Manifest), Blobs: a.blobs(d)})
	i := merge(verdicts, of)
	rates, err := a.perMinute(ctx)
	if err != nil {
		i.Problems = append(i.Problems, "what replicas counted cannot be read")
	}
	for n := range i.Apps {
		app := &i.Apps[n]
		app.loads(next, rates)
	}
	return i, nil
}

// perMinute is how many requests of each app the replicas counted in a minute of the last hour.
func (a *Actions) perMinute(ctx context.Context) (map[string]float64, error) {
	now := a.now()
	counts, err := a.Ledger.Counts(ctx, ledger.CountFilter{By: []string{"app"}, Since: now.Add(-time.Hour), Every: time.Minute})
	if err != nil || len(counts) == 0 {
		return nil, err
	}
	minutes := max(1, now.Sub(slices.MinFunc(counts, func(x, y fleet.Count) int { return x.Minute.Compare(y.Minute) }).Minute).Minutes())
	rates := map[string]float64{}
	for _, c := range counts {
		rates[c.App] += float64(c.N) / minutes
	}
	return rates, nil
}

// merge adds up what replicas found. A sampled request of one replica may stand for
// more requests than one of another; what comes out is in units of sampled ones.
func merge(verdicts []fleet.Verdict, of int) *Impact {
	i := &Impact{Of: of, Apps: []AppImpact{}}
	slices.SortFunc(verdicts, func(x, y fleet.Verdict) int { return cmp.Compare(x.Replica, y.Replica) })
	weights := map[string]*weighing{}
	for _, v := range verdicts {
		if v.Problem != "" {
			i.Problems = append(i.Problems, v.Replica+": "+v.Problem)
			continue
		}
		i.Replicas++
		i.Since = max(i.Since, v.Since)
		for n := range v.Apps {
			app := &v.Apps[n]
			i.Sampled += app.Sampled
			if weights[app.App] == nil {
				weights[app.App] = newWeighing()
			}
			weights[app.App].add(app, float64(max(1, v.Each)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		i.Apps = append(i.Apps, AppImpact{AppVerdict: weights[key].verdict(key)})
	}
	return i
}

// weighing adds up verdicts about one app in requests, and divides by how many of
// them a sampled one stands for on average.
type weighing struct {
	sampled                       uint64
	requests, moved, listed, held float64
	moves                         map[[2]string]float64
	before, after, later          map[string]float64
	examples                      []string
}

func newWeighing() *weighing {
	return &weighing{moves: map[[2]string]float64{}, before: map[string]float64{}, after: map[string]float64{}, later: map[string]float64{}, examples: []string{}}
}

func (w *weighing) add(v *fleet.AppVerdict, each float64) {
	w.sampled += v.Sampled
	w.requests += each * float64(v.Sampled)
	w.moved += each * float64(v.Moved)
	w.listed += each * float64(v.Listed)
	w.held += each * float64(v.Held)
	for _, m := range v.Moves {
		w.moves[[2]string{m.From, m.To}] += each * float64(m.N)
	}
	for sums, regions := range map[*map[string]float64]map[string]uint64{&w.before: v.Before, &w.after: v.After, &w.later: v.Later} {
		for region, n := range regions {
			(*sums)[region] += each * float64(n)
		}
	}
	for _, example := range v.Examples {
		if len(w.examples) < maxExamples && !slices.Contains(w.examples, example) {
			w.examples = append(w.examples, example)
		}
	}
}

func (w *weighing) verdict(app string) fleet.AppVerdict {
	of := func(n float64) uint64 { return uint64(math.Round(n * float64(w.sampled) / w.requests)) }
	regions := func(sums map[string]float64) map[string]uint64 {
		rounded := make(map[string]uint64, len(sums))
		for region, n := range sums {
			rounded[region] = of(n)
		}
		return rounded
	}
	v := fleet.AppVerdict{App: app, Sampled: w.sampled, Moved: of(w.moved), Listed: of(w.listed), Held: of(w.held), Moves: []fleet.Move{},
		Before: regions(w.before), After: regions(w.after), Later: regions(w.later), Examples: w.examples}
	for pair, n := range w.moves {
		v.Moves = append(v.Moves, fleet.Move{From: pair[0], To: pair[1], N: of(n)})
	}
	slices.SortFunc(v.Moves, func(x, y fleet.Move) int {
		return cmp.Or(cmp.Compare(y.N, x.N), cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To))
	})
	return v
}

// loads says what regions would stand at. rates are requests a minute by app.
func (i *AppImpact) loads(next *release.Manifest, rates map[string]float64) {
	capacity, all := map[string]int{}, 0
	var order []string
	for _, app := range next.Document.Apps {
		if app.Key != i.App {
			continue
		}
		for _, r := range app.Regions {
			capacity[r.Key] = r.Capacity
			all += r.Capacity
			order = append(order, r.Key)
		}
	}
	for _, counts := range []map[string]uint64{i.Before, i.After, i.Later} {
		for _, region := range slices.Sorted(maps.Keys(counts)) {
			if !slices.Contains(order, region) {
				order = append(order, region)
			}
		}
	}
	part := func(n uint64) float64 { return float64(n) / float64(max(1, i.Sampled)) }
	i.Regions = []RegionLoad{}
	for _, region := range order {
		load := RegionLoad{Region: region, Before: part(i.Before[region]), After: part(i.After[region]), Later: part(i.Later[region]), LoadAfter: -1, PerMinute: -1}
		if c := capacity[region]; c > 0 {
			load.LoadAfter = load.Later * float64(all) / float64(c)
		}
		if rate, known := rates[i.App]; known {
			load.PerMinute = load.Later * rate
		}
		i.Regions = append(i.Regions, load)
	}
}
