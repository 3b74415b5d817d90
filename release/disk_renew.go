package release

import (
	"context"
	"fmt"
	"io/fs"
)

// Newest is the newest whole copy, as it came. It is believed by nobody yet; it
// is fs.ErrNotExist when there is none.
func (d *Disk) Newest() (Signed, error) {
	files, err := d.files()
	if err != nil {
		return Signed{}, fmt.Errorf("look for copies of releases: %w", err)
	}
	for _, f := range files {
		if s, _, err := d.read(f); err == nil {
			return s, nil
		}
	}
	return Signed{}, fmt.Errorf("no usable copy of a release in %s: %w", d.dir, fs.ErrNotExist)
}

// Renewed keeps a release of which there is a copy with its new records.
func (d *Disk) Renewed(ctx context.Context, s Signed) error {
	err := d.locked(func() error {
		files, err := d.files()
		if err != nil {
			return err
		}
		for _, f := range files {
			if f.number != s.Number {
				continue
			}
			if _, blobs, err := d.read(f); err == nil {
				return d.write(ctx, s, blobs, d)
			}
		}
		return fmt.Errorf("there is no copy of it: %w", fs.ErrNotExist)
	})
	if err != nil {
		return fmt.Errorf("keep renewed records of release %d in %s: %w", s.Number, d.dir, err)
	}
	return nil
}
