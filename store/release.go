package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// recordSetsKept per release. Records live 7 days and are renewed daily: these
// are all sets that a client may still hold.
const recordSetsKept = 7

type releaseRow struct {
	Stream    string `gorm:"column:stream;primaryKey"`
	Number    int64  `gorm:"column:number;primaryKey;autoIncrement:false"`
	Parent    int64  `gorm:"column:parent"`
	Created   int64  `gorm:"column:created"`
	Action    string `gorm:"column:action"`
	Actor     string `gorm:"column:actor"`
	Reason    string `gorm:"column:reason"`
	Digest    []byte `gorm:"column:digest"`
	Manifest  []byte `gorm:"column:manifest"`
	Signature string `gorm:"column:signature"`
}

// TableName is the table's name.
func (releaseRow) TableName() string { return "releases" }

type releaseHostRow struct {
	Stream string `gorm:"column:stream;primaryKey"`
	Number int64  `gorm:"column:number;primaryKey;autoIncrement:false"`
	Host   string `gorm:"column:host;primaryKey"`
}

// TableName is the table's name.
func (releaseHostRow) TableName() string { return "release_hosts" }

type recordSetRow struct {
	Stream    string `gorm:"column:stream;primaryKey"`
	Number    int64  `gorm:"column:number;primaryKey;autoIncrement:false"`
	Seq       int64  `gorm:"column:seq;primaryKey;autoIncrement:false"`
	Created   int64  `gorm:"column:created"`
	Bytes     []byte `gorm:"column:bytes"`
	Signature string `gorm:"column:signature"`
}

// TableName is the table's name.
func (recordSetRow) TableName() string { return "record_sets" }

// Append writes the release, how far it may go, its hosts, its records and the
// audit row, or none of them. A base that is no longer the head is the conflict
// stale_base, whose Data says the head; a host that is not approved is denied.
func (s *Store) Append(ctx context.Context, w ledger.Write) error {
	return s.add(ctx, w, func(tx *gorm.DB, _ *entry) error { return checkApproved(tx, w.Hosts) })
}

// add writes a release. hosts sees to it that those of the release are approved.
func (s *Store) add(ctx context.Context, w ledger.Write, hosts func(*gorm.DB, *entry) error) error {
	if err := checkWrite(w); err != nil {
		return err
	}
	if w.Blobs != nil {
		if err := s.PutBlobs(ctx, w.Blobs); err != nil {
			return err
		}
	}
	e := entry{Change: w.Change, stream: w.Signed.Stream, number: w.Signed.Number}
	return s.change(ctx, &e, func(tx *gorm.DB) error {
		head, err := streamHead(tx, w.Signed.Stream)
		if err != nil {
			return err
		}
		if head != w.Base {
			return stale(w.Signed.Stream, w.Base, head)
		}
		if err := s.insert(tx, w); err != nil {
			return err
		}
		if err := hosts(tx, &e); err != nil {
			return err
		}
		return insertHosts(tx, w)
	})
}

func checkWrite(w ledger.Write) error {
	var p fault.Problems
	checkText(&p, "stream", w.Signed.Stream, maxStream)
	if w.Signed.Number <= w.Base {
		p.Addf("number", "%d is not above its base %d", w.Signed.Number, w.Base)
	}
	var named struct {
		Stream string
		Number uint64
	}
	if err := json.Unmarshal(w.Signed.Manifest, &named); err != nil {
		p.Addf("manifest", "not JSON")
	} else if named.Stream != w.Signed.Stream || named.Number != w.Signed.Number {
		p.Addf("manifest", "is release %s/%d, not %s/%d", named.Stream, named.Number, w.Signed.Stream, w.Signed.Number)
	}
	if w.Canary != "" {
		checkText(&p, "canary", w.Canary, maxName)
	}
	if r := w.Signed.Records; r.Seq > 0 && r.Release != w.Signed.Number {
		p.Addf("records", "are of release %d", r.Release)
	}
	return p.Err("bad_release", "the release cannot be stored")
}

func (s *Store) insert(tx *gorm.DB, w ledger.Write) error {
	now, number := micros(s.now()), int64(w.Signed.Number)
	digest := sha256.Sum256(w.Signed.Manifest)
	err := tx.Create(&releaseRow{Stream: w.Signed.Stream, Number: number, Parent: int64(w.Base), Created: now,
		Action: w.Change.Action, Actor: w.Change.By, Reason: w.Change.Reason,
		Digest: digest[:], Manifest: w.Signed.Manifest, Signature: w.Signed.Signature}).Error
	if err != nil {
		return err
	}
	if err := insertRollout(tx, w, now); err != nil {
		return err
	}
	if w.Signed.Records.Seq == 0 { // a stream without domains has no records
		return nil
	}
	return insertRecords(tx, w.Signed.Stream, w.Signed.Records, now)
}

// insertHosts comes last: the database looks whether they are approved.
func insertHosts(tx *gorm.DB, w ledger.Write) error {
	hosts := make([]releaseHostRow, 0, len(w.Hosts))
	for _, h := range slices.Compact(slices.Sorted(slices.Values(w.Hosts))) {
		hosts = append(hosts, releaseHostRow{Stream: w.Signed.Stream, Number: int64(w.Signed.Number), Host: h})
	}
	if len(hosts) == 0 {
		return nil
	}
	return tx.CreateInBatches(hosts, 500).Error
}

