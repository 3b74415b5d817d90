package actions

import (
	"context"
	"log/slog"
	"time"
)

// GrayStatus is a gray as lists and the overview show it.
type GrayStatus struct {
	App     string    `json:"app"`
	Policy  string    `json:"policy"`
	Region  string    `json:"region"`
	Share   string    `json:"share" doc:"of 10,000, as it serves"`
	State   string    `json:"state" enum:"none,planned,running,paused,aborted,finished" doc:"none: a share without a plan"`
	Step    int       `json:"step"`
	Steps   []int     `json:"steps,omitempty" doc:"of 10,000"`
	Why     string    `json:"why,omitempty" doc:"why it stands where it stands"`
	Changed time.Time `json:"changed,omitzero"`
}

// Grays are all shares of the release in use, with their plans.
func (a *Actions) Grays(ctx context.Context) ([]GrayStatus, error) {
	return []GrayStatus{}, nil // unbuilt
}

// RunGrays judges running grays until ctx ends.
func (a *Actions) RunGrays(ctx context.Context, log *slog.Logger) error {
	<-ctx.Done() // unbuilt
	return nil
}
