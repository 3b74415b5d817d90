package release

import (
	"fmt"
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
			WithHint("known: " + strings.Join(every, ", "))
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
		return ops, mismatch(string(r.Condition()), "region %s is now %s, not %s", s.Region, r.Condition(), quote(string(s.Expect)))
	case s.State == r.Condition():
		return ops, fault.New(fault.Invalid, "no_change", "region %s is already %s", s.Region, s.State)
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

// target is a copy of the app's regions as they serve, and the one that an action names.
func target(doc *Document, ops Operational, app, region string) ([]domain.Region, *domain.Region, error) {
	a := doc.app(app)
	if a == nil {
		return nil, nil, fault.New(fault.NotFound, "unknown_app", "no app has the key %s", quote(app))
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

// mismatch says that somebody was faster. Data is the current value.
func mismatch(current, format string, args ...any) error {
	err := fault.New(fault.Conflict, "expect_mismatch", "%s", fmt.Sprintf(format, args...)).
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
