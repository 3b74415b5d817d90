package release

import (
	"slices"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
)

// Swap exchanges the states of two endpoints of a region: To stood by and now
// serves with the weight of From, which served and now stands by. Expect is the
// endpoint that the screen showed as serving, From if empty.
type Swap struct {
	App    string `json:"app"`
	Region string `json:"region"`
	From   string `json:"from"`
	To     string `json:"to"`
	Expect string `json:"expect,omitempty"`
}

// On is the operational state after the swap. Its errors have the codes
// unknown_app, unknown_region, unknown_endpoint, expect_mismatch and endpoint_off.
func (s Swap) On(doc *Document, ops Operational) (Operational, error) {
	_, r, err := target(doc, ops, s.App, s.Region)
	if err != nil {
		return ops, err
	}
	from, to := endpointOf(r, s.From), endpointOf(r, s.To)
	if from == nil || to == nil {
		unknown := s.From
		if from != nil {
			unknown = s.To
		}
		every := endpointKeys(r, func(*domain.Endpoint) bool { return true })
		return ops, fault.New(fault.NotFound, "unknown_endpoint", "region %s has no endpoint %s", s.Region, quote(unknown)).
			Hintf("known: %s", strings.Join(every, ", "))
	}
	expected := endpointOf(r, s.Expect)
	switch serving := endpointKeys(r, (*domain.Endpoint).Serves); {
	case !from.Serves(), s.Expect != "" && (expected == nil || !expected.Serves()):
		return ops, mismatch(strings.Join(serving, ", "), "the serving endpoints of %s are now: %s", s.Region, strings.Join(serving, ", "))
	case to.Serves():
		return ops, mismatch(strings.Join(serving, ", "), "endpoint %s already serves %s", s.To, s.Region)
	case to.State == domain.Closed:
		return ops, fault.New(fault.Invalid, "endpoint_off", "endpoint %s of %s is off and cannot be swapped in", s.To, s.Region).
			WithHint("make it standby in the document first, or swap in another")
	}
	weight := weightOf(from)
	return ops.with(s.App, func(state *AppState) {
		state.Endpoints[endpointKey(s.Region, s.From)] = EndpointOps{
			State: domain.Standby, Weight: state.Endpoints[endpointKey(s.Region, s.From)].Weight}
		state.Endpoints[endpointKey(s.Region, s.To)] = EndpointOps{State: domain.Serving, Weight: &weight}
	}), nil
}

// SetRegion gives a region another state. Expect is the state that the screen showed.
type SetRegion struct {
	App    string             `json:"app"`
	Region string             `json:"region"`
	Expect domain.RegionState `json:"expect"`
	State  domain.RegionState `json:"state"`
}

// On is the operational state after the change; off raises the region's epoch,
// which voids its sessions for good. Its errors have the codes unknown_app,
// unknown_region, bad_state, expect_mismatch, no_change, no_serving_endpoint and
// last_region: the rule that no lane may leave an app without a usable region.
func (s SetRegion) On(doc *Document, ops Operational) (Operational, error) {
	regions, r, err := target(doc, ops, s.App, s.Region)
	if err != nil {
		return ops, err
	}
	states := []domain.RegionState{domain.Active, domain.Draining, domain.Off}
	switch {
	case !slices.Contains(states, s.State):
		return ops, fault.New(fault.Invalid, "bad_state", "%s is no state of a region", quote(string(s.State))).
			WithHint("choose active, draining or off")
	case s.Expect != r.Condition():
		return ops, mismatch(string(r.Condition()), "region %s is now %s, not %s", s.Region, fault.Word(string(r.Condition())), quote(string(s.Expect)))
	case s.State == r.Condition():
		return ops, fault.New(fault.Invalid, "no_change", "region %s is already %s", s.Region, fault.Word(string(s.State)))
	case s.State == domain.Active && !r.Serves():
		return ops, fault.New(fault.Invalid, "no_serving_endpoint", "region %s has no serving endpoint", s.Region).
			WithHint("swap one in first")
	}
	r.State = s.State
	if s.State != domain.Active && !usable(regions) {
		return ops, fault.New(fault.Invalid, "last_region", "rule last_region: %s is the last usable region of %s", s.Region, s.App).
			WithHint("make another region active first")
	}
	return ops.with(s.App, func(state *AppState) {
		region := state.Regions[s.Region]
		region.State = s.State
		if s.State == domain.Off {
			region.Epoch++
		}
		state.Regions[s.Region] = region
	}), nil
}

