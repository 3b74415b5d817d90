package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/handler"
	"dispatch.example/dispatch/release"
)

// node is this process among the others: it follows whoever has releases and, if
// it controls, hands them out.
type node struct {
	p        *process
	self     fleet.Replica
	started  time.Time
	tls      *tls.Config // of calls to other nodes
	follower *fleet.Follower
	redis    *fleet.Redis       // nil: none
	offers   chan fleet.Offer   // the newest one that Redis has not seen; see redis.go
	registry discovery.Source   // nil: none
	controls *discovery.Watcher // of the registry; nil: none
	apps     *discovery.Watcher // whom the registry sends apps to, on a control node; nil: none
	handed
}

// handed is what a control node hands releases out with; all nil on an edge.
type handed struct {
	tlsServer *tls.Config
	board     *fleet.Board
	roster    *fleet.Roster
	server    *fleet.Server
}

// newNode makes everything that joins this process with others. It connects to nobody.
func newNode(p *process) (n *node, err error) {
	n = &node{p: p, started: time.Now(), offers: make(chan fleet.Offer, 1)}
	if n.self, err = p.cfg.identity(); err != nil {
		return nil, err
	}
	if n.tlsServer, n.tls, err = p.cfg.Fleet.tlsFiles(); err != nil {
		return nil, err
	}
	n.follower, err = fleet.NewFollower(fleet.FollowerOptions{Keeper: p.keeper, Self: n.self, Disk: p.disk, Describe: n.describe,
		Counts: p.traffic.told(), Try: p.traffic.tries(), Log: p.log, Registry: p.registry})
	if err != nil {
		return nil, fmt.Errorf("follow releases: %w", err)
	}
	if err := n.connect(); err != nil {
		return nil, err
	}
	if !p.cfg.Role.controls() {
		return n, nil
	}
	return n, n.hand()
}

// connect makes what finds releases and control nodes.
func (n *node) connect() (err error) {
	p := n.p
	if p.cfg.Fleet.Redis != "" {
		opt := fleet.RedisOptions{URL: p.cfg.Fleet.Redis, Password: os.Getenv(redisPassword),
			Deployment: p.cfg.Deployment, Replica: n.self.ID, Log: p.log, Registry: p.registry}
		if p.cfg.Role.serves() { // nobody else answers under an override, or ends it in time
			opt.Override = p.glass.found
		}
		n.redis, err = fleet.NewRedis(opt)
		if err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
	}
	if p.cfg.Fleet.Discovery == "" {
		return nil
	}
	if n.registry, err = discovery.Open(p.cfg.Fleet.Discovery, discovery.Options{Log: p.log, Registry: p.registry}); err != nil {
		return fmt.Errorf("--discovery: %w", err)
	}
	if n.controls, err = discovery.NewWatcher(n.registry, serviceFleet, p.log); err != nil || !p.cfg.Role.controls() {
		return err
	}
	n.apps, err = discovery.NewWatcher(n.registry, servicePublic, p.log)
	return err
}

// hand makes what hands releases out.
func (n *node) hand() (err error) {
	p := n.p
	n.board = fleet.NewBoard()
	n.roster, err = fleet.NewRoster(fleet.RosterOptions{Memory: lateMemory{p}, Self: n.report, Offered: n.offered, Log: p.log, Registry: p.registry})
	if err != nil {
		return fmt.Errorf("keep the list of replicas: %w", err)
	}
	n.server, err = fleet.NewServer(fleet.ServerOptions{Board: n.board, Roster: n.roster, Blobs: n.blobs(), Token: n.token(),
		Disk: p.disk, Accept: n.accept, Counting: p.traffic.counting, Trials: p.traffic.trials, Discovery: p.inner.handler(), Known: func() uint64 { return p.keeper.Status().Number }, Log: p.log, Registry: p.registry})
	if err != nil {
		return fmt.Errorf("hand out releases: %w", err)
	}
	return nil
}

// identity is the name of this replica, the same after a restart, and the rest
// of what it says of itself.
func (c *serveCmd) identity() (fleet.Replica, error) {
	id := c.Fleet.ReplicaID
	if id == "" {
		path := filepath.Join(c.Data, "replica-id")
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			host, _ := os.Hostname() // a machine without a name still has its random part
			data = []byte(strings.TrimPrefix(host+"-"+strings.ToLower(rand.Text()[:6]), "-") + "\n")
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			return fleet.Replica{}, fmt.Errorf("keep the name of this replica: %w\ntry: --replica-id", err)
		}
		id = strings.TrimSpace(string(data))
	}
	build := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		build = info.Main.Version
	}
	return fleet.Replica{ID: id, Boot: rand.Text(), Role: string(c.Role), Build: build, Format: release.Format, Place: c.replica()}, nil
}

// describe adds to a report what only the process knows.
func (n *node) describe(r *fleet.Report) {
	if n.p.public != nil {
		r.Address = n.p.public.Addr().String()
	}
	if o := n.p.keeper.Status().Override; o != nil {
		override := o.Override
		r.Override = &override
	}
	r.Databases, r.Errors = n.p.geo.Digests(), n.p.handler.Errors()
}

// report is what the roster knows of this node itself, if it answers apps.
func (n *node) report() (fleet.Report, bool) { return n.follower.Report(), n.p.cfg.Role.serves() }

// offered is the number that a replica should serve.
func (n *node) offered(replica string) uint64 {
	s, _ := n.board.For(replica)
	return s.Number
}

// blobs finds a part of a release wherever this node has it: on the disk, in the
// database, in Redis.
func (n *node) blobs() release.Blobs { return nodeBlobs{n} }

