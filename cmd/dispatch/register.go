package main

import (
	"context"
	"net"
	"strings"

	"dispatch.example/dispatch/discovery"
)

// register enters this replica's listeners in the registry until ctx ends. A
// registry that is away keeps nobody from serving: it is tried again.
func (n *node) register(ctx context.Context) error {
	if n.registry == nil || strings.HasPrefix(n.p.cfg.Fleet.Discovery, "static:") { // a file is written by people
		<-ctx.Done()
		return nil
	}
	instances := n.instances()
	if len(instances) == 0 {
		<-ctx.Done()
		return nil
	}
	r, err := discovery.Register(ctx, n.registry, discovery.RegisterOptions{Log: n.p.log, Force: n.localOnly(), Retry: true}, instances...)
	if err == nil {
		return r.Run(ctx)
	}
	if ctx.Err() == nil {
		n.p.log.ErrorContext(ctx, "this replica cannot be registered; it serves those who know its address", "err", err)
		<-ctx.Done()
	}
	return nil
}

// instances are this replica's listeners, as others reach them. One that only this
// machine reaches is none, unless all are.
func (n *node) instances() (all []discovery.Instance) {
	c := n.p.cfg
	add := func(l net.Listener, service, scheme string) {
		if l == nil {
			return
		}
		tcp := l.Addr().(*net.TCPAddr) // listen opens no others
		if tcp.IP.IsLoopback() && !n.localOnly() {
			n.p.log.Warn("a listener is not registered: only this machine reaches it", "service", service, "address", tcp.String(),
				"try", "an address of the network for --fleet-listen and --listen, or loopback for both")
			return
		}
		in := discovery.Instance{Service: service, Address: discovery.Address{Port: uint16(tcp.Port)}, ID: n.self.ID + "-" + strings.TrimPrefix(service, "dispatch."),
			Coordinates: discovery.Coordinates{Cluster: c.Cluster, Region: c.Region, Env: c.Env, Version: c.VersionLabel},
			Labels:      map[string]string{labelReplica: n.self.ID, labelScheme: scheme}, Started: n.started}
		if !tcp.IP.IsUnspecified() {
			in.Address.Host = tcp.IP.String()
		}
		all = append(all, in)
	}
	add(n.p.public, servicePublic, "http")
	add(n.p.fleetL, serviceFleet, c.Fleet.scheme())
	return all
}

// localOnly says whether every listener is bound to loopback: then only callers on
// this machine are meant.
func (n *node) localOnly() bool {
	for _, l := range []net.Listener{n.p.public, n.p.fleetL} {
		if l != nil && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			return false
		}
	}
	return true
}
