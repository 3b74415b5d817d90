package caller

import (
	"context"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/internal/fault"
)

// heard is what the lists come from, and when they were last confirmed.
type heard struct {
	control  time.Time // of its last answer
	copied   time.Time // the copy on disk was taken into use
	watchers []*discovery.Watcher
	listed   bool // a registry has told a list
}

func (h *heard) any() bool { return !h.control.IsZero() || !h.copied.IsZero() || h.listed }

// age is the time since the lists were confirmed; of several registries' the longest.
func (h *heard) age(now time.Time) (age time.Duration) {
	switch {
	case !h.control.IsZero():
		return now.Sub(h.control)
	case !h.copied.IsZero():
		return now.Sub(h.copied)
	}
	for _, w := range h.watchers {
		age = max(age, w.State().Age)
	}
	return age
}

// Ready returns when every service of Options.Services has a table, or with none
// named, when any list was loaded: from a control node, else from the copy on disk,
// else from the registry.
func (c *Caller) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
	}
	err := fault.New(fault.Unavailable, "not_ready", "the list of %s is not loaded", strings.Join(c.missing(), ", "))
	if len(c.opt.Control) > 0 {
		return err.Because(c.troubles.of("control")).WithHint("look whether the control nodes answer, and set Dir so that a start can do without them")
	}
	return err.WithHint("look whether the registry answers")
}

// missing are the services without a table.
func (c *Caller) missing() (names []string) {
	slots := *c.slots.Load()
	for _, name := range c.opt.Services {
		if slots[name] == nil {
			names = append(names, name)
		}
	}
	if len(c.opt.Services) == 0 {
		return []string{"any service"}
	}
	return names
}

// checkReady lets Ready return as soon as it may. loaded says that what was
// compiled came from somewhere.
func (c *Caller) checkReady(loaded bool) {
	select {
	case <-c.ready:
		return
	default:
	}
	if c.opt.RulesDir != "" && !c.tried.Load() {
		return // the first calls would go past the rules
	}
	if named := len(c.opt.Services) > 0; named && len(c.missing()) == 0 || !named && loaded {
		close(c.ready)
	}
}

// The reasons to skip rules.
const (
	noRules       = "no_rules"
	rulesSwitch   = "rules"
	processSwitch = "process"
)

// showDegraded sets the metric, and logs what begins and ends.
func (c *Caller) showDegraded() {
	c.mu.Lock()
	now := map[string]bool{noRules: !c.book.known && c.heard.any(), rulesSwitch: c.book.direct, processSwitch: c.direct}
	c.mu.Unlock()
	for _, reason := range []string{noRules, rulesSwitch, processSwitch} {
		value := 0.0
		if now[reason] {
			value = 1
		}
		c.metrics.degraded.WithLabelValues(reason).Set(value)
		switch was := slices.Contains(c.degraded, reason); {
		case now[reason] && !was:
			c.degraded = append(c.degraded, reason)
			c.log.Warn("picks skip rules, weights and versions, and keep cluster and env", "reason", reason)
		case !now[reason] && was:
			c.degraded = slices.DeleteFunc(c.degraded, func(r string) bool { return r == reason })
			c.log.Info("picks follow the rules again", "reason", reason)
		}
	}
}