type nodeBlobs struct{ n *node }

// Blob is the first one found.
func (b nodeBlobs) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	data, err := b.n.p.disk.Blob(ctx, d)
	if err == nil {
		return data, nil
	}
	if st := b.n.p.store.Load(); st != nil {
		if data, inStore := st.Blob(ctx, d); inStore == nil {
			return data, nil
		}
	}
	if b.n.redis != nil {
		if data, inRedis := b.n.redis.Blob(ctx, d); inRedis == nil {
			return data, nil
		}
	}
	return nil, err
}

// accept takes a release that a replica has and this node lacks. It is verified
// like any other.
func (n *node) accept(ctx context.Context, s release.Signed, blobs release.Blobs) error {
	return n.p.keeper.Accept(ctx, s, blobs, "replica")
}

// lateMemory keeps the roster in the database once there is one.
type lateMemory struct{ p *process }

// SaveReplicas fails while the database is away.
func (m lateMemory) SaveReplicas(ctx context.Context, members []fleet.Member) error {
	if st := m.p.store.Load(); st != nil {
		return st.SaveReplicas(ctx, members)
	}
	return errNoDatabase
}

// Replicas fails while the database is away.
func (m lateMemory) Replicas(ctx context.Context) ([]fleet.Member, error) {
	if st := m.p.store.Load(); st != nil {
		return st.Replicas(ctx)
	}
	return nil, errNoDatabase
}

var errNoDatabase = errors.New("the database is away")

// Canary, Members, Unheard, Await, Format, Changed and Offer are what actions want of the fleet.

// Canary is a replica that may serve a change alone; with --canary-time 0 nobody does.
func (n *node) Canary() (string, bool) {
	if n.p.cfg.Fleet.CanaryTime == 0 {
		return "", false
	}
	return n.roster.Canary()
}

// Members are all replicas.
func (n *node) Members() []fleet.Member { return n.roster.Members(n.offered) }

// Unheard are replicas that the registry sends apps to and that never asked a control
// node. They are looked for because they look healthy from everywhere else.
func (n *node) Unheard() (all []fleet.Unheard) {
	if n.apps == nil {
		return nil
	}
	heard := map[string]bool{n.self.ID: true}
	for _, m := range n.Members() {
		heard[m.ID] = true
	}
	found, _ := n.apps.Current()
	for i := range found.Instances {
		in := &found.Instances[i]
		id := cmp.Or(in.Labels[labelReplica], in.ID)
		if !heard[id] {
			all = append(all, fleet.Unheard{ID: id, Address: in.Address.String(), Region: in.Region})
		}
	}
	return all
}

// Await waits until the number is served.
func (n *node) Await(ctx context.Context, number uint64, only string) fleet.Acknowledgement {
	return n.roster.Await(ctx, number, only)
}

// Format is the lowest manifest format that a replica reads.
func (n *node) Format() int { return n.roster.Format() }

// Changed is closed when a member changes.
func (n *node) Changed() <-chan struct{} { return n.roster.Changed() }

// checks are the lines of /readyz about the other nodes.
func (n *node) checks() []handler.Check {
	return []handler.Check{{Name: "sources", Probe: func() error {
		var errs []error
		for _, s := range n.follower.States() {
			if !s.OK {
				errs = append(errs, fmt.Errorf("%s: %s", s.Name, s.Problem))
			}
		}
		return errors.Join(errs...)
	}}}
}

// run owns the goroutines that join this process with others. It calls left when
// no registry sends anybody here any more.
func (n *node) run(ctx context.Context, g *errgroup.Group, left func()) {
	g.Go(func() error { return n.follower.Run(ctx) })
	g.Go(func() error { return n.follow(ctx) })
	g.Go(func() error {
		defer left()
		return n.register(ctx)
	})
	if n.redis != nil && n.board != nil {
		g.Go(func() error { return n.feedRedis(ctx) })
	}
	if n.controls != nil {
		g.Go(func() error { return n.controls.Run(ctx) })
	}
	if n.apps != nil {
		g.Go(func() error { return n.apps.Run(ctx) })
	}
	if n.roster != nil {
		g.Go(func() error { return n.p.serve(ctx, n.fleetServer(), n.p.fleetL) })
	}
}

// fleetServer is the fleet listener's: a question waits for its answer, and a
// chunk may be large.
func (n *node) fleetServer() *http.Server {
	s := handler.Server(n.previousToken(n.server), n.p.log)
	s.ReadTimeout, s.WriteTimeout = time.Minute, time.Minute
	s.RegisterOnShutdown(n.server.Stop) // or questions would wait on
	s.RegisterOnShutdown(n.p.inner.stop)
	if n.p.cfg.Fleet.FleetTLSCert != "" {
		s.TLSConfig = n.tlsServer
	}
	return s
}

// token is what this node shows, empty where certificates stand for it.
func (n *node) token() string {
	if len(n.p.tokens) == 0 {
		return ""
	}
	return n.p.tokens[0]
}

// previousToken lets those in who show the token from before a rotation.
func (n *node) previousToken(next http.Handler) http.Handler {
	if len(n.p.tokens) < 2 {
		return next
	}
	previous := []byte("Bearer " + n.p.tokens[1])
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), previous) == 1 {
			r.Header.Set("Authorization", "Bearer "+n.token())
		}
		next.ServeHTTP(w, r)
	})
}

// close lets go of connections, after run.
func (n *node) close() error {
	if n.registry != nil {
		n.registry.Close()
	}
	if n.redis != nil {
		return n.redis.Close()
	}
	return nil
}
