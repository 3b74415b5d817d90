package actions

import (
	"context"
	"log/slog"
	"time"

	"dispatch.example/dispatch/ledger"
)

// Pending is something that waits for a second person.
type Pending struct {
	Kind   string    `json:"kind" enum:"host,draft,release,gray"`
	ID     string    `json:"id"`
	Title  string    `json:"title"`
	Author string    `json:"author"`
	Since  time.Time `json:"since"`
}

// Pending is everything that waits for a second person, the oldest first.
func (a *Actions) Pending(ctx context.Context) ([]Pending, error) {
	return []Pending{}, nil // unbuilt
}

// Unreviewed are the emergencies that no second person has signed, newest first.
func (a *Actions) Unreviewed(ctx context.Context) ([]ledger.Summary, error) {
	return []ledger.Summary{}, nil // unbuilt
}

// RunSchedules publishes what is due, until ctx ends.
func (a *Actions) RunSchedules(ctx context.Context, log *slog.Logger) error {
	<-ctx.Done() // unbuilt
	return nil
}
