package caller

import (
	"context"

	"dispatch.example/dispatch/discovery/route"
)

// Members of W3C baggage that carry a lane from hop to hop.
const (
	BaggageEnv    = "env_id"
	BaggageBase   = "base_env"
	BaggagePerson = "dispatch_person"
)

type trafficKey struct{}

// traffic is what a context says about its calls: one value, because each pick
// looks for it.
type traffic struct {
	lane route.Query
	keep bool
}

// trafficOf is nil where the context says nothing.
func trafficOf(ctx context.Context) *traffic {
	t, _ := ctx.Value(trafficKey{}).(*traffic)
	return t
}

// WithLane returns a context whose calls go through the lane.
func WithLane(ctx context.Context, lane route.Query) context.Context {
	before := trafficOf(ctx)
	return context.WithValue(ctx, trafficKey{}, &traffic{lane: lane, keep: before != nil && before.keep})
}

// WithKey returns a context whose calls with this key keep to one version, as a rule's
// weights have it. It holds for calls from here: a key does not travel to the next hop.
func WithKey(ctx context.Context, key string) context.Context {
	lane := LaneOf(ctx)
	lane.Key = key
	return WithLane(ctx, lane)
}

// LaneOf is the lane that the traffic carries; zero if none.
func LaneOf(ctx context.Context) route.Query {
	if t := trafficOf(ctx); t != nil {
		return t.lane
	}
	return route.Query{}
}

// Keep returns a context whose picks are recorded, all of them.
func Keep(ctx context.Context) context.Context {
	return context.WithValue(ctx, trafficKey{}, &traffic{lane: LaneOf(ctx), keep: true})
}

// Lane is what counts for a call, and what it carries on: the environments of the
// traffic as a pair, else those of the process; likewise the person. The key counts for this hop.
func (c *Caller) Lane(ctx context.Context) route.Query {
	own, carried := c.opt.Lane, LaneOf(ctx)
	if carried.Env != "" {
		own.Env, own.Base = carried.Env, carried.Base
	}
	if carried.Person != "" {
		own.Person = carried.Person
	}
	if carried.Key != "" {
		own.Key = carried.Key
	}
	return own
}
