package directory

import (
	"context"
	"time"

	"dispatch.example/dispatch/discovery/wire"
)

const (
	// memoryEvery is how often verdicts are read and reports are saved.
	memoryEvery = time.Second
	// reportsEvery is how often reports of other nodes are read.
	reportsEvery = 5 * time.Second
	// memoryTimeout bounds each call.
	memoryTimeout = 5 * time.Second
)

// remember talks to Memory until ctx ends.
func (d *Directory) remember(ctx context.Context) {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	var read time.Time // when reports were last asked for
	var before error
	for {
		asked := time.Now()
		err := d.exchange(ctx, asked.Sub(read) >= reportsEvery)
		if ctx.Err() != nil {
			return
		}
		if asked.Sub(read) >= reportsEvery {
			read = asked
		}
		switch {
		case err != nil:
			d.metrics.memory.Inc()
			if before == nil {
				d.log.Warn("shared reports and verdicts are away; the last ones stay", "err", err)
			}
			d.unheard()
		case before != nil:
			d.log.Info("shared reports and verdicts are back")
		}
		before = err
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.recheck:
		}
	}
}

// exchange saves reports, and reads verdicts and, where due, reports.
func (d *Directory) exchange(ctx context.Context, due bool) error {
	ctx, cancel := context.WithTimeout(ctx, memoryTimeout)
	defer cancel()
	verdicts, err := d.opt.Memory.Verdicts(ctx)
	if err != nil {
		return err
	}
	d.decided(newVerdicts(verdicts))
	asked := time.Now()
	d.mu.Lock()
	unsaved := d.reports.unsaved()
	d.mu.Unlock()
	if len(unsaved) > 0 {
		if err := d.opt.Memory.SaveReports(ctx, unsaved); err != nil {
			return err
		}
		d.mu.Lock()
		d.reports.keep(unsaved, asked)
		d.mu.Unlock()
	}
	if !due {
		return nil
	}
	asked = time.Now()
	reports, err := d.opt.Memory.Reports(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reports.share(reports, asked, time.Now())
	return nil
}

// decided takes verdicts; new ones count at once.
func (d *Directory) decided(v verdicts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.verdicts.by != nil && d.verdicts.equal(v) {
		return
	}
	d.verdicts, d.all, d.news = v, true, true
	poke(d.wake)
}

// unheard says that no verdicts could be read so far, so that nobody waits for them.
func (d *Directory) unheard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.verdicts.by == nil {
		d.verdicts = newVerdicts(nil)
		poke(d.wake)
	}
}

// report takes what instances say of themselves.
func (d *Directory) report(all []wire.Report) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range all {
		r.Started, r.Heard = plainTime(r.Started), plainTime(now)
		d.reports.hear(r, now, d.opt.Memory == nil)
	}
}
