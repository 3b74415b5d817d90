package actions

import (
	"context"
	"fmt"
	"slices"

	"dispatch.example/dispatch/export"
	"dispatch.example/dispatch/internal/fault"
)

// ExportEnvoy writes the rules that callers of the region follow, with the instances
// of this moment, as configuration of Envoy. Empty arguments narrow nothing.
func (a *Actions) ExportEnvoy(ctx context.Context, _ Actor, service, env, region string) (export.Export, error) {
	h, err := a.rulesHead(ctx)
	if err != nil {
		return export.Export{}, err
	}
	if region != "" && region != a.Region {
		return export.Export{}, fault.New(fault.Conflict, "other_region", "this control node keeps the rules of %s, not of %s", a.Region, region).
			WithHint("ask a control node of " + region + ": dispatchctl --server URL")
	}
	v, err := a.view()
	if err != nil {
		return export.Export{}, err
	}
	m := export.Mesh{Region: a.Region, Number: h.number, Set: h.set().Effective(), Services: v.Services, Service: service, Env: env}
	out, err := export.Envoy(m)
	if err != nil {
		return export.Export{}, fmt.Errorf("export rules of %s: %w", a.Region, err)
	}
	if len(out.Files) == 1 { // clusters alone
		return export.Export{}, fault.New(fault.NotFound, "no_rule", "callers of %s follow no rule like that", a.Region).
			WithHint("dispatchctl rules show lists all of them; without a rule calls go to the caller's own cluster, which is another for each Envoy")
	}
	if partial := away(v); len(partial) > 0 {
		for _, why := range named(partial) {
			out.Notes = slices.Insert(out.Notes, 0, "a registry is away, and its last lists are in the clusters: "+why)
		}
	}
	return out, nil
}
