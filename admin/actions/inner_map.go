package actions

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
)

// CallMap says who may call whom: for each service and environment the rule that
// counts and the parts of its versions.
type CallMap struct {
	Region  string            `json:"region"`
	Number  uint64            `json:"number" doc:"release of the rules; 0: there are none"`
	Direct  bool              `json:"direct" doc:"the kill switch is thrown: rules do not count"`
	Partial map[string]string `json:"partial,omitempty" doc:"registries that are away, and why"`
	Cells   []MapCell         `json:"cells" doc:"by service, then env, then cluster"`
	Calls   []directory.Call  `json:"calls" doc:"who asked for whose instances"`
}

// MapCell is a service in one environment, as callers in one cluster reach it. A rule
// that counts names the cluster, so there is one cell; without one there is a cell for
// each cluster that has instances.
type MapCell struct {
	Service  string       `json:"service"`
	Env      string       `json:"env"`
	Cluster  string       `json:"cluster"`
	Rule     *rules.Rule  `json:"rule,omitempty" doc:"none: callers reach all versions in their own cluster and region"`
	Gray     *rules.Gray  `json:"gray,omitempty" doc:"what a new version takes of the rule meanwhile"`
	Shadowed []string     `json:"shadowed,omitempty"`
	Group    string       `json:"group,omitempty" doc:"prefix of the group that owns the rule"`
	Key      bool         `json:"key" doc:"its rules need a second person"`
	Counts   route.Counts `json:"counts"`
	Versions []MapVersion `json:"versions"`
	Problem  string       `json:"problem,omitempty" doc:"why calls fail now"`
}

// MapVersion is a version's part of a cell.
type MapVersion struct {
	Version   string  `json:"version"`
	Share     float64 `json:"share" doc:"of 1, of new calls now"`
	Instances int     `json:"instances"`
	Serving   int     `json:"serving" doc:"with a weight above 0"`
}

// CallMap draws the map of the region.
func (a *Actions) CallMap(ctx context.Context, _ Actor) (CallMap, error) {
	v, err := a.view()
	if err != nil {
		return CallMap{}, err
	}
	h, err := a.rulesHead(ctx)
	if err != nil {
		return CallMap{}, err
	}
	m := CallMap{Region: v.Region, Number: h.number, Direct: h.set().Direct, Partial: away(v), Cells: []MapCell{}, Calls: orNone(v.Calls)}
	for _, name := range h.services(v) {
		m.Cells = append(m.Cells, h.cells(v.Region, name, instancesOf(v, name))...)
	}
	return m, nil
}

// services are those of the directory and of the rules, in order.
func (h rulesHead) services(v *directory.View) []string {
	names := map[string]bool{}
	for _, s := range v.Services {
		names[s.Name] = true
	}
	for _, r := range h.set().Rules {
		names[r.Service] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// rulesOf are all rules of one service, as in the set.
func rulesOf(set rules.Set, service string) (found []rules.Rule) {
	for _, r := range set.Rules {
		if r.Service == service {
			found = append(found, r)
		}
	}
	return found
}

func instancesOf(v *directory.View, service string) []directory.Instance {
	for _, s := range v.Services {
		if s.Name == service {
			return s.Instances
		}
	}
	return nil
}

// cells are those of one service, by env and cluster.
func (h rulesHead) cells(region, service string, instances []directory.Instance) (cells []MapCell) {
	set := h.set()
	in := route.Input{Service: service, Rules: rulesOf(set.Effective(), service), Number: h.number, Direct: set.Direct}
	in.Instances, in.Scale = candidates(instances)
	for _, env := range envs(in) {
		found := set.For(service, env)
		for _, cluster := range clusters(in, env, found) {
			in.Home = discovery.Coordinates{Cluster: cluster, Region: region, Env: env}
			cell := MapCell{Service: service, Env: env, Cluster: cluster}
			if group, ok := set.Owner(service); ok {
				cell.Group, cell.Key = group.Prefix, slices.Contains(group.Key, service)
			}
			if g, runs := set.Gray(service, env); runs {
				cell.Gray = &g
			}
			for i := range found {
				if i == 0 {
					cell.Rule = &found[0]
				} else {
					cell.Shadowed = append(cell.Shadowed, found[i].ID())
				}
			}
			cell.fill(route.Compile(in).Explain(route.Query{Env: env}, 0))
			cells = append(cells, cell)
		}
	}
	return cells
}

// candidates are instances as callers compile them, with what all of them scale down.
func candidates(list []directory.Instance) ([]discovery.Instance, map[string]route.Scale) {
	instances, scale := make([]discovery.Instance, len(list)), map[string]route.Scale{}
	for i, one := range list {
		instances[i] = one.Instance
		if one.Scale != nil {
			scale[one.ID] = *one.Scale
		}
	}
	return instances, scale
}

// envs are those of a service's instances and rules, in order.
func envs(in route.Input) []string {
	names := map[string]bool{}
	for _, i := range in.Instances {
		names[i.Env] = true
	}
	for _, r := range in.Rules {
		names[r.Selector.Env] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// clusters are whose callers reach a service in the env differently: that of the rule
// if one counts, else each that has instances.
func clusters(in route.Input, env string, found []rules.Rule) []string {
	if len(found) > 0 && !in.Direct {
		return []string{found[0].Selector.Cluster}
	}
	names := map[string]bool{}
	for _, i := range in.Instances {
		if i.Env == env {
			names[i.Cluster] = true
		}
	}
	if len(names) == 0 {
		names[found[0].Selector.Cluster] = true // no instance: the env is the rule's
	}
	return slices.Sorted(maps.Keys(names))
}

// fill says what a caller finds, as the table that it compiles explains it.
func (c *MapCell) fill(ex route.Explanation) {
	c.Problem, c.Versions = ex.Problem, []MapVersion{}
	if len(ex.Steps) > 0 {
		c.Counts = ex.Steps[len(ex.Steps)-1].Counts
	}
	for _, side := range ex.Sides {
		c.Versions = append(c.Versions, MapVersion{Version: side.Version, Share: side.Effective, Instances: side.Instances, Serving: side.Serving})
	}
	slices.SortFunc(c.Versions, func(a, b MapVersion) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.Version, b.Version))
	})
}
