package grpccall

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
)

// Degraded fills in the reply of a call whose service cannot, from memory: nothing
// limits it. why is or has in it a *guard.Open, a *route.NoMatch or an *Error. With an
// error the call ends as it did.
type Degraded func(ctx context.Context, method string, reply any, why error) error

// DegradedKey flags a degraded value in the header of its call, with why: breaker,
// nobody, unreachable, failed or silent. HTTP has the same.
const DegradedKey = "dispatch-degraded"

// DegradedOf is why a reply is a degraded value; empty if it is none. header is what
// the call option grpc.Header got. A service that hands such a value on may hand the
// flag on too.
func DegradedOf(header metadata.MD) string {
	if flags := header.Get(DegradedKey); len(flags) > 0 {
		return flags[0]
	}
	return ""
}

// instead is the end of a call that failed: the degraded value of its method or
// service, or why it failed.
func (d *Dialer) instead(ctx context.Context, c *call, reply any, why error) error {
	reason := reasonOf(why)
	if c == nil || reason == "" {
		return why
	}
	value := d.Degraded[c.method]
	if value == nil {
		value = d.Degraded[c.service]
	}
	if value == nil || value(ctx, c.method, reply, why) != nil {
		return why
	}
	d.guard.Degraded(c.service, reason)
	for _, opt := range c.opts {
		if header, ok := opt.(grpc.HeaderCallOption); ok {
			*header.HeaderAddr = metadata.Pairs(DegradedKey, reason)
		}
	}
	return nil
}

// reasonOf is the flag of a failure; empty for one that no value may hide: the caller
// gave up, or is set up wrongly.
func reasonOf(why error) string {
	if _, ok := errors.AsType[*guard.Open](why); ok {
		return guard.Refused
	}
	if _, ok := errors.AsType[*route.NoMatch](why); ok {
		return guard.Nobody
	}
	if failed, ok := errors.AsType[*Error](why); ok && failed.Outcome != caller.Canceled {
		return failed.Outcome.String()
	}
	return ""
}
