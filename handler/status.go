package handler

import (
	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/release"
)

// statusCollector shows what the replica's keeper counts, read when Prometheus asks.
type statusCollector struct {
	status                      func() release.Status
	refusals, unwritten, damage *prometheus.Desc
}

func newStatusCollector(status func() release.Status) *statusCollector {
	return &statusCollector{
		status: status,
		refusals: prometheus.NewDesc("dispatch_release_refusals_total",
			"Releases that this replica refused, by the code of the refusal.", []string{"reason"}, nil),
		unwritten: prometheus.NewDesc("dispatch_release_copy_errors_total",
			"Copies of releases that could not be written to disk.", nil, nil),
		damage: prometheus.NewDesc("dispatch_release_copies_damaged_total",
			"Damaged files of release copies that were set aside.", nil, nil),
	}
}

// Describe names the metrics.
func (c *statusCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.refusals
	out <- c.unwritten
	out <- c.damage
}

// Collect reads them.
func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	s := c.status()
	for code, n := range s.Refused {
		out <- prometheus.MustNewConstMetric(c.refusals, prometheus.CounterValue, float64(n), code)
	}
	out <- prometheus.MustNewConstMetric(c.unwritten, prometheus.CounterValue, float64(s.DiskErrs))
	out <- prometheus.MustNewConstMetric(c.damage, prometheus.CounterValue, float64(s.DiskBad))
}
