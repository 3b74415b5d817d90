package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// ScheduleDraft sets when the draft, as its digest has it, is published by itself:
// at a local time with its zone, 2027-02-05T02:30 Asia/Shanghai. What takes two
// people must be approved before. The schedule belongs to the draft: it holds
// whatever becomes of the account that set it.
func (a *Actions) ScheduleDraft(ctx context.Context, w Write, id, digest, at string) (DraftView, error) {
	seen, err := readDigest(digest)
	if err != nil {
		return DraftView{}, err
	}
	due, zone, err := zoned(at)
	if err != nil {
		return DraftView{}, err
	}
	_, err = remembered(ctx, a, w, asked{"draft_schedule", []any{id, digest, at}}, func(w Write) (string, error) {
		view, err := a.Draft(ctx, id)
		if err != nil {
			return "", err
		}
		p, b, err := a.draftPaper(ctx, id)
		if err != nil {
			return "", err
		}
		if err := a.schedulable(ctx, p, b, view, due); err != nil {
			return "", err
		}
		if b.Digest != seen {
			return "", fault.New(fault.Conflict, "stale_paper", "draft %s was changed since you looked; nothing was scheduled", id).
				WithHint("look at it again, then schedule what it says now")
		}
		p.State, b.Due, b.Zone, b.Scheduler, b.Why = Scheduled, due, zone, w.Actor.Name, ""
		return id, a.saveDraft(ctx, w, "draft_schedule", p, b)
	})
	if err != nil {
		return DraftView{}, err
	}
	return a.Draft(ctx, id)
}

// schedulable is an error when the draft could not be published at that time, as far
// as is known now.
func (a *Actions) schedulable(ctx context.Context, p ledger.Paper, b draftBody, v DraftView, due time.Time) error {
	if !slices.Contains([]string{Drafted, Submitted, Scheduled, Suspended}, p.State) {
		return wrongState(p, "it cannot be scheduled", "edit it, which makes it a draft again")
	}
	if len(v.Problems) > 0 {
		refusal := fault.New(fault.Invalid, "bad_document", "the draft has mistakes and was not scheduled").WithHint("mend them first")
		refusal.Problems = v.Problems
		return refusal
	}
	if v.Preview != nil && len(v.Preview.Needs) > 0 && !v.Approved && a.FourEyes {
		return needsApproval(v.Preview.Needs)
	}
	if now := a.now(); !due.After(now) {
		return fault.New(fault.Invalid, "bad_time", "%s has passed; it is %s", due.Format(time.RFC3339), now.Format(time.RFC3339)).WithHint("choose a later time, or publish it now")
	}
	s, err := a.settings(ctx)
	if err != nil {
		return err
	}
	return s.frozen(due)
}

// UnscheduleDraft makes a draft of a scheduled or suspended one again.
func (a *Actions) UnscheduleDraft(ctx context.Context, w Write, id string) (DraftView, error) {
	return a.moveDraft(ctx, w, id, draftMove{action: "draft_unschedule", from: []string{Scheduled, Suspended}, to: Drafted})
}

// writes are the parts that the draft writes into its base.
func (a *Actions) writes(ctx context.Context, b draftBody) (*release.Manifest, []release.Difference, error) {
	doc, err := release.Parse(draftFile, []byte(b.Document))
	if err != nil {
		return nil, nil, err
	}
	base := &release.Manifest{}
	if b.Base > 0 {
		if base, err = a.manifestOf(ctx, b.Base); err != nil {
			return nil, nil, fmt.Errorf("read the base of the draft: %w", err)
		}
	}
	found, err := release.Writes(&base.Document, b.whole(doc, base))
	return base, found, err
}

// overlaps says whether two drafts write the same part, or one a part of the other's.
func overlaps(x, y []release.Difference) bool {
	return slices.ContainsFunc(x, func(d release.Difference) bool {
		return slices.ContainsFunc(y, func(e release.Difference) bool { return release.Touches(d.Path, e.Path) })
	})
}

// maxWalk bounds how many releases between a base and the head are looked at one by one.
const maxWalk = 500

