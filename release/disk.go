package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/internal/fault"
)

const (
	// Generations is how many releases a Disk keeps.
	Generations = 5
	// diskWorkers is how many blobs are written or read at a time. A write waits
	// for the disk, so a few overlap well even on one core.
	diskWorkers = 8

	generationExt = ".release"
	badExt        = ".bad"
	tempExt       = ".tmp"
)

// Disk keeps copies of the last releases of one stream in a folder of its own:
//
//	0000000000000412-000001.release   one generation, see generation.go
//	blobs/9f86d081…                   lists and tables by digest, shared by the generations
//	blobs/9f86d081….fetched           one that came ahead of its release, see Keep
//	override                          the override in force here, see override_file.go
//
// Every file is written beside its place, synced and renamed, blobs first, so a
// generation that is there is whole. What is damaged is renamed to .bad when it
// is read, and counted. A rotten blob spoils every generation that names it: the
// process then waits for a source, which brings it back.
//
// The first copy of five million ids is 4,096 chunks. It takes 2 to 8 s beside
// serving, most of them to make the files, not to sync them. One file for all
// takes 0.1 s, but would have to be rewritten as chunks fall out of use.
//
// The methods may be called by several goroutines and, for Write, by several
// processes: a lock on the folder keeps one from deleting another's blobs.
type Disk struct {
	dir string
	bad atomic.Uint64

	mu    sync.Mutex          // guards named
	named map[string][]Digest // the blobs of generations by their first line, which has their checksum
}

// OpenDisk makes the folder if it is not there and removes what an interrupted
// write left behind.
func OpenDisk(dir string) (*Disk, error) {
	d := &Disk{dir: dir}
	if err := os.MkdirAll(d.blobs(), 0o700); err != nil {
		return nil, fmt.Errorf("open release copies: %w", err)
	}
	err := d.locked(func() error {
		for _, pattern := range []string{filepath.Join(dir, "*"+tempExt), filepath.Join(d.blobs(), "*"+tempExt)} {
			left, err := filepath.Glob(pattern)
			if err != nil {
				return err
			}
			for _, path := range left {
				if err := os.Remove(path); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open release copies %s: %w", dir, err)
	}
	return d, nil
}

func (d *Disk) blobs() string { return filepath.Join(d.dir, "blobs") }

func (d *Disk) blobPath(digest Digest) string { return filepath.Join(d.blobs(), digest.String()) }

// Bad is how many damaged files were set aside since the process started.
func (d *Disk) Bad() uint64 { return d.bad.Load() }

// setAside renames a damaged file, so that nobody tries it again and somebody can look at it.
func (d *Disk) setAside(path string) {
	d.bad.Add(1)
	// A file that cannot be renamed is found damaged again; there is nothing else to do about it.
	_ = os.Rename(path, path+badExt)
}

// locked runs f while no other process changes the folder.
func (d *Disk) locked(f func() error) error {
	lock, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return f()
}

// generationFile is a generation's place and number.
type generationFile struct {
	path        string
	number, seq uint64
}

// files are the generations, newest first.
func (d *Disk) files() ([]generationFile, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	var files []generationFile
	for _, e := range entries {
		f := generationFile{path: filepath.Join(d.dir, e.Name())}
		if name, ok := strings.CutSuffix(e.Name(), generationExt); ok {
			if n, err := fmt.Sscanf(name, "%d-%d", &f.number, &f.seq); n == 2 && err == nil && d.path(f.number, f.seq) == f.path {
				files = append(files, f)
			}
		}
	}
	slices.SortFunc(files, func(a, b generationFile) int { return strings.Compare(b.path, a.path) })
	return files, nil
}

// path names a generation so that names sort as numbers do: 2^53 has 16 digits.
func (d *Disk) path(number, seq uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf("%016d-%06d%s", number, seq, generationExt))
}

// read reads one generation. A damaged one is set aside; one of a newer format
// or that cannot be opened stays where it is.
func (d *Disk) read(f generationFile) (Signed, []Digest, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return Signed{}, nil, fmt.Errorf("read copy of release: %w", err)
	}
	s, blobs, err := decodeGeneration(data)
	if err == nil && (s.Number != f.number || s.Records.Seq != f.seq) {
		err = fmt.Errorf("%w: it holds release %d", errDamaged, s.Number)
	}
	if errors.Is(err, errDamaged) {
		d.setAside(f.path)
	}
	if err != nil {
		return Signed{}, nil, fmt.Errorf("read copy of release %d: %w", f.number, err)
	}
	return s, blobs, nil
}

// Restore offers the generations to accept, newest first, until one is accepted.
// The error says what was wrong with each; it is nil after a success, and
// fs.ErrNotExist when there is nothing at all.
func (d *Disk) Restore(ctx context.Context, accept func(context.Context, Signed, Blobs) error) error {
	files, err := d.files()
	if err != nil {
		return fmt.Errorf("look for copies of releases: %w", err)
	}
	var errs []error
	for _, f := range files {
		s, blobs, err := d.read(f)
		if err == nil {
			err = accept(ctx, s, &readAhead{disk: d, blobs: blobs})
		}
		if err == nil {
			return nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("no copy of a release in %s: %w", d.dir, fs.ErrNotExist)
	}
	return fmt.Errorf("no usable copy of a release in %s: %w", d.dir, errors.Join(errs...))
}

// Write keeps a release: first the blobs that are not there yet, then the
// generation. On an error the older ones are as they were. A release older than
// the newest whole one is refused: a copy is never replaced by less.
func (d *Disk) Write(ctx context.Context, s Signed, blobs []Digest, from Blobs) error {
	err := d.locked(func() error { return d.write(ctx, s, blobs, from) })
	if err != nil {
		return fmt.Errorf("keep a copy of release %d in %s: %w", s.Number, d.dir, err)
	}
	return nil
}

func (d *Disk) write(ctx context.Context, s Signed, blobs []Digest, from Blobs) error {
	files, err := d.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.number < s.Number || f.number == s.Number && f.seq <= s.Records.Seq {
			break
		}
		if _, _, err := d.read(f); err == nil {
			return fault.New(fault.Conflict, codeStale, "a copy of release %d (records %d) is there", f.number, f.seq)
		}
	}
	data, err := encodeGeneration(s, time.Now(), blobs)
	if err != nil {
		return err
	}
	if err := d.writeBlobs(ctx, blobs, from); err != nil {
		return err
	}
	if err := replaceFile(d.path(s.Number, s.Records.Seq), data); err != nil {
		return err
	}
	if err := syncDir(d.dir); err != nil {
		return err
	}
	return d.prune()
}

func (d *Disk) writeBlobs(ctx context.Context, blobs []Digest, from Blobs) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(diskWorkers)
	missing := map[Digest]bool{} // one blob may stand in two lists
	for _, digest := range blobs {
		if _, err := os.Lstat(d.blobPath(digest)); err == nil || missing[digest] {
			continue
		}
		missing[digest] = true
		g.Go(func() error {
			if d.takeOver(digest) {
				return nil
			}
			data, err := from.Blob(ctx, digest)
			if err != nil {
				return err
			}
			if DigestOf(data) != digest {
				return fmt.Errorf("blob %s is another one", digest)
			}
			return replaceFile(d.blobPath(digest), data)
		})
	}
	if err := g.Wait(); err != nil || len(missing) == 0 {
		return err
	}
	return syncDir(d.blobs())
}

