package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"iter"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

const (
	// partSize is the largest value in one statement: a quarter of the packet
	// that MariaDB takes by default.
	partSize = 4 << 20
	// batchBytes and batchBlobs bound one transaction of PutBlobs, so that an import
	// of millions holds back an emergency swap by a fraction of a second only.
	batchBytes = 4 << 20
	batchBlobs = 200
)

type blobRow struct {
	Digest  []byte           `gorm:"column:digest;primaryKey"`
	Part    int              `gorm:"column:part;primaryKey;autoIncrement:false"`
	Created int64            `gorm:"column:created"`
	Bytes   []byte           `gorm:"column:bytes"`
	Sealed  sql.Null[[]byte] `gorm:"column:sealed"`
}

// TableName is the table's name.
func (blobRow) TableName() string { return "blobs" }

// Blob returns the bytes under the digest. It makes Store a release.Blobs.
func (s *Store) Blob(ctx context.Context, d release.Digest) ([]byte, error) {
	var rows []blobRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		return tx.Select("bytes").Where("digest = ?", d[:]).Order("part").Find(&rows).Error
	})
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", d, err)
	}
	if len(rows) == 0 {
		return nil, notFound("unknown_blob", "no blob %s", d)
	}
	data := rows[0].Bytes
	for _, r := range rows[1:] {
		data = append(data, r.Bytes...)
	}
	if sha256.Sum256(data) != d {
		return nil, fmt.Errorf("read blob %s: the stored bytes have another digest", d)
	}
	return data, nil
}

// Raw returns the ids of a list chunk, one a line.
func (s *Store) Raw(ctx context.Context, d release.Digest) ([]byte, error) {
	var rows []blobRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		return tx.Select("sealed").Where("digest = ? AND part = 0 AND sealed IS NOT NULL", d[:]).Find(&rows).Error
	})
	if err != nil {
		return nil, fmt.Errorf("read raw ids of %s: %w", d, err)
	}
	if len(rows) == 0 {
		return nil, notFound("no_raw_ids", "no raw ids of %s are stored", d)
	}
	raw, err := s.seal.open(d, rows[0].Sealed.V)
	if err != nil {
		return nil, fmt.Errorf("raw ids of %s: %w", d, err)
	}
	return raw, nil
}

// MissingBlobs returns those of the digests that are not stored.
func (s *Store) MissingBlobs(ctx context.Context, digests []release.Digest) ([]release.Digest, error) {
	var missing []release.Digest
	err := s.view(ctx, func(tx *gorm.DB) error {
		missing = nil
		for rest := digests; len(rest) > 0; {
			batch := rest[:min(len(rest), batchBlobs)]
			rest = rest[len(batch):]
			found, err := stored(tx, batch)
			if err != nil {
				return err
			}
			for _, d := range batch {
				if _, ok := found[d]; !ok {
					missing = append(missing, d)
				}
			}
		}
		return nil
	})
	return missing, err
}

// Reseal seals again, with the current key, the raw ids of up to n chunks that
// another key sealed, then second factors of accounts, and returns how many there
// were. After it returned 0 the
// previous key can go, see DESIGN.md. It may run while nodes serve and import, and
// from another process; n of 50 chunks, of some 80 KB each, holds a change back by
// a fraction of a second only.
func (s *Store) Reseal(ctx context.Context, n int) (int, error) {
	if s.seal == nil {
		return 0, nil
	}
	done := 0
	err := s.write(ctx, func(tx *gorm.DB) error {
		var rows []blobRow
		err := tx.Select("digest", "sealed").Limit(limit(n)).
			Where("part = 0 AND sealed IS NOT NULL AND SUBSTR(sealed, 2, ?) <> ?", keyIDSize, s.seal.current[:]).
			Find(&rows).Error
		if err != nil {
			return err
		}
		for _, r := range rows {
			raw, err := s.seal.open(release.Digest(r.Digest), r.Sealed.V)
			if err != nil {
				return err
			}
			if err := s.fill(tx, whitelist.Blob{Digest: release.Digest(r.Digest), Raw: raw}); err != nil {
				return err
			}
		}
		accounts, err := s.resealAccounts(tx, limit(n)-len(rows))
		done = len(rows) + accounts
		return err
	})
	return done, err
}