// SetCluster gives all endpoints of a cluster of a region another state: standby,
// off, or active, which gives each back the state that the document says. App is
// empty for every app with endpoints there. Expect is what the screen showed: the
// best state that an endpoint of the cluster has.
type SetCluster struct {
	App     string               `json:"app,omitempty"`
	Region  string               `json:"region"`
	Cluster string               `json:"cluster"`
	Expect  domain.EndpointState `json:"expect"`
	State   domain.EndpointState `json:"state"`
}

// On is the operational state after the change. Its errors have the codes
// unknown_app, unknown_region, unknown_cluster, bad_state, expect_mismatch,
// no_change, region_empty and last_region: another endpoint must serve what this
// cluster leaves.
func (s SetCluster) On(doc *Document, ops Operational) (Operational, error) {
	if !slices.Contains([]domain.EndpointState{domain.Serving, domain.Standby, domain.Closed}, s.State) {
		return ops, fault.New(fault.Invalid, "bad_state", "%s is no state of a cluster", quote(string(s.State))).
			WithHint("choose active, standby or off")
	}
	if s.App != "" {
		if _, _, err := target(doc, ops, s.App, s.Region); err != nil {
			return ops, err
		}
	}
	next, found := ops, false
	for i := range doc.Apps {
		app := &doc.Apps[i]
		_, r, err := target(doc, ops, app.Key, s.Region)
		if s.App != "" && s.App != app.Key || err != nil || s.condition(r) == "" {
			continue
		}
		found = true
		if next, err = s.onApp(app, next, r); err != nil {
			return ops, err
		}
	}
	switch {
	case !found:
		return ops, fault.New(fault.NotFound, "unknown_cluster", "no endpoint of region %s stands in a cluster %s", quote(s.Region), quote(s.Cluster)).
			WithHint("GET /api/v1/apps shows the clusters of endpoints")
	case sameEndpoints(doc, ops, next):
		return ops, fault.New(fault.Invalid, "no_change", "cluster %s of %s is that already", s.Cluster, s.Region)
	}
	return next, nil
}

// onApp changes the endpoints of one app; r is its region before.
func (s SetCluster) onApp(app *App, ops Operational, r *domain.Region) (Operational, error) {
	if now := s.condition(r); now != s.Expect {
		return ops, mismatch(string(now), "cluster %s of %s/%s is now %s, not %s", s.Cluster, app.Key, s.Region, fault.Word(string(now)), quote(string(s.Expect)))
	}
	next := ops.with(app.Key, func(state *AppState) {
		for _, e := range app.region(s.Region).Endpoints {
			if e.Cluster != s.Cluster {
				continue
			}
			key := endpointKey(s.Region, e.Key)
			held := EndpointOps{State: s.State, Weight: state.Endpoints[key].Weight}
			if s.State == domain.Serving {
				held.State = ""
			}
			if state.Endpoints[key] = held; held == (EndpointOps{}) {
				delete(state.Endpoints, key)
			}
		}
	})
	after := applyRegions(app.Regions, next.Apps[app.Key])
	left := (&App{Regions: after}).region(s.Region)
	switch {
	case left.Condition() == domain.Active && !left.Serves():
		return ops, fault.New(fault.Invalid, "region_empty", "rule region_empty: no endpoint of %s/%s would serve", app.Key, s.Region).
			WithHint("swap in an endpoint of another cluster first, or turn the region off")
	case !slices.ContainsFunc(after, func(r domain.Region) bool { return r.Condition() != domain.Off && r.Serves() }):
		return ops, fault.New(fault.Invalid, "last_region", "rule last_region: %s would have no region that serves", app.Key).
			WithHint("make another region active first")
	}
	return next, nil
}

