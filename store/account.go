package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Limits of an account in characters; the columns of migrations/mysql have the same.
const (
	maxIssuer   = 300
	maxSubject  = 255 // as OpenID Connect has it
	maxPassword = 500
)

type accountRow struct {
	Folded     string           `gorm:"column:folded"`
	Login      string           `gorm:"column:login"`
	Name       string           `gorm:"column:name"`
	Roles      string           `gorm:"column:roles"`
	Issuer     *string          `gorm:"column:issuer"`
	Subject    *string          `gorm:"column:subject"`
	Password   string           `gorm:"column:password"`
	Secret     sql.Null[[]byte] `gorm:"column:secret"`
	Step       int64            `gorm:"column:step"`
	Disabled   bool             `gorm:"column:disabled"`
	MustChange bool             `gorm:"column:must_change"`
	Until      *int64           `gorm:"column:password_until"`
	BreakGlass bool             `gorm:"column:break_glass"`
	Armed      *int64           `gorm:"column:armed"`
	Rev        int64            `gorm:"column:rev"`
	Epoch      int64            `gorm:"column:epoch"`
	Created    int64            `gorm:"column:created"`
	LastSignIn *int64           `gorm:"column:last_sign_in"`
}

// TableName is the table's name.
func (accountRow) TableName() string { return "accounts" }

// Accounts returns all accounts by login.
func (s *Store) Accounts(ctx context.Context) ([]ledger.Account, error) {
	var rows []accountRow
	err := s.view(ctx, func(tx *gorm.DB) error { return tx.Order("folded").Find(&rows).Error })
	list := make([]ledger.Account, len(rows))
	for i := 0; err == nil && i < len(rows); i++ {
		list[i], err = s.account(rows[i])
	}
	return list, err
}

// Account returns the account with the login, whatever its case.
func (s *Store) Account(ctx context.Context, login string) (ledger.Account, error) {
	a, found, err := s.findAccount(ctx, "folded = ?", folded(login))
	if err == nil && !found {
		err = unknownAccount(login)
	}
	return a, err
}

// AccountOf returns the account that an identity provider knows by the subject.
func (s *Store) AccountOf(ctx context.Context, issuer, subject string) (ledger.Account, error) {
	a, found, err := s.findAccount(ctx, "issuer = ? AND subject = ?", issuer, subject)
	if err == nil && !found {
		err = notFound("unknown_account", "no account is known to %s by this subject", issuer)
	}
	return a, err
}

func (s *Store) findAccount(ctx context.Context, where string, args ...any) (a ledger.Account, found bool, err error) {
	var rows []accountRow
	err = s.view(ctx, func(tx *gorm.DB) error { return tx.Where(where, args...).Find(&rows).Error })
	if err != nil || len(rows) == 0 {
		return ledger.Account{}, false, err
	}
	a, err = s.account(rows[0])
	return a, true, err
}

// SaveAccount writes an account whose author saw Rev; 0: a new one, which is the
// conflict account_exists when the login is taken. Another Rev is the conflict
// stale_account. Created and LastSignIn are the store's, and Step never falls: a
// sign-in may come between the author's reading and writing.
//
// Epoch rises with whatever ends sessions, also when the author left it as it was.
// The audit row says what is different; Details that the author gives are dropped,
// so that neither the password nor the secret can come into it.
func (s *Store) SaveAccount(ctx context.Context, a ledger.Account, c ledger.Change) error {
	if err := checkAccount(a); err != nil {
		return err
	}
	c.Target = a.Login
	if c.Action == "" {
		c.Action = "account_save"
	}
	c.Details = nil
	e := entry{Change: c}
	return s.change(ctx, &e, func(tx *gorm.DB) (err error) {
		var old ledger.Account
		var rows []accountRow
		if err := tx.Where("folded = ?", folded(a.Login)).Find(&rows).Error; err != nil {
			return err
		}
		switch {
		case len(rows) > 0 && a.Rev == 0:
			return fault.New(fault.Conflict, "account_exists", "there is an account %s already", rows[0].Login).
				WithHint("take another login, or change that account")
		case len(rows) == 0 && a.Rev > 0:
			return unknownAccount(a.Login)
		case len(rows) > 0 && uint64(rows[0].Rev) != a.Rev:
			return fault.New(fault.Conflict, "stale_account", "account %s was changed since you looked", rows[0].Login).
				WithHint("look at it again, then make the change")
		case len(rows) > 0:
			if old, err = s.account(rows[0]); err != nil {
				return err
			}
		}
		if err := free(tx, a); err != nil {
			return err
		}
		now := settle(a, old, s.now())
		if e.Details, err = accountDiff(old, now); err != nil {
			return err
		}
		return s.putAccount(tx, now)
	})
}

