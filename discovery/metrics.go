package discovery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one Source.
type metrics struct {
	source    string
	instances *prometheus.GaugeVec
	problems  *prometheus.CounterVec
	renewals  *prometheus.CounterVec
	writable  *prometheus.GaugeVec
}

// newMetrics registers with reg unless that is nil. Sources of one process share
// the collectors; the label source tells them apart.
func newMetrics(source string, reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{source: source,
		instances: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dispatch_discovery_instances",
			Help: "Instances of a service that the registry names; fewer than you run: look at the registry's health checks.",
		}, []string{"source", "service"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_discovery_problems_total",
			Help: "Answers of the registry that were not believed or could not be had, by kind; the last list stays meanwhile.",
		}, []string{"source", "kind"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatch_discovery_renewals_total",
			Help: "Renewals of our own registrations by outcome; failed three times in a row: callers no longer find us.",
		}, []string{"source", "outcome"}),
		writable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dispatch_discovery_registry_writable",
			Help: "1 while the registry takes our registration and shows it; 0 for a minute: nobody can come or go, so look at its servers for a leader and for free disks.",
		}, []string{"source"}),
	}
	if reg == nil {
		return m, nil
	}
	err := errors.Join(Enroll(reg, &m.instances), Enroll(reg, &m.problems), Enroll(reg, &m.renewals), Enroll(reg, &m.writable))
	for _, kind := range [...]problemKind{unreachable, refused, noLeader, filtered, indexReset, noIndex, emptyHeld, massDrop, threshold, badFile} {
		m.problems.WithLabelValues(source, string(kind)) // from 0, so that Prometheus sees the first one rise
	}
	return m, err
}

// Enroll registers a collector, or takes the one that is registered already: parts of
// one process share their metrics.
func Enroll[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if before, ok := taken.ExistingCollector.(C); ok {
			*c = before
			return nil
		}
	}
	return err
}

func (m *metrics) size(s Snapshot) {
	m.instances.WithLabelValues(m.source, s.Service).Set(float64(len(s.Instances)))
}

func (m *metrics) problem(kind problemKind) { m.problems.WithLabelValues(m.source, string(kind)).Inc() }

func (m *metrics) renewal(outcome string) { m.renewals.WithLabelValues(m.source, outcome).Inc() }

// writes notes whether the registry takes what we write.
func (m *metrics) writes(ok bool) {
	value := 0.0
	if ok {
		value = 1
	}
	m.writable.WithLabelValues(m.source).Set(value)
}

// problemKind is a word for metrics.
type problemKind string

const (
	unreachable problemKind = "unreachable" // no answer, or one that is none
	refused     problemKind = "refused"     // a status that is not 200
	noLeader    problemKind = "no_leader"   // the server that answered has no leader
	filtered    problemKind = "filtered"    // the token may not see everything
	indexReset  problemKind = "index_reset" // the index went back
	noIndex     problemKind = "no_index"    // the index is missing or no number
	emptyHeld   problemKind = "empty_held"  // an empty list, but instances that live
	massDrop    problemKind = "mass_drop"   // more than half went at once; believed
	threshold   problemKind = "threshold"   // Nacos calls everybody healthy; believed, labelled
	badFile     problemKind = "bad_file"    // the file cannot be read or is wrong
)
