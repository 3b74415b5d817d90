package release

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"dispatch.example/dispatch/policy"
)

// BucketMove says how many of 10,000 buckets a policy gives to another region
// than before. From and To are regions; empty is the next policy.
type BucketMove struct {
	App     string `json:"app"`
	Policy  string `json:"policy"` // or otherwise
	From    string `json:"from"`
	To      string `json:"to"`
	Buckets int    `json:"buckets"`
	// Redrawn: another salt or id draws the buckets anew, so that Buckets is what
	// is to be expected, to the nearest one; else it is exact.
	Redrawn bool `json:"redrawn,omitempty"`
	// By is when a ramp will have moved them; zero: at once.
	By time.Time `json:"by,omitzero"`
}

// String is one line for people.
func (m BucketMove) String() string {
	about := ""
	if m.Redrawn {
		about = "about "
	}
	line := fmt.Sprintf("%s/%s: %s%d of %d buckets move %s → %s", m.App, m.Policy, about, m.Buckets, policy.Whole,
		cmp.Or(m.From, "next policy"), cmp.Or(m.To, "next policy"))
	if !m.By.IsZero() {
		line += " by " + m.By.Format(time.RFC3339)
	}
	return line
}

// BucketMoves says for each policy, and otherwise, of the apps in both
// configurations which buckets it gives elsewhere, operational state applied. A
// policy that is new or gone passed, or passes, everybody on. It speaks of what
// the rules name: neither of who meets the conditions, nor of regions that are
// off. Moved counts that, in samples. Ramps count with what they take in the end.
// It is never nil.
func BucketMoves(from, to Configuration) []BucketMove {
	return BucketMovesAt(from, to, time.Time{})
}

// BucketMovesAt is BucketMoves with ramps as they stand at an instant; the zero
// time is their end.
func BucketMovesAt(from, to Configuration, at time.Time) []BucketMove {
	moves := []BucketMove{}
	if from.Document == nil || to.Document == nil {
		return moves
	}
	before := Apply(from.Document, from.Operational)
	stand(before, at)
	after := Apply(to.Document, to.Operational)
	ends := stand(after, at)
	for _, app := range after {
		i := slices.IndexFunc(before, func(a App) bool { return a.Key == app.Key })
		if i < 0 {
			continue
		}
		was := drawsOf(&before[i], from.Operational)
		now := drawsOf(&app, to.Operational)
		for _, d := range now {
			moves = append(moves, was.find(d.policy).movesTo(d)...)
		}
		for _, d := range was {
			if now.find(d.policy).app == "" {
				moves = append(moves, d.movesTo(draws{app: d.app, policy: d.policy})...)
			}
		}
	}
	for i := range moves {
		moves[i].By = ends[[2]string{moves[i].App, moves[i].Policy}]
	}
	return moves
}

// stand replaces the ramps of apps that Apply gave by shares as they stand at an
// instant. With the zero time they stand at their ends, which by app and policy
// are what it returns.
func stand(apps []App, at time.Time) map[[2]string]time.Time {
	ends := map[[2]string]time.Time{}
	for i := range apps {
		for j := range apps[i].Policies {
			p := &apps[i].Policies[j]
			if p.Then.Share == nil || p.Then.Share.Ramp == nil {
				continue
			}
			ramp, of := p.Then.Share.Ramp, 0
			if of = ramp.At(at); at.IsZero() {
				of, ends[[2]string{apps[i].Key, p.Key}] = ramp.To, ramp.End
			}
			p.Then.Share = &policy.Share{Region: p.Then.Share.Region, Of: &of}
		}
	}
	return ends
}

// draws is how one policy of an app gives its buckets to regions. The zero value
// passes all of them on.
type draws struct {
	app, policy string
	salt        string
	by          policy.BucketBy
	then        policy.Action
}

type drawsList []draws

// drawsOf are the policies of an app that Apply gave, in order, then otherwise.
func drawsOf(app *App, ops Operational) drawsList {
	var all drawsList
	byApp := cmp.Or(app.BucketBy, policy.ByDevice)
	salts := map[string]string{}
	for _, s := range app.salts() {
		salts[s.key] = s.in(ops.Apps[app.Key].Salts)
	}
	for i := range app.Policies {
		p := &app.Policies[i]
		all = append(all, draws{app.Key, p.Key, salts[p.Key], cmp.Or(p.BucketBy, byApp), p.Then})
	}
	return append(all, draws{app.Key, saltOtherwise, salts[saltOtherwise], byApp, app.Otherwise})
}

func (l drawsList) find(policy string) draws {
	i := slices.IndexFunc(l, func(d draws) bool { return d.policy == policy })
	if i < 0 {
		return draws{}
	}
	return l[i]
}

// movesTo compares what became of d; either may have no action, and pass all on.
func (d draws) movesTo(next draws) []BucketMove {
	anew := d.salt != next.salt || d.by != next.by
	if !anew && reflect.DeepEqual(d.then, next.then) {
		return nil
	}
	was, now := d.regions(), next.regions()
	redrawn := anew && varies(was) && varies(now) // to or from one place for all, it does not matter who draws what
	pairs := map[[2]string]int{}                  // buckets by region before and after
	if redrawn {
		after := count(now)
		for a, n := range count(was) {
			for b, m := range after {
				pairs[[2]string{a, b}] = (n*m + policy.Whole/2) / policy.Whole // independent draws
			}
		}
	} else {
		for bucket := range was {
			if was[bucket] != now[bucket] {
				pairs[[2]string{was[bucket], now[bucket]}]++
			}
		}
	}
	var moves []BucketMove
	for pair, buckets := range pairs {
		if pair[0] != pair[1] && buckets > 0 {
			moves = append(moves, BucketMove{App: next.app, Policy: next.policy, From: pair[0], To: pair[1], Buckets: buckets, Redrawn: redrawn})
		}
	}
	slices.SortFunc(moves, func(a, b BucketMove) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return moves
}

// regions is where each bucket goes, empty for the next policy. What a document
// that was never checked gives beyond the last bucket is left out.
func (d draws) regions() []string {
	out := make([]string, policy.Whole)
	fill := func(from, to int, region string) {
		for b := max(0, from); b < min(to, policy.Whole); b++ {
			out[b] = region
		}
	}
	parts := d.then.Split
	if d.then.Share != nil {
		parts = []policy.Share{*d.then.Share}
	}
	fill(0, policy.Whole, d.then.Region)
	next := 0
	for _, part := range parts {
		if part.Of != nil {
			fill(next, next+*part.Of, part.Region)
			next += *part.Of
		}
		for _, b := range part.Buckets {
			fill(b[0], b[1]+1, part.Region)
		}
	}
	return out
}

// varies says whether it depends on the bucket where a request goes.
func varies(regions []string) bool {
	return slices.ContainsFunc(regions, func(r string) bool { return r != regions[0] })
}

func count(regions []string) map[string]int {
	n := map[string]int{}
	for _, r := range regions {
		n[r]++
	}
	return n
}