// settle is the account to write: what only the store knows is from the old one.
func settle(a, old ledger.Account, now time.Time) ledger.Account {
	a.Created, a.LastSignIn = old.Created, old.LastSignIn
	if old.Rev == 0 {
		a.Created = now
	}
	a.Rev = old.Rev + 1
	a.Step = max(a.Step, old.Step)
	a.Epoch = max(a.Epoch, old.Epoch)
	ends := a.Password != old.Password || a.Disabled != old.Disabled || !slices.Equal(a.Roles, old.Roles) ||
		string(a.Secret) != string(old.Secret) || a.Login != old.Login
	if ends && a.Epoch == old.Epoch {
		a.Epoch++
	}
	return a
}

// free is a refusal when the identity provider's subject has another account.
func free(tx *gorm.DB, a ledger.Account) error {
	if a.Issuer == "" {
		return nil
	}
	var logins []string
	err := tx.Model(&accountRow{}).Where("issuer = ? AND subject = ? AND folded <> ?", a.Issuer, a.Subject, folded(a.Login)).
		Pluck("login", &logins).Error
	if err == nil && len(logins) > 0 {
		err = fault.New(fault.Conflict, "subject_taken", "this subject of %s signs in as %s", a.Issuer, logins[0])
	}
	return err
}

func (s *Store) putAccount(tx *gorm.DB, a ledger.Account) error {
	roles, err := json.Marshal(append([]string{}, a.Roles...))
	if err != nil {
		return err
	}
	row := accountRow{Folded: folded(a.Login), Login: a.Login, Name: a.Name, Roles: string(roles), Password: a.Password,
		Step: a.Step, Disabled: a.Disabled, MustChange: a.MustChange, Until: instant(a.PasswordUntil), BreakGlass: a.BreakGlass, Armed: instant(a.Armed),
		Rev: int64(a.Rev), Epoch: int64(a.Epoch), Created: micros(a.Created), LastSignIn: instant(a.LastSignIn)}
	if a.Issuer != "" {
		row.Issuer, row.Subject = &a.Issuer, &a.Subject
	}
	if len(a.Secret) > 0 {
		sealed, err := s.seal.seal(sealedTo(row.Folded), a.Secret)
		if err != nil {
			return fmt.Errorf("second factor of %s: %w", a.Login, err)
		}
		row.Secret = sql.Null[[]byte]{V: sealed, Valid: true}
	}
	if a.Rev == 1 {
		return tx.Create(&row).Error
	}
	// A sign-in is no change and waits for none: what it writes is left out here.
	written := tx.Model(&accountRow{}).Where("folded = ? AND rev = ?", row.Folded, row.Rev-1).
		Select("*").Omit("folded", "step", "created", "last_sign_in").Updates(&row)
	if written.Error != nil {
		return written.Error
	}
	return tx.Model(&accountRow{}).Where("folded = ? AND step < ?", row.Folded, row.Step).Update("step", row.Step).Error
}

// SignedIn notes a sign-in. step is that of the TOTP code, 0 without one; one that
// is not above the last one is the conflict code_used. It writes no audit row.
func (s *Store) SignedIn(ctx context.Context, login string, step int64, at time.Time) error {
	return s.write(ctx, func(tx *gorm.DB) error {
		set := map[string]any{"last_sign_in": micros(at)}
		where := tx.Model(&accountRow{}).Where("folded = ?", folded(login))
		if step > 0 {
			set["step"] = step
			where = where.Where("step < ?", step)
		}
		done := where.Updates(set)
		if done.Error != nil || done.RowsAffected > 0 {
			return done.Error
		}
		var n int64
		if err := tx.Model(&accountRow{}).Where("folded = ?", folded(login)).Count(&n).Error; err != nil {
			return err
		}
		if n == 0 {
			return unknownAccount(login)
		}
		return fault.New(fault.Conflict, "code_used", "this code has been used").WithHint("wait for the next one")
	})
}

