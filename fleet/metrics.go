package fleet

import (
	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/policy"
)

// rosterCollector tells a Roster's states at every scrape.
type rosterCollector struct {
	roster            *Roster
	replicas          *prometheus.Desc
	twins, geoDigests *prometheus.Desc
}

func newRosterCollector(r *Roster) *rosterCollector {
	return &rosterCollector{
		roster: r,
		replicas: prometheus.NewDesc("dispatch_fleet_replicas",
			"Replicas by state. When any but current stays above 0 for 30 s, GET /api/v1/fleet says which and why.", []string{"state"}, nil),
		twins: prometheus.NewDesc("dispatch_fleet_duplicate_replicas",
			"Processes that share their replica id with another live one. When it is not 0, give each machine its own --replica-id.", nil, nil),
		geoDigests: prometheus.NewDesc("dispatch_fleet_geo_variants",
			"Different sets of address databases among live replicas. Above 1 replicas may decide differently: bring the same files to all.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *rosterCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.replicas
	out <- c.twins
	out <- c.geoDigests
}

// Collect implements prometheus.Collector.
func (c *rosterCollector) Collect(out chan<- prometheus.Metric) {
	list := c.roster.list()
	offered := c.roster.opt.Offered
	if offered == nil {
		most := mostServed(list)
		offered = func(string) uint64 { return most }
	}
	head, twins := uint64(0), 0
	for _, m := range list {
		head = max(head, offered(m.ID))
	}
	states := map[State]int{Current: 0, Behind: 0, Refusing: 0, Silent: 0, Ahead: 0}
	databases := map[policy.GeoDigests]bool{}
	for _, m := range list {
		states[m.state(offered(m.ID), head)]++
		if m.live {
			databases[m.Databases] = true
		}
		if m.twin {
			twins++
		}
	}
	for state, n := range states {
		out <- prometheus.MustNewConstMetric(c.replicas, prometheus.GaugeValue, float64(n), string(state))
	}
	out <- prometheus.MustNewConstMetric(c.twins, prometheus.GaugeValue, float64(twins))
	out <- prometheus.MustNewConstMetric(c.geoDigests, prometheus.GaugeValue, float64(len(databases)))
}

// followerCollector tells how a Follower gets along with its sources.
type followerCollector struct {
	follower        *Follower
	up, age, errors *prometheus.Desc
}

func newFollowerCollector(f *Follower) *followerCollector {
	labels := []string{"source"}
	return &followerCollector{
		follower: f,
		up: prometheus.NewDesc("dispatch_source_up",
			"1 if the source of releases answers, else 0. When all are 0, no change reaches this replica; it serves on.", labels, nil),
		age: prometheus.NewDesc("dispatch_source_age_seconds",
			"Time since the source of releases answered last. Page when the smallest passes 60.", labels, nil),
		errors: prometheus.NewDesc("dispatch_source_errors_total",
			"Questions to the source of releases that failed. When it rises, GET /api/v1/fleet shows the problem of the replica's source.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *followerCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.up
	out <- c.age
	out <- c.errors
}

// Collect implements prometheus.Collector.
func (c *followerCollector) Collect(out chan<- prometheus.Metric) {
	for _, l := range c.follower.all() {
		state, failures := l.state()
		up := 0.0
		if state.OK {
			up = 1
		}
		out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up, state.Name)
		out <- prometheus.MustNewConstMetric(c.age, prometheus.GaugeValue, state.Age, state.Name)
		out <- prometheus.MustNewConstMetric(c.errors, prometheus.CounterValue, float64(failures), state.Name)
	}
}
