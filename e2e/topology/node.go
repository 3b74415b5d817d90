package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/internal/testenv"
)

// Node is one dispatch process.
type Node struct {
	*testenv.Control
	Role    string
	Region  string
	Cluster string
	Public  string // addresses; those that the role does not have are empty
	Admin   string
	Ops     string
	Fleet   string
	Data    string

	// Links lead from an edge to what it gets releases from, if Options.Links.
	Links []*testenv.Proxy
	to    []string // where each leads
}

// Cut takes an edge off everything behind it: open connections end, new ones fail.
func (n *Node) Cut() {
	for _, l := range n.Links {
		l.Cut()
	}
}

// Heal undoes Cut.
func (n *Node) Heal() {
	for i, l := range n.Links {
		l.Point(n.to[i])
	}
}

func (n *Node) closeLinks() error {
	var errs []error
	for _, l := range n.Links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// planNodes gives every node its addresses, folder and command line.
func (t *Topology) planNodes(context.Context) error {
	for i := range t.opt.Controls {
		n := &Node{Role: "control", Region: []string{"sh", "hf"}[i%2], Cluster: "k1"}
		if err := t.give(n, controlName(i), &n.Admin, &n.Ops, &n.Fleet); err != nil {
			return err
		}
		t.Controls = append(t.Controls, n)
	}
	for _, city := range []string{"sh", "hf"} {
		for i := range t.opt.Edges {
			n := &Node{Role: "edge", Region: city, Cluster: []string{"k1", "k2"}[i%2]}
			if err := t.give(n, fmt.Sprintf("edge-%s-%d", city, i+1), &n.Public, &n.Ops); err != nil {
				return err
			}
			t.Edges = append(t.Edges, n)
		}
	}
	for _, n := range t.Controls {
		n.Args = append([]string{t.opt.Program}, t.controlArgs(n)...)
		n.Env = []string{"DISPATCH_DB=mysql:" + t.DSN}
	}
	for _, n := range t.Edges {
		args, err := t.edgeArgs(n)
		if err != nil {
			return err
		}
		n.Args = append([]string{t.opt.Program}, args...)
		if t.opt.Pinned || t.opt.Apart && n == t.Edges[0] {
			n.Args = append([]string{"taskset", "-c", "0"}, n.Args...)
			n.Env = []string{"GOMAXPROCS=1"}
		}
	}
	return nil
}

func controlName(i int) string {
	if i == 0 {
		return "control"
	}
	return fmt.Sprintf("control-%d", i+1)
}

func (t *Topology) give(n *Node, name string, addresses ...*string) (err error) {
	n.Data = filepath.Join(t.Dir, name)
	if err := os.Mkdir(n.Data, 0o700); err != nil {
		return err
	}
	log := filepath.Join(n.Data, "log")
	if elsewhere := t.opt.EdgeData[name]; elsewhere != "" {
		n.Data = elsewhere
	}
	for _, a := range addresses {
		if *a, err = testenv.FreeAddr(); err != nil {
			return err
		}
	}
	n.Control = &testenv.Control{Name: name, Log: log, Up: testenv.Answers("http://" + n.Ops + "/healthz")}
	return nil
}

// environment stands in what is typed to confirm an emergency.
const environment = "prod"

// commonArgs are what control nodes and edges share.
func (t *Topology) commonArgs(n *Node) []string {
	keys := filepath.Join(t.Dir, "keys", n.Role)
	return []string{"serve", "--role", n.Role, "--replica-id", n.Name, "--data", n.Data,
		"--deployment", Deployment, "--allowed-suffixes", Suffixes, "--ops-listen", n.Ops,
		"--region", n.Region, "--cluster", n.Cluster, "--env", environment, "--version-label", "v1",
		"--session-key-file", keys + "/session.jwks", "--list-key-file", keys + "/list.jwks",
		"--fleet-tls-cert", keys + "/fleet.crt", "--fleet-tls-key", keys + "/fleet.key", "--fleet-tls-ca", keys + "/ca.crt"}
}

func (t *Topology) controlArgs(n *Node) []string {
	keys := filepath.Join(t.Dir, "keys", n.Role)
	args := append(t.commonArgs(n), "--admin-listen", n.Admin, "--fleet-listen", n.Fleet,
		"--publisher-key-file", keys+"/publisher.jwks", "--record-key-file", keys+"/record.jwks", "--list-seal-key-file", keys+"/list-seal.jwks",
		"--discovery", "consul://"+t.consul, "--audit-sink", n.Data+"/audit-head.jsonl", "--canary-time", t.opt.Canary.String(), "--probes", "off") // nothing outside this machine
	if !t.opt.NoRedis {
		args = append(args, "--redis", "redis://"+t.redisAddr)
	}
	return args
}

func (t *Topology) edgeArgs(n *Node) ([]string, error) {
	redis, controls := t.redisAddr, []string{}
	for _, c := range t.Controls {
		controls = append(controls, c.Fleet)
	}
	if t.opt.Links {
		for _, a := range append([]*string{&redis}, pointers(controls)...) {
			link, err := testenv.NewProxy(*a)
			if err != nil {
				return nil, err
			}
			n.Links, n.to = append(n.Links, link), append(n.to, *a)
			*a = link.Addr()
		}
	}
	args := append(t.commonArgs(n), "--listen", n.Public, "--trusted-proxies", "127.0.0.1/32",
		"--trust-keys", filepath.Join(t.Dir, "keys", "edge", "trust.jwks"), "--control", "https://"+strings.Join(controls, ",https://"))
	args = append(args, t.opt.EdgeArgs...)
	if !t.opt.NoRedis {
		args = append(args, "--redis", "redis://"+redis)
	}
	if !t.opt.Links { // else the registry would lead around the links
		args = append(args, "--discovery", "consul://"+t.consul)
	}
	return args, nil
}

func pointers(list []string) []*string {
	out := make([]*string, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// startControls starts the first, which makes the first token, then the others.
func (t *Topology) startControls(ctx context.Context) error {
	first, err := t.run(ctx, "admin", "init", "--db", "mysql:"+t.DSN)
	if err != nil {
		return err
	}
	t.Token, _, _ = strings.Cut(first, "\n") // an account and its password follow
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range t.Controls {
		g.Go(func() error {
			if err := n.Start(ctx); err != nil {
				return err
			}
			return t.waitAdmin(ctx, n)
		})
	}
	return g.Wait()
}

// startEdges starts all edges and waits until they serve the newest release.
func (t *Topology) startEdges(ctx context.Context) error {
	g, starting := errgroup.WithContext(ctx)
	for _, n := range t.Edges {
		g.Go(func() error { return n.Start(starting) })
	}
	if err := g.Wait(); err != nil || t.opt.Empty {
		return err
	}
	number, err := t.Head(ctx)
	if err != nil {
		return err
	}
	err = t.WaitServing(ctx, number)
	for _, n := range t.Edges {
		if err != nil {
			err = fmt.Errorf("%w\n%s printed\n%s", err, n.Name, n.Tail())
		}
	}
	return err
}

// Edge is the edge of a name.
func (t *Topology) Edge(name string) *Node {
	for _, n := range t.Edges {
		if n.Name == name {
			return n
		}
	}
	return nil
}