// condition is the best state that an endpoint of the cluster has; empty: there is none.
func (s SetCluster) condition(r *domain.Region) domain.EndpointState {
	var best domain.EndpointState
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		switch state := stateOf(e); {
		case e.Cluster != s.Cluster:
		case best == "", state == domain.Serving, state == domain.Standby && best == domain.Closed:
			best = state
		}
	}
	return best
}

// sameEndpoints says whether the endpoints of all apps are in the same states.
func sameEndpoints(doc *Document, a, b Operational) bool {
	for i := range doc.Apps {
		app := &doc.Apps[i]
		before, after := applyRegions(app.Regions, a.Apps[app.Key]), applyRegions(app.Regions, b.Apps[app.Key])
		for j := range before {
			if !slices.EqualFunc(before[j].Endpoints, after[j].Endpoints, func(x, y domain.Endpoint) bool { return stateOf(&x) == stateOf(&y) }) {
				return false
			}
		}
	}
	return true
}

// The values of Freeze.
const (
	Open   = "open"
	Frozen = "frozen"
)

// Freeze stops normal changes and automation, or lets them go on. Emergencies and
// relive never stop.
type Freeze struct {
	Expect string `json:"expect"`
	State  string `json:"state"`
}

// On is the operational state after the freeze. Its errors have the codes
// bad_state, expect_mismatch and no_change.
func (f Freeze) On(ops Operational) (Operational, error) {
	now := Open
	if ops.Frozen {
		now = Frozen
	}
	switch {
	case f.State != Open && f.State != Frozen:
		return ops, fault.New(fault.Invalid, "bad_state", "%s is no state of a freeze", quote(f.State)).WithHint("choose frozen or open")
	case f.Expect != now:
		return ops, mismatch(now, "changes are now %s, not %s", fault.Word(now), quote(f.Expect))
	case f.State == now:
		return ops, fault.New(fault.Invalid, "no_change", "changes are %s already", fault.Word(now))
	}
	next := ops.clone()
	next.Frozen = f.State == Frozen
	return next, nil
}

// On is the operational state with the action in force, whatever it expected when
// it was made: what is so already stays. Its errors are those of Swap and SetRegion.
func (a OverrideAction) On(doc *Document, ops Operational) (Operational, error) {
	return a.on(doc, ops, false)
}

// target is a copy of the app's regions as they serve, and the one that an action names.
func target(doc *Document, ops Operational, app, region string) ([]domain.Region, *domain.Region, error) {
	a := doc.app(app)
	if a == nil {
		return nil, nil, unknownApp(app)
	}
	served := App{Regions: applyRegions(a.Regions, ops.Apps[app])}
	r := served.region(region)
	if r == nil {
		return nil, nil, fault.New(fault.NotFound, "unknown_region", "app %s has no region %s", app, quote(region))
	}
	return served.Regions, r, nil
}

// with is a copy of o in which change has changed one app's state.
func (o Operational) with(app string, change func(*AppState)) Operational {
	next := o.clone()
	state := next.Apps[app].clone()
	change(&state)
	next.Apps[app] = state
	return next
}

func unknownApp(key string) error {
	return fault.New(fault.NotFound, "unknown_app", "no app has the key %s", quote(key)).WithHint("GET /api/v1/apps lists them")
}

// mismatch says that somebody was faster. Data is the current value.
func mismatch(current, format string, args ...any) error {
	err := fault.New(fault.Conflict, "expect_mismatch", format, args...).
		WithHint("look again, then repeat with the current value")
	err.Data = map[string]string{"current": current}
	return err
}

func endpointKeys(r *domain.Region, which func(*domain.Endpoint) bool) []string {
	var keys []string
	for i := range r.Endpoints {
		if which(&r.Endpoints[i]) {
			keys = append(keys, r.Endpoints[i].Key)
		}
	}
	return keys
}
