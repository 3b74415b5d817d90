package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/discovery/trace/otlp"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/handler"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
	"dispatch.example/dispatch/whitelist"
)

// process is one running dispatch: what every role has here, what an edge has
// instead of keys that sign in edge.go, the control side in control.go, what
// joins nodes in fleet.go. Its goroutines all belong to the group in run.
type process struct {
	cfg         *serveCmd
	now         func() time.Time
	log         *slog.Logger
	out         streams
	registry    *prometheus.Registry
	keys        *release.Keyring
	trust       *signed.Trust
	tokens      []string // that nodes show each other, current first; none: certificates do
	suffixes    domain.Suffixes
	geo         *policy.Geo
	loader      *release.Loader
	disk        *release.Disk
	keeper      *release.Keeper
	node        *node
	traffic     *traffic
	demo        *demo             // nil: none
	inner       *inner            // nil: none
	sink        *auditSink        // nil: none
	prober      *prober           // nil: none
	spans       *otlp.Exporter    // nil: none
	sessions    *fleet.SessionMap // nil: none
	glass       *breakGlass
	clock       *clockWatch
	lookUps     *lookUps
	waits       *waiting // of a control node
	handler     *handler.Handler
	connections *handler.Connections
	admin       atomic.Pointer[http.Handler] // nil until the control side is up
	store       atomic.Pointer[store.Store]  // the same
	listeners
}

// Run serves until ctx ends or something it cannot go on without fails.
func (c *serveCmd) Run(ctx context.Context, out streams) (err error) {
	cleanup, err := c.settle()
	if err != nil {
		return err
	}
	defer cleanup()
	p := &process{cfg: c, out: out, log: c.logger(out), now: c.now, registry: prometheus.NewRegistry()}
	if p.now == nil {
		p.now = time.Now
	}
	if err := p.build(); err != nil {
		return err
	}
	// The copy on disk answers before anything else is asked for.
	if err := p.keeper.Restore(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.WarnContext(ctx, "no copy on disk could be used", "err", err, "try", "nothing yet: the database or the other nodes are asked next")
	}
	if err := errors.Join(p.listen(ctx), p.demo.listen(ctx)); err != nil {
		return err
	}
	p.announce()
	return p.run(ctx)
}

func (c *serveCmd) logger(out streams) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // kong has checked the word
	return slog.New(trace.Handler(slog.NewJSONHandler(out.log, &slog.HandlerOptions{Level: level})))
}

// build makes everything that needs no network.
func (p *process) build() error {
	c := p.cfg
	var err error
	if p.suffixes, err = domain.NewSuffixes(c.AllowedSuffixes); err != nil {
		return fmt.Errorf("--allowed-suffixes: %w", err)
	}
	if err = p.loadKeys(); err != nil {
		return err
	}
	if p.geo, err = policy.OpenGeo(c.GeoIPCity, c.GeoIPASN); err != nil {
		return fmt.Errorf("open address databases: %w", err)
	}
	if p.loader, err = release.NewLoader(release.LoaderOptions{Deployment: c.Deployment, Suffixes: p.suffixes, Trust: p.trust,
		Keys: p.keys, Geo: p.geo, Replica: c.replica()}); err != nil {
		return err
	}
	if p.disk, err = release.OpenDisk(filepath.Join(c.Data, "releases")); err != nil {
		return err
	}
	if p.keeper, err = release.NewKeeper(p.loader, p.disk); err != nil {
		return err
	}
	p.glass, p.clock = newBreakGlass(p), newClockWatch(p)
	if p.lookUps, err = newLookUps(p.registry, p.log); err != nil {
		return err
	}
	if p.demo, err = newDemo(p); err != nil {
		return err
	}
	if p.traffic, err = newTraffic(p); err != nil {
		return err
	}
	if p.inner, err = newInner(p); err != nil {
		return err
	}
	if p.node, err = newNode(p); err != nil {
		return err
	}
	if c.probes() {
		if p.prober, err = newProber(p); err != nil {
			return err
		}
	}
	if c.AuditSink != "" {
		if p.sink, err = newAuditSink(p); err != nil {
			return err
		}
	}
	if p.spans, err = newSpans(p); err != nil {
		return fmt.Errorf("--otlp: %w", err)
	}
	return p.buildHandler()
}

// loadKeys reads the keys of the role. An edge believes the keys of its trust
// file; whoever signs believes their own.
func (p *process) loadKeys() error {
	c := p.cfg
	files := release.KeyFiles{Publisher: c.PublisherKeyFile, Record: c.RecordKeyFile, Session: c.SessionKeyFile,
		List: c.ListKeyFile, ListSeal: c.ListSealKeyFile}
	keys, err := release.LoadKeys(files, c.alone())
	tokens, noToken := c.fleetTokens()
	if err := errors.Join(err, noToken); err != nil {
		return err
	}
	p.keys, p.tokens = keys, tokens
	if c.Role.controls() {
		p.trust = p.keys.Trust()
		return nil
	}
	if p.trust, err = signed.ReadTrust(c.Fleet.TrustKeys); err != nil {
		return fmt.Errorf("--trust-keys: %w\ntry: dispatch keys export on a control node prints this file", err)
	}
	return nil
}

func (c *serveCmd) replica() policy.Replica {
	return policy.Replica{Cluster: c.Cluster, Region: c.Region, Env: c.Env, Version: c.VersionLabel}
}

// decisionLogsKept is how many rotated decision logs stay beside the current one.
const decisionLogsKept = 7

