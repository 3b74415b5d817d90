package actions

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// ReleaseView is one release as people read it.
type ReleaseView struct {
	Number   uint64
	Parent   uint64 // the release that it was made from; 0: none
	Created  time.Time
	Cause    release.Cause
	Digest   string
	Document string // YAML
	Changes  []release.Difference
	Reviews  []ledger.Approval // of an emergency
	Reviewed bool              // whether it is one that a second person signs
	Current  uint64            // the release that everybody may serve
}

// ReleaseView is release n, and what it changed.
func (a *Actions) ReleaseView(ctx context.Context, n uint64) (ReleaseView, error) {
	s, m, err := a.released(ctx, n)
	if err != nil {
		return ReleaseView{}, err
	}
	h, err := a.head(ctx)
	if err != nil {
		return ReleaseView{}, err
	}
	text, err := release.Text(&m.Document)
	if err != nil {
		return ReleaseView{}, err
	}
	v := ReleaseView{Number: m.Number, Parent: m.Parent, Created: m.Created, Cause: m.Cause, Digest: release.DigestOf(s.Manifest).String(),
		Document: string(text), Reviewed: slices.Contains(reviewed(), m.Cause.Action), Current: h.all.Number}
	if v.Changes, err = a.Diff(ctx, m.Parent, n); err != nil {
		return ReleaseView{}, err
	}
	if v.Reviewed {
		signed, err := a.Ledger.Approvals(ctx, ledger.OfRelease, strconv.FormatUint(n, 10))
		if err != nil {
			return ReleaseView{}, fmt.Errorf("read reviews of release %d: %w", n, err)
		}
		v.Reviews = slices.DeleteFunc(signed, func(s ledger.Approval) bool { return s.Digest.String() != v.Digest })
	}
	return v, nil
}

// DocumentText is the document that everybody may be served by, as a person would
// write it, and the number of its release; 0 before the first.
func (a *Actions) DocumentText(ctx context.Context) (number uint64, text string, err error) {
	h, err := a.head(ctx)
	if err != nil || h.from == nil {
		return 0, "", err
	}
	data, err := release.Text(&h.from.Document)
	return h.all.Number, string(data), err
}

// Rules are the apps of the release in use, operational state applied, and its number.
func (a *Actions) Rules() (number uint64, apps []release.App) {
	cur := a.Keeper.Current()
	if cur == nil {
		return 0, nil
	}
	return cur.Number, release.Apply(&cur.Manifest.Document, cur.Manifest.Operational)
}
