package store

import (
	"context"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Accounts returns all accounts by login.
func (s *Store) Accounts(ctx context.Context) ([]ledger.Account, error) { return nil, nil }

// Account returns the account with the login, whatever its case.
func (s *Store) Account(ctx context.Context, login string) (ledger.Account, error) {
	return ledger.Account{}, fault.New(fault.NotFound, "unknown_account", "no account %q", login)
}

// AccountOf returns the account that an identity provider knows by the subject.
func (s *Store) AccountOf(ctx context.Context, issuer, subject string) (ledger.Account, error) {
	return ledger.Account{}, fault.New(fault.NotFound, "unknown_account", "no account of %s", issuer)
}

// SaveAccount writes an account whose author saw Rev; 0: a new one. Another Rev is the conflict stale_account.
func (s *Store) SaveAccount(ctx context.Context, a ledger.Account, c ledger.Change) error { return nil }

// SignedIn notes a sign-in. step is that of the TOTP code, 0 without one; one that
// is not above the last one is the conflict code_used.
func (s *Store) SignedIn(ctx context.Context, login string, step int64, at time.Time) error {
	return nil
}

// Session returns what is kept under the hash of a session's id, if it has not run out.
func (s *Store) Session(ctx context.Context, hash string) (data []byte, found bool, err error) {
	return nil, false, nil
}

// SaveSession keeps a session until then.
func (s *Store) SaveSession(ctx context.Context, hash string, data []byte, until time.Time) error {
	return nil
}

// EndSession forgets a session.
func (s *Store) EndSession(ctx context.Context, hash string) error { return nil }

// Papers returns papers of a kind, the last changed first.
func (s *Store) Papers(ctx context.Context, kind string, f ledger.PaperFilter) ([]ledger.Paper, error) {
	return nil, nil
}

// Paper returns one paper.
func (s *Store) Paper(ctx context.Context, kind, id string) (ledger.Paper, error) {
	return ledger.Paper{}, fault.New(fault.NotFound, "unknown_"+kind, "no %s %q", kind, id)
}

// SavePaper writes the paper with its audit row. Rev is the one that the author saw;
// another one in the database is the conflict stale_paper, whose Data is the paper.
func (s *Store) SavePaper(ctx context.Context, p ledger.Paper, c ledger.Change) (ledger.Paper, error) {
	return p, nil
}

// Approve keeps a signature. One by the author is refused, whatever the case of the names.
func (s *Store) Approve(ctx context.Context, a ledger.Approval, c ledger.Change) error { return nil }

// Approvals returns the signatures of a kind, of the ids or all, newest first.
func (s *Store) Approvals(ctx context.Context, kind string, ids ...string) ([]ledger.Approval, error) {
	return nil, nil
}

// Unreviewed returns the releases since then that one of the actions made and that
// nobody signed, newest first.
func (s *Store) Unreviewed(ctx context.Context, stream string, since time.Time, actions []string) ([]ledger.Summary, error) {
	return nil, nil
}

// AddCounts keeps what a replica counted; a minute that came before is replaced by the larger number.
func (s *Store) AddCounts(ctx context.Context, c ledger.Counts) error { return nil }

// Counts returns counters, summed as the filter says, the oldest first.
func (s *Store) Counts(ctx context.Context, f ledger.CountFilter) ([]fleet.Count, error) {
	return nil, nil
}

// SaveProbes keeps the last knowledge of a prober.
func (s *Store) SaveProbes(ctx context.Context, probes []ledger.Probe) error { return nil }

// Probes returns what every prober knows, of the last hour.
func (s *Store) Probes(ctx context.Context) ([]ledger.Probe, error) { return nil, nil }
