package guard

import (
	"context"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/breaker"
	"dispatch.example/dispatch/discovery/caller"
)

// Call is one guarded call. It is a value: copy it nowhere once Next was called. It
// is used by one goroutine at a time.
type Call struct {
	// Deadline is when the call must have ended. Own says that the caller set it; else
	// the transport must see to it.
	Deadline time.Time
	Own      bool
	// Pick is where the last attempt goes, and Attempts how many were made.
	Pick     caller.Pick
	Attempts int

	guard   *Guard
	name    string
	service *service // nil: it was never picked for
	permit  breaker.Permit
	held    bool // permit is
	off     bool
	ended   bool
	begun   time.Time
	at      time.Time     // the last attempt began
	took    time.Duration // of the call, until the answer of its last attempt
	outcome caller.Outcome
	tried   [MaxRetries + 1]*discovery.Instance
}

// Begin asks the breaker of the service. When that is open the error is *Open, and
// there is no Call; to End it does nothing. A context that has ended already is its
// own error.
func (g *Guard) Begin(ctx context.Context, name string) (Call, error) {
	c := Call{guard: g, name: name, service: g.known(name), begun: time.Now(), outcome: caller.Canceled}
	c.at = c.begun
	var set Settings
	if c.service != nil {
		set = c.service.set
	} else {
		set = g.opt.settings(name)
	}
	c.off = set.Off || g.off.Load()
	if c.Deadline, c.Own = ctx.Deadline(); !c.Own {
		c.Deadline = c.begun.Add(set.Deadline)
	}
	if err := ctx.Err(); err != nil {
		return Call{}, err
	}
	if !c.allow(c.begun) {
		return Call{}, g.refuse(ctx, c.service, c.begun)
	}
	return c, nil
}

// allow takes a permit. A service that was never called has none to ask for.
func (c *Call) allow(now time.Time) bool {
	if c.off || c.service == nil {
		return true
	}
	c.permit, c.held = c.service.breaker.Allow(now)
	return c.held
}

func (c *Call) release() {
	if c.held {
		c.service.breaker.Release(c.permit)
		c.held = false
	}
}

// Next picks for the next attempt and leaves the pick in c.Pick. For the first one an
// error is that of Caller.Pick. After an attempt that failed, and that the transport
// may make once more, it picks another instance, in the same coordinates; an error is
// then a Stop, or that of Caller.PickOther, and c.Pick stays.
func (c *Call) Next(ctx context.Context) error {
	if c.Attempts > 0 {
		return c.retry(ctx)
	}
	pick, err := c.guard.caller.Pick(ctx, c.name)
	c.Pick = pick
	if err != nil {
		return err
	}
	if c.service == nil {
		c.service = c.guard.serviceOf(c.name)
		c.allow(c.begun)
	}
	c.service.budget.earn()
	c.tried[0], c.Attempts = pick.Instance, 1
	return nil
}

// Took is the time since the attempt began.
func (c *Call) Took() time.Duration { return time.Since(c.at) }

// Began says that the answer of an attempt began, and after how long. A transport
// whose answers have an end says so besides Done: the breaker then learns of it now,
// and nothing from Done. A probe whose answer takes long to read would not count else.
func (c *Call) Began(took time.Duration) { c.learn(caller.Answered, took, time.Now()) }

// Done says how an attempt ended, and how long its answer took to begin, which is
// earlier than now where a body was read. It is told once for each attempt.
func (c *Call) Done(ctx context.Context, o caller.Outcome, took time.Duration) {
	now := time.Now()
	c.outcome, c.took = o, c.at.Sub(c.begun)+took
	if o == caller.Silent && c.hurried(now) {
		o = caller.Canceled
	}
	c.guard.caller.Done(ctx, &c.Pick, o)
	c.learn(o, took, now)
}

// hurried says whether the callee had less time than is its own to take: its caller
// came with so little. Its silence says nothing then.
func (c *Call) hurried(now time.Time) bool {
	return c.Own && now.Sub(c.at) < min(c.service.set.Deadline, c.service.set.Slow)
}

