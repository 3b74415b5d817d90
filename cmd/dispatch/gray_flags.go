package main

import (
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

// grayFlags are what grays may ask.
type grayFlags struct {
	SignalHosts []string `placeholder:"HOST:PORT" help:"Hosts that the Prometheus and webhook signals of grays may ask, as they stand in a URL. A plan cannot name another."`
}

func (f *grayFlags) validate(p *fault.Problems, r role) {
	if len(f.SignalHosts) > 0 && !r.controls() {
		p.Addf("--signal-hosts", "is for a control node: edges ask nobody")
	}
	for _, host := range f.SignalHosts {
		name, port, hasPort := strings.Cut(host, ":")
		problem := hostProblem(name)
		if hasPort && strings.Trim(port, "0123456789") != "" || hasPort && port == "" {
			problem = "has no port after its colon"
		}
		if _, err := netip.ParseAddrPort(host); err == nil {
			problem = ""
		}
		if problem != "" {
			p.Addf("--signal-hosts", "%q %s; write prometheus.bank.example or 10.0.0.1:9090", host, problem)
		}
	}
}

// grayCollector tells the states of grays at every scrape, as this node saw them last.
type grayCollector struct {
	do    *actions.Actions
	state *prometheus.Desc
}

// watchGrays tells of grays until what it returns is called.
func (p *process) watchGrays(do *actions.Actions) (end func()) {
	c := &grayCollector{do, prometheus.NewDesc("dispatch_gray_state",
		"1 for the state that a gray with a plan is in. When one is paused or submitted for long, GET /api/v1/grays says why.", []string{"app", "policy", "state"}, nil)}
	p.registry.MustRegister(c)
	return func() { p.registry.Unregister(c) }
}

// Describe implements prometheus.Collector.
func (c *grayCollector) Describe(out chan<- *prometheus.Desc) { out <- c.state }

// Collect implements prometheus.Collector.
func (c *grayCollector) Collect(out chan<- prometheus.Metric) {
	for _, g := range c.do.GrayStates() {
		if g.State != actions.GrayNone {
			out <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, 1, g.App, g.Policy, g.State)
		}
	}
}
