package probe

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// collector tells a Prober's states at every scrape. A domain is configuration,
// never an id from traffic.
type collector struct {
	prober                            *Prober
	up, expires, dangling, distrusted *prometheus.Desc
}

// register makes the metrics. Without a registry nobody reads them.
func (p *Prober) register(registry prometheus.Registerer) error {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dispatch_probe_seconds",
		Help:    "How long a probe took, failed or not. When it rises for all, look at this node's network.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 3}})
	p.seconds = seconds
	if registry == nil {
		return nil
	}
	c := &collector{prober: p,
		up: prometheus.NewDesc("dispatch_probe_up",
			"Whether this prober sees the domain up (1) or down (0); absent until it knows. When it is 0, GET /api/v1/probes says why.", []string{"domain"}, nil),
		expires: prometheus.NewDesc("dispatch_certificate_expires_seconds",
			"Until the domain's certificate ends. Below 1,814,400 (21 days) renew it.", []string{"domain"}, nil),
		dangling: prometheus.NewDesc("dispatch_probe_dangling_hosts",
			"Hosts that are aliases of names which do not exist. When it is not 0, somebody else may take such a name: remove the alias today.", nil, nil),
		distrusted: prometheus.NewDesc("dispatch_probe_distrusted",
			"1 while most hosts fail at once: the prober is suspected, states stay and nothing acts. Look at this node's network.", nil, nil),
	}
	for _, m := range []prometheus.Collector{seconds, c} {
		if err := registry.Register(m); err != nil {
			return fmt.Errorf("register probe metrics: %w", err)
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.expires, c.dangling, c.distrusted} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	dangling := 0
	for _, s := range c.prober.States() {
		if s.State != Unknown {
			out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, number(s.State == Up), s.Host)
		}
		if !s.Expires.IsZero() {
			out <- prometheus.MustNewConstMetric(c.expires, prometheus.GaugeValue, s.Expires.Sub(c.prober.opt.Now()).Seconds(), s.Host)
		}
		if s.Dangling() {
			dangling++
		}
	}
	out <- prometheus.MustNewConstMetric(c.dangling, prometheus.GaugeValue, float64(dangling))
	out <- prometheus.MustNewConstMetric(c.distrusted, prometheus.GaugeValue, number(c.prober.Distrusted()))
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
