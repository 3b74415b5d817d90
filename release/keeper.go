package release

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// FromDisk is the source of a release that Restore found.
const FromDisk = "disk"

// Keeper holds the snapshot in use. Current is one atomic load. Accept, Restore
// and Override change it and leave it alone on every failure. One release is
// loaded at a time; an override waits for no load.
type Keeper struct {
	loader  *Loader
	disk    *Disk // nil: no copy is kept
	current atomic.Pointer[Snapshot]

	turn chan struct{} // holds one token: whoever has it may load a release
	file sync.Mutex    // one writes the override's file at a time

	mu       sync.Mutex // guards what follows and every change of current
	released *Snapshot  // the last one accepted; current is it, or it under an override
	over     *kept      // the override in force, nil if there is none
	taken    time.Time  // when the newest override for all was made that was taken here
	loading  *loading   // what the turn is used for, nil for nothing
	status   Status
	since    time.Time // of the released snapshot, on the monotonic clock
	changed  chan struct{}
}

// loading is a release that is being loaded.
type loading struct {
	number uint64
	stop   context.CancelCauseFunc
}

// Status is what a Keeper says about itself. A copy is the reader's own.
type Status struct {
	Number   uint64 // 0: nothing was ever loaded
	Seq      uint64
	Digest   Digest
	Created  time.Time
	Expires  time.Time         // of its records, see Snapshot.Expires
	Age      time.Duration     // since it was taken into use here, on the monotonic clock
	Source   string            // who brought it: publisher, disk, …
	Refusal  *Refusal          // the last one since the snapshot was taken into use
	Refused  map[string]uint64 // refusals by code since the start
	DiskErr  string            // why the last copy could not be written; empty: it could
	DiskErrs uint64            // copies that could not be written since the start
	DiskBad  uint64            // damaged files set aside since the start

	Override    *Overriding // in force here; nil: none
	OverrideErr string      // why its file could not be written or read: a restart forgets it; empty: it does not
}

