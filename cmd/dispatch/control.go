package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

// control opens the database and puts the admin API over it. While the database
// is away and a release is served, or may come from elsewhere, it is tried again;
// without one there is nothing to keep serving, and the error ends the process.
func (p *process) control(ctx context.Context) error {
	p.waits = newWaiting(p)
	for try := 1; ; try++ {
		err := p.controlOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if p.keeper.Current() == nil && !p.cfg.Fleet.sources() || fault.KindOf(err) == fault.Invalid {
			return err
		}
		wait := backoff(try)
		p.log.ErrorContext(ctx, "nothing can be changed: the control side is down", "err", err, "again_in", wait.String(),
			"try", "bring the database back; answers go on from the release on disk")
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// backoff is 1 s, 2 s, 4 s … at most 30 s, each ± 30 % so that nodes do not return together.
func backoff(try int) time.Duration {
	d := min(time.Second<<min(try-1, 5), 30*time.Second)
	return time.Duration(float64(d) * (0.7 + 0.6*rand.Float64()))
}

// databaseTimeout bounds what the control side waits for at its start: a
// database that accepts connections and never speaks is a database that is away.
const databaseTimeout = 15 * time.Second

// controlOnce runs the control side until ctx ends.
func (p *process) controlOnce(ctx context.Context) (err error) {
	starting, started := context.WithTimeout(ctx, databaseTimeout)
	defer started()
	if p.cfg.sqlite() {
		starting = ctx // it cannot hang, and a migration of a large file may take long
	}
	st, err := store.Open(starting, p.cfg.DB, p.storeOptions())
	if err != nil {
		return err
	}
	defer func() {
		p.admin.Store(nil)
		p.store.Store(nil)
		err = errors.Join(err, st.Close())
	}()
	p.store.Store(st)
	var led actions.Ledger = st
	if p.sink != nil {
		led = watchedLedger{st, p.sink}
	}
	do, err := actions.New(p.inner.options(actions.Options{Ledger: led, Keeper: p.keeper, Loader: p.loader, Keys: p.keys, Suffixes: p.suffixes,
		Deployment: p.cfg.Deployment, Geo: p.geo, Fleet: p.node, Copies: p.disk, CanaryTime: p.cfg.Fleet.CanaryTime, Trials: p.traffic, FourEyes: p.cfg.FourEyes == "on", Env: p.cfg.Env, Signals: p.cfg.Gray.SignalHosts,
		Probes: p.prober != nil, Log: p.log, Waits: p.waits.set, LookedUp: p.lookUps.note, Now: p.now}))
	if err != nil {
		return err
	}
	if err := p.catchUp(ctx, st, do); err != nil {
		return err
	}
	defer p.watchGrays(do)()
	secret, err := firstToken(ctx, st, "administrator")
	if err != nil {
		return err
	}
	password, err := p.firstAccount(ctx, st)
	if err != nil {
		return err
	}
	api, err := p.console(ctx, do, st)
	if err != nil {
		return err
	}
	p.admin.Store(&api)
	p.greet(secret, password)
	return p.runControl(ctx, do, st)
}

// runControl owns the goroutines of the control side.
func (p *process) runControl(ctx context.Context, do *actions.Actions, st *store.Store) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return do.KeepRecordsFresh(ctx, p.log) })
	g.Go(func() error { return p.demo.publishRules(ctx, do) })
	g.Go(func() error { return do.RunRollouts(ctx, p.log) })
	g.Go(func() error { return do.RunSignIns(ctx, p.log) })
	g.Go(func() error { return do.RunSchedules(ctx, p.log) })
	g.Go(func() error { return do.RunGrays(ctx, p.log) })
	g.Go(func() error { return do.RunFailover(ctx, p.log) })
	g.Go(func() error { return p.node.roster.Run(ctx) })
	if p.prober != nil {
		g.Go(func() error { return p.prober.Run(ctx) })
	}
	if p.sink != nil {
		g.Go(func() error { return p.sink.run(ctx, st) })
	}
	return g.Wait()
}

