package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// clockLook is how often the clock is compared.
	clockLook = time.Second
	// clockJump is the least difference that counts: time synchronisation slews by
	// less in a second, and steps by more.
	clockJump = 500 * time.Millisecond
)

// clockWatch notices when the clock of the machine is set: rules with a time,
// sessions and records then mean another moment. What dispatch measures itself it
// measures on the monotonic clock.
type clockWatch struct {
	now   func() time.Time
	log   *slog.Logger
	jumps prometheus.Counter
	last  prometheus.Gauge
}

func newClockWatch(p *process) *clockWatch {
	c := &clockWatch{now: p.now, log: p.log,
		jumps: prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_clock_jumps_total",
			Help: "Times that the clock of the machine was set, forwards or backwards. When it rises, look after time synchronisation."}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dispatch_clock_jump_seconds",
			Help: "By how much the clock was set the last time; negative: backwards."})}
	p.registry.MustRegister(c.jumps, c.last)
	return c
}

// run compares the clock with the monotonic one until ctx ends.
func (c *clockWatch) run(ctx context.Context) error {
	tick := time.NewTicker(clockLook)
	defer tick.Stop()
	steady, shown := time.Now(), c.now().Round(0) // Round takes the monotonic part away
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		wall := c.now().Round(0)
		jump := wall.Sub(shown) - time.Since(steady)
		steady, shown = time.Now(), wall
		if jump.Abs() < clockJump {
			continue
		}
		c.jumps.Inc()
		c.last.Set(jump.Seconds())
		c.log.WarnContext(ctx, "the clock was set", "by", jump.Round(time.Millisecond).String(), "try", "look after the time synchronisation of this machine")
	}
}
