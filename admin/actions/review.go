package actions

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// reviewed are the actions that one person does at once and a second one signs afterwards.
func reviewed() []string {
	return []string{SwapEndpoints, SetRegionState, SetClusterState, AbortGray, Freeze, "relive"}
}

// Unreviewed are the emergencies that no second person has signed, newest first.
func (a *Actions) Unreviewed(ctx context.Context) ([]ledger.Summary, error) {
	list, err := a.Ledger.Unreviewed(ctx, release.StreamEdge, time.Time{}, reviewed())
	if err != nil {
		return nil, fmt.Errorf("read emergencies that nobody reviewed: %w", err)
	}
	if list == nil {
		list = []ledger.Summary{}
	}
	return list, nil
}

// ReviewRelease signs an emergency that somebody else made. It changes nothing that
// is served: whoever disagrees acts against it.
func (a *Actions) ReviewRelease(ctx context.Context, w Write, n uint64) error {
	_, err := remembered(ctx, a, w, asked{"release_review", n}, func(w Write) (struct{}, error) {
		s, m, err := a.released(ctx, n)
		if err != nil {
			return struct{}{}, err
		}
		if !slices.Contains(reviewed(), m.Cause.Action) {
			return struct{}{}, fault.New(fault.Invalid, "not_reviewed", "release %d is no emergency (%s)", n, m.Cause.Action).
				WithHint("GET /api/v1/pending lists what waits for a review")
		}
		if err := a.another(ctx, w.Actor, fault.Textf("release %d", n), m.Cause.By); err != nil {
			return struct{}{}, err
		}
		if err := w.remember(struct{}{}); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, a.Ledger.Approve(ctx, ledger.Approval{Kind: ledger.OfRelease, ID: strconv.FormatUint(n, 10),
			Digest: release.DigestOf(s.Manifest), Author: m.Cause.By}, w.change("release_review", fmt.Sprintf("release %d", n)))
	})
	return err
}

// Pending is something that waits for a second person.
type Pending struct {
	Kind   string    `json:"kind" enum:"host,draft,release,gray,settings,list"`
	ID     string    `json:"id"`
	Title  string    `json:"title"`
	Author string    `json:"author"`
	Since  time.Time `json:"since"`
}

// Pending is everything that waits for a second person, the oldest first.
func (a *Actions) Pending(ctx context.Context) ([]Pending, error) {
	pending := []Pending{}
	hosts, err := a.Ledger.Hosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read hosts: %w", err)
	}
	for _, h := range hosts {
		if h.Approver == "" && h.Adopted == "" {
			pending = append(pending, Pending{"host", h.Host, h.Reason, h.Proposer, h.Proposed})
		}
	}
	releases, err := a.Unreviewed(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range releases {
		pending = append(pending, Pending{"release", strconv.FormatUint(r.Number, 10), r.Action + ": " + r.Reason, r.By, r.Created})
	}
	papers, err := a.pendingPapers(ctx)
	if err != nil {
		return nil, err
	}
	pending = append(pending, papers...)
	imports, err := a.imports(ctx, "", Submitted)
	if err != nil {
		return nil, err
	}
	for _, i := range imports {
		pending = append(pending, Pending{ledger.OfList, i.body.List, i.body.List + ": " + i.body.Reason, i.paper.By, i.paper.Changed})
	}
	slices.SortStableFunc(pending, func(x, y Pending) int { return x.Since.Compare(y.Since) })
	return pending, nil
}

// pendingPapers are the drafts, plans, imports and settings that wait.
func (a *Actions) pendingPapers(ctx context.Context) ([]Pending, error) {
	pending, err := a.pendingGrays(ctx)
	if err != nil {
		return nil, err
	}
	imports, err := a.imports(ctx, "", Submitted)
	if err != nil {
		return nil, err
	}
	for _, i := range imports {
		pending = append(pending, Pending{"list", i.body.List, fmt.Sprintf("%s: +%d −%d, %s", i.body.List, i.body.Added, i.body.Removed, i.body.Reason), i.paper.By, i.paper.Changed})
	}
	drafts, err := a.Ledger.Papers(ctx, ledger.Draft, ledger.PaperFilter{States: []string{Submitted}})
	if err != nil {
		return nil, fmt.Errorf("read submitted drafts: %w", err)
	}
	for _, p := range drafts {
		b, err := bodyOf(p)
		if err != nil {
			return nil, err
		}
		valid, err := a.agreed(ctx, p.ID, b.Digest, b.Authors)
		if err != nil {
			return nil, err
		}
		if len(valid) == 0 {
			pending = append(pending, Pending{"draft", p.ID, b.Title, p.By, p.Changed})
		}
	}
	body, p, err := a.settingsPaper(ctx)
	if err != nil {
		return nil, err
	}
	if s := body.Proposal; s != nil {
		pending = append(pending, Pending{"settings", settingsID, s.Reason, s.By, p.Changed})
	}
	return pending, nil
}

