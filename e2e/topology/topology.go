// Package topology runs dispatch the way a bank does, with real processes on
// loopback: MariaDB, Redis, Consul, control nodes, edges in two cities and a
// reverse proxy with one entry a city.
//
//	Options ── Start ──► Topology ── MariaDB, Redis, Consul, Proxy   servers (testenv.Control)
//	                        │
//	                        └─ Controls, Edges                       nodes: a process and its addresses
//
// docker-compose.yml is the same topology in containers, and a test compares the
// two. Keys and certificates come from deploy/keys.sh, the proxy's configuration
// is deploy/nginx.conf with other addresses, so both are run here.
//
// Every process can be stopped, killed, frozen and started again, at the same
// address. Only what Start started is ever signalled, by its process id, and
// Linux ends it with its parent. The package owns no goroutine beyond those of
// testenv, one a process; Stop ends all and removes what they wrote.
//
// A step of Start that fails undoes the ones before and returns what the failed
// process printed last.
package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/examples"
	"dispatch.example/dispatch/internal/testenv"
)

// Deployment is the name in every signature here.
const Deployment = "bank"

// Suffixes are those that domains may lie under here.
const Suffixes = "a.com.cn,b.com.cn,bank.example"

// Options choose the topology. Zero values are the one of docker-compose.yml.
type Options struct {
	Program  string            // the dispatch program, see Build
	Controls int               // control nodes; 0: 1
	Edges    int               // edges in each city; 0: 2
	Document []byte            // published at the start; nil: examples/mobile-bank.yaml
	Empty    bool              // publish nothing
	Canary   time.Duration     // --canary-time; 0: no canary
	Links    bool              // an edge reaches Redis and control nodes by links that can be cut
	NoRedis  bool              // nobody uses Redis
	NoProxy  bool              // no reverse proxy
	Pinned   bool              // edges share one processor, so that load can be measured
	Apart    bool              // the first edge has processor 0; whoever starts the topology keeps off it
	EdgeData map[string]string // folders of single edges instead of ours, by name
	EdgeArgs []string          // more flags of edges
	// Database, if set, is asked once where control nodes shall find the database
	// that listens at addr: at a proxy, say.
	Database func(addr string) (string, error)
	Log      func(format string, args ...any)
}

// Topology is what runs.
type Topology struct {
	Dir      string
	MariaDB  *testenv.Control
	Redis    *testenv.Control
	Consul   *testenv.Control
	Proxy    *testenv.Control
	Controls []*Node
	Edges    []*Node
	Entries  map[string]string // the reverse proxy's address by city
	Token    string            // of the administrator
	Approver string            // token of a second person
	DSN      string            // of the database, for --db mysql:

	opt               Options
	redisAddr, consul string
	http              *http.Client
	Domain            Domains
}

// Build compiles the product into dir. It reads GOFLAGS like any build.
func Build(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "dispatch")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "dispatch.example/dispatch/cmd/dispatch")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build dispatch: %w\n%s", err, out)
	}
	return program, nil
}

// Start starts everything, publishes the document and returns when every edge
// serves it.
func Start(ctx context.Context, opt Options) (_ *Topology, err error) {
	opt.Controls, opt.Edges = cmp.Or(opt.Controls, 1), cmp.Or(opt.Edges, 2)
	if opt.Log == nil {
		opt.Log = func(string, ...any) {}
	}
	// Not under a test's folder: a socket's path may have 107 bytes only.
	dir, err := os.MkdirTemp("", "dispatch-fleet-")
	if err != nil {
		return nil, fmt.Errorf("start fleet: %w", err)
	}
	t := &Topology{Dir: dir, opt: opt, http: newClient(),
		Domain: firstDomains}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Stop())
		}
	}()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"servers", t.startServers}, {"keys", t.makeKeys}, {"schema", t.migrate}, {"nodes", t.planNodes},
		{"control nodes", t.startControls}, {"document", t.publishFirst}, {"edges", t.startEdges}, {"reverse proxy", t.startProxy},
	} {
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		opt.Log("%-14s %4.1f s", step.name, time.Since(start).Seconds())
	}
	return t, nil
}

// startServers starts what dispatch leans on, all at once.
func (t *Topology) startServers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		name    string
		prepare func(dir string) (*testenv.Control, string, error)
		control **testenv.Control
		address *string
	}{
		{"mariadb", testenv.ControlMariaDB, &t.MariaDB, &t.DSN},
		{"redis", testenv.ControlRedis, &t.Redis, &t.redisAddr},
		{"consul", testenv.ControlConsul, &t.Consul, &t.consul},
	} {
		g.Go(func() (err error) {
			dir := filepath.Join(t.Dir, s.name)
			if err = os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			if *s.control, *s.address, err = s.prepare(dir); err != nil {
				return err
			}
			return (*s.control).Start(ctx)
		})
	}
	if err := g.Wait(); err != nil || t.opt.Database == nil {
		return err
	}
	_, addr, _ := strings.Cut(t.DSN, "tcp(")
	addr, _, _ = strings.Cut(addr, ")")
	proxy, err := t.opt.Database(addr)
	t.DSN = strings.Replace(t.DSN, addr, proxy, 1)
	return err
}

// makeKeys runs the script that a bank runs.
func (t *Topology) makeKeys(ctx context.Context) error {
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "deploy", "keys.sh"), filepath.Join(t.Dir, "keys"))
	cmd.Env = append(os.Environ(), "PROGRAM="+t.opt.Program)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

func (t *Topology) migrate(ctx context.Context) error {
	_, err := t.run(ctx, "migrate", "--db", "mysql:"+t.DSN)
	return err
}

// run is one dispatch command and what it printed.
func (t *Topology) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, t.opt.Program, args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("dispatch %s: %w\n%s", args[0], err, exit.Stderr)
	}
	return string(out), err
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second}, Timeout: time.Minute}
}

// firstDomains are those of the example.
var firstDomains = Domains{Serving: "sh-main", Standby: "sh-spare"}

// Single is a topology of one process that somebody else started and ends, for
// its calls. It serves the example document.
func Single(n *Node) *Topology {
	return &Topology{Controls: []*Node{n}, http: newClient(), Domain: firstDomains}
}

// Root is the checkout's folder.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "dispatch.example/dispatch").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	return string(out[:len(out)-1]), nil // a line
}

// Document is what is published at the start unless Options say otherwise.
func Document() ([]byte, error) { return examples.Files.ReadFile(examples.Demo) }

// Stop ends every process that Start started and removes their files.
func (t *Topology) Stop() error {
	var errs []error
	all := []*testenv.Control{t.Proxy}
	for _, n := range append(t.Edges, t.Controls...) {
		all = append(all, n.Control)
		errs = append(errs, n.closeLinks())
	}
	all = append(all, t.Consul, t.Redis, t.MariaDB)
	g := errgroup.Group{}
	for _, c := range all {
		if c != nil {
			g.Go(func() error { return c.Stop(20 * time.Second) })
		}
	}
	errs = append(errs, g.Wait())
	t.http.CloseIdleConnections()
	return errors.Join(append(errs, os.RemoveAll(t.Dir))...)
}

// ConsulURL is the registry's HTTP API.
func (t *Topology) ConsulURL() string { return "http://" + t.consul }

// RedisAddr is the address of Redis.
func (t *Topology) RedisAddr() string { return t.redisAddr }
