package fleet

import (
	"context"
	"fmt"
	"time"
)

const (
	// saveEvery is how often everybody who asks is saved.
	saveEvery = time.Minute
	// saveApart is the least time between two saves: a fleet that starts is one write, not hundreds.
	saveApart = time.Second
)

// Run keeps the Roster and its Memory alike and forgets those who are silent for
// long, until ctx ends. A Memory that fails is asked again within a minute.
func (r *Roster) Run(ctx context.Context) error {
	every := time.NewTicker(saveEvery)
	defer every.Stop()
	soon := r.unsaved
	var apart <-chan time.Time
	loaded := r.recall(ctx)
	for {
		select {
		case <-soon:
			// Whoever else comes within a second is saved with them.
			soon, apart = nil, time.After(saveApart)
		case <-apart:
			soon, apart = r.unsaved, nil
			r.save(ctx, false)
			if !loaded {
				loaded = r.recall(ctx)
			}
		case <-every.C:
			r.save(ctx, true)
			loaded = r.recall(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// save writes those who have changed, or everybody who asks. What could not be
// written is written with the next minute's.
func (r *Roster) save(ctx context.Context, everybody bool) {
	if r.opt.Memory == nil {
		return
	}
	now := r.opt.Now()
	var members []Member
	r.mu.Lock()
	for _, boots := range r.members {
		for _, m := range boots {
			if (m.unsaved || everybody) && m.live(now) && !m.replaced {
				members = append(members, Member{Report: m.report, Seen: m.seen, First: m.first})
				m.unsaved = false
			}
		}
	}
	r.mu.Unlock()
	if len(members) == 0 {
		return
	}
	if err := r.opt.Memory.SaveReplicas(ctx, members); err != nil && ctx.Err() == nil {
		r.opt.Log.WarnContext(ctx, "replicas are not saved", "replicas", len(members), "err", err, "try", "nothing: they are saved within a minute")
	}
}

// recall adds those whom only Memory knows, as silent, and forgets who was silent
// for long and is unknown to it.
func (r *Roster) recall(ctx context.Context) bool {
	var known []Member
	if r.opt.Memory != nil {
		var err error
		if known, err = r.opt.Memory.Replicas(ctx); err != nil {
			if ctx.Err() == nil {
				r.opt.Log.WarnContext(ctx, "silent replicas are not known", "err", fmt.Errorf("read replicas: %w", err), "try", "nothing: they are read within a minute")
			}
			return false
		}
	}
	now := r.opt.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	remembered := make(map[string]bool, len(known))
	for _, k := range known {
		remembered[k.ID] = true
		boots := r.members[k.ID]
		if len(boots) == 1 && !boots[0].live(now) && k.Seen.After(boots[0].seen) {
			boots[0].report, boots[0].seen = k.Report, k.Seen // another control node has heard it since
		}
		if len(boots) == 0 && r.count < MaxMembers {
			m := &member{report: k.Report, seen: k.Seen, first: k.First}
			m.saved = m.notable()
			r.members[k.ID] = []*member{m}
			r.count++
		}
	}
	for id, boots := range r.members {
		for _, m := range append([]*member(nil), boots...) {
			beside := len(r.members[id]) > 1 // a process that ended, and its successor
			if !m.live(now) && (beside || !remembered[id] && now.Sub(m.seen) >= forgetAfter) {
				r.drop(id, m)
			}
		}
	}
	return true
}