// Refusal is a release that was not taken into use. The release itself is at
// fault unless the code is missing_part: then no source had one of its blobs, and
// the same release may be accepted when one has.
type Refusal struct {
	Number uint64 `json:"number"`
	Seq    uint64 `json:"seq"`
	Source string `json:"source"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// NewKeeper returns a Keeper without a snapshot. disk may be nil.
func NewKeeper(loader *Loader, disk *Disk) (*Keeper, error) {
	if loader == nil {
		return nil, errors.New("keeper: no loader")
	}
	k := &Keeper{loader: loader, disk: disk, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	k.turn <- struct{}{}
	k.status.Refused = map[string]uint64{}
	k.recall()
	return k, nil
}

// Current is the snapshot in use, nil before the first.
func (k *Keeper) Current() *Snapshot { return k.current.Load() }

// Signed is the release in use as it came, false before the first.
func (k *Keeper) Signed() (Signed, bool) {
	cur := k.current.Load()
	if cur == nil {
		return Signed{}, false
	}
	return cur.Signed, true
}

// Accept takes a release into use if it may follow the current one, and keeps a
// copy of it on disk. The release that is in use already is no error and changes
// nothing. On an error the current one stays in use, and Status says why. That a
// copy could not be written is no error: it is in Status too. source says who
// brought the release.
func (k *Keeper) Accept(ctx context.Context, s Signed, blobs Blobs, source string) error {
	return k.Take(ctx, &Prepared{Signed: s}, blobs, source)
}

// Prepared is a release that the Keeper has loaded and not taken into use.
type Prepared struct {
	Signed
	next *Snapshot // nil: not loaded yet
	on   *Snapshot // what it was loaded to follow
}

// Prepare loads a release as Accept would, and changes nothing. A publisher finds
// out so what would be refused, before it writes the release down.
func (k *Keeper) Prepare(ctx context.Context, s Signed, blobs Blobs) (*Prepared, error) {
	k.mu.Lock()
	on := k.released
	k.mu.Unlock()
	next, err := k.loader.Load(ctx, s, blobs, on)
	if err != nil {
		return nil, err
	}
	return &Prepared{Signed: s, next: next, on: on}, nil
}

// Take is Accept of a release that is prepared. It is loaded again only if another
// one was taken into use since.
func (k *Keeper) Take(ctx context.Context, p *Prepared, blobs Blobs, source string) error {
	s := p.Signed
	next, ended, err := k.swap(ctx, p, blobs, source)
	if err != nil || next == nil {
		return err
	}
	// Outside the turn: a slow disk must not hold up an emergency behind it.
	if k.disk != nil && source != FromDisk {
		k.wrote(k.disk.Write(ctx, s, next.Blobs(), blobs))
	}
	if ended {
		k.keepOverride()
	}
	return nil
}

// swap waits for its turn and changes current. next is nil if there was nothing
// to change; ended says that an override ended by it.
func (k *Keeper) swap(ctx context.Context, p *Prepared, blobs Blobs, source string) (next *Snapshot, ended bool, err error) {
	s := p.Signed
	k.hurry(s)
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	ctx, stop := context.WithCancelCause(ctx)
	cur := k.begin(&loading{number: s.Number, stop: stop})
	defer k.begin(nil)
	defer stop(nil)
	if cur != nil && cur.is(s) {
		return nil, false, nil
	}
	if next = p.next; next == nil || p.on != cur {
		next, err = k.loader.Load(ctx, s, blobs, cur)
	}
	switch {
	case ctx.Err() != nil: // nothing is wrong with the release
		return nil, false, context.Cause(ctx)
	case err != nil:
		k.refused(s, source, err)
		return nil, false, err
	}
	return next, k.use(next, source), nil
}

// begin notes what is being loaded and returns what it may follow.
func (k *Keeper) begin(l *loading) *Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loading = l
	return k.released
}

// hurry stops the load of an older release: one whose lists come over a slow line
// must not hold up the emergency behind it. Its source will find that it is stale.
func (k *Keeper) hurry(s Signed) {
	k.mu.Lock()
	l := k.loading
	k.mu.Unlock()
	if l == nil || l.number >= s.Number {
		return
	}
	if m, _, err := openManifest(s, k.loader.opt.Trust); err != nil || m.Deployment != k.loader.opt.Deployment {
		return // numbers alone are cheap
	}
	l.stop(fault.New(fault.Unavailable, "superseded", "release %d made way for release %d", l.number, s.Number))
}

// is says whether s is the release that the snapshot was compiled from, with the same records.
func (s *Snapshot) is(other Signed) bool {
	return s.Number == other.Number && s.Seq == other.Records.Seq && s.Digest == DigestOf(other.Manifest)
}

// use takes next into use, under the override in force if it does not end that.
func (k *Keeper) use(next *Snapshot, source string) (ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released, k.since = next, time.Now()
	k.status.Number, k.status.Seq, k.status.Digest, k.status.Created = next.Number, next.Seq, next.Digest, next.Created
	k.status.Expires, k.status.Source, k.status.Refusal = next.Expires(), source, nil
	over := k.over
	k.show()
	return k.over != over
}

func (k *Keeper) refused(s Signed, source string, err error) {
	code := fault.CodeOf(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Refused[code]++
	k.status.Refusal = &Refusal{Number: s.Number, Seq: s.Records.Seq, Source: source, Code: code, Reason: err.Error()}
}

func (k *Keeper) wrote(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.DiskErr = ""
	if err != nil && fault.CodeOf(err) != codeStale { // a newer copy is as good
		k.status.DiskErr = err.Error()
		k.status.DiskErrs++
	}
}

// Restore takes the newest usable copy on disk into use. Copies that are damaged
// or refused are passed over, and Status counts them. It is fs.ErrNotExist when
// there is no copy.
func (k *Keeper) Restore(ctx context.Context) error {
	if k.disk == nil {
		return fs.ErrNotExist
	}
	return k.disk.Restore(ctx, func(ctx context.Context, s Signed, blobs Blobs) error {
		return k.Accept(ctx, s, blobs, FromDisk)
	})
}

// Status is what is in use and what went wrong last.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.status
	s.Refused = maps.Clone(k.status.Refused)
	if s.Refusal != nil {
		refusal := *s.Refusal
		s.Refusal = &refusal
	}
	if s.Override != nil {
		override := *s.Override
		s.Override = &override
	}
	if s.Number != 0 {
		s.Age = time.Since(k.since)
	}
	if k.disk != nil {
		s.DiskBad = k.disk.Bad()
	}
	return s
}

// Changed is closed when the next snapshot is taken into use, also by an override
// that begins or ends. Ask for it before
// reading Current, or a change may be missed:
//
//	for {
//		changed := k.Changed()
//		use(k.Current())
//		select {
//		case <-changed:
//		case <-ctx.Done():
//			return
//		}
//	}
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}
