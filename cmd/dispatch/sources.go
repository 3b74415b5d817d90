package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/fleet"
)

// The services that discovery knows this process by.
const (
	serviceFleet  = "dispatch.fleet"  // control nodes' fleet listeners
	servicePublic = "dispatch.public" // replicas that answer apps
)

// The labels of an instance of serviceFleet.
const (
	labelScheme  = "scheme"  // http or https
	labelReplica = "replica" // whose it is
)

// lookupTimeout bounds the look-up of a name that may be our own.
const lookupTimeout = 2 * time.Second

// follow keeps the follower's set of sources: Redis, the control nodes that the
// command line names, and those that discovery finds. This node itself is none.
func (n *node) follow(ctx context.Context) error {
	var fixed []fleet.Source
	if n.redis != nil {
		fixed = append(fixed, n.redis)
	}
	n.follower.Use(fixed) // before names are looked up, which may take its time
	for _, control := range n.p.cfg.Fleet.Control {
		if n.own(ctx, control) {
			continue
		}
		source, err := n.source(control)
		if err != nil {
			return fmt.Errorf("--control: %w", err)
		}
		fixed = append(fixed, source)
	}
	n.follower.Use(fixed)
	if n.controls == nil {
		<-ctx.Done()
		return nil
	}
	for {
		found, changed := n.controls.Current()
		// A registry that knows nobody is wiped or wrong: who was there is asked on.
		if len(found.Instances) > 0 {
			n.follower.Use(slices.Concat(fixed, n.discovered(ctx, found.Instances)))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// discovered are the sources of the instances that may be asked.
func (n *node) discovered(ctx context.Context, instances []discovery.Instance) (sources []fleet.Source) {
	for _, in := range instances {
		if in.Labels[labelReplica] == n.self.ID {
			continue
		}
		scheme := in.Labels[labelScheme]
		if scheme == "" {
			scheme = n.p.cfg.Fleet.scheme()
		}
		control := scheme + "://" + in.Address.String()
		if problem := controlProblem(control); problem != "" {
			n.p.log.WarnContext(ctx, "a control node that discovery found is not asked", "id", in.ID, "why", problem)
			continue
		}
		source, err := n.source(control)
		if err != nil {
			n.p.log.WarnContext(ctx, "a control node that discovery found is not asked", "id", in.ID, "why", err)
			continue
		}
		sources = append(sources, source)
	}
	return sources
}

func (n *node) source(control string) (fleet.Source, error) {
	return fleet.NewHTTP(fleet.HTTPOptions{URL: control, Token: n.token(), TLS: n.tls})
}

// own says whether a URL leads to this node's fleet listener, so that all control
// nodes may be started with the same list.
func (n *node) own(ctx context.Context, control string) bool {
	if n.p.fleetL == nil {
		return false
	}
	u, err := url.Parse(control)
	if err != nil {
		return false
	}
	listener, ok := n.p.fleetL.Addr().(*net.TCPAddr)
	if !ok || u.Port() != strconv.Itoa(listener.Port) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, u.Hostname())
	if err != nil {
		return false
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(a net.IPAddr) bool {
		return listener.IP.Equal(a.IP) || listener.IP.IsUnspecified() && slices.ContainsFunc(interfaces, func(i net.Addr) bool {
			network, ok := i.(*net.IPNet)
			return ok && network.IP.Equal(a.IP)
		})
	})
}

// tlsFiles are what the fleet listener and calls to other nodes are secured with.
func (f *fleetFlags) tlsFiles() (server, client *tls.Config, err error) {
	server, client = &tls.Config{MinVersion: tls.VersionTLS12}, &tls.Config{MinVersion: tls.VersionTLS12}
	if f.FleetTLSCert != "" {
		cert, err := tls.LoadX509KeyPair(f.FleetTLSCert, f.FleetTLSKey)
		if err != nil {
			return nil, nil, fmt.Errorf("--fleet-tls-cert: %w", err)
		}
		server.Certificates, client.Certificates = []tls.Certificate{cert}, []tls.Certificate{cert}
	}
	if f.FleetTLSCA == "" {
		return server, client, nil
	}
	pem, err := os.ReadFile(f.FleetTLSCA)
	if err != nil {
		return nil, nil, fmt.Errorf("--fleet-tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("--fleet-tls-ca: %s holds no certificate in PEM", f.FleetTLSCA)
	}
	server.ClientCAs, server.ClientAuth, client.RootCAs = pool, tls.RequireAndVerifyClientCert, pool
	return server, client, nil
}
