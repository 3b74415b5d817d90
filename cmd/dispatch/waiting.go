package main

import (
	"sync/atomic"
	"time"
	_ "time/tzdata" // a machine without zone files must not refuse every schedule

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/admin/actions"
)

// waiting is what waits for people and when they last practised, as metrics. Before the first count there is none.
type waiting struct {
	now  func() time.Time
	last atomic.Pointer[actions.Waiting]

	schedules, unreviewed, oldest, drilled *prometheus.Desc
}

func newWaiting(p *process) *waiting {
	w := &waiting{now: p.now,
		schedules: prometheus.NewDesc("dispatch_schedules",
			"Drafts with a time, by state. A suspended one was due and could not be published: look at it on the page Changes.", []string{"state"}, nil),
		unreviewed: prometheus.NewDesc("dispatch_unreviewed_emergencies",
			"Emergencies that no second person has signed: POST /api/v1/releases/N/review.", nil, nil),
		oldest: prometheus.NewDesc("dispatch_unreviewed_emergency_age_seconds",
			"Age of the oldest emergency that no second person has signed, 0 without one. Page when it passes a day.", nil, nil),
		drilled: prometheus.NewDesc("dispatch_last_drill_timestamp_seconds",
			"When a swap to a standby was last practised, in Unix seconds, 0 if never. When it lies 35 days back: dispatchctl drill APP/REGION.", nil, nil)}
	p.registry.MustRegister(w)
	return w
}

// set keeps a count.
func (w *waiting) set(count actions.Waiting) { w.last.Store(&count) }

// Describe names the metrics.
func (w *waiting) Describe(ch chan<- *prometheus.Desc) {
	ch <- w.schedules
	ch <- w.unreviewed
	ch <- w.oldest
	ch <- w.drilled
}

// Collect gives the last count.
func (w *waiting) Collect(ch chan<- prometheus.Metric) {
	count := w.last.Load()
	if count == nil {
		return
	}
	for state, n := range count.Schedules {
		ch <- prometheus.MustNewConstMetric(w.schedules, prometheus.GaugeValue, float64(n), state)
	}
	age := 0.0
	if !count.Oldest.IsZero() {
		age = w.now().Sub(count.Oldest).Seconds()
	}
	drilled := 0.0
	if !count.Drilled.IsZero() {
		drilled = float64(count.Drilled.Unix())
	}
	ch <- prometheus.MustNewConstMetric(w.drilled, prometheus.GaugeValue, drilled)
	ch <- prometheus.MustNewConstMetric(w.unreviewed, prometheus.GaugeValue, float64(count.Unreviewed))
	ch <- prometheus.MustNewConstMetric(w.oldest, prometheus.GaugeValue, age)
}
