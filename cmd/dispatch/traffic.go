package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
)

// keepEvery is how often a process that serves and has the database writes down what
// it counted.
const keepEvery = 10 * time.Second

// traffic is what this process counts, and how it gets into the database: an edge
// tells the control nodes, which keep it; a node that does both keeps its own.
type traffic struct {
	p        *process
	counted  *fleet.Outbox   // nil: this process answers nobody
	counting *fleet.Counting // nil: this process keeps nothing
}

// newTraffic makes what the role needs.
func newTraffic(p *process) (*traffic, error) {
	t := &traffic{p: p}
	if p.cfg.Role.serves() {
		t.counted = fleet.NewOutbox(func(since time.Time) []fleet.Count { return p.handler.Counts(since) })
		if err := fleet.RegisterOutbox(t.counted, p.registry); err != nil {
			return nil, fmt.Errorf("count what is lost: %w", err)
		}
	}
	if !p.cfg.Role.controls() {
		return t, nil
	}
	var err error
	t.counting, err = fleet.NewCounting(fleet.CountingOptions{Keep: t.keep, Now: p.now, Log: p.log, Registry: p.registry})
	if err != nil {
		return nil, fmt.Errorf("keep what replicas count: %w", err)
	}
	return t, nil
}

// told is what control nodes are told: nothing where this process keeps its own.
func (t *traffic) told() *fleet.Outbox {
	if t.p.cfg.Role.controls() {
		return nil
	}
	return t.counted
}

// keep writes down what a replica counted.
func (t *traffic) keep(ctx context.Context, from fleet.Replica, counts []fleet.Count) error {
	st := t.p.store.Load()
	if st == nil {
		return errNoDatabase
	}
	return st.AddCounts(ctx, ledger.Counts{Replica: from.ID, Boot: from.Boot, Counts: counts})
}

// run owns the goroutines.
func (t *traffic) run(ctx context.Context, g *errgroup.Group) {
	if t.counting == nil {
		return
	}
	g.Go(func() error { return t.counting.Run(ctx) })
	if t.counted != nil {
		g.Go(func() error { return t.keepOwn(ctx) })
	}
}

// keepOwn keeps what this process counted itself, until ctx ends.
func (t *traffic) keepOwn(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for batch := t.counted.Take(); len(batch) > 0; batch = t.counted.Take() {
			err := t.keep(ctx, t.p.node.self, batch)
			t.counted.Done(batch, err == nil)
			if err != nil && !failing && ctx.Err() == nil { // one line for each outage
				t.p.log.WarnContext(ctx, "what was counted here is not kept", "err", err, "try", "bring the database back; ten minutes are remembered")
			}
			if failing = err != nil; failing {
				break
			}
		}
	}
}
