package httpcall

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/trace"
)

// call is one request on its way: all that it needs, in one allocation.
type call struct {
	transport *Transport
	req       *http.Request // as it came
	guard     guard.Call
	ctx       context.Context // of what is sent: it ends at the deadline
	cancel    context.CancelFunc
	header    http.Header // of what is sent
	values    [4]string   // that the header got from here
	first     attempt
	now       *attempt     // the last one
	pool      *pool        // that it was sent by
	named     http.Request // what a response is to: the request as it came, for PickOf
	origin    origin
	pick      caller.Pick // that of the response
	body      body
	took      time.Duration // until the headers
	told      atomic.Bool   // how it ended
}

// attempt is what is sent. Each has its own: net/http may still write one that failed.
type attempt struct {
	req   http.Request
	to    url.URL
	feed  feed // of its body
	stage atomic.Int32
	held  atomic.Pointer[link]
}

type callKey struct{}

// origin is the context of a response's request. It does not end at the deadline, so
// that it can be used after the call.
type origin struct {
	context.Context
	call *call
}

// Value knows the call.
func (o *origin) Value(key any) any {
	if key == (callKey{}) {
		return o.call
	}
	return o.Context.Value(key)
}

// run makes attempts until one is the last.
func (c *call) run() (*http.Response, error) {
	ctx := c.req.Context()
	var err error
	if c.guard, err = c.transport.guard.Begin(ctx, c.req.URL.Host); err == nil {
		err = c.guard.Next(ctx)
	}
	if err != nil {
		closeBody(c.req)
		c.guard.End()
		return c.instead(nil, err)
	}
	c.limit(ctx)
	c.address(ctx)
	for {
		resp, err := c.send()
		c.took = c.guard.Took()
		outcome := c.outcomeOf(resp, err)
		if outcome == caller.Answered {
			c.guard.Began(c.took)
			return c.answer(resp), nil
		}
		c.guard.Done(ctx, outcome, c.took)
		stop := c.again(ctx, resp, outcome)
		if stop == nil {
			c.now.letGo()
			if resp != nil {
				drop(resp)
			}
			continue
		}
		c.told.Store(true)
		c.guard.End()
		if resp != nil {
			resp, err = c.answer(resp), errors.New("status "+resp.Status)
		} else {
			c.end()
		}
		return c.instead(resp, c.failure(outcome, stop, err))
	}
}

// limit gives the call its deadline, unless the caller did.
func (c *call) limit(ctx context.Context) {
	c.ctx = ctx
	if !c.guard.Own {
		c.ctx, c.cancel = context.WithDeadline(ctx, c.guard.Deadline)
	}
}

// address writes the lane and the trace into the header of what is sent. The map is
// copied, the values are shared: nobody may change them.
func (c *call) address(ctx context.Context) {
	before := c.req.Header
	lane := baggage.Out(ctx, c.transport.guard.Lane(ctx), before[baggage.Header])
	parent, state := trace.Out(ctx)
	retry := c.guard.Again(ctx)
	if lane == "" && parent == "" && !retry && before != nil && before[baggage.Header] == nil {
		c.header = before
		return
	}
	room := len(before) + 1
	if retry {
		room++
	}
	if parent != "" {
		room += 2
	}
	c.header = make(http.Header, room)
	maps.Copy(c.header, before)
	c.set(0, baggage.Header, lane)
	if parent != "" {
		c.set(1, trace.Header, parent)
		c.set(2, trace.StateHeader, state)
	}
	if retry {
		c.set(3, guard.RetryHeader, "1")
	}
}

func (c *call) set(at int, name, value string) {
	if value == "" {
		delete(c.header, name)
		return
	}
	c.values[at] = value
	c.header[name] = c.values[at : at+1 : at+1]
}

// send makes one attempt.
func (c *call) send() (*http.Response, error) {
	a := &c.first
	again := c.guard.Attempts > 1
	if again {
		a = &attempt{}
	}
	c.now, c.pool = a, c.transport.poolFor(c.req.URL.Host, c.guard.Pick.Number)
	a.to = *c.req.URL
	a.to.Host = c.pool.text(c.guard.Pick.Instance.Address)
	ctx := c.ctx
	if much := sendsMuch(c.req); much || a.to.Scheme == "https" {
		ctx = httptrace.WithClientTrace(ctx, a.trace(much))
	}
	a.req = *c.req.WithContext(ctx)
	a.req.URL, a.req.Header = &a.to, c.header
	a.req.Host = cmp.Or(c.req.Host, c.req.URL.Host)
	if again {
		a.req.Header = c.header.Clone()
		a.req.Header.Set(guard.RetryHeader, "1")
	}
	if again && c.req.GetBody != nil {
		var err error
		if a.req.Body, err = c.req.GetBody(); err != nil {
			a.feed.spoiled.Store(true)
			return nil, err
		}
	}
	if !mayWait(c.req) {
		return c.pool.send.RoundTrip(&a.req)
	}
	a.watch()
	if !c.pool.ours {
		return c.pool.send.RoundTrip(&a.req)
	}
	return a.inTime(c.ctx, c.pool.send)
}

// dropped is how long an answer may be that nobody reads, so that its connection is
// kept.
const dropped = 4 << 10

// drop ends an answer that another attempt replaces. A connection whose answer was not
// read cannot be used again, and who answers 503 under load should not be connected to
// anew for each; the next attempt waits for none of it. It ends with the call.
func drop(resp *http.Response) {
	if resp.ContentLength < 0 || resp.ContentLength > dropped {
		_ = resp.Body.Close() // nobody reads it
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
}

// again picks for another attempt, or says why there is none.
func (c *call) again(ctx context.Context, resp *http.Response, outcome caller.Outcome) error {
	switch {
	case outcome == caller.Canceled:
		return guard.Pointless
	case resp != nil && !passing(resp.StatusCode):
		return guard.Pointless
	case outcome != caller.Unreachable && !idempotent(c.req):
		return guard.NotIdempotent
	case hasBody(c.req) && c.req.GetBody == nil:
		return guard.NoBody
	}
	return c.guard.Next(ctx)
}

// answer gives a response to the caller, with the name in its request, so that
// relative redirects stay by name.
func (c *call) answer(resp *http.Response) *http.Response {
	c.origin, c.pick = origin{c.req.Context(), c}, c.guard.Pick
	c.named = *c.req.WithContext(&c.origin)
	resp.Request = &c.named
	if resp.StatusCode == http.StatusSwitchingProtocols {
		c.now.held.Store(nil) // the connection is its owner's now, and stays patient
	}
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		c.tell(caller.Answered)
		return resp
	}
	c.body = body{resp.Body, c}
	resp.Body = &c.body
	return resp
}

// tell says how the call ended, once, and lets its deadline go.
func (c *call) tell(o caller.Outcome) {
	if !c.told.Swap(true) {
		c.guard.Done(c.req.Context(), o, c.took)
		c.guard.End()
	}
	c.end()
}

// end lets go what the call has. The connections of a pool that is in use no longer are
// closed when their last call ends.
func (c *call) end() {
	if c.cancel != nil {
		c.cancel()
	}
	c.now.letGo()
	if c.pool.old.Load() {
		c.pool.close()
	}
}
