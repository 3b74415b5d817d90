package grpccall

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/trace"
)

// call is one call on its way: all that it needs, in one allocation.
type call struct {
	conn    *grpc.ClientConn
	service string
	method  string
	opts    []grpc.CallOption
	guard   guard.Call
	ctx     context.Context    // of what is sent
	cancel  context.CancelFunc // nil: the deadline is not ours
	first   attempt
	now     *attempt // the last one
}

// attempt is the context of what is sent. Each has its own: gRPC may still hold that
// of one that failed.
type attempt struct {
	context.Context
	to       discovery.Address
	sent     atomic.Bool // there was a connection for it
	ownFault atomic.Bool // there was none for want of something here
}

type attemptKey struct{}

// Value knows the attempt.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// begin is a call with its first pick. Who gets it without an error ends its guard.
func (d *Dialer) begin(ctx context.Context, conn *grpc.ClientConn, method string, opts []grpc.CallOption) (*call, error) {
	service, ok := strings.CutPrefix(conn.Target(), scheme+":///")
	if !ok { // written in another way
		service, ok = strings.CutPrefix(conn.CanonicalTarget(), scheme+":///")
	}
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "target %s is not dispatch:///SERVICE", conn.Target())
	}
	c := &call{ctx: ctx, conn: conn, service: service, method: method, opts: opts}
	var err error
	if c.guard, err = d.guard.Begin(ctx, service); err != nil {
		return c, unmade{err}
	}
	if err = c.guard.Next(ctx); err != nil {
		c.guard.End()
		return c, unmade{err}
	}
	return c, nil
}

// unary returns the interceptor of unary calls.
func (d *Dialer) unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		c, err := d.begin(ctx, conn, method, opts)
		if err != nil {
			return d.instead(ctx, c, reply, err)
		}
		defer c.close() // also when an interceptor panics
		if !c.guard.Own {
			c.ctx, c.cancel = context.WithDeadline(ctx, c.guard.Deadline)
		}
		d.address(c)
		for {
			c.aim()
			err := invoke(c.now, method, req, reply, conn, opts...)
			outcome, took := c.outcomeOf(err, req), c.guard.Took()
			c.guard.Done(ctx, outcome, took)
			if outcome == caller.Answered || outcome == caller.Canceled {
				return err
			}
			if stop := d.again(ctx, c, outcome); stop != nil {
				return d.instead(ctx, c, reply, c.failure(outcome, took, stop, err))
			}
		}
	}
}

func (c *call) close() {
	c.guard.End()
	if c.cancel != nil {
		c.cancel()
	}
}

// again picks for another attempt, or says why there is none.
func (d *Dialer) again(ctx context.Context, c *call, o caller.Outcome) error {
	if o != caller.Unreachable && !d.mayRepeat(c.method, c.opts) {
		return guard.NotIdempotent
	}
	return c.guard.Next(ctx)
}

// aim lets the next attempt go where the pick says.
func (c *call) aim() {
	c.now = &c.first
	ctx := c.ctx
	if c.guard.Attempts > 1 {
		c.now = &attempt{}
	}
	if c.guard.Again(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, retryKey, "1")
	}
	c.now.Context, c.now.to = ctx, c.guard.Pick.Instance.Address
	for _, opt := range c.opts {
		if told, ok := opt.(pickTo); ok {
			*told.pick = c.guard.Pick
		}
	}
}

// address puts the lane and the trace into the metadata of what is sent, in place of
// what is there.
func (d *Dialer) address(c *call) {
	ctx := c.ctx
	before := metadata.ValueFromOutgoingContext(ctx, baggageKey)
	lane := baggage.Out(ctx, d.guard.Lane(ctx), before)
	parent, state := trace.Out(ctx)
	if before != nil || parent != "" && metadata.ValueFromOutgoingContext(ctx, traceKey) != nil {
		md, _ := metadata.FromOutgoingContext(ctx) // a copy
		delete(md, baggageKey)
		if parent != "" {
			delete(md, traceKey)
			delete(md, stateKey)
		}
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	var room [6]string
	pairs := room[:0]
	if lane != "" {
		pairs = append(pairs, baggageKey, lane)
	}
	if parent != "" {
		pairs = append(pairs, traceKey, parent)
	}
	if state != "" {
		pairs = append(pairs, stateKey, state)
	}
	if len(pairs) > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	}
	c.ctx = ctx
}

// failure is the Error of a call.
func (c *call) failure(o caller.Outcome, took time.Duration, stop, err error) *Error {
	return &Error{Service: c.service, Pick: c.guard.Pick, Attempts: c.guard.Attempts, Outcome: o, Took: took, Stop: stop, Err: err}
}