// SaveRecords stores a renewed set of domain records. It must have a higher seq
// than the sets of its release; the oldest ones go.
func (s *Store) SaveRecords(ctx context.Context, stream string, r release.RecordSet, c ledger.Change) error {
	if c.Action == "" {
		c.Action = "renew"
	}
	e := entry{Change: c, stream: stream, number: r.Release}
	return s.change(ctx, &e, func(tx *gorm.DB) error {
		var newest int64
		err := tx.Model(&recordSetRow{}).Select("COALESCE(MAX(seq), 0)").Where("stream = ? AND number = ?", stream, r.Release).Scan(&newest).Error
		if err != nil {
			return err
		}
		if r.Seq <= uint64(newest) {
			return fault.New(fault.Conflict, "stale_seq", "records of release %d have seq %d, got %d", r.Release, newest, r.Seq)
		}
		if err := insertRecords(tx, stream, r, micros(s.now())); err != nil {
			return err
		}
		return tx.Where("stream = ? AND number = ? AND seq <= ?", stream, r.Release, int64(r.Seq)-recordSetsKept).
			Delete(&recordSetRow{}).Error
	})
}

func insertRecords(tx *gorm.DB, stream string, r release.RecordSet, now int64) error {
	return tx.Create(&recordSetRow{Stream: stream, Number: int64(r.Release), Seq: int64(r.Seq),
		Created: now, Bytes: r.Bytes, Signature: r.Signature}).Error
}

// Head returns the highest number of the stream, 0 when it has none.
func (s *Store) Head(ctx context.Context, stream string) (uint64, error) {
	var head uint64
	err := s.view(ctx, func(tx *gorm.DB) (err error) {
		head, err = streamHead(tx, stream)
		return err
	})
	return head, err
}

// Latest returns the release at the head of the stream.
func (s *Store) Latest(ctx context.Context, stream string) (release.Signed, error) {
	var signed release.Signed
	err := s.view(ctx, func(tx *gorm.DB) error {
		head, err := streamHead(tx, stream)
		if err != nil {
			return err
		}
		if head == 0 {
			return notFound("no_release", "stream %s has no release yet", stream)
		}
		signed, err = readRelease(tx, stream, head)
		return err
	})
	return signed, err
}

// Release returns release n of the stream with its newest records.
func (s *Store) Release(ctx context.Context, stream string, n uint64) (release.Signed, error) {
	var signed release.Signed
	err := s.view(ctx, func(tx *gorm.DB) (err error) {
		signed, err = readRelease(tx, stream, n)
		return err
	})
	return signed, err
}

// Releases lists releases of the stream below number before (0: from the head),
// newest first, n as AuditFilter.Limit.
func (s *Store) Releases(ctx context.Context, stream string, before uint64, n int) ([]ledger.Summary, error) {
	var rows []releaseRow
	err := s.view(ctx, func(tx *gorm.DB) error {
		tx = summaries(tx).Where("stream = ?", stream)
		if before > 0 {
			tx = tx.Where("number < ?", before)
		}
		return tx.Order("number DESC").Limit(limit(n)).Find(&rows).Error
	})
	return summarize(rows), err
}

// summaries selects what a list shows: not the manifest.
func summaries(tx *gorm.DB) *gorm.DB {
	return tx.Select("stream", "number", "parent", "created", "action", "actor", "reason", "digest")
}

func summarize(rows []releaseRow) []ledger.Summary {
	list := make([]ledger.Summary, len(rows))
	for i, r := range rows {
		list[i] = ledger.Summary{Stream: r.Stream, Number: uint64(r.Number), Parent: uint64(r.Parent), Created: fromMicros(&r.Created),
			Action: r.Action, By: r.Actor, Reason: r.Reason, Digest: release.Digest(r.Digest)}
	}
	return list
}

func streamHead(tx *gorm.DB, stream string) (uint64, error) {
	var head uint64
	err := tx.Model(&releaseRow{}).Select("COALESCE(MAX(number), 0)").Where("stream = ?", stream).Scan(&head).Error
	if err != nil {
		return 0, fmt.Errorf("read head of %s: %w", stream, err)
	}
	return head, nil
}

func readRelease(tx *gorm.DB, stream string, n uint64) (release.Signed, error) {
	var rows []releaseRow
	if err := tx.Where("stream = ? AND number = ?", stream, n).Find(&rows).Error; err != nil {
		return release.Signed{}, fmt.Errorf("read release %s/%d: %w", stream, n, err)
	}
	if len(rows) == 0 {
		return release.Signed{}, notFound("unknown_release", "no release %d in stream %s", n, stream)
	}
	r := rows[0]
	if digest := sha256.Sum256(r.Manifest); !slices.Equal(digest[:], r.Digest) {
		return release.Signed{}, fmt.Errorf("read release %s/%d: the stored manifest has another digest", stream, n)
	}
	signed := release.Signed{Stream: stream, Number: n, Manifest: r.Manifest, Signature: r.Signature}
	var sets []recordSetRow
	if err := tx.Where("stream = ? AND number = ?", stream, n).Order("seq DESC").Limit(1).Find(&sets).Error; err != nil {
		return release.Signed{}, fmt.Errorf("read records of %s/%d: %w", stream, n, err)
	}
	if len(sets) > 0 {
		signed.Records = release.RecordSet{Release: n, Seq: uint64(sets[0].Seq), Bytes: sets[0].Bytes, Signature: sets[0].Signature}
	}
	return signed, nil
}

func stale(stream string, base, head uint64) error {
	e := fault.New(fault.Conflict, "stale_base", "stream %s is at release %d, the change was made on %d", stream, head, base).
		WithHint("look at what changed since, and make the change again on top of it")
	e.Data = ledger.StaleBase{Base: base, Head: head}
	return e
}
