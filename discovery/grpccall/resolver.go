package grpccall

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"dispatch.example/dispatch/discovery"
)

// resolverBuilder implements resolver.Builder for the connections that are given it.
type resolverBuilder struct{ caller Caller }

// Scheme implements resolver.Builder.
func (resolverBuilder) Scheme() string { return scheme }

// Build implements resolver.Builder.
func (b resolverBuilder) Build(target resolver.Target, conn resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	switch {
	case target.URL.Host != "" || target.Endpoint() == "":
		return nil, fmt.Errorf("target %s is not dispatch:///SERVICE", &target.URL)
	case opts.DisableServiceConfig:
		return nil, fmt.Errorf("target %s: with WithDisableServiceConfig gRPC would choose instances by itself", &target.URL)
	}
	ctx, cancel := context.WithCancel(context.Background()) // ended by Close
	r := &watch{caller: b.caller, service: target.Endpoint(), conn: conn, config: conn.ParseServiceConfig(serviceConfig), cancel: cancel}
	r.running.Go(func() { r.run(ctx) })
	return r, nil
}

// watch tells the balancer of one connection who the candidates are. It gives gRPC
// no addresses: another balancer than ours would choose among them by its own mind.
type watch struct {
	caller  Caller
	service string
	conn    resolver.ClientConn
	config  *serviceconfig.ParseResult
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (w *watch) run(ctx context.Context) {
	for {
		all, number, changed := w.caller.Candidates(w.service)
		c := &candidates{addresses: make(map[discovery.Address]bool, len(all)), number: number}
		for i := range all {
			c.addresses[all[i].Address] = true
		}
		// An error asks for another try, which would say the same.
		_ = w.conn.UpdateState(resolver.State{ServiceConfig: w.config, Attributes: attributes.New(candidatesKey{}, c)})
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// ResolveNow implements resolver.Resolver. There is nothing newer to be had.
func (w *watch) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (w *watch) Close() {
	w.cancel()
	w.running.Wait()
}

type candidatesKey struct{}

// candidates are those that picks may choose.
type candidates struct {
	addresses map[discovery.Address]bool
	number    uint64 // of the service's rules
}
