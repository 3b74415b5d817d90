package actions

import (
	"context"
	"log/slog"
	"time"

	"dispatch.example/dispatch/ledger"
)

// HostHealth is what all probers together know of a host.
type HostHealth struct {
	Host    string         `json:"host"`
	State   string         `json:"state" enum:"unknown,up,down"`
	Since   time.Time      `json:"since"`
	Last    time.Time      `json:"last"`
	Up      int            `json:"up" doc:"probers that see it up"`
	Of      int            `json:"of" doc:"probers that probed it lately"`
	Expires time.Time      `json:"expires,omitzero" doc:"of its certificate, the earliest that was seen"`
	Probers []ledger.Probe `json:"probers"`
}

// Health is the health of every registered host. Without probers On is false.
type Health struct {
	On         bool                  `json:"on"`
	Distrusted bool                  `json:"distrusted,omitempty" doc:"most fail at once: the probers are suspected, nothing acts on them"`
	Hosts      map[string]HostHealth `json:"hosts"`
}

// Health is what probers know.
func (a *Actions) Health(ctx context.Context) (Health, error) {
	return Health{On: a.Probes, Hosts: map[string]HostHealth{}}, nil // unbuilt
}

// RunFailover acts for regions that say auto_failover, until ctx ends.
func (a *Actions) RunFailover(ctx context.Context, log *slog.Logger) error {
	<-ctx.Done() // unbuilt
	return nil
}
