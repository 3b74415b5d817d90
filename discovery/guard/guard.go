// Package guard is what stands around each call to a service: a deadline, a breaker,
// retries within a budget, and a value to go on with when all else fails. It knows no
// transport; httpcall and grpccall are built on it, and may share a Guard.
//
//	g.Begin ──► breaker open? ──yes──► *Open (and the degraded value, by the transport)
//	   │ no
//	   ▼
//	Call.Next: pick, not where this call failed before ──► transport sends ──► Call.Done(outcome)
//	   ▲                                                                         │
//	   └──── retry: idempotent, failed, time left, budget left ◄─────────────────┘
//	                                                                         Call.End
//
// What a failure does: an instance that cannot be reached or fails is another one's
// turn, once (Settings.Retries), while retries are at most a fifth of all calls; a
// service that fails as a whole opens its breaker, and calls to it end at once with
// *Open. A call without a deadline of its own gets one. A call that its caller gave
// up counts for nothing. Nor does one whose own deadline left the callee less than
// Settings.Slow and less than Settings.Deadline, and passed: it is counted as silent,
// but says nothing about breaker or instance, else whoever comes late in a chain would
// cut off who is well.
//
// Only first failures are tried again: what first attempts pay for is spent by calls
// that failed, and a request that came in as a retry (AsRetry) has none of its own and
// hands the mark on (Call.Again), so that hops do not multiply.
//
// A breaker is that of a callee, so it sees attempts and not calls: an attempt that
// failed counts against it although the next one went well. It learns of an attempt
// when the answer begins, an instance when the answer has ended.
//
// It owns no goroutine. A guarded call costs no allocation here. Breakers change with
// time, so their metric is read when it is asked for; their log line comes with the
// next call, or the next look at State or at the metrics.
package guard

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/breaker"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
)

// DialLimit is what a call gives a connection to be made. A call that has less time
// left, and less than half of its own, is not tried again.
const DialLimit = 500 * time.Millisecond

// Caller picks and learns how calls end. A *caller.Caller is one.
type Caller interface {
	Pick(ctx context.Context, service string) (caller.Pick, error)
	PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error)
	Done(ctx context.Context, p *caller.Pick, o caller.Outcome)
	Refused(ctx context.Context, service string) string
	// Lane is the one that picks go by: that of the traffic, else the process's own.
	Lane(ctx context.Context) route.Query
}

var _ Caller = (*caller.Caller)(nil)

// Guard guards the calls of one process. It may be used by many at once.
type Guard struct {
	caller  Caller
	opt     Options
	log     *slog.Logger
	metrics *metrics
	off     atomic.Bool

	services atomic.Pointer[map[string]*service] // the map is replaced, never changed
	mu       sync.Mutex                          // held while it is replaced
}

// service is what a Guard keeps of one callee.
type service struct {
	name    string
	set     Settings
	breaker *breaker.Breaker
	seen    atomic.Int32 // the breaker's state that was logged last
	budget  budget
	count   counts
}

// New checks the options. A registry in Options.Metrics keeps the Guard for good: make
// one for the process, not one for each tenant or request.
func New(c Caller, opt Options) (*Guard, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	m, err := newMetrics(opt.Metrics)
	if err != nil {
		return nil, err
	}
	g := assemble(c, opt, m)
	m.states.add(g)
	return g, nil
}

// Default is a Guard with default settings, without metrics and log.
func Default(c Caller) *Guard { return assemble(c, Options{}, makeMetrics()) }

func assemble(c Caller, opt Options, m *metrics) *Guard {
	g := &Guard{caller: c, opt: opt, log: opt.Log, metrics: m}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.services.Store(&map[string]*service{})
	return g
}

// SetOff is the kill switch of guards: on leaves out breakers and retries of all
// services, as Settings.Off does for one. Breakers keep their state meanwhile and
// learn nothing.
func (g *Guard) SetOff(off bool) {
	if g.off.Swap(off) != off {
		g.log.Warn("the kill switch of guards was moved", "off", off)
	}
}

// Lane is what counts for a call, and what its transport sends on.
func (g *Guard) Lane(ctx context.Context) route.Query { return g.caller.Lane(ctx) }

// known is the service, nil before the first pick of it.
func (g *Guard) known(name string) *service { return (*g.services.Load())[name] }

// serviceOf makes what is missing. A name gets here when it was picked for, so there
// are no more than services.
func (g *Guard) serviceOf(name string) *service {
	if s := g.known(name); s != nil {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := *g.services.Load()
	if s := before[name]; s != nil {
		return s
	}
	set := g.opt.settings(name)
	s := &service{name: name, set: set,
		breaker: breaker.New(breaker.Settings{Slow: set.Slow, OpenFor: openFor}), count: g.metrics.of(name)}
	s.budget.fill()
	all := maps.Clone(before)
	all[name] = s
	g.services.Store(&all)
	return s
}

// watch logs when the breaker is in another state than when it was last seen.
func (g *Guard) watch(s *service, now time.Time) (breaker.State, time.Time) {
	state, until := s.breaker.State(now)
	before := s.seen.Load()
	if before == int32(state) || !s.seen.CompareAndSwap(before, int32(state)) {
		return state, until
	}
	switch state {
	case breaker.Open:
		g.log.Warn("the breaker opened: calls to the service end at once, see its instances and dispatchctl explain call", "of", s.name, "until", until)
	case breaker.HalfOpen:
		g.log.Info("the breaker lets probes through", "of", s.name)
	case breaker.Closed:
		g.log.Info("the breaker closed", "of", s.name)
	}
	return state, until
}

// State is how calls to one service are guarded now.
type State struct {
	Service  string        `json:"service"`
	Breaker  breaker.State `json:"-"`
	Word     string        `json:"breaker"` // closed, open or half_open
	Until    time.Time     `json:"until,omitzero"`
	Retries  int           `json:"retries"` // that the budget would allow at once
	Deadline time.Duration `json:"deadline"`
	Off      bool          `json:"off,omitempty"`
}

// State is that of each service that was called, by name.
func (g *Guard) State() map[string]State {
	all := map[string]State{}
	now := time.Now()
	for name, s := range *g.services.Load() {
		state, until := g.watch(s, now)
		all[name] = State{Service: name, Breaker: state, Word: state.String(), Until: until, Retries: s.budget.left(),
			Deadline: s.set.Deadline, Off: s.set.Off || g.off.Load()}
	}
	return all
}
