package fleet

import (
	"context"
	"slices"
	"sync"

	"dispatch.example/dispatch/release"
)

// Trials carries drafts to the replicas that a Server hears, and their verdicts back.
// One trial is open at a time; a replica is given it in the answer to a question that
// waits, and says what it found in a later one. The zero value is ready.
type Trials struct {
	mu     sync.Mutex    // guards what follows
	turn   chan struct{} // has a token while a trial is open; nil before the first
	open   *trial        // nil: none is
	opened chan struct{} // closed when one is; nil: nobody waits
}

// trial is an open Trial and who has had it.
type trial struct {
	Trial
	given    map[[2]string]int  // how often, by id and boot
	wanted   map[[2]string]bool // who was asked to judge and has not
	verdicts []Verdict
	done     chan struct{} // closed when nobody is wanted any more
}

// Try gives the trial to replicas and returns what they say before ctx ends, and who
// says nothing. What the trial names and the replicas lack they fetch from t.Blobs
// as long as it lasts.
func (ts *Trials) Try(ctx context.Context, t Trial, replicas []Replica) (verdicts []Verdict, silent []string) {
	if len(replicas) == 0 {
		return nil, nil
	}
	open := &trial{Trial: t, given: map[[2]string]int{}, wanted: map[[2]string]bool{}, done: make(chan struct{})}
	for _, r := range replicas {
		open.wanted[[2]string{r.ID, r.Boot}] = true
	}
	turn := ts.line()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
		ts.start(open)
		select {
		case <-open.done:
		case <-ctx.Done():
		}
	case <-ctx.Done(): // another trial takes all the time
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.open == open {
		ts.open = nil
	}
	for name := range open.wanted {
		silent = append(silent, name[0])
	}
	slices.Sort(silent)
	return slices.Clone(open.verdicts), silent
}

// line is where trials queue.
func (ts *Trials) line() chan struct{} {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.turn == nil {
		ts.turn = make(chan struct{}, 1)
	}
	return ts.turn
}

func (ts *Trials) start(open *trial) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.open = open
	if ts.opened != nil {
		close(ts.opened)
		ts.opened = nil
	}
}

// maxGiven is how often a replica is given a trial that it does not speak of: an
// answer may be lost, and a replica may be too old to know what it is.
const maxGiven = 3

// next is the trial that a replica shall judge and has not got, nil if there is none,
// and what is closed when the next one opens.
func (ts *Trials) next(r *Report) (*Trial, <-chan struct{}) {
	if ts == nil {
		return nil, nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	name := [2]string{r.ID, r.Boot}
	if t := ts.open; t != nil && t.wanted[name] && r.Trial != t.ID && t.given[name] < maxGiven {
		t.given[name]++
		return &t.Trial, nil
	}
	if ts.opened == nil {
		ts.opened = make(chan struct{})
	}
	return nil, ts.opened
}

// heard notes what a replica found. What nobody waits for is left out.
func (ts *Trials) heard(r Replica, v *Verdict) {
	if ts == nil || v == nil {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	name := [2]string{r.ID, r.Boot}
	if t := ts.open; t != nil && t.ID == v.ID && t.wanted[name] {
		own := *v
		own.Replica = r.ID
		t.verdicts = append(t.verdicts, own)
		if delete(t.wanted, name); len(t.wanted) == 0 {
			close(t.done)
		}
	}
}

// blobs are those of the open trial; nil: none is open, or it has none.
func (ts *Trials) blobs() release.Blobs {
	if ts == nil {
		return nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.open == nil {
		return nil
	}
	return ts.open.Blobs
}
