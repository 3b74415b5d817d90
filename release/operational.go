package release

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

// Apply is the document's apps as they serve, in its order: the operational
// state laid over region states, endpoints and gray shares. Neither argument changes.
func Apply(doc *Document, ops Operational) []App {
	apps := slices.Clone(doc.Apps)
	for i := range apps {
		state := ops.Apps[apps[i].Key]
		apps[i].Regions = applyRegions(apps[i].Regions, state)
		apps[i].Policies = applyPolicies(apps[i].Policies, state)
	}
	return apps
}

func applyRegions(written []domain.Region, state AppState) []domain.Region {
	regions := slices.Clone(written)
	for i := range regions {
		r := &regions[i]
		r.State = cmp.Or(state.Regions[r.Key].State, r.State)
		r.Epoch = state.Regions[r.Key].Epoch
		r.Endpoints = slices.Clone(r.Endpoints)
		for j := range r.Endpoints {
			e := &r.Endpoints[j]
			ops := state.Endpoints[endpointKey(r.Key, e.Key)]
			e.State = cmp.Or(ops.State, e.State)
			e.Weight = cmp.Or(ops.Weight, e.Weight)
		}
	}
	return regions
}

func applyPolicies(written []policy.Policy, state AppState) []policy.Policy {
	policies := slices.Clone(written)
	for i := range policies {
		p := &policies[i]
		if position := state.Policies[p.Key].Share; position != nil && written[i].Then.Share != nil {
			p.Then.Share = &policy.Share{Region: p.Then.Share.Region, Of: position}
		}
	}
	return policies
}

// RulesOf is what policy.Compile needs of an app that Apply gave.
func RulesOf(app *App, ops Operational) policy.Rules {
	state := ops.Apps[app.Key]
	epochs := make(map[string]uint32, len(state.Policies))
	for key, p := range state.Policies {
		epochs[key] = p.Epoch
	}
	salts := maps.Clone(state.Salts)
	if salts == nil {
		salts = map[string]string{}
	}
	maps.Copy(salts, app.Salts)
	return policy.Rules{App: app.Key, BucketBy: app.BucketBy, Regions: app.Regions, Origins: app.Origins,
		Policies: app.Policies, Otherwise: app.Otherwise, Epochs: epochs, Salts: salts}
}

func endpointKey(region, endpoint string) string { return region + "/" + endpoint }

// salt is one of the salts of an app: what it is called in AppState.Salts, what
// the document states, and what it is when nobody ever said anything.
type salt struct {
	key       string
	path      string // in the app, where it can be stated
	stated    string
	byDefault string
	draws     bool // a change would move people
}

// salts are all salts of an app, none for nil.
func (a *App) salts() []salt {
	if a == nil {
		return nil
	}
	var all []salt
	for i := range a.Policies {
		p := &a.Policies[i]
		all = append(all, salt{key: p.Key, path: fmt.Sprintf("policies[%d].salt", i), stated: p.Salt,
			byDefault: defaultSalt(a.Key, p.Key), draws: p.Then.Share != nil || p.Then.Split != nil})
	}
	add := func(key string, draws bool) {
		all = append(all, salt{key: key, path: "salts." + key, stated: a.Salts[key],
			byDefault: defaultSalt(a.Key, key), draws: draws})
	}
	add(saltOtherwise, a.Otherwise.Split != nil)
	for i := range a.Regions {
		r := &a.Regions[i]
		add(saltFailover+r.Key, len(r.Failover) > 1)
		add(saltEndpoint+r.Key, len(r.Endpoints) > 1)
	}
	return all
}

// The keys of salts that no policy carries; a region's key follows the last two.
const (
	saltOtherwise = "otherwise"
	saltFailover  = "failover/"
	saltEndpoint  = "endpoint/"
)

// defaultSalt is the salt that policy gives what has none: APP/POLICY,
// APP/otherwise, failover/APP/REGION, endpoint/APP/REGION.
func defaultSalt(app, key string) string {
	if kind, region, ok := strings.Cut(key, "/"); ok {
		return kind + "/" + app + "/" + region
	}
	return app + "/" + key
}

// in is the salt in use: stated, else stored, else the default.
func (s salt) in(stored map[string]string) string {
	return cmp.Or(s.stated, stored[s.key], s.byDefault)
}

func (d *Document) app(key string) *App {
	if d == nil {
		return nil
	}
	i := slices.IndexFunc(d.Apps, func(a App) bool { return a.Key == key })
	if i < 0 {
		return nil
	}
	return &d.Apps[i]
}

func (a *App) region(key string) *domain.Region {
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Regions, func(r domain.Region) bool { return r.Key == key })
	if i < 0 {
		return nil
	}
	return &a.Regions[i]
}

func (a *App) policy(key string) *policy.Policy {
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Policies, func(p policy.Policy) bool { return p.Key == key })
	if i < 0 {
		return nil
	}
	return &a.Policies[i]
}

func endpointOf(r *domain.Region, key string) *domain.Endpoint {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Endpoints, func(e domain.Endpoint) bool { return e.Key == key })
	if i < 0 {
		return nil
	}
	return &r.Endpoints[i]
}

// usable says whether some region takes new sessions.
func usable(regions []domain.Region) bool {
	return slices.ContainsFunc(regions, func(r domain.Region) bool { return r.Condition() == domain.Active && r.Serves() })
}

// clone is a copy that shares no map with o.
func (o Operational) clone() Operational {
	out := Operational{Apps: make(map[string]AppState, len(o.Apps)), Frozen: o.Frozen}
	for key, state := range o.Apps {
		out.Apps[key] = state.clone()
	}
	return out
}

func (s AppState) clone() AppState {
	return AppState{Regions: copied(s.Regions), Endpoints: copied(s.Endpoints), Policies: copied(s.Policies), Salts: copied(s.Salts)}
}

// copied is a copy to write into, even of a nil map.
func copied[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	maps.Copy(out, m)
	return out
}

// Held is the refusal of a document that contradicts the operational state, with
// what Carry found; nil when that is nothing.
func Held(held []fault.Problem) error {
	if len(held) == 0 {
		return nil
	}
	err := fault.New(fault.Conflict, "held", "the document contradicts what was changed by hand").
		WithHint("write the values in use into the document, or publish with release_holds=true to end them")
	err.Problems = held
	return err
}
