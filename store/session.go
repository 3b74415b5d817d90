package store

import (
	"context"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dispatch.example/dispatch/internal/fault"
)

// maxHash is the longest key of a session in characters.
const maxHash = 100

// sessionsSwept is how many sessions that have run out go with one that is saved:
// more than one, so that they become fewer, and few, so that nobody waits.
const sessionsSwept = 100

type sessionRow struct {
	Hash    string `gorm:"column:hash;primaryKey"`
	Data    []byte `gorm:"column:data"`
	Expires int64  `gorm:"column:expires"`
}

// TableName is the table's name.
func (sessionRow) TableName() string { return "sessions" }

// Session returns what is kept under the hash of a session's id, if it has not run out.
func (s *Store) Session(ctx context.Context, hash string) (data []byte, found bool, err error) {
	var rows []sessionRow
	err = s.view(ctx, func(tx *gorm.DB) error {
		return tx.Where("hash = ? AND expires > ?", hash, micros(s.now())).Find(&rows).Error
	})
	if err != nil || len(rows) == 0 {
		return nil, false, err
	}
	return rows[0].Data, true, nil
}

// SaveSession keeps a session until then. It is no change and has no audit row.
func (s *Store) SaveSession(ctx context.Context, hash string, data []byte, until time.Time) error {
	var p fault.Problems
	checkText(&p, "hash", hash, maxHash)
	if err := p.Err("bad_session", "the session cannot be stored"); err != nil {
		return err
	}
	row := sessionRow{Hash: hash, Data: append([]byte{}, data...), Expires: micros(until)}
	return s.write(ctx, func(tx *gorm.DB) error {
		var old []string
		over := micros(s.now())
		err := tx.Model(&sessionRow{}).Where("expires <= ?", over).Order("expires").Limit(sessionsSwept).Pluck("hash", &old).Error
		if err != nil {
			return err
		}
		if len(old) > 0 {
			if err := tx.Where("hash IN ? AND expires <= ?", old, over).Delete(&sessionRow{}).Error; err != nil {
				return err
			}
		}
		return tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "hash"}}, UpdateAll: true}).Create(&row).Error
	})
}

// EndSession forgets a session.
func (s *Store) EndSession(ctx context.Context, hash string) error {
	return s.write(ctx, func(tx *gorm.DB) error { return tx.Where("hash = ?", hash).Delete(&sessionRow{}).Error })
}
