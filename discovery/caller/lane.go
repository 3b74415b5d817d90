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

type laneKey struct{}

// WithLane returns a context whose calls go through the lane.
func WithLane(ctx context.Context, lane route.Query) context.Context {
	return context.WithValue(ctx, laneKey{}, lane)
}

// LaneOf is the lane that the traffic carries; zero if none.
func LaneOf(ctx context.Context) route.Query {
	lane, _ := ctx.Value(laneKey{}).(route.Query)
	return lane
}