// resealAccounts seals up to n second factors again. A secret that its owner
// changes meanwhile stays: it is sealed with the current key already.
func (s *Store) resealAccounts(tx *gorm.DB, n int) (int, error) {
	var rows []accountRow
	err := tx.Limit(n).Where("secret IS NOT NULL AND SUBSTR(secret, 2, ?) <> ?", keyIDSize, s.seal.current[:]).Find(&rows).Error
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		a, err := s.account(r)
		if err != nil {
			return 0, err
		}
		sealed, err := s.seal.seal(sealedTo(r.Folded), a.Secret)
		if err != nil {
			return 0, err
		}
		err = tx.Model(&accountRow{}).Where("folded = ? AND secret = ?", r.Folded, r.Secret.V).Update("secret", sealed).Error
		if err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// account is an error when the second factor does not open: one that came back
// empty could be saved as such.
func (s *Store) account(r accountRow) (ledger.Account, error) {
	a := ledger.Account{Login: r.Login, Name: r.Name, Password: r.Password, Step: r.Step, Disabled: r.Disabled,
		MustChange: r.MustChange, PasswordUntil: fromMicros(r.Until), BreakGlass: r.BreakGlass, Armed: fromMicros(r.Armed), Rev: uint64(r.Rev),
		Epoch: uint64(r.Epoch), Created: fromMicros(&r.Created), LastSignIn: fromMicros(r.LastSignIn)}
	if r.Issuer != nil && r.Subject != nil {
		a.Issuer, a.Subject = *r.Issuer, *r.Subject
	}
	if err := json.Unmarshal([]byte(r.Roles), &a.Roles); err != nil {
		return ledger.Account{}, fmt.Errorf("roles of %s: %w", r.Login, err)
	}
	if r.Secret.Valid {
		var err error
		if a.Secret, err = s.seal.open(sealedTo(r.Folded), r.Secret.V); err != nil {
			return ledger.Account{}, fmt.Errorf("second factor of %s: %w", r.Login, err)
		}
	}
	return a, nil
}

// sealedTo binds a second factor to its account.
func sealedTo(folded string) release.Digest { return sha256.Sum256([]byte("account " + folded)) }

// accountDiff is what an audit row says of a change. Account shows neither the
// password nor the secret as JSON; here is only whether they are others now.
func accountDiff(old, now ledger.Account) (json.RawMessage, error) {
	diff := struct {
		Before   *ledger.Account `json:"before,omitempty"`
		After    ledger.Account  `json:"after"`
		Password string          `json:"password,omitempty"`
		Secret   string          `json:"second_factor,omitempty"`
	}{After: now, Password: step(old.Password, now.Password), Secret: step(string(old.Secret), string(now.Secret))}
	if old.Rev > 0 {
		diff.Before = &old
	}
	return json.Marshal(diff)
}

// step says in a word what happened to a secret.
func step(old, now string) string {
	switch {
	case old == now:
		return ""
	case old == "":
		return "set"
	case now == "":
		return "removed"
	}
	return "changed"
}

func checkAccount(a ledger.Account) error {
	var p fault.Problems
	checkText(&p, "login", a.Login, maxName)
	if a.Name != "" {
		checkText(&p, "name", a.Name, maxName)
	}
	for i, role := range a.Roles {
		checkText(&p, fmt.Sprintf("roles[%d]", i), role, maxAction)
	}
	if a.Issuer != "" || a.Subject != "" {
		checkText(&p, "issuer", a.Issuer, maxIssuer)
		checkText(&p, "subject", a.Subject, maxSubject)
	}
	if a.Password != "" {
		checkText(&p, "password", a.Password, maxPassword)
	}
	return p.Err("bad_account", "the account cannot be stored")
}

func unknownAccount(login string) error { return notFound("unknown_account", "no account %q", login) }

// folded is the same text for names that differ in case only, as strings.EqualFold
// sees it: some letters have no common lower case, so upper case comes first.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// instant is a time that may be missing.
func instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := micros(t)
	return &n
}
