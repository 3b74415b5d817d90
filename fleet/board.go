package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// Board is what a control node has on offer. It is the Outlet that its Server
// reads from, and never goes back to an older release.
type Board struct {
	mu      sync.Mutex // guards what follows
	all     *posted    // nil: nothing is on offer yet
	canary  *posted    // nil: no canary runs
	replica string     // who is offered canary
	blobs   release.Blobs
	changed chan struct{}
}

// posted is a release on offer and the answer that carries it, which is encoded
// once for all who ask.
type posted struct {
	release.Signed
	digest release.Digest
	reply  []byte
}

// NewBoard returns a Board that offers nothing.
func NewBoard() *Board { return &Board{changed: make(chan struct{})} }

// Offer puts o on offer and wakes everybody who waits for a change. A release for
// all that is older than the one on offer is refused, and nothing changes.
func (b *Board) Offer(_ context.Context, o Offer, blobs release.Blobs) error {
	all, err := post(o.All)
	if err != nil {
		return err
	}
	var canary *posted
	if o.Replica != "" && newer(o.Canary, o.All) {
		if canary, err = post(o.Canary); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all != nil && newer(b.all.Signed, o.All) {
		return fault.New(fault.Conflict, "stale", "release %d (records %d) is on offer already, so %d (records %d) is not offered",
			b.all.Number, b.all.Records.Seq, o.All.Number, o.All.Records.Seq).
			WithHint("the database went back; bring the newest release into it: POST /api/v1/releases/adopt")
	}
	b.blobs = blobs
	if b.all.same(all) && b.canary.same(canary) && (canary == nil || b.replica == o.Replica) {
		return nil
	}
	b.all, b.canary, b.replica = all, canary, o.Replica
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// post encodes the answer that carries a release.
func post(s release.Signed) (*posted, error) {
	if s.Number == 0 {
		return nil, errors.New("offer a release: it has no number")
	}
	reply, err := json.Marshal(Reply{Release: &s, Head: s.Number})
	if err != nil {
		return nil, fmt.Errorf("offer release %d: %w", s.Number, err)
	}
	return &posted{Signed: s, digest: release.DigestOf(s.Manifest), reply: reply}, nil
}

func (p *posted) same(other *posted) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.Number == other.Number && p.Records.Seq == other.Records.Seq && p.digest == other.digest
}

// newer says whether s comes after other in their stream.
func newer(s, other release.Signed) bool {
	return s.Number > other.Number || s.Number == other.Number && s.Records.Seq > other.Records.Seq
}

// For is what is on offer to a replica, the zero Signed if nothing is, and a
// channel that is closed at the next change of anything on offer.
func (b *Board) For(replica string) (release.Signed, <-chan struct{}) {
	p, changed := b.posted(replica)
	if p == nil {
		return release.Signed{}, changed
	}
	return p.Signed, changed
}

func (b *Board) posted(replica string) (*posted, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.canary != nil && b.replica == replica {
		return b.canary, b.changed
	}
	return b.all, b.changed
}

// Head is the highest number that is on offer to anybody, 0 if nothing is.
func (b *Board) Head() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.canary != nil:
		return b.canary.Number
	case b.all != nil:
		return b.all.Number
	}
	return 0
}

// Blob is a blob of what is on offer.
func (b *Board) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	b.mu.Lock()
	blobs := b.blobs
	b.mu.Unlock()
	if blobs == nil {
		return nil, fmt.Errorf("read blob %s: nothing is on offer: %w", d, fs.ErrNotExist)
	}
	return blobs.Blob(ctx, d)
}
