package actions

import (
	"context"
	"fmt"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// head is where the stream of edges stands.
type head struct {
	rollout  ledger.Rollout
	newest   release.Signed    // of the ledger: what the next release is appended to; zero: none
	written  *release.Manifest // of newest; nil: none
	all      release.Signed    // the newest that everybody may serve
	from     *release.Manifest // of all: the content of the next release; nil: none
	numbered uint64            // the next number is above it
	lost     uint64            // releases that are served and that the ledger lacks
}

// head reads where the stream stands. When the ledger ends before the release that
// is served here, that release is what everybody may serve. Another release under
// its number is the conflict fork.
func (a *Actions) head(ctx context.Context) (h head, err error) {
	if h.rollout, err = a.Ledger.Rollout(ctx, release.StreamEdge); err != nil {
		return head{}, fmt.Errorf("read rollout: %w", err)
	}
	if h.rollout.Head > 0 {
		if h.newest, h.written, err = a.released(ctx, h.rollout.Head); err != nil {
			return head{}, fmt.Errorf("read the newest release: %w", err)
		}
	}
	h.all, h.from, h.numbered = h.newest, h.written, h.newest.Number
	if h.rollout.Canary != "" && h.rollout.All > 0 {
		if h.all, h.from, err = a.released(ctx, h.rollout.All); err != nil {
			return head{}, fmt.Errorf("read release %d: %w", h.rollout.All, err)
		}
	}
	cur := a.Keeper.Current()
	switch {
	case cur == nil || cur.Number < h.newest.Number:
	case cur.Number > h.newest.Number:
		h.all, h.from, h.numbered = cur.Signed, cur.Manifest, cur.Number
		h.lost = cur.Number - h.newest.Number
	case cur.Digest != release.DigestOf(h.newest.Manifest):
		return head{}, fault.New(fault.Conflict, "fork", "the database has another release %d than the one that is being served", cur.Number).
			WithHint("two publishers used one number: find the second one before changing anything")
	}
	return h, nil
}

// known is an error when the ledger lacks what is served: a normal change must not
// be made from what it has.
func (h head) known() error {
	if h.lost == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "store_behind", "the database ends at release %d and %d is being served", h.newest.Number, h.numbered).
		WithHint("it was probably restored from a backup: POST /api/v1/releases/adopt (dispatchctl releases adopt) brings back what is served; emergencies go on")
}

// open is an error while normal changes have to wait.
func (h head) open() error {
	switch {
	case h.rollout.Canary != "":
		err := fault.New(fault.Conflict, "canary_running", "release %d is being tried on %s alone", h.rollout.Head, h.rollout.Canary).
			WithHint("wait until everybody serves it or it is stopped: GET /api/v1/fleet shows it; emergencies go on")
		err.Data = h.rollout
		return err
	case h.from != nil && h.from.Operational.Frozen:
		return fault.New(fault.Conflict, "frozen", "changes are frozen").
			WithHint(`POST /api/v1/emergency {"action":"freeze","targets":[{"expect":"frozen","state":"open"}]} ends it; emergencies and relive go on`)
	}
	return nil
}

// editable is where the stream stands, if a normal change can be made of it now.
func (a *Actions) editable(ctx context.Context) (head, error) {
	h, err := a.head(ctx)
	if err == nil {
		err = h.known()
	}
	if err == nil {
		err = a.open(ctx, h)
	}
	return h, err
}

// offer is what the fleet may serve now.
func (h head) offer() fleet.Offer {
	o := fleet.Offer{All: h.all}
	if h.lost == 0 && h.rollout.Canary != "" {
		o.Canary, o.Replica = h.newest, h.rollout.Canary
	}
	return o
}

// released is release n and its manifest.
func (a *Actions) released(ctx context.Context, n uint64) (release.Signed, *release.Manifest, error) {
	s, err := a.Ledger.Release(ctx, release.StreamEdge, n)
	if err != nil {
		return release.Signed{}, nil, err
	}
	m, err := release.DecodeManifest(s.Manifest)
	if err != nil {
		return release.Signed{}, nil, fmt.Errorf("read release %d: %w", n, err)
	}
	return s, m, nil
}

// manifestOf is a release by number.
func (a *Actions) manifestOf(ctx context.Context, n uint64) (*release.Manifest, error) {
	_, m, err := a.released(ctx, n)
	return m, err
}