func (p *process) storeOptions() store.Options {
	seal := p.keys.ListSeal.All()
	opt := store.Options{Log: p.log, Now: p.now, FourEyesOff: p.cfg.FourEyes == "off", PicksKept: p.cfg.Inner.PicksKept, Seal: store.SealKeys{Current: seal[0].Secret()}}
	if len(seal) > 1 {
		opt.Seal.Previous = seal[1].Secret()
	}
	return opt
}

// ping is what /readyz says of the database.
func (p *process) ping() error {
	const away = "nothing can be changed, answers go on"
	st := p.store.Load()
	if st == nil || p.admin.Load() == nil {
		return errors.New(away + "; this node's log says why")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	served := p.keeper.Status().Number
	head, err := st.Head(ctx, release.StreamEdge)
	if err != nil {
		return fmt.Errorf("%s: %w", away, err)
	}
	if served > head {
		return fmt.Errorf("only emergencies go on: it lacks the last %d releases; POST /api/v1/releases/adopt", served-head)
	}
	return nil
}

// catchUp takes the newest release that everybody may serve into use, or
// publishes the first. From then on the rollouts do so.
func (p *process) catchUp(ctx context.Context, st *store.Store, do *actions.Actions) error {
	rollout, err := st.Rollout(ctx, release.StreamEdge)
	if err != nil {
		return fmt.Errorf("read rollout: %w", err)
	}
	cur := p.keeper.Current()
	switch {
	case cur != nil && cur.Number > rollout.Head:
		p.log.ErrorContext(ctx, "the database ends before the release that is served: it was restored from a backup", "database", rollout.Head,
			"served", cur.Number, "try", "POST /api/v1/releases/adopt; docs/operate.md, A lost database")
		return nil
	case rollout.Head == 0:
		files, name, ok := p.cfg.firstDocument()
		if !ok {
			return nil
		}
		return bootstrap{files: files, name: name, path: cmp.Or(p.cfg.Bootstrap, name), do: do, hosts: st, suffixes: p.suffixes,
			fourEyes: p.cfg.FourEyes == "on", log: p.log}.run(ctx)
	}
	if p.cfg.Bootstrap != "" {
		p.log.InfoContext(ctx, "a release exists already, the first configuration is not read", "release", rollout.Head, "file", p.cfg.Bootstrap)
	}
	if rollout.All == 0 || cur != nil && cur.Number >= rollout.All {
		return nil
	}
	newest, err := st.Release(ctx, release.StreamEdge, rollout.All)
	if err != nil {
		return fmt.Errorf("read release %d: %w", rollout.All, err)
	}
	if err := p.keeper.Accept(ctx, newest, p.node.blobs(), "database"); err != nil {
		if cur == nil {
			return fmt.Errorf("serve release %d: %w", newest.Number, err)
		}
		p.log.ErrorContext(ctx, "the newest release of the database was refused; the one before goes on", "release", newest.Number, "err", err)
	}
	return nil
}

// adminHandler answers 503 until the control side is up.
func (p *process) adminHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := p.admin.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "5")
		fault.Write(w, fault.New(fault.Unavailable, "control_down", "the database cannot be reached").
			WithHint("bring it back, or look at this node's log; answers to apps go on"))
	})
}

// greet says what the control side found and, once, the first token and the first password.
func (p *process) greet(secret, password string) {
	var b strings.Builder
	fmt.Fprintf(&b, "console  http://%s/\n", reachable(p.adminL.Addr()))
	if password != "" {
		life := "; holds until its first use, which changes it"
		if p.cfg.Demo {
			life = ""
		}
		fmt.Fprintf(&b, "account  %s   password %s   (administrator; shown this once%s)\n", firstLogin, password, life)
	}
	if secret != "" {
		fmt.Fprintf(&b, "token    %s   (administrator; shown this once)\n", secret)
	}
	if p.cfg.FourEyes == "off" {
		b.WriteString("warning  four eyes are off: one person may approve their own host\n")
	}
	if cur := p.keeper.Current(); cur != nil {
		fmt.Fprintf(&b, "serving  release %d\n", cur.Number)
	} else {
		b.WriteString("serving  nothing yet: /route answers 503 until the first POST /api/v1/releases\n")
	}
	_, _ = io.WriteString(p.out.out, b.String()) // nobody is left to tell
}