// PutBlobs stores the blobs that are not there yet, with their raw ids sealed.
// Append does so too. A blob is found by its digest alone, so one that no release
// comes to name does no harm and is not written again by the next attempt.
func (s *Store) PutBlobs(ctx context.Context, blobs iter.Seq[whitelist.Blob]) error {
	var batch []whitelist.Blob
	size := 0
	put := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := s.write(ctx, func(tx *gorm.DB) error { return s.putBatch(tx, batch) }); err != nil {
			return fmt.Errorf("store blobs: %w", err)
		}
		batch, size = batch[:0], 0
		return nil
	}
	for b := range blobs {
		n := len(b.Bytes) + len(b.Raw)
		if len(batch) == batchBlobs || size+n > batchBytes {
			if err := put(); err != nil {
				return err
			}
		}
		batch, size = append(batch, b), size+n
	}
	return put()
}

// putBatch writes in the order of digests: two control nodes that store the same
// chunks then wait for each other and never in a circle.
func (s *Store) putBatch(tx *gorm.DB, batch []whitelist.Blob) error {
	slices.SortFunc(batch, func(a, b whitelist.Blob) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	digests := make([]release.Digest, len(batch))
	for i, b := range batch {
		digests[i] = release.Digest(b.Digest)
	}
	found, err := stored(tx, digests)
	if err != nil {
		return err
	}
	for i, b := range batch {
		hasRaw, ok := found[digests[i]]
		switch {
		case ok && !hasRaw && b.Raw != nil: // adopted from an edge, which has no raw ids
			err = s.fill(tx, b)
		case !ok:
			found[digests[i]] = b.Raw != nil // the batch may name it twice
			err = s.insertBlob(tx, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insertBlob writes the parts of one blob, a statement each: a statement has a limit.
func (s *Store) insertBlob(tx *gorm.DB, b whitelist.Blob) error {
	rows, err := s.parts(b)
	if err != nil {
		return err
	}
	for _, r := range rows {
		// Another control node may store the same blob at this moment.
		if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&r).Error; err != nil {
			return err
		}
	}
	return nil
}

// parts are the rows of one blob.
func (s *Store) parts(b whitelist.Blob) ([]blobRow, error) {
	if sha256.Sum256(b.Bytes) != b.Digest {
		return nil, fault.New(fault.Invalid, "blob_digest", "a blob of %d bytes is not the one named %x", len(b.Bytes), b.Digest)
	}
	var sealed sql.Null[[]byte]
	if b.Raw != nil {
		value, err := s.seal.seal(release.Digest(b.Digest), b.Raw)
		if err != nil {
			return nil, err
		}
		sealed = sql.Null[[]byte]{V: value, Valid: true}
	}
	var rows []blobRow
	rest, created := b.Bytes, micros(s.now())
	if rest == nil {
		rest = []byte{} // empty, not NULL
	}
	for part := 0; part == 0 || len(rest) > 0; part++ {
		n := min(len(rest), partSize)
		rows = append(rows, blobRow{Digest: b.Digest[:], Part: part, Created: created, Bytes: rest[:n], Sealed: sealed})
		rest, sealed = rest[n:], sql.Null[[]byte]{}
	}
	return rows, nil
}

// fill seals the raw ids of a blob that is there.
func (s *Store) fill(tx *gorm.DB, b whitelist.Blob) error {
	sealed, err := s.seal.seal(release.Digest(b.Digest), b.Raw)
	if err != nil {
		return err
	}
	return tx.Model(&blobRow{}).Where("digest = ? AND part = 0", b.Digest[:]).Update("sealed", sealed).Error
}

// stored says which of the digests are there, and whether with raw ids.
func stored(tx *gorm.DB, digests []release.Digest) (map[release.Digest]bool, error) {
	keys := make([][]byte, len(digests))
	for i := range digests {
		keys[i] = digests[i][:]
	}
	var rows []struct {
		Digest []byte
		Raw    bool
	}
	err := tx.Model(&blobRow{}).Select("digest, sealed IS NOT NULL AS raw").Where("part = 0 AND digest IN ?", keys).Scan(&rows).Error
	if err != nil {
		return nil, err
	}
	found := make(map[release.Digest]bool, len(rows))
	for _, r := range rows {
		found[release.Digest(r.Digest)] = r.Raw
	}
	return found, nil
}
