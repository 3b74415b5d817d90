package actions

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// Emergency is one action on one or more targets: one release, one undo.
type Emergency struct {
	Action  string   `json:"action" enum:"swap,region_state,cluster_state,abort_gray,freeze"`
	Targets []Target `json:"targets" minItems:"1" maxItems:"64"`
}

// Target is what an emergency acts on and what its author saw there. Each action
// has its own fields.
type Target struct {
	App     string `json:"app,omitempty" doc:"its key; cluster_state without one: every app that has the cluster"`
	Region  string `json:"region,omitempty" doc:"swap, region_state, cluster_state"`
	Cluster string `json:"cluster,omitempty" doc:"cluster_state: all its endpoints in the region"`
	Policy  string `json:"policy,omitempty" doc:"abort_gray: the policy whose share goes to 0"`
	Expect  string `json:"expect" doc:"what the screen shows: for a swap the endpoint that serves, for a gray its share, else the state"`
	From    string `json:"from,omitempty" doc:"swap: the endpoint that shall stand by"`
	To      string `json:"to,omitempty" doc:"swap: the endpoint that shall serve"`
	State   string `json:"state,omitempty" enum:"active,draining,off,standby,open,frozen" doc:"to set: a region active, draining or off; a cluster standby, off, or active, which is as the document says; a freeze frozen or open"`
	Hard    bool   `json:"hard,omitempty" doc:"abort_gray: void the sessions that the policy gave, too"`
}

// needs are the fields that a target of an action must have, beside expect.
func (e Emergency) needs() (fields []string, known bool) {
	fields, known = map[string][]string{
		SwapEndpoints:   {"app", "region", "from", "to"},
		SetRegionState:  {"app", "region", "state"},
		SetClusterState: {"region", "cluster", "state"},
		AbortGray:       {"app", "policy"},
		Freeze:          {"state"},
	}[e.Action]
	return fields, known
}

func (t Target) has(field string) bool {
	return map[string]string{"app": t.App, "region": t.Region, "cluster": t.Cluster, "policy": t.Policy,
		"from": t.From, "to": t.To, "state": t.State}[field] != ""
}

func (e Emergency) check() error {
	var p fault.Problems
	fields, known := e.needs()
	if !known {
		p.Addf("action", "must be %s, %s, %s, %s or %s", SwapEndpoints, SetRegionState, SetClusterState, AbortGray, Freeze)
	}
	if len(e.Targets) == 0 || len(e.Targets) > maxTargets {
		p.Addf("targets", "must be 1 to %d", maxTargets)
	}
	for i, t := range e.Targets {
		if t.Expect == "" {
			p.Addf(fmt.Sprintf("targets[%d].expect", i), "is missing: say what the screen shows")
		}
		for _, field := range fields {
			if !t.has(field) {
				p.Addf(fmt.Sprintf("targets[%d].%s", i, field), "is missing: %s needs %s", e.Action, strings.Join(fields, ", "))
			}
		}
	}
	return p.Err("bad_emergency", "the emergency is incomplete; nothing was changed")
}

// on is the operational state after the action. The error is the first refusal;
// its problems are those of all targets.
func (e Emergency) on(m *release.Manifest) (release.Operational, error) {
	ops := m.Operational
	var refused *fault.Error
	for i, t := range e.Targets {
		next, err := t.on(e.Action, &m.Document, ops)
		if err == nil {
			ops = next
			continue
		}
		why, ok := errors.AsType[*fault.Error](err)
		if !ok {
			return ops, fmt.Errorf("target %d: %w", i, err)
		}
		if refused == nil {
			refused = why
		}
		detail, hint := why.Texts()
		refused.Problems = append(refused.Problems, fault.ProblemOf(fmt.Sprintf("targets[%d]", i), fault.Textf("%s: %s", t.name(), detail), hint))
	}
	if refused != nil {
		return ops, refused
	}
	return ops, nil
}

func (t Target) on(action string, doc *release.Document, ops release.Operational) (release.Operational, error) {
	switch action {
	case SwapEndpoints:
		return release.Swap{App: t.App, Region: t.Region, From: t.From, To: t.To, Expect: t.Expect}.On(doc, ops)
	case SetClusterState:
		return release.SetCluster{App: t.App, Region: t.Region, Cluster: t.Cluster,
			Expect: domain.EndpointState(t.Expect), State: domain.EndpointState(t.State)}.On(doc, ops)
	case AbortGray:
		return release.AbortGray{App: t.App, Policy: t.Policy, Expect: t.Expect, Hard: t.Hard}.On(doc, ops)
	case Freeze:
		return release.Freeze{Expect: t.Expect, State: t.State}.On(ops)
	default:
		return release.SetRegion{App: t.App, Region: t.Region, Expect: domain.RegionState(t.Expect), State: domain.RegionState(t.State)}.On(doc, ops)
	}
}

// undo is the emergency that sets everything back, nil if there is none: a gray is
// started again by its plan alone, and a cluster goes back to what the document says.
func (e Emergency) undo(c change) *Emergency {
	back := Emergency{Action: e.Action}
	for _, t := range slices.Backward(e.Targets) {
		switch e.Action {
		case SwapEndpoints:
			t.From, t.To, t.Expect = t.To, t.From, t.To
		case AbortGray:
			return nil
		default:
			t.State, t.Expect = t.Expect, t.State
		}
		back.Targets = append(back.Targets, t)
	}
	after := *c.from
	after.Operational = c.ops
	ops, err := back.on(&after)
	if err != nil || !sameServing(c.before(), change{c.from, ops}.after()) {
		return nil
	}
	return &back
}

// sameServing says whether regions and endpoints are in the same states.
func sameServing(a, b []release.App) bool {
	return slices.EqualFunc(a, b, func(x, y release.App) bool {
		return slices.EqualFunc(x.Regions, y.Regions, func(p, q domain.Region) bool {
			return p.Condition() == q.Condition() && slices.Equal(serving(&p), serving(&q))
		})
	})
}

// name is what the target is called: mobile/sh, mobile/gray-10-2, sh/k1.
func (t Target) name() string {
	var parts []string
	for _, part := range []string{t.App, t.Region, t.Cluster, t.Policy} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "all changes"
	}
	return strings.Join(parts, "/")
}

// target is what the audit trail shows: mobile/sh, corporate/sh.
func (e Emergency) target() string {
	var names []string
	for _, t := range e.Targets {
		names = append(names, t.name())
	}
	if text := strings.Join(names, ", "); len(text) <= 250 {
		return text
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
