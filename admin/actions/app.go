package actions

import (
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// AppView is one app of the release in use, operational state applied.
type AppView struct {
	Key      string       `json:"key"`
	Name     string       `json:"name,omitempty"`
	Default  bool         `json:"default,omitempty"`
	Fallback string       `json:"fallback"`
	Regions  []RegionView `json:"regions"`
	Policies []string     `json:"policies" doc:"keys in their order"`
	Grays    []GrayView   `json:"grays" doc:"policies that take a share"`
	Frozen   bool         `json:"frozen,omitempty" doc:"normal changes and automation are stopped, of all apps"`
}

// GrayView is one policy's share with what an abort of it must expect.
type GrayView struct {
	Policy string `json:"policy"`
	Region string `json:"region"`
	Share  string `json:"share" doc:"of 10,000" example:"500"`
}

// RegionView is one region with what an emergency on it must expect.
type RegionView struct {
	Key       string             `json:"key"`
	Name      string             `json:"name,omitempty"`
	State     domain.RegionState `json:"state" enum:"active,draining,off"`
	Epoch     uint32             `json:"epoch"`
	Capacity  int                `json:"capacity"`
	Failover  []string           `json:"failover,omitempty"`
	Endpoints []domain.Endpoint  `json:"endpoints"`
}

// Apps are the apps of the release in use and its number; none and 0 before the first.
func (a *Actions) Apps() (number uint64, views []AppView) {
	views = []AppView{}
	cur := a.Keeper.Current()
	if cur == nil {
		return 0, views
	}
	for i := range cur.Manifest.Document.Apps {
		views = append(views, viewOf(cur, cur.Manifest.Document.Apps[i].Key))
	}
	return cur.Number, views
}

// App is one app of the release in use.
func (a *Actions) App(key string) (AppView, error) {
	cur := a.Keeper.Current()
	if cur == nil {
		return AppView{}, noRelease()
	}
	if cur.Apps[key] == nil {
		return AppView{}, fault.New(fault.NotFound, "unknown_app", "no app has the key %q", key).WithHint("GET /api/v1/apps lists them")
	}
	return viewOf(cur, key), nil
}

func viewOf(cur *release.Snapshot, key string) AppView {
	s := cur.Apps[key]
	v := AppView{Key: s.App.Key, Name: s.App.Name, Default: s.App.Default, Fallback: s.App.Fallback, Regions: []RegionView{},
		Policies: []string{}, Grays: []GrayView{}, Frozen: cur.Manifest.Operational.Frozen}
	for i := range s.App.Regions {
		r := &s.App.Regions[i]
		v.Regions = append(v.Regions, RegionView{Key: r.Key, Name: r.Name, State: r.Condition(), Epoch: r.Epoch,
			Capacity: r.Capacity, Failover: r.Failover, Endpoints: endpointsOf(r)})
	}
	for i := range s.App.Policies {
		p := &s.App.Policies[i]
		v.Policies = append(v.Policies, p.Key)
		if share := p.Then.Share; share != nil {
			v.Grays = append(v.Grays, GrayView{Policy: p.Key, Region: share.Region, Share: release.Position(share)})
		}
	}
	return v
}

// endpointsOf shows the states that the document leaves out.
func endpointsOf(r *domain.Region) []domain.Endpoint {
	endpoints := make([]domain.Endpoint, len(r.Endpoints))
	for i, e := range r.Endpoints {
		if e.Serves() {
			e.State = domain.Serving
		}
		endpoints[i] = e
	}
	return endpoints
}
