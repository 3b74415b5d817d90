package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Watcher keeps the last list of one service for any number of readers.
type Watcher struct {
	source  Source
	service string
	log     *slog.Logger

	mu      sync.Mutex // guards the rest
	last    Snapshot
	changed chan struct{} // closed and replaced when last changes
	since   time.Time     // when the registry was last believed, or the Watcher made
	problem error         // nil: the last look was believed
}

// State says how much the list of a Watcher is worth.
type State struct {
	Known   bool          // a list has been seen
	Age     time.Duration // since the registry last confirmed the list
	Problem error         // why it does not now; nil: it does
}

// NewWatcher returns a Watcher of the service. Call Run to start it.
func NewWatcher(source Source, service string, log *slog.Logger) (*Watcher, error) {
	if err := checkService(service); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Watcher{source: source, service: service, since: time.Now(), changed: make(chan struct{}),
		log: log.With("of", service, "source", source.Name())}, nil
}

// Run keeps the list up to date until ctx ends. The list outlives it.
func (w *Watcher) Run(ctx context.Context) error {
	if err := w.source.Watch(ctx, w.service, observer{w}); err != nil {
		return fmt.Errorf("watch %s in %s: %w", w.service, w.source.Name(), err)
	}
	return nil
}

// Current is the last list, and a channel that is closed when there is another.
// Its Version is 0 while nothing is known, which is not the same as an empty list.
func (w *Watcher) Current() (s Snapshot, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.changed
}

// State is how the registry and the Watcher get along.
func (w *Watcher) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return State{Known: w.last.Version > 0, Age: time.Since(w.since), Problem: w.problem}
}

// observer hides from readers of a Watcher what only its Source may call.
type observer struct{ w *Watcher }

// Publish implements Observer.
func (o observer) Publish(s Snapshot) {
	w := o.w
	w.mu.Lock()
	w.last = s
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	w.log.Info("instances changed", "version", s.Version, "instances", len(s.Instances),
		"rejected", len(s.Rejected), "last_resort", len(s.LastResort))
}

// Checked implements Observer. A problem is logged when it begins and when it ends.
func (o observer) Checked(err error) {
	w := o.w
	w.mu.Lock()
	before := w.problem
	w.problem = err
	if err == nil {
		w.since = time.Now()
	}
	w.mu.Unlock()
	switch {
	case err == nil && before != nil:
		w.log.Info("registry is believed again")
	case err != nil && (before == nil || before.Error() != err.Error()):
		w.log.Warn("registry is not believed; the last list stays", "err", err)
	}
}