func (p *process) buildHandler() error {
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	jwks, err := p.trust.JWKS(signed.Record)
	if err != nil {
		return fmt.Errorf("export record keys: %w", err)
	}
	opt := handler.Options{Releases: p.keeper, Registry: p.registry, Now: p.now, Log: p.log, Status: p.keeper.Status, Checks: p.checks(), TrustedProxies: p.cfg.proxies,
		CORSOrigins: p.cfg.CORSOrigins, RecordKeys: func() []byte { return jwks }, Replica: p.cfg.replica(), Databases: p.geo.Digests()}
	current := p.keys.List.Current()
	key, err := whitelist.NewKey(current.ID(), current.Secret())
	if err != nil {
		return err
	}
	opt.HashID = key.Hash
	if p.cfg.Fleet.SessionMap == "redis" && p.cfg.Role.serves() {
		p.sessions, err = fleet.NewSessionMap(fleet.SessionMapOptions{URL: p.cfg.Fleet.Redis, Password: os.Getenv(redisPassword),
			Deployment: p.cfg.Deployment, Log: p.log, Registry: p.registry})
		if err != nil {
			return fmt.Errorf("--session-map: %w", err)
		}
		opt.Sessions = p.sessions
	}
	if p.cfg.DecisionLog != "off" && p.cfg.Role.serves() {
		if err := writable(p.cfg.DecisionLog); err != nil {
			return err
		}
		opt.Decisions = handler.RotatedFile(p.cfg.DecisionLog, p.cfg.DecisionLogSize.mebibytes(), decisionLogsKept)
	}
	p.traceRoutes(&opt)
	if p.handler, err = handler.New(opt); err != nil {
		return err
	}
	p.connections, err = handler.NewConnections(p.cfg.connections(p.log), p.registry)
	return err
}

// writable finds out at the start what would otherwise show at the first decision.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open decision log: %w\ntry: another --decision-log, or off", err)
	}
	return f.Close()
}

// checks are the lines of /readyz on the ops listener beside the release.
func (p *process) checks() []handler.Check {
	checks := []handler.Check{
		{Name: "copy on disk", Probe: func() error {
			if s := p.keeper.Status(); s.DiskErr != "" {
				return errors.New(s.DiskErr)
			}
			return nil
		}},
		{Name: "newest release", Probe: func() error {
			if r := p.keeper.Status().Refusal; r != nil {
				return fmt.Errorf("release %d from %s was refused (%s): %s", r.Number, r.Source, r.Code, r.Reason)
			}
			return nil
		}},
		p.glass.check(),
	}
	checks = append(checks, p.node.checks()...)
	if p.cfg.Role.controls() {
		checks = append(checks, handler.Check{Name: "database", Probe: p.ping})
	}
	return checks
}

// run owns every goroutine of the process. The first failure ends all.
func (p *process) run(ctx context.Context) error {
	// Decision log and spans end after the servers, or the last ones would be lost.
	logCtx, endLog := context.WithCancel(context.WithoutCancel(ctx))
	defer endLog()
	logged := make(chan error, 1)
	go func() { logged <- p.runLogs(logCtx) }()

	g, ctx := errgroup.WithContext(ctx)
	// Apps are answered until nobody is sent here any more.
	serving, left := context.WithCancel(context.WithoutCancel(ctx))
	defer left()
	g.Go(func() error { return p.serve(ctx, handler.OpsServer(p.handler.Ops(), p.log), p.ops) })
	g.Go(func() error { return p.logReleases(ctx) })
	g.Go(func() error { return p.clock.run(ctx) })
	if p.cfg.Role.serves() {
		g.Go(func() error { return p.serve(ctx, p.glass.server(), p.overrideL) })
		g.Go(func() error { return p.glass.run(ctx) })
		public := handler.Server(p.handler.Public(), p.log)
		bound := p.connections.Bound(public, p.public)
		g.Go(func() error { return p.serve(serving, public, bound) })
	}
	if p.cfg.Role.controls() {
		names := newHostNames(p.cfg.AdminHosts, p.adminL.Addr(), p.cfg.AdminListen)
		g.Go(func() error { return p.serve(ctx, adminServer(names.only(p.adminHandler()), p.log), p.adminL) })
		g.Go(func() error { return p.control(ctx) })
	}
	if p.sessions != nil {
		g.Go(func() error { return p.sessions.Run(ctx) })
	}
	p.node.run(ctx, g, left)
	p.inner.run(ctx, g)
	p.traffic.run(ctx, g)
	p.demo.run(ctx, g)
	err := g.Wait()
	endLog()
	return errors.Join(err, <-logged, p.close())
}

// close lets go of connections, after everything has ended.
func (p *process) close() error {
	err := p.node.close()
	p.inner.close()
	if p.sessions != nil {
		err = errors.Join(err, p.sessions.Close())
	}
	return err
}

// logReleases logs what is taken into use and when the process stops.
func (p *process) logReleases(ctx context.Context) error {
	for {
		changed := p.keeper.Changed()
		if cur := p.keeper.Current(); cur != nil {
			s, cause := p.keeper.Status(), cur.Manifest.Cause
			p.log.InfoContext(ctx, "release in use", "release", cur.Number, "seq", cur.Seq, "from", s.Source,
				"action", cause.Action, "by", cause.By, "reason", cause.Reason, "damaged_copies", s.DiskBad)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			p.log.InfoContext(context.WithoutCancel(ctx), "stopping", "why", context.Cause(ctx).Error())
			return nil
		}
	}
}
