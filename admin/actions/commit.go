package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Outcome is what a change did.
type Outcome struct {
	Release      uint64                 `json:"release" doc:"the release that carries the change; 0 for a dry run"`
	Canary       string                 `json:"canary,omitempty" doc:"the replica that serves it first; GET /api/v1/fleet shows when everybody may"`
	Acknowledged *fleet.Acknowledgement `json:"acknowledged,omitempty" doc:"who serves it already: of all replicas, or the canary alone"`
	Preview      *Preview               `json:"preview,omitempty" doc:"of a dry run"`
	Warnings     []fault.Problem        `json:"warnings,omitempty" doc:"what was done and is seldom meant"`
	Undo         *Emergency             `json:"undo,omitempty" doc:"of an emergency: the one that sets everything back, as long as nobody changes the same"`
}

// Preview is what a change would do.
type Preview struct {
	Changes []release.Difference `json:"changes"`
	// Buckets is which of an app's 10,000 buckets change hands, by policy.
	Buckets []release.BucketMove `json:"buckets" doc:"of 10,000, by policy and otherwise; from and to are regions, empty for the next policy. Exact, unless redrawn: then another salt or id draws the buckets anew and this is to be expected"`
	// Moved is how many of 10,000 synthetic requests would get another region, by app.
	Moved   map[string]int `json:"moved" doc:"of 10,000 synthetic requests, by app; labelled so because no real traffic is in it"`
	Impact  *Impact        `json:"impact,omitempty" doc:"on requests that replicas had in the last hour"`
	Needs   []Need         `json:"needs" doc:"why a second person must agree; empty: one is enough"`
	Refused *Veto          `json:"refused,omitempty" doc:"why the change would be refused as it was asked for"`
}

// Veto is a guard's reason not to release something.
type Veto struct {
	Code   string `json:"code" example:"big_move"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`

	Said fault.Said `json:"-"`
}

// Texts are the detail and the hint, for other languages.
func (v Veto) Texts() (detail, hint fault.Text) { return v.Said.Texts(v.Detail, v.Hint) }

// draft is a change on its way to a release.
type draft struct {
	action, target string
	details        any  // stand in the audit row beside action and reason
	head                // what it is made from and follows
	emergency      bool // everywhere at once
	change         release.Change
	blobs          []whitelist.Blob // that the release needs and the ledger may not have
	warnings       []fault.Problem
	answer         func(Outcome) any // what the caller will hear; nil: the outcome
	undo           *Emergency        // what sets it back; nil: nothing does
	paper          *ledger.Paper     // that two people agreed to and that is published with it; nil: none
}

// preview weighs the draft, and says beside that what a caller hears of a dry run. It
// waits for replicas that try the draft, so whoever calls it must not have the turn.
func (a *Actions) preview(ctx context.Context, d draft) (Outcome, error) {
	p, err := a.weigh(ctx, d)
	if err == nil {
		p.Impact, err = a.impact(ctx, d)
	}
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Preview: p, Warnings: d.warnings}, nil
}

// weigh compiles the draft as an edge would and compares it with its parent. What
// only a second person may allow is in the answer, not an error.
func (a *Actions) weigh(ctx context.Context, d draft) (*Preview, error) {
	next, err := a.next(ctx, d)
	if err != nil {
		return nil, err
	}
	var before release.Configuration
	var cur *release.Snapshot
	if d.from != nil {
		before = release.Configuration{Document: &d.from.Document, Operational: d.from.Operational}
		if cur, err = a.serving(ctx, d); err != nil {
			return nil, err
		}
	}
	// Signing finds answers that are too large; what it signed goes no further.
	if _, err := release.Sign(next, a.Keys, a.now()); err != nil {
		return nil, err
	}
	snapshot, err := a.Loader.Draft(ctx, next, a.blobs(d), cur)
	if err != nil {
		return nil, err
	}
	after := release.Configuration{Document: &next.Document, Operational: next.Operational}
	changes, err := difference(before, after)
	if err != nil {
		return nil, err
	}
	p := &Preview{Changes: changes, Buckets: release.BucketMoves(before, after), Moved: map[string]int{}}
	if cur != nil {
		p.Moved = release.Moved(cur, snapshot)
	}
	if p.Needs = []Need{}; !d.emergency {
		if p.Needs, err = a.needs(ctx, d.from, next, p.Moved); err != nil {
			return nil, err
		}
		lists, err := a.listNeeds(ctx, d, next)
		if err != nil {
			return nil, err
		}
		p.Needs = append(p.Needs, lists...)
	}
	err = a.Loader.Guard(snapshot, cur)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.Denied {
		p.Refused, err = &Veto{Code: e.Code, Detail: e.Detail, Hint: e.Hint, Said: e.Said}, nil
	}
	return p, err
}

