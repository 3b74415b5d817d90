package drills

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/httpcall"
)

// connect is a caller in this process that follows services until the test ends.
func connect(t testing.TB, registry string, services ...string) *caller.Caller {
	t.Helper()
	source, err := discovery.Open(registry, discovery.Options{})
	must(t, err)
	c, err := caller.New(caller.Options{Self: home("v1"), Registry: source, Services: services})
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) }) // it ends with ctx
	t.Cleanup(func() {
		stop()
		running.Wait()
		source.Close()
	})
	must(t, c.Ready(t.Context()))
	return c
}

// webClient calls by HTTP as a user gets it, through base; nil is a transport of its own.
func webClient(t testing.TB, c *caller.Caller, base http.RoundTripper) *http.Client {
	t.Helper()
	client := &http.Client{Transport: httpcall.New(c, base)}
	t.Cleanup(client.CloseIdleConnections)
	return client
}