// onHead is a scheduled draft on the head. Nobody is there to look, so it goes on
// only where nobody else has changed a part that it writes: neither a release, other
// than of a schedule that was due before, nor a hand at night. It then writes exactly
// what was approved, the same parts with the same values.
func (a *Actions) onHead(ctx context.Context, h head, b draftBody) (draftBody, error) {
	if b.Base == h.all.Number || h.from == nil {
		return b, nil
	}
	base, writes, err := a.writes(ctx, b)
	if err != nil {
		return b, err
	}
	touched, err := a.touched(ctx, b, base, h)
	if err != nil {
		return b, err
	}
	var problems []fault.Problem
	for _, path := range touched {
		if slices.ContainsFunc(writes, func(d release.Difference) bool { return release.Touches(d.Path, path) }) {
			problems = append(problems, fault.Problem{Path: path, Detail: "was changed since release " + fmt.Sprint(b.Base)})
		}
	}
	if len(problems) > 0 {
		refusal := fault.New(fault.Conflict, "target_changed", "what the draft changes was changed since it was written").
			WithHint("look at both, bring the draft onto the newest release and schedule it again")
		refusal.Problems = problems
		return b, refusal
	}
	// What an earlier schedule wrote in the same place, the later one overwrites.
	doc, err := release.Parse(draftFile, []byte(b.Document))
	if err != nil {
		return b, err
	}
	merged, err := release.Overwrite(&base.Document, b.whole(doc, base), &h.from.Document)
	if err != nil {
		return b, err
	}
	moved, err := b.with(merged, h)
	if err != nil {
		return b, err
	}
	_, now, err := a.writes(ctx, moved)
	if err != nil {
		return b, err
	}
	for _, d := range now {
		if !slices.ContainsFunc(writes, func(e release.Difference) bool {
			return e.Path == d.Path && e.To == d.To && (e.Kind == release.Removed) == (d.Kind == release.Removed)
		}) {
			return b, fault.New(fault.Conflict, "target_changed", "on the newest release the draft would change %s, which nobody approved", d.Path).
				WithHint("bring the draft onto the newest release and have it approved again")
		}
	}
	moved.Digest = b.Digest // the signature is under this one, and what it writes is the same
	return moved, nil
}

// touched are the parts that releases since the base changed, without those of
// schedules that were due before, and that were changed by hand.
func (a *Actions) touched(ctx context.Context, b draftBody, base *release.Manifest, h head) ([]string, error) {
	paths := byHand(base.Operational, h.from.Operational)
	if h.all.Number > b.Base+maxWalk {
		writes, err := release.Writes(&base.Document, &h.from.Document)
		return append(paths, pathsOf(writes)...), err
	}
	earlier, err := a.releasedBySchedules(ctx, b.Due)
	if err != nil {
		return nil, err
	}
	before := base
	for n := b.Base + 1; n <= h.all.Number; n++ {
		m, err := a.manifestOf(ctx, n)
		if fault.KindOf(err) == fault.NotFound {
			continue // numbers may be left out
		}
		if err != nil {
			return nil, err
		}
		if !earlier[n] {
			writes, err := release.Writes(&before.Document, &m.Document)
			if err != nil {
				return nil, err
			}
			paths = append(paths, pathsOf(writes)...)
		}
		before = m
	}
	return paths, nil
}

// releasedBySchedules are the releases of drafts that were due before.
func (a *Actions) releasedBySchedules(ctx context.Context, due time.Time) (map[uint64]bool, error) {
	all, err := a.Ledger.Papers(ctx, ledger.Draft, ledger.PaperFilter{States: []string{Published}, Limit: 1000})
	if err != nil {
		return nil, fmt.Errorf("read drafts: %w", err)
	}
	earlier := map[uint64]bool{}
	for _, p := range all {
		b, err := bodyOf(p)
		if err != nil {
			return nil, err
		}
		if !b.Due.IsZero() && !b.Due.After(due) {
			earlier[b.Release] = true
		}
	}
	return earlier, nil
}

func pathsOf(differences []release.Difference) []string {
	paths := make([]string, len(differences))
	for i, d := range differences {
		paths[i] = d.Path
	}
	return paths
}

// byHand are the parts of a document whose operational state differs.
func byHand(was, is release.Operational) (paths []string) {
	for app := range both(was.Apps, is.Apps) {
		a, b := was.Apps[app], is.Apps[app]
		at := fmt.Sprintf("apps[%s]", app)
		for key := range both(a.Regions, b.Regions) {
			if a.Regions[key] != b.Regions[key] {
				paths = append(paths, fmt.Sprintf("%s.regions[%s]", at, key))
			}
		}
		for key := range both(a.Endpoints, b.Endpoints) {
			x, y := a.Endpoints[key], b.Endpoints[key]
			if region, endpoint, _ := strings.Cut(key, "/"); x.State != y.State || value(x.Weight) != value(y.Weight) {
				paths = append(paths, fmt.Sprintf("%s.regions[%s].endpoints[%s]", at, region, endpoint))
			}
		}
		for key := range both(a.Policies, b.Policies) {
			x, y := a.Policies[key], b.Policies[key]
			if x.Epoch != y.Epoch || value(x.Share) != value(y.Share) {
				paths = append(paths, fmt.Sprintf("%s.policies[%s]", at, key))
			}
		}
	}
	slices.Sort(paths)
	return paths
}

func both[V any](a, b map[string]V) map[string]bool {
	keys := map[string]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	return keys
}

func value(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}
