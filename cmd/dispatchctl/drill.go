package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type drillCmd struct {
	Area area          `arg:"" name:"app/region" help:"Which region of which app."`
	To   string        `placeholder:"ENDPOINT" help:"The standby (default: the only one)."`
	Wait time.Duration `default:"6s" help:"Between the swap and the swap back; a safety rule asks for 5 s."`
	atOnce
}

// Run swaps to the standby and back. The audit trail has both, under the reason
// drill: a way that was never gone does not exist. If the first swap does not reach
// everybody, it is taken back all the same.
func (c *drillCmd) Run(ctx context.Context, p *program) error {
	r, err := p.region(ctx, c.Area)
	if err != nil {
		return err
	}
	from, to := "", c.To
	standby := 0
	for _, e := range r.Endpoints {
		switch {
		case e.State == "active" && from == "":
			from = e.Key
		case e.State == "standby":
			standby++
			if c.To == "" {
				to = e.Key
			}
		}
	}
	if from == "" || to == "" || c.To == "" && standby > 1 {
		return usageError{fmt.Errorf("%s has no single pair to swap\ntry: --to, and dispatchctl apps", c.Area)}
	}
	there := c.atOnce
	there.Reason = "drill: " + c.Reason
	began := time.Now()
	first := there.act(ctx, p, act{"swap", fmt.Sprintf("drill %s: %s serves instead of %s for %s", c.Area, to, from, c.Wait), c.Area.region,
		target{App: c.Area.app, Region: c.Area.region, Expect: from, From: from, To: to}})
	if first != nil && !errors.Is(first, errLagging) {
		return first
	}
	select {
	case <-time.After(c.Wait):
	case <-ctx.Done():
	}
	back := there
	back.Key = ""
	if back.Confirm == "" {
		back.Confirm = c.Area.region // was typed for the whole drill
	}
	second := back.act(context.WithoutCancel(ctx), p, act{"swap", fmt.Sprintf("drill %s: back to %s", c.Area, from), c.Area.region,
		target{App: c.Area.app, Region: c.Area.region, Expect: to, From: to, To: from}})
	if second != nil && !errors.Is(second, errLagging) {
		return fmt.Errorf("%s still serves %s: %w", to, c.Area, second)
	}
	fmt.Fprintf(p.log, "drill of %s took %.1f s\n", c.Area, time.Since(began).Seconds())
	return errors.Join(first, second)
}
