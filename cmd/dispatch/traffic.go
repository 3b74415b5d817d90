package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// keepEvery is how often a process that serves and has the database writes down what
// it counted.
const keepEvery = 10 * time.Second

// traffic is what this process counts, and how it gets into the database: an edge
// tells the control nodes, which keep it; a node that does both keeps its own. It is
// also who tries drafts on recent requests, here and on the replicas that ask here.
type traffic struct {
	p        *process
	counted  *fleet.Outbox   // nil: this process answers nobody
	counting *fleet.Counting // nil: this process keeps nothing
	trials   *fleet.Trials   // nil: this process asks nobody
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
	t.trials = new(fleet.Trials)
	return t, nil
}

// told is what control nodes are told: nothing where this process keeps its own.
func (t *traffic) told() *fleet.Outbox {
	if t.p.cfg.Role.controls() {
		return nil
	}
	return t.counted
}

// tries is what a source of releases may ask this process to do with a draft, nil if
// it answers nobody.
func (t *traffic) tries() func(context.Context, fleet.Trial) fleet.Verdict {
	if !t.p.cfg.Role.serves() {
		return nil
	}
	return t.judge
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

// Try asks every replica that serves and is heard here, and this node itself if it
// serves. Those that say nothing in time have a verdict with that problem.
func (t *traffic) Try(ctx context.Context, trial fleet.Trial) (verdicts []fleet.Verdict, of int) {
	var others []fleet.Replica
	self := t.p.node.self
	for _, m := range t.p.node.Members() {
		if m.State != fleet.Silent && m.ID != self.ID {
			others = append(others, m.Replica)
		}
	}
	own := make(chan fleet.Verdict, 1)
	serves := t.p.cfg.Role.serves()
	if serves {
		go func() { own <- t.judge(ctx, trial) }()
	}
	verdicts, silent := t.trials.Try(ctx, trial, others)
	for _, id := range silent {
		verdicts = append(verdicts, fleet.Verdict{ID: trial.ID, Replica: id, Problem: "it gave no answer in time"})
	}
	of = len(others)
	if serves {
		v := <-own // it ends with ctx
		v.ID, v.Replica = trial.ID, self.ID
		verdicts, of = append(verdicts, v), of+1
	}
	return verdicts, of
}

// judge tries a draft on the requests that this process had lately. Nobody has signed
// the draft: it is compiled beside what is served and dropped.
func (t *traffic) judge(ctx context.Context, trial fleet.Trial) fleet.Verdict {
	fail := func(format string, args ...any) fleet.Verdict {
		return fleet.Verdict{Problem: fmt.Sprintf(format, args...), Apps: []fleet.AppVerdict{}}
	}
	base := t.p.keeper.Current()
	switch {
	case base == nil:
		return fail("it serves nothing yet")
	case base.Override != nil:
		return fail("an override is in force there")
	case base.Digest != trial.Base:
		return fail("it serves release %d and not the one that the change is made from", base.Number)
	case len(trial.Manifest) > release.MaxManifest:
		return fail("the draft has more than %d bytes", release.MaxManifest)
	}
	m, err := release.DecodeManifest(trial.Manifest)
	if err != nil {
		return fail("it cannot read the draft: %v", err)
	}
	draft, err := t.p.loader.Draft(ctx, m, trial.Blobs, base)
	if err != nil {
		return fail("it cannot compile the draft: %v", err)
	}
	return t.p.handler.Judge(ctx, base, draft)
}
