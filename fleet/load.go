package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

const (
	// fetchAhead is how many chunks of a list are fetched together: 64 are 2 MB.
	// One at a time, five million ids would cost 4,096 round trips.
	fetchAhead   = 64
	fetchWorkers = 8
)

var (
	// errOvertaken says that something newer is served, or is being loaded.
	errOvertaken = errors.New("a newer release came meanwhile")
	// errIncomplete says that nobody had a part of the release. It is no fault of
	// the release, so the Keeper must not count it as refused.
	errIncomplete = errors.New("a part of the release cannot be fetched")
)

// accept hands a release to the Keeper. A newer one that comes meanwhile ends the
// load of an older one: slow blobs must not hold up an emergency.
func (f *Follower) accept(ctx context.Context, from Source, s *release.Signed, reported uint64) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	own := &loading{Signed: *s, stop: stop}
	if !f.begin(own, reported) {
		return errOvertaken
	}
	defer f.end(own)
	blobs := &layers{disk: f.opt.Disk, fail: stop}
	blobs.sources = append(blobs.sources, from)
	for _, l := range f.all() {
		if l.source != from {
			blobs.sources = append(blobs.sources, l.source)
		}
	}
	err := f.opt.Keeper.Accept(ctx, *s, blobs, from.Name())
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// begin notes a load and ends those of older releases. It is false when something
// newer is on its way or in use. A release that is older than what its source was
// told is no race: the Keeper shall refuse and count it.
func (f *Follower) begin(own *loading, reported uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := f.opt.Keeper.Status()
	if own.Number > reported && own.Number < status.Number {
		return false
	}
	for other := range f.load {
		if newer(other.Signed, own.Signed) && own.Number > reported {
			return false
		}
		if newer(own.Signed, other.Signed) && other.Number > status.Number {
			other.stop(errOvertaken)
		}
	}
	f.load[own] = struct{}{}
	return true
}

func (f *Follower) end(own *loading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.load, own)
	if status := f.opt.Keeper.Status(); status.Number == own.Number && status.Seq == own.Records.Seq {
		f.served = &own.Signed
	}
}

// layers are where the blobs of one release are looked for while it loads: the
// disk, the source that brought it, the other sources. What a source gives goes
// to the disk. A source that failed once is not asked again for this release.
type layers struct {
	disk    Disk // may be nil
	sources []Source
	fail    context.CancelCauseFunc // ends the load when nobody has a blob

	mu     sync.Mutex // guards what follows
	failed []string
	ahead  []release.Digest          // chunks of the lists that are being read
	ready  map[release.Digest][]byte // fetched ahead
}

// Blob is the blob, fetched together with the chunks that will be read next.
func (b *layers) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	if data, ok := b.take(d); ok {
		return data, nil
	}
	data, err := b.read(ctx, d)
	if err != nil {
		batch := b.batch(d)
		if data, err = b.fetchAll(ctx, batch); err != nil {
			b.fail(fmt.Errorf("%w: %w", errIncomplete, err))
			return nil, err
		}
	}
	if index, err := whitelist.ParseIndexBlob(data); err == nil {
		b.expect(index)
	}
	return data, nil
}

// read is the blob from the disk.
func (b *layers) read(ctx context.Context, d release.Digest) ([]byte, error) {
	if b.disk == nil {
		return nil, fs.ErrNotExist
	}
	return b.disk.Blob(ctx, d)
}

func (b *layers) take(d release.Digest) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.ready[d]
	delete(b.ready, d)
	return data, ok
}

// expect notes the chunks of a list, which are read after its index.
func (b *layers) expect(index *whitelist.IndexBlob) {
	empty := release.DigestOf(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range index.Digests {
		if d := release.Digest(d); d != empty {
			b.ahead = append(b.ahead, d)
		}
	}
}

// batch is a blob and the chunks that are read after it.
func (b *layers) batch(d release.Digest) []release.Digest {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.ahead, d)
	if i < 0 {
		return []release.Digest{d}
	}
	n := min(i+fetchAhead, len(b.ahead))
	batch := b.ahead[i:n]
	b.ahead = b.ahead[n:]
	return batch
}

// fetchAll fetches a batch and returns its first blob. The others become ready;
// why one of them is not to be had is heard when it is read.
func (b *layers) fetchAll(ctx context.Context, batch []release.Digest) (first []byte, err error) {
	var g errgroup.Group
	g.SetLimit(fetchWorkers)
	for i, d := range batch {
		g.Go(func() error {
			if i > 0 {
				if _, err := b.read(ctx, d); err == nil {
					return nil
				}
			}
			data, e := b.fetch(ctx, d)
			switch {
			case i == 0:
				first, err = data, e
			case e == nil:
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.ready == nil {
					b.ready = map[release.Digest][]byte{}
				}
				b.ready[d] = data
			}
			return nil
		})
	}
	_ = g.Wait() // none of them returns an error
	return first, err
}

// fetch asks the sources one after the other and keeps what one has.
func (b *layers) fetch(ctx context.Context, d release.Digest) ([]byte, error) {
	errs := []error{fmt.Errorf("fetch blob %s", d)}
	for _, s := range b.sources {
		if b.hasFailed(s) {
			continue
		}
		data, err := s.Blob(ctx, d)
		if err == nil && release.DigestOf(data) != d {
			err = fmt.Errorf("blob %s is another one", d)
		}
		if err == nil {
			if b.disk != nil {
				_ = b.disk.Keep(d, data) // else the copy of the release says why it cannot be written
			}
			return data, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.Name(), err))
		if ctx.Err() != nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			b.mu.Lock()
			b.failed = append(b.failed, s.Name())
			b.mu.Unlock()
		}
	}
	return nil, errors.Join(errs...)
}

func (b *layers) hasFailed(s Source) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.failed, s.Name())
}
