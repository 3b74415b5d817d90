package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
	"time"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

type tokenRow struct {
	ID       int64  `gorm:"column:id;primaryKey"`
	Name     string `gorm:"column:name"`
	Role     string `gorm:"column:role"`
	SHA256   []byte `gorm:"column:sha256"`
	Created  int64  `gorm:"column:created"`
	Expires  *int64 `gorm:"column:expires"`
	Revoked  *int64 `gorm:"column:revoked"`
	LastUsed *int64 `gorm:"column:last_used"`
}

// TableName is the table's name.
func (tokenRow) TableName() string { return "tokens" }

// lastUsedEvery bounds how often a busy token is written.
const lastUsedEvery = time.Minute

// A secret is dsp_TYPE_ and 39 letters and digits: 33 random ones, which carry
// 196 bits, and 6 for the CRC-32 of all before them, so that a scanner can tell
// a leaked one from text and a mistyped one costs no query.
const (
	secretPrefix = "dsp_"
	randomLen    = 33
	crcLen       = 6
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// CreateToken makes a token and returns its secret, which nobody can see again.
func (s *Store) CreateToken(ctx context.Context, n ledger.NewToken, c ledger.Change) (ledger.Token, string, error) {
	var p fault.Problems
	checkText(&p, "name", n.Name, maxName)
	checkText(&p, "role", n.Role, maxAction)
	if n.Type == "" || strings.Trim(n.Type, "abcdefghijklmnopqrstuvwxyz") != "" {
		p.Addf("type", "must be lower-case letters")
	}
	now := s.now()
	if !n.Expires.IsZero() && !n.Expires.After(now) {
		p.Addf("expires", "is in the past")
	}
	if err := p.Err("bad_token_request", "the token cannot be made"); err != nil {
		return ledger.Token{}, "", err
	}
	secret, err := newSecret(n.Type)
	if err != nil {
		return ledger.Token{}, "", err
	}
	sum := sha256.Sum256([]byte(secret))
	var row tokenRow
	c.Action, c.Target = "token_create", n.Name
	err = s.change(ctx, &entry{Change: c}, func(tx *gorm.DB) error {
		row = tokenRow{Name: n.Name, Role: n.Role, SHA256: sum[:], Created: micros(now)}
		if !n.Expires.IsZero() {
			expires := micros(n.Expires)
			row.Expires = &expires
		}
		return tx.Create(&row).Error
	})
	if err != nil {
		return ledger.Token{}, "", err
	}
	return row.token(), secret, nil
}

// Authenticate returns the token of the secret. Unknown, expired and revoked are
// the same to the caller.
func (s *Store) Authenticate(ctx context.Context, secret string) (ledger.Token, error) {
	refuse := fault.New(fault.Unauthenticated, "bad_token", "the token is unknown, expired or revoked")
	if !wellFormed(secret) {
		return ledger.Token{}, refuse
	}
	sum := sha256.Sum256([]byte(secret))
	var rows []tokenRow
	err := s.view(ctx, func(tx *gorm.DB) error { return tx.Where("sha256 = ?", sum[:]).Find(&rows).Error })
	if err != nil {
		return ledger.Token{}, err
	}
	now := micros(s.now())
	if len(rows) == 0 || rows[0].Revoked != nil || rows[0].Expires != nil && *rows[0].Expires <= now {
		return ledger.Token{}, refuse
	}
	if used := rows[0].LastUsed; used == nil || *used <= now-lastUsedEvery.Microseconds() {
		err := s.write(ctx, func(tx *gorm.DB) error {
			return tx.Model(&tokenRow{}).Where("id = ?", rows[0].ID).Update("last_used", now).Error
		})
		if err != nil { // a full disk must not lock people out
			s.log.WarnContext(ctx, "note that a token was used", "token", rows[0].ID, "err", err)
		}
		rows[0].LastUsed = &now
	}
	return rows[0].token(), nil
}

// RevokeToken ends a token at once.
func (s *Store) RevokeToken(ctx context.Context, id int64, c ledger.Change) error {
	e := entry{Change: c}
	e.Action = "token_revoke"
	return s.change(ctx, &e, func(tx *gorm.DB) error {
		var rows []tokenRow
		if err := tx.Where("id = ?", id).Find(&rows).Error; err != nil {
			return err
		}
		if len(rows) == 0 {
			return notFound("unknown_token", "no token %d", id)
		}
		e.Target = rows[0].Name
		return tx.Model(&tokenRow{}).Where("id = ? AND revoked IS NULL", id).Update("revoked", micros(s.now())).Error
	})
}

// Tokens returns all tokens, newest first.
func (s *Store) Tokens(ctx context.Context) ([]ledger.Token, error) {
	var rows []tokenRow
	err := s.view(ctx, func(tx *gorm.DB) error { return tx.Order("id DESC").Find(&rows).Error })
	list := make([]ledger.Token, len(rows))
	for i, r := range rows {
		list[i] = r.token()
	}
	return list, err
}

func (r tokenRow) token() ledger.Token {
	return ledger.Token{ID: r.ID, Name: r.Name, Role: r.Role, Created: fromMicros(&r.Created),
		Expires: fromMicros(r.Expires), Revoked: fromMicros(r.Revoked), LastUsed: fromMicros(r.LastUsed)}
}

func newSecret(kind string) (string, error) {
	var b strings.Builder
	b.WriteString(secretPrefix + kind + "_")
	for range randomLen {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(base62))))
		if err != nil {
			return "", err
		}
		b.WriteByte(base62[n.Int64()])
	}
	return b.String() + crc(b.String()), nil
}

// wellFormed says whether the text could be a secret of ours.
func wellFormed(secret string) bool {
	cut := len(secret) - crcLen
	return strings.HasPrefix(secret, secretPrefix) && cut > randomLen && secret[cut:] == crc(secret[:cut])
}

// crc is the CRC-32 in six digits of base 62.
func crc(text string) string {
	var out [crcLen]byte
	sum := crc32.ChecksumIEEE([]byte(text))
	for i := crcLen - 1; i >= 0; i-- {
		out[i] = base62[sum%62]
		sum /= 62
	}
	return string(out[:])
}
