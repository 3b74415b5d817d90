package ledger

import "time"

// Account is a person who signs in to the console. Local ones have a password;
// others are known by the issuer and the subject of their identity provider,
// never by an e-mail address.
type Account struct {
	Login   string   `json:"login"` // stands in the audit trail; compared without case
	Name    string   `json:"name,omitempty"`
	Roles   []string `json:"roles"`
	Issuer  string   `json:"issuer,omitempty"` // empty: local
	Subject string   `json:"subject,omitempty"`

	Password string `json:"-"` // argon2id, in its PHC string; empty: none
	Secret   []byte `json:"-"` // of TOTP; the store seals it; empty: none
	Step     int64  `json:"-"` // the last TOTP step that was used; none is used twice, and the store never lets it fall

	Disabled   bool `json:"disabled,omitempty"`
	MustChange bool `json:"must_change,omitempty"` // a one-time password: nothing else works before it is changed
	// PasswordUntil ends a one-time password; zero: it holds until its first use.
	PasswordUntil time.Time `json:"password_until,omitzero"`
	BreakGlass    bool      `json:"break_glass,omitempty"` // may sign in only until Armed
	Armed         time.Time `json:"armed,omitzero"`

	Rev        uint64    `json:"rev"`   // rises with each change
	Epoch      uint64    `json:"epoch"` // rises when all sessions of the account end: roles, password, second factor, disabled
	Created    time.Time `json:"created"`
	LastSignIn time.Time `json:"last_sign_in,omitzero"`
}

// PasswordExpired says whether the password was made for one use that did not come in time.
func (a Account) PasswordExpired(now time.Time) bool {
	return a.MustChange && !a.PasswordUntil.IsZero() && !now.Before(a.PasswordUntil)
}