// learn tells the breaker, once for each attempt.
func (c *Call) learn(o caller.Outcome, took time.Duration, now time.Time) {
	if !c.held {
		return
	}
	if o == caller.Canceled {
		c.release()
		return
	}
	c.held = false
	if c.service.breaker.Done(c.permit, o != caller.Answered, took, now) {
		c.guard.watch(c.service, now)
	}
}

// End counts the call by how its last attempt ended, and gives back what is held. A
// call ends once; more often does no harm.
func (c *Call) End() {
	if c.ended || c.guard == nil {
		return
	}
	c.ended = true
	c.release()
	if c.Attempts == 0 {
		c.guard.metrics.nobody(c.service)
		return
	}
	c.service.count.call(c.outcome, c.took)
}

// Stop says why a call that failed is not tried again.
type Stop string

// The reasons.
const (
	UsedUp  Stop = "retries are used up"
	NoTime  Stop = "too little time left for a connection"
	Budget  Stop = "retries are a fifth of all calls already"
	Single  Stop = "single instance that takes calls"
	Breaker Stop = "the breaker opened"
	Nested  Stop = "the request that it is for is a retry itself"
	// Those of transports, which do not ask Next then.
	NotIdempotent Stop = "it may have had its effect, and is not idempotent"
	NoBody        Stop = "its body cannot be sent again"
	Pointless     Stop = "another instance would do no better"
)

// Error is the reason.
func (s Stop) Error() string { return "not tried again: " + string(s) }

// RetryHeader is what a transport sends with an attempt where Call.Again says so, also
// as metadata of gRPC. Its value is 1.
const RetryHeader = "Dispatch-Retry"

type retryKey struct{}

// AsRetry returns the context of a request that came in with RetryHeader. Calls for it
// are not tried again: each hop that does so would multiply with the one before.
func AsRetry(ctx context.Context) context.Context { return context.WithValue(ctx, retryKey{}, true) }

// Again says whether an attempt is to be sent with RetryHeader: it is not the first, or
// it is for a request that is a retry itself, however many hops back it was made.
func (c *Call) Again(ctx context.Context) bool {
	return c.Attempts > 1 || ctx.Value(retryKey{}) != nil
}

// retry is Next after a failure.
func (c *Call) retry(ctx context.Context) error {
	switch s := c.service; {
	case c.off || c.Attempts > s.set.Retries:
		return UsedUp
	case ctx.Value(retryKey{}) != nil:
		return c.stop(Nested)
	case time.Until(c.Deadline) < min(DialLimit, c.Deadline.Sub(c.begun)/2):
		return c.stop(NoTime)
	case !s.budget.spend():
		return c.stop(Budget)
	}
	pick, err := c.other(ctx)
	now := time.Now()
	if err == nil && !c.allow(now) {
		err = Breaker
	}
	if err != nil {
		c.service.budget.refund()
		return c.stop(err)
	}
	c.Pick, c.at, c.tried[c.Attempts] = pick, now, pick.Instance
	c.Attempts++
	c.service.count.retries.Inc()
	return nil
}

func (c *Call) stop(why error) error {
	if s, ok := why.(Stop); ok {
		c.guard.metrics.stopped(c.name, s)
	}
	return why
}

// draws is how often other looks for an instance where the call has not been yet.
const draws = 4

func (c *Call) other(ctx context.Context) (caller.Pick, error) {
	for range draws {
		pick, err := c.guard.caller.PickOther(ctx, c.name, c.Pick.Instance)
		if err != nil {
			return pick, err
		}
		if !c.was(pick.Instance) {
			return pick, nil
		}
		if c.Attempts == 1 {
			break // PickOther has looked already
		}
	}
	return caller.Pick{}, Single
}

// was says whether the call has been at an instance. Tables may have changed since,
// so addresses count.
func (c *Call) was(at *discovery.Instance) bool {
	for _, in := range c.tried[:c.Attempts] {
		if in.Address == at.Address {
			return true
		}
	}
	return false
}
