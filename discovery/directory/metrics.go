package directory

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one Directory and its Server.
type metrics struct {
	services   prometheus.Gauge
	instances  *prometheus.GaugeVec
	elsewhere  *prometheus.GaugeVec
	suspicious prometheus.Gauge
	queue      prometheus.Gauge
	away       *prometheus.GaugeVec
	age        *prometheus.GaugeVec
	build      prometheus.Histogram
	memory     prometheus.Counter
	asks       *prometheus.CounterVec
	waiting    prometheus.Gauge
	records    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	registry := []string{"registry"}
	m := &metrics{
		services: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_directory_services",
			Help: "Services of the region that some registry names. When it falls, see which registry lost them."}),
		instances: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dispatch_directory_instances",
			Help: "Instances that callers get, by the registry that counts for them. When it falls without a deployment, look at the registry's health checks."}, registry),
		elsewhere: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dispatch_directory_other_region_entries",
			Help: "Entries of other regions in a registry, which are left out. When it is not 0 and regions have registries of their own, a team states the wrong region."}, registry),
		suspicious: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_directory_suspicious_entries",
			Help: "Entries that cannot be used: a coordinate is missing or unmapped. When it rises, add to the registry's dialect or tell the team."}),
		queue: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_directory_queued_entries",
			Help: "Entries whose fingerprint does not fit what the instance reports; they get no traffic until somebody accepts or refuses them in the console."}),
		away: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dispatch_directory_registry_away",
			Help: "1 while a registry is not heard from; its last lists stay. Alert on it, and see the log for the reason."}, registry),
		age: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dispatch_directory_registry_age_seconds",
			Help: "Time since a registry was last heard: how old its lists may be. Above 15 its instances may be dead, and only callers notice."}, registry),
		build: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dispatch_directory_build_seconds",
			Help:    "Time to make lists and a view of what changed. When it nears 0.05, changes wait for each other: give the node more CPU.",
			Buckets: []float64{.0001, .0005, .001, .002, .005, .01, .02, .05, .1, .5}}),
		memory: prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_directory_memory_problems_total",
			Help: "Attempts to share reports and verdicts with other control nodes that came to nothing. When it rises, look at the database; isolation and the queue stand still."}),
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_directory_asks_total",
			Help: "Questions of callers by outcome. Many full ones: callers or control nodes restart. Many refused: callers ask a node of another region."}, []string{"outcome"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_directory_waiting_requests",
			Help: "Questions of callers that wait for news: one for each caller of this node."}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_directory_records_total",
			Help: "Records of picks by outcome. When failed or lost rises, explain will miss calls: look at the database."}, []string{"outcome"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.services, m.instances, m.elsewhere, m.suspicious, m.queue, m.away, m.age, m.build, m.memory, m.asks, m.waiting, m.records} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// size counts what a view has.
func (m *metrics) size(v *View) {
	counts := map[string]int{}
	for _, s := range v.Services {
		for i := range s.Instances {
			counts[s.Instances[i].Source]++
		}
	}
	for _, r := range v.Registries {
		away := 1.0
		if r.OK {
			away = 0
		}
		m.away.WithLabelValues(r.Name).Set(away)
		m.age.WithLabelValues(r.Name).Set(r.Age.Seconds())
		m.instances.WithLabelValues(r.Name).Set(float64(counts[r.Name]))
		m.elsewhere.WithLabelValues(r.Name).Set(float64(r.Elsewhere))
	}
	m.services.Set(float64(len(v.Services)))
	m.suspicious.Set(float64(len(v.Suspicious)))
	m.queue.Set(float64(len(v.Queue)))
}
