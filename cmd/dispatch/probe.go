package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/probe"
)

const (
	// probesSaved is how long what a prober knows may be older in the database than
	// here when nothing changed: a third of what counts as fresh.
	probesSaved = 10 * time.Second
	// probesTime is what a round waits for the database.
	probesTime = 2 * time.Second
)

// prober probes the hosts of the register and of the release, and tells the
// database. Its one goroutine is the prober's.
type prober struct {
	*probe.Prober
	p     *process
	hosts []string // of the register, when it was read last
	said  map[string]probe.State
	whole time.Time // when everything was saved
}

func newProber(p *process) (*prober, error) {
	opt, err := p.cfg.Probe.options()
	if err != nil {
		return nil, err
	}
	b := &prober{p: p, said: map[string]probe.State{}}
	opt.Prober, opt.Hosts, opt.Report = p.node.self.ID, b.all, b.save
	opt.Log, opt.Registry, opt.Now = p.log, p.registry, p.now
	b.Prober, err = probe.New(opt)
	return b, err
}

// all is every approved host and every domain of the release, whatever its state: a
// host that is swapped in must have been seen before.
func (b *prober) all() []string {
	if st := b.p.store.Load(); st != nil {
		ctx, cancel := context.WithTimeout(context.Background(), probesTime)
		defer cancel()
		if approved, err := st.ApprovedHosts(ctx); err == nil { // else those of before
			b.hosts = slices.Collect(maps.Keys(approved))
		}
	}
	hosts := slices.Clone(b.hosts)
	if cur := b.p.keeper.Current(); cur != nil {
		for host := range cur.Manifest.Document.Domains() {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// save tells the database what changed, and now and then everything.
func (b *prober) save(ctx context.Context, states []probe.State) {
	st := b.p.store.Load()
	if st == nil {
		return
	}
	whole := b.p.now().Sub(b.whole) >= probesSaved
	var rows []ledger.Probe
	for _, s := range states {
		if was, known := b.said[s.Host]; whole || !known || was.State != s.State || was.Problem != s.Problem || !was.Expires.Equal(s.Expires) {
			rows = append(rows, b.row(s))
		}
	}
	if len(rows) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probesTime)
	defer cancel()
	if err := st.SaveProbes(ctx, rows); err != nil {
		if ctx.Err() == nil {
			b.p.log.WarnContext(ctx, "what probes saw is not saved", "err", err, "try", "nothing: it is tried again with the next round")
		}
		return
	}
	if whole {
		b.whole = b.p.now()
	}
	b.said = make(map[string]probe.State, len(states))
	for _, s := range states {
		b.said[s.Host] = s
	}
}

func (b *prober) row(s probe.State) ledger.Probe {
	row := ledger.Probe{Host: s.Host, Prober: b.p.node.self.ID, State: s.State, Since: s.Since, Last: s.Last, Problem: s.Problem, Expires: s.Expires}
	for _, shot := range s.Recent {
		row.Recent = append(row.Recent, ledger.ProbeShot{At: shot.At, OK: shot.OK, Millis: shot.Millis, Problem: shot.Problem})
	}
	return row
}
