package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	// fetchedExt is of blobs that came ahead of their release: not synced, and
	// named by no generation.
	fetchedExt = ".fetched"
	// fetchedFor is how long such a blob waits for its release.
	fetchedFor = time.Hour
)

// Keep stores a blob of a release that is still being loaded, so that it is
// fetched once: Blob finds it, and Write takes it over when the release has
// loaded. Until then it is not synced, which would hold up the load; after a
// crash a damaged one is found by its digest. One whose release is never written
// is removed after an hour.
func (d *Disk) Keep(digest Digest, data []byte) error {
	if DigestOf(data) != digest {
		return fmt.Errorf("keep blob %s: it is another one", digest)
	}
	path := d.blobPath(digest)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(d.blobs(), "*"+tempExt) // two goroutines may bring the same one
	if err != nil {
		return fmt.Errorf("keep blob: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path+fetchedExt)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // OpenDisk removes what stays
		return fmt.Errorf("keep blob: %w", err)
	}
	return nil
}

// readBlob reads and checks the file of a blob. A damaged one is set aside.
func (d *Disk) readBlob(path string, digest Digest) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read blob: %w", err)
	}
	if DigestOf(data) != digest {
		d.setAside(path)
		return nil, fmt.Errorf("read blob %s: %w: it was damaged", digest, fs.ErrNotExist)
	}
	return data, nil
}

// takeOver makes a whole fetched blob one that generations may name.
func (d *Disk) takeOver(digest Digest) bool {
	fetched := d.blobPath(digest) + fetchedExt
	if _, err := d.readBlob(fetched, digest); err != nil {
		return false
	}
	f, err := os.Open(fetched)
	if err != nil {
		return false
	}
	err = errors.Join(f.Sync(), f.Close())
	return err == nil && os.Rename(fetched, d.blobPath(digest)) == nil
}

// Blob reads a blob and checks it. A missing or damaged one is fs.ErrNotExist.
func (d *Disk) Blob(ctx context.Context, digest Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := d.readBlob(d.blobPath(digest), digest)
	if errors.Is(err, fs.ErrNotExist) {
		if fetched, e := d.readBlob(d.blobPath(digest)+fetchedExt, digest); e == nil {
			return fetched, nil
		}
	}
	return data, err
}

// waits says whether an entry of the blobs' folder is fetched and may still be taken over.
func waits(e os.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) < fetchedFor
}
