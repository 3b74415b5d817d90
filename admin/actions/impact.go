package actions

import (
	"context"
	"time"

	"dispatch.example/dispatch/fleet"
)

// Trials asks replicas what a draft would do to the requests that they had lately.
type Trials interface {
	// Try returns the verdicts that came before ctx ended, and of how many replicas.
	Try(ctx context.Context, t fleet.Trial) (verdicts []fleet.Verdict, of int)
}

// Impact is what a change would have done to real requests. With Sampled 0 there
// is no data: the synthetic figures of the Preview are all there is.
type Impact struct {
	Sampled  uint64        `json:"sampled" doc:"requests that replicas remembered and tried again"`
	Since    time.Duration `json:"since" doc:"age of the oldest of them in nanoseconds"`
	Replicas int           `json:"replicas" doc:"that answered"`
	Of       int           `json:"of" doc:"replicas that serve"`
	Problems []string      `json:"problems,omitempty" doc:"why a replica has no verdict"`
	Apps     []AppImpact   `json:"apps"`
}

// AppImpact is the part of one app.
type AppImpact struct {
	fleet.AppVerdict
	Regions []RegionLoad `json:"regions"`
}

// RegionLoad is a region's part of the requests before and after a change, and
// what that is of its capacity: 1 is full. Load is -1 where no capacity is stated.
type RegionLoad struct {
	Region    string  `json:"region"`
	Before    float64 `json:"before" doc:"part of the app's requests, 0 to 1"`
	After     float64 `json:"after"`
	LoadAfter float64 `json:"load_after" doc:"of capacity, where the requests of today fill all capacities together"`
}
