package guard

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/breaker"
	"dispatch.example/dispatch/discovery/caller"
)

// What the outcome of a call is where there was no attempt, and the flag of a
// degraded value.
const (
	Refused = "breaker" // it is open
	Nobody  = "nobody"  // no instance matches
)

// metrics are those of a process. Guards of one process share them.
type metrics struct {
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	stops    *prometheus.CounterVec
	degraded *prometheus.CounterVec
	states   *states
}

func makeMetrics() *metrics {
	return &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_guard_calls_total",
			Help: "Calls by service and outcome of their last attempt; breaker: not made, see dispatch_guard_breakers; nobody: no instance matches, see dispatch_discovery_picks_total. Outcome answered includes errors that the service means, such as not found.",
		}, []string{"service", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dispatch_guard_call_seconds",
			Help:    "Time of calls until their answer began, retries included, canceled ones left out; a hundredth over 0.8 opens the breaker when that lasts for 10 s (at least 100 calls).",
			Buckets: []float64{.005, .02, .05, .1, .2, .4, .6, .8, 1, 1.5, 2, 3, 5},
		}, []string{"service"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_guard_retries_total",
			Help: "Attempts after the first one of a call, at another instance; rises with instances that fail: see which are ejected.",
		}, []string{"service"}),
		stops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_guard_retries_refused_total",
			Help: "Retries that were not made; budget: a fifth of all calls are retries already, so the service fails as a whole; time: less was left than a connection takes; single_instance: nobody else to ask; breaker: it opened; nested: the request that the call is for is a retry itself.",
		}, []string{"service", "reason"}),
		degraded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_guard_degraded_total",
			Help: "Calls that were answered by the degraded value of their service, by why; users see less than they should.",
		}, []string{"service", "reason"}),
		states: &states{
			breakers: prometheus.NewDesc("dispatch_guard_breakers",
				"Breakers by service and state (closed, open, half_open); open: calls to the service end at once, see dispatch_guard_calls_total for what failed before.",
				[]string{"service", "state"}, nil),
			off: prometheus.NewDesc("dispatch_guard_off",
				"1 while the kill switch of guards is on: no breakers, no retries.", nil, nil),
		},
	}
}

// newMetrics registers with reg unless that is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := makeMetrics()
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(discovery.Enroll(reg, &m.calls), discovery.Enroll(reg, &m.seconds), discovery.Enroll(reg, &m.retries), discovery.Enroll(reg, &m.stops),
		discovery.Enroll(reg, &m.degraded), discovery.Enroll(reg, &m.states))
}

// stopped counts a retry that was not made. One that settings forbid is none.
func (m *metrics) stopped(service string, s Stop) {
	reasons := map[Stop]string{NoTime: "time", Budget: "budget", Single: "single_instance", Breaker: "breaker", Nested: "nested"}
	if reason := reasons[s]; reason != "" {
		m.stops.WithLabelValues(service, reason).Inc()
	}
}

// nobody counts a call that had no pick. A service that was never picked for has no
// label: its name may be whatever a client typed.
func (m *metrics) nobody(s *service) {
	name := ""
	if s != nil {
		name = s.name
	}
	m.calls.WithLabelValues(name, Nobody).Inc()
}

// counts are the counters of one service, so that a call need not look for them.
type counts struct {
	outcomes [caller.Canceled + 1]prometheus.Counter
	refused  prometheus.Counter
	retries  prometheus.Counter
	seconds  prometheus.Observer
}

func (m *metrics) of(service string) (c counts) {
	for o := range c.outcomes {
		c.outcomes[o] = m.calls.WithLabelValues(service, caller.Outcome(o).String())
	}
	c.refused, c.retries = m.calls.WithLabelValues(service, Refused), m.retries.WithLabelValues(service)
	c.seconds = m.seconds.WithLabelValues(service)
	return c
}

func (c *counts) call(o caller.Outcome, took time.Duration) {
	c.outcomes[o].Inc()
	if o != caller.Canceled {
		c.seconds.Observe(took.Seconds())
	}
}

// Degraded counts a degraded value that a transport gave for a call: why is Refused,
// Nobody or an outcome.
func (g *Guard) Degraded(service, why string) { g.metrics.degraded.WithLabelValues(service, why).Inc() }

// states reads the breakers of all Guards of a registry when it is asked, so that what
// time changes is right without a call.
type states struct {
	breakers, off *prometheus.Desc

	mu     sync.Mutex // guards all
	guards []*Guard
}

func (s *states) add(g *Guard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guards = append(s.guards, g)
}

// Describe implements prometheus.Collector.
func (s *states) Describe(to chan<- *prometheus.Desc) { to <- s.breakers; to <- s.off }

// Collect implements prometheus.Collector.
func (s *states) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	guards := s.guards[:len(s.guards):len(s.guards)]
	s.mu.Unlock()
	sum, off := map[string]*[breaker.HalfOpen + 1]float64{}, 0.0
	for _, g := range guards {
		if g.off.Load() {
			off = 1
		}
		for name, one := range g.State() {
			if sum[name] == nil {
				sum[name] = &[breaker.HalfOpen + 1]float64{}
			}
			sum[name][one.Breaker]++
		}
	}
	to <- prometheus.MustNewConstMetric(s.off, prometheus.GaugeValue, off)
	for name, by := range sum {
		for state, n := range by {
			to <- prometheus.MustNewConstMetric(s.breakers, prometheus.GaugeValue, n, name, breaker.State(state).String())
		}
	}
}
