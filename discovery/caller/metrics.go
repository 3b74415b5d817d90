package caller

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/route"
)

// metrics are those of a process. Callers of one process share them.
type metrics struct {
	picks    *prometheus.CounterVec
	degraded *prometheus.GaugeVec
	problems *prometheus.CounterVec
	panics   prometheus.Counter
	dropped  prometheus.Counter
	number   prometheus.Gauge
	age      prometheus.Gauge
	heat     *prometheus.GaugeVec
	shift    *prometheus.GaugeVec
	compile  prometheus.Histogram

	outcomes    *prometheus.CounterVec
	ejected     *prometheus.GaugeVec
	ejections   *prometheus.CounterVec
	dialsFailed *prometheus.CounterVec
}

// newMetrics registers with reg unless that is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		picks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_discovery_picks_total",
			Help: "Picks by service and reason; reason nobody is an error of a call: dispatchctl explain call ID says which filter left nobody.",
		}, []string{"service", "reason"}),
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dispatch_discovery_degraded",
			Help: "1 while picks skip rules, weights and versions: no_rules: they could never be loaded, look at control nodes and the log; rules or process: somebody threw that kill switch.",
		}, []string{"reason"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_discovery_caller_problems_total",
			Help: "What a caller could not ask, believe or write, by kind; what it had before stays in use, and the log says what is wrong. rules: a release was refused, see its signature and number.",
		}, []string{"kind"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatch_discovery_panics_total",
			Help: "Panics of the routing engine; the calls were served without rules. Each is a defect: report it with the log.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatch_discovery_records_dropped_total",
			Help: "Records of picks that control nodes will never have; rises when they are away, or when most picks are errors or fallbacks.",
		}),
		number: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dispatch_discovery_rules_number",
			Help: "Number of the rules in use; differs between callers of a region for more than 2 s: look for those that refuse a release.",
		}),
		age: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dispatch_discovery_table_age_seconds",
			Help: "Time since control, or each registry, last confirmed the lists; over 30: look at what the log says cannot be asked.",
		}),
		heat: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dispatch_discovery_heat_ratio",
			Help: "Part of its weight that its CPU load leaves the hottest instance of a service, 0.01 to 1; below 1: look at the load of its instances (dispatchctl services show).",
		}, []string{"service"}),
		shift: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dispatch_discovery_shift_ratio",
			Help: "Part of the main version's share that its fallback takes besides its own because the condition of the rule holds, 0 to 0.9; above 0 for long: the main version needs more instances, or a way back.",
		}, []string{"service", "env"}),
		compile: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "dispatch_discovery_compile_seconds",
			Help:    "Time to compile the table of a service; above 2 ms a service has thousands of instances: let Services name only those that are called.",
			Buckets: []float64{10e-6, 50e-6, 200e-6, 1e-3, 5e-3, 20e-3, 100e-3},
		}),
	}
	m.addEjections()
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(discovery.Enroll(reg, &m.outcomes), discovery.Enroll(reg, &m.ejected), discovery.Enroll(reg, &m.ejections), discovery.Enroll(reg, &m.dialsFailed),
		discovery.Enroll(reg, &m.picks), discovery.Enroll(reg, &m.degraded), discovery.Enroll(reg, &m.problems), discovery.Enroll(reg, &m.panics),
		discovery.Enroll(reg, &m.dropped), discovery.Enroll(reg, &m.number), discovery.Enroll(reg, &m.age), discovery.Enroll(reg, &m.heat), discovery.Enroll(reg, &m.shift), discovery.Enroll(reg, &m.compile))
}

// forget drops the series of a service that is gone.
func (m *metrics) forget(service string) {
	for _, vec := range []*prometheus.MetricVec{m.picks.MetricVec, m.heat.MetricVec, m.shift.MetricVec,
		m.outcomes.MetricVec, m.ejected.MetricVec, m.ejections.MetricVec, m.dialsFailed.MetricVec} {
		vec.DeletePartialMatch(prometheus.Labels{"service": service})
	}
}

// addEjections makes what calls and dials add up to.
func (m *metrics) addEjections() {
	m.outcomes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dispatch_discovery_outcomes_total",
		Help: "Attempts of calls by service and how they ended: answered, failed, unreachable, silent (no answer before the deadline) or canceled (the caller gave up).",
	}, []string{"service", "outcome"})
	m.ejected = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dispatch_discovery_ejected",
		Help: "Instances that take no calls from this process now. unreachable: no connection is made; failing: over half of its calls fail. The log names each with its address.",
	}, []string{"service", "kind"})
	m.ejections = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dispatch_discovery_ejections_total",
		Help: "Terms without calls that began, by service and kind; one that rises by itself is an instance that its registry should have taken out.",
	}, []string{"service", "kind"})
	m.dialsFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dispatch_discovery_dials_failed_total",
		Help: "Connections that were made only to see whether an instance is there, and failed.",
	}, []string{"service"})
}

// showOut shows who of a service is out. w.mu is held.
func (m *metrics) showOut(w *watch) {
	for kind, n := range w.outliers.Out() {
		m.ejected.WithLabelValues(w.service, string(kind)).Set(float64(n))
	}
}

// counters are the picks of one service, or the ends of its calls, so that nobody
// need look for them.
type counters struct {
	vec     *prometheus.CounterVec
	service string
	by      [11]atomic.Pointer[prometheus.Counter]
}

// inc counts one of a label, whose place is at.
func (c *counters) inc(at int, label string) {
	counter := c.by[at].Load()
	if counter == nil {
		made := c.vec.WithLabelValues(c.service, label)
		counter = &made
		c.by[at].Store(counter)
	}
	(*counter).Inc()
}

// reasonAt is a place for each reason.
func reasonAt(reason route.Reason) int {
	switch reason {
	case route.ByRule:
		return 0
	case route.ByFallback:
		return 1
	case route.ByHome:
		return 2
	case route.ByPerson:
		return 3
	case route.ByBase:
		return 4
	case route.ByOverride:
		return 5
	case route.ByDirect:
		return 6
	case route.ByNobody:
		return 7
	case route.ByGray:
		return 8
	case route.ByBreaker:
		return 9
	}
	return 10
}

// troubles are what goes wrong now: each is logged when it begins and when it ends,
// and counted each time.
type troubles struct {
	log   *slog.Logger
	count *prometheus.CounterVec

	mu  sync.Mutex // guards now
	now map[string]error
}

// note says how something went, nil if well. args tell what it was about, for the
// log and to tell it from others of its kind.
func (t *troubles) note(kind string, err error, args ...any) {
	key := kind
	for i := 1; i < len(args); i += 2 {
		if text, ok := args[i].(string); ok {
			key += "\x00" + text
		}
	}
	t.mu.Lock()
	before := t.now[key]
	if err == nil {
		delete(t.now, key)
	} else {
		if t.now == nil {
			t.now = map[string]error{}
		}
		t.now[key] = err
	}
	t.mu.Unlock()
	if err != nil {
		t.count.WithLabelValues(kind).Inc()
	}
	switch {
	case err != nil && before == nil:
		t.log.With(args...).Warn("calls go by what was known before", "kind", kind, "err", err)
	case err == nil && before != nil:
		t.log.With(args...).Info("well again", "kind", kind, "was", before)
	}
}

// of is some trouble of a kind, nil if there is none.
func (t *troubles) of(kind string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now[kind]
}