// serving is the snapshot that the draft is made from: the one in use, or a compilation
// of the ledger's when this process lags behind.
func (a *Actions) serving(ctx context.Context, d draft) (*release.Snapshot, error) {
	if cur := a.Keeper.Current(); cur != nil && cur.Digest == release.DigestOf(d.all.Manifest) {
		return cur, nil
	}
	s, err := a.Loader.Draft(ctx, d.from, a.Ledger, a.Keeper.Current())
	if err != nil {
		return nil, fmt.Errorf("compile release %d: %w", d.from.Number, err)
	}
	return s, nil
}

// commit makes the draft a release: sign, load as an edge would, write, serve, and
// offer it to the fleet. Who else serves it is not waited for here: the caller has
// the turn.
func (a *Actions) commit(ctx context.Context, w Write, d draft) (Outcome, error) {
	next, err := a.next(ctx, d)
	if err != nil {
		return Outcome{}, err
	}
	s, err := release.Sign(next, a.Keys, a.now())
	if err != nil {
		return Outcome{}, err
	}
	prepared, err := a.Keeper.Prepare(ctx, s, a.blobs(d))
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Release: next.Number, Warnings: slices.Concat(d.warnings, d.followed()), Undo: d.undo}
	if !d.emergency && d.from != nil {
		out.Canary, _ = a.Fleet.Canary()
	}
	entry, err := w.entry(d, out)
	if err != nil {
		return Outcome{}, err
	}
	// Bulk goes first and outside the request's Patience.
	if len(d.blobs) > 0 {
		if err := a.Ledger.PutBlobs(ctx, slices.Values(d.blobs)); err != nil {
			return Outcome{}, fmt.Errorf("store lists and tables: %w", err)
		}
	}
	err = a.Ledger.Append(ctx, ledger.Write{Base: d.newest.Number, Signed: s, Canary: out.Canary,
		Hosts: slices.Sorted(maps.Keys(next.Approved.Hosts)), Change: entry})
	if err != nil {
		return Outcome{}, err
	}
	// It is written: from here on the caller going away must not leave us behind.
	if err := a.Keeper.Take(context.WithoutCancel(ctx), prepared, a.blobs(d), publisher); err != nil {
		return Outcome{}, fmt.Errorf("release %d is written and cannot be served here: %w", next.Number, err)
	}
	if out.Canary == "" {
		a.desk.put(fleet.Offer{All: s})
	} else {
		a.desk.put(fleet.Offer{All: d.all, Canary: s, Replica: out.Canary})
	}
	a.wake()
	return out, nil
}

// entry is the audit row of the draft's release, with the answer to remember.
func (w Write) entry(d draft, out Outcome) (ledger.Change, error) {
	entry := w.change(d.action, d.target)
	var err error
	if entry.Details, err = json.Marshal(d.details); err != nil {
		return entry, fmt.Errorf("write audit details of %s: %w", d.action, err)
	}
	answer := any(out)
	if d.answer != nil {
		answer = d.answer(out)
	}
	return entry, w.remember(answer)
}

// followed warns of what an emergency found and went past.
func (d draft) followed() (warnings []fault.Problem) {
	if d.rollout.Canary != "" {
		warnings = append(warnings, fault.ProblemOf("", fault.Textf("release %d, which only %s served, is superseded", d.rollout.Head, d.rollout.Canary),
			fault.Textf("whoever made it publishes it again on top of this one")))
	}
	if d.lost > 0 {
		warnings = append(warnings, fault.ProblemOf("", fault.Textf("the database lacks the last %d releases; this one was made from what is served", d.lost),
			fault.Textf("POST /api/v1/releases/adopt brings back their lists and tables")))
	}
	return warnings
}

// next is the draft's manifest. Hosts get their marks from the register of approved hosts.
func (a *Actions) next(ctx context.Context, d draft) (*release.Manifest, error) {
	approved, err := a.Ledger.ApprovedHosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read approved hosts: %w", err)
	}
	c := d.change
	c.Created = a.now()
	c.Approve.Hosts = slices.Sorted(maps.Keys(approved))
	c.Above, c.Format = d.numbered, a.Fleet.Format()
	if c.Keys == nil {
		keys := a.keyIDs(d.from)
		c.Keys = &keys
	}
	if d.rollout.Canary != "" {
		// Whoever serves the canary moves back to what the others have.
		c.Approve.BigMove, c.Approve.RegionRemoved = true, true
	}
	if d.from == nil {
		return release.First(a.Deployment, release.StreamEdge, c)
	}
	return d.from.Next(c)
}

// layered finds the blobs of a draft before those of the ledger.
type layered struct {
	fresh map[release.Digest][]byte
	below release.Blobs
}

// Blob is the fresh blob, or the one below.
func (l layered) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	if data, ok := l.fresh[d]; ok {
		return data, nil
	}
	return l.below.Blob(ctx, d)
}

func (a *Actions) blobs(d draft) release.Blobs {
	fresh := make(map[release.Digest][]byte, len(d.blobs))
	for _, b := range d.blobs {
		fresh[b.Digest] = b.Bytes
	}
	return layered{fresh, a.Ledger}
}
