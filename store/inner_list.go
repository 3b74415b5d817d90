package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/discovery"
)

// listSaves is how much smaller a difference must be than the whole list to be kept in
// its place. A list that moves on grows away from its base; at an eighth a new base is
// cheaper than many large differences to the old one.
const listSaves = 8

type listRow struct {
	Digest  string `gorm:"column:digest;primaryKey"`
	Service string `gorm:"column:service"`
	Base    string `gorm:"column:base"`
	Added   int64  `gorm:"column:added"`
	Used    int64  `gorm:"column:used"`
	Body    []byte `gorm:"column:body"`
}

// TableName is the table's name.
func (listRow) TableName() string { return "inner_lists" }

// saveLists keeps lists that are not there yet. services are whose they are, by digest.
func (s *Store) saveLists(ctx context.Context, lists map[string][]discovery.Instance, services map[string]string) error {
	for _, digest := range slices.Sorted(maps.Keys(services)) {
		list, known := lists[digest]
		if !known {
			continue
		}
		parts := make([]json.RawMessage, len(list))
		for i := range list {
			var err error
			if parts[i], err = json.Marshal(list[i]); err != nil {
				return fmt.Errorf("save list %s of %s: %w", digest, services[digest], err)
			}
		}
		if err := s.write(ctx, func(tx *gorm.DB) error { return s.saveList(tx, digest, services[digest], parts) }); err != nil {
			return fmt.Errorf("save list %s of %s: %w", digest, services[digest], err)
		}
	}
	return nil
}

func (s *Store) saveList(tx *gorm.DB, digest, service string, list []json.RawMessage) error {
	var there []listRow
	if err := tx.Select("digest", "used").Where("digest = ?", digest).Limit(1).Find(&there).Error; err != nil {
		return err
	}
	if len(there) > 0 {
		if there[0].Used >= micros(s.now().Add(-usedBy)) {
			return nil
		}
		return tx.Model(&listRow{}).Where("digest = ?", digest).Update("used", micros(s.now())).Error
	}
	whole, err := pack(list)
	if err != nil {
		return err
	}
	now := micros(s.now())
	row := listRow{Digest: digest, Service: service, Added: now, Used: now, Body: whole}
	var bases []listRow
	if err := tx.Where("service = ? AND base = ''", service).Order("added DESC").Limit(1).Find(&bases).Error; err != nil {
		return err
	}
	if len(bases) > 0 {
		base, err := unpack[[]json.RawMessage](bases[0].Body)
		if err != nil {
			return fmt.Errorf("read list %s: %w", bases[0].Digest, err)
		}
		change, err := pack(splice(base, list))
		if err != nil {
			return err
		}
		if len(change)*listSaves <= len(whole) {
			// The base is in use from now on; one that was dropped meanwhile is none.
			kept := tx.Model(&listRow{}).Where("digest = ?", bases[0].Digest).Update("used", now)
			if kept.Error != nil {
				return kept.Error
			}
			if kept.RowsAffected > 0 {
				row.Base, row.Body = bases[0].Digest, change
			}
		}
	}
	return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error
}

// readList is the list of the digest; nil if it is kept no longer.
func readList(tx *gorm.DB, digest string) ([]discovery.Instance, error) {
	row, err := takeList(tx, digest)
	if err != nil || row == nil {
		return nil, err
	}
	if row.Base == "" {
		return unpack[[]discovery.Instance](row.Body)
	}
	base, err := takeList(tx, row.Base)
	if err != nil || base == nil {
		return nil, err
	}
	parts, err := unpack[[]json.RawMessage](base.Body)
	if err != nil {
		return nil, err
	}
	change, err := unpack[[]piece](row.Body)
	if err != nil {
		return nil, err
	}
	return joined(parts, change)
}

func takeList(tx *gorm.DB, digest string) (*listRow, error) {
	var rows []listRow
	if err := tx.Where("digest = ?", digest).Find(&rows).Error; err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// piece is a part of a list: N instances of the base from From on, or one that the
// base lacks.
type piece struct {
	From int             `json:"from,omitempty"`
	N    int             `json:"n,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// splice describes a list by pieces of the base, in order.
func splice(base, list []json.RawMessage) (pieces []piece) {
	at := make(map[string]int, len(base))
	for i, one := range base {
		at[string(one)] = i
	}
	for _, one := range list {
		i, known := at[string(one)]
		last := len(pieces) - 1
		switch {
		case !known:
			pieces = append(pieces, piece{New: one})
		case last >= 0 && pieces[last].N > 0 && pieces[last].From+pieces[last].N == i:
			pieces[last].N++
		default:
			pieces = append(pieces, piece{From: i, N: 1})
		}
	}
	return pieces
}

// joined is the list that splice described.
func joined(base []json.RawMessage, pieces []piece) ([]discovery.Instance, error) {
	var parts []json.RawMessage
	for _, p := range pieces {
		switch {
		case p.N == 0:
			parts = append(parts, p.New)
		case p.From < 0 || p.N < 0 || p.From > len(base)-p.N:
			return nil, fmt.Errorf("piece %d to %d of a list of %d", p.From, p.From+p.N, len(base))
		default:
			parts = append(parts, base[p.From:p.From+p.N]...)
		}
	}
	list := make([]discovery.Instance, len(parts))
	for i := range parts {
		if err := json.Unmarshal(parts[i], &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// pack is the JSON of v, compressed: instances of a service differ little.
func pack(v any) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if err := json.NewEncoder(zip).Encode(v); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack[T any](data []byte) (v T, err error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return v, err
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}