// RelivePreview is what making an earlier release live again would do.
type RelivePreview struct {
	Outcome
	Of      uint64 `json:"of" doc:"the release whose document comes back"`
	Current uint64 `json:"current" doc:"the release that everybody may serve"`
	As      uint64 `json:"as" doc:"the number that it would have"`
	Confirm string `json:"confirm" doc:"what must be typed"`
}

// PreviewRelive says what Relive would do.
func (a *Actions) PreviewRelive(ctx context.Context, n uint64) (RelivePreview, error) {
	old, err := a.manifestOf(ctx, n)
	if err != nil {
		return RelivePreview{}, err
	}
	h, err := a.head(ctx)
	if err != nil {
		return RelivePreview{}, err
	}
	if h.from == nil {
		return RelivePreview{}, noRelease()
	}
	d, err := a.revived(ctx, h.from, old)
	if err != nil {
		return RelivePreview{}, err
	}
	d.head, d.emergency = h, true
	d.change.Cause = release.Cause{Action: d.action, By: "preview"}
	out, err := a.preview(ctx, d)
	return RelivePreview{Outcome: out, Of: n, Current: h.all.Number, As: h.numbered + 1, Confirm: a.ConfirmRelive(n)}, err
}

// Waiting is what waits for people, for metrics.
type Waiting struct {
	Schedules  map[string]int // drafts by state: scheduled, suspended
	Unreviewed int            // emergencies that nobody signed
	Oldest     time.Time      // of them; zero: there is none
	Drilled    time.Time      // the newest drill in the audit trail; zero: there is none
}

// drillReason is how dispatchctl drill begins the reason of its two swaps.
const drillReason = "drill: "

// lastDrill is when a swap was last done for practice.
func (a *Actions) lastDrill(ctx context.Context) (at time.Time, err error) {
	rows, err := a.Ledger.Audit(ctx, ledger.AuditFilter{Action: SwapEndpoints, Limit: 1000}) // newest first; a month has fewer
	if err != nil {
		return time.Time{}, fmt.Errorf("look for the last drill: %w", err)
	}
	for _, row := range rows {
		if strings.HasPrefix(row.Reason, drillReason) {
			return row.At, nil
		}
	}
	return time.Time{}, nil
}

const (
	// remindLook is how often what waits is counted.
	remindLook = time.Minute
	// remindEvery is how often an emergency that waits for too long is named.
	remindEvery = time.Hour
)

// reminder counts what waits, and names emergencies that wait for too long.
type reminder struct {
	actions *Actions
	log     *slog.Logger
	looked  time.Time
	named   time.Time
}

func (r *reminder) look(ctx context.Context) {
	if !r.looked.IsZero() && time.Since(r.looked) < remindLook {
		return
	}
	r.looked = time.Now()
	err := r.count(ctx)
	if err != nil && ctx.Err() == nil {
		r.log.WarnContext(ctx, "what waits for a second person cannot be read", "err", err)
	}
}

func (r *reminder) count(ctx context.Context) error {
	list, err := r.actions.Unreviewed(ctx)
	if err != nil {
		return err
	}
	w := Waiting{Schedules: map[string]int{Scheduled: 0, Suspended: 0}, Unreviewed: len(list)}
	drafts, err := r.actions.Ledger.Papers(ctx, ledger.Draft, ledger.PaperFilter{States: []string{Scheduled, Suspended}, Limit: 1000})
	if err != nil {
		return err
	}
	for _, p := range drafts {
		w.Schedules[p.State]++
	}
	if len(list) > 0 {
		w.Oldest = list[len(list)-1].Created
	}
	if w.Drilled, err = r.actions.lastDrill(ctx); err != nil {
		return err
	}
	if r.actions.Waits != nil {
		r.actions.Waits(w)
	}
	s, err := r.actions.settings(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 || r.actions.now().Sub(w.Oldest) < time.Duration(s.Safety.ReviewAfter) || !r.named.IsZero() && time.Since(r.named) < remindEvery {
		return nil
	}
	r.named = time.Now()
	r.log.WarnContext(ctx, "emergencies were not reviewed by a second person", "releases", len(list), "oldest", list[len(list)-1].Number,
		"made", w.Oldest, "by", list[len(list)-1].By, "try", "POST /api/v1/releases/N/review, or the page Changes")
	return nil
}