// namedBy is the blobs that a generation names. It is decoded once: to see that it
// is whole takes a hundredth of that, and every release looks at all five.
func (d *Disk) namedBy(f generationFile) ([]Digest, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("read copy of release: %w", err)
	}
	line, body, _ := bytes.Cut(data, []byte("\n"))
	head, sum, _ := strings.Cut(string(line), " sha256=")
	d.mu.Lock()
	blobs, known := d.named[string(line)]
	d.mu.Unlock()
	if known && checksum(head, body) == sum {
		return blobs, nil
	}
	if _, blobs, err = d.read(f); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.named == nil || len(d.named) > 2*Generations {
		d.named = map[string][]Digest{}
	}
	d.named[string(line)] = blobs
	return blobs, nil
}

// prune removes all but the newest generations, counting one for each number,
// and the blobs that none of the rest names. While one of the rest cannot be
// read, what it names is unknown and all blobs stay.
func (d *Disk) prune() error {
	files, err := d.files()
	if err != nil {
		return err
	}
	var numbers []uint64
	named := map[string]bool{}
	known := true
	for _, f := range files {
		if slices.Contains(numbers, f.number) || len(numbers) == Generations {
			if err := os.Remove(f.path); err != nil {
				return err
			}
			continue
		}
		blobs, err := d.namedBy(f)
		if errors.Is(err, errDamaged) {
			continue
		}
		numbers = append(numbers, f.number)
		known = known && err == nil
		for _, digest := range blobs {
			named[digest.String()] = true
		}
	}
	if !known {
		return nil
	}
	entries, err := os.ReadDir(d.blobs())
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, fetched := strings.CutSuffix(e.Name(), fetchedExt)
		if fetched && waits(e) || strings.HasSuffix(name, tempExt) {
			continue
		}
		if fetched || !named[strings.TrimSuffix(name, badExt)] {
			if err := os.Remove(filepath.Join(d.blobs(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceFile writes data beside path, syncs it and renames it into place.
func replaceFile(path string, data []byte) error {
	f, err := os.OpenFile(path+tempExt, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // OpenDisk removes what stays
	}
	return err
}

// syncDir makes renames in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
