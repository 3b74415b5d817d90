package drills

import (
	"context"
	"net/http"
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
	t.Cleanup(source.Close)
	return follow(t, caller.Options{Self: home("v1"), Registry: source, Services: services})
}

// follow runs a caller until the test ends, and waits until it is ready.
func follow(t testing.TB, opt caller.Options) *caller.Caller {
	t.Helper()
	c, err := caller.New(opt)
	must(t, err)
	during(t, func(ctx context.Context) { _ = c.Run(ctx) }) // it ends with ctx
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
