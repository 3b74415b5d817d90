package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Outcome is what a change did.
type Outcome struct {
	Release      uint64           `json:"release" doc:"the release that carries the change; 0 for a dry run"`
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty" doc:"how many replicas serve it already"`
	Preview      *Preview         `json:"preview,omitempty" doc:"of a dry run"`
	Warnings     []fault.Problem  `json:"warnings,omitempty" doc:"what was done and is seldom meant"`
}

// Acknowledgement says how many replicas serve a release. Here that is this
// process, which serves it before the caller hears of it.
type Acknowledgement struct {
	Replicas int `json:"replicas"`
	Of       int `json:"of"`
}

// Preview is what a change would do.
type Preview struct {
	Changes []release.Difference `json:"changes"`
	// Buckets is which of an app's 10,000 buckets change hands, by policy.
	Buckets []release.BucketMove `json:"buckets" doc:"of 10,000, by policy and otherwise; from and to are regions, empty for the next policy. Exact, unless redrawn: then another salt or id draws the buckets anew and this is to be expected"`
	// Moved is how many of 10,000 synthetic requests would get another region, by app.
	Moved   map[string]int `json:"moved" doc:"of 10,000 synthetic requests, by app; labelled so because no real traffic is in it"`
	Refused *Refusal       `json:"refused,omitempty" doc:"why the change would be refused as it was asked for"`
}

// Refusal is a guard's reason not to release something.
type Refusal struct {
	Code   string `json:"code" example:"big_move"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// draft is a change on its way to a release.
type draft struct {
	action, target string
	details        any               // stand in the audit row beside action and reason
	parent         release.Signed    // what it was made from
	from           *release.Manifest // of parent; nil for the first release
	change         release.Change
	blobs          []whitelist.Blob // that the release needs and the ledger may not have
	warnings       []fault.Problem
	answer         func(Outcome) any // what the caller will hear; nil: the outcome
}

// preview compiles the draft as an edge would and compares it with its parent.
// What only a second person may allow is in the answer, not an error.
func (a *Actions) preview(ctx context.Context, d draft) (Outcome, error) {
	next, err := a.next(ctx, d)
	if err != nil {
		return Outcome{}, err
	}
	var before release.Configuration
	var cur *release.Snapshot
	if d.from != nil {
		before = release.Configuration{Document: &d.from.Document, Operational: d.from.Operational}
		if cur, err = a.serving(ctx, d); err != nil {
			return Outcome{}, err
		}
	}
	// Signing finds answers that are too large; what it signed goes no further.
	if _, err := release.Sign(next, a.Keys, now()); err != nil {
		return Outcome{}, err
	}
	snapshot, err := a.Loader.Draft(ctx, next, a.blobs(d), cur)
	if err != nil {
		return Outcome{}, err
	}
	after := release.Configuration{Document: &next.Document, Operational: next.Operational}
	changes, err := difference(before, after)
	if err != nil {
		return Outcome{}, err
	}
	p := &Preview{Changes: changes, Buckets: release.BucketMoves(before, after), Moved: map[string]int{}}
	if cur != nil {
		p.Moved = release.Moved(cur, snapshot)
	}
	err = a.Loader.Guard(snapshot, cur)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.Denied {
		p.Refused, err = &Refusal{Code: e.Code, Detail: e.Detail, Hint: e.Hint}, nil
	}
	return Outcome{Preview: p, Warnings: d.warnings}, err
}

// serving is the snapshot of the draft's parent: the one in use, or a compilation
// of the ledger's when this process lags behind.
func (a *Actions) serving(ctx context.Context, d draft) (*release.Snapshot, error) {
	if cur := a.Keeper.Current(); cur != nil && cur.Digest == release.DigestOf(d.parent.Manifest) {
		return cur, nil
	}
	s, err := a.Loader.Draft(ctx, d.from, a.Ledger, a.Keeper.Current())
	if err != nil {
		return nil, fmt.Errorf("compile release %d: %w", d.from.Number, err)
	}
	return s, nil
}

// commit makes the draft a release: sign, load as an edge would, write, serve.
func (a *Actions) commit(ctx context.Context, w Write, d draft) (Outcome, error) {
	next, err := a.next(ctx, d)
	if err != nil {
		return Outcome{}, err
	}
	s, err := release.Sign(next, a.Keys, now())
	if err != nil {
		return Outcome{}, err
	}
	if _, err := a.Loader.Load(ctx, s, a.blobs(d), a.Keeper.Current()); err != nil {
		return Outcome{}, err
	}
	out := Outcome{Release: next.Number, Warnings: d.warnings, Acknowledged: &Acknowledgement{Replicas: 1, Of: 1}}
	entry := w.change(d.action, d.target)
	if entry.Details, err = json.Marshal(d.details); err != nil {
		return Outcome{}, fmt.Errorf("write audit details of %s: %w", d.action, err)
	}
	answer := any(out)
	if d.answer != nil {
		answer = d.answer(out)
	}
	if err := w.remember(answer); err != nil {
		return Outcome{}, err
	}
	err = a.Ledger.Append(ctx, ledger.Write{Base: d.parent.Number, Signed: s, Hosts: slices.Sorted(maps.Keys(next.Approved.Hosts)),
		Blobs: slices.Values(d.blobs), Change: entry})
	if err != nil {
		return Outcome{}, err
	}
	// It is written: from here on the caller going away must not leave us behind.
	if err := a.Keeper.Accept(context.WithoutCancel(ctx), s, a.blobs(d), publisher); err != nil {
		return Outcome{}, fmt.Errorf("release %d is written and cannot be served here: %w", next.Number, err)
	}
	return out, nil
}

// next is the draft's manifest. Hosts get their marks from the register of approved hosts.
func (a *Actions) next(ctx context.Context, d draft) (*release.Manifest, error) {
	approved, err := a.Ledger.ApprovedHosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read approved hosts: %w", err)
	}
	c := d.change
	c.Created = now()
	c.Approve.Hosts = slices.Sorted(maps.Keys(approved))
	keys := a.Keys.IDs()
	c.Keys = &keys
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
