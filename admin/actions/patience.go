package actions

import (
	"context"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// Patience is how long the database may take over one request, all its parts
// together; then the caller hears that it is slow. Bulk does not count: the ids of
// a list may take minutes to store. Nor does the wait for another change's turn or
// for replicas.
const Patience = 3 * time.Second

type patienceKey struct{}

// Patient gives a request its Patience. A context without one waits as long as its
// own deadline says.
func Patient(ctx context.Context) context.Context {
	left := new(atomic.Int64)
	left.Store(int64(Patience))
	return context.WithValue(ctx, patienceKey{}, left)
}

// timed calls the database with what is left of the request's Patience.
func timed[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	left, ok := ctx.Value(patienceKey{}).(*atomic.Int64)
	if !ok {
		return call(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(left.Load()))
	defer cancel()
	start := time.Now()
	defer func() { left.Add(-int64(time.Since(start))) }()
	return call(limited)
}

func timedOnly(ctx context.Context, call func(context.Context) error) error {
	_, err := timed(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// patient is a Ledger that spends the Patience of requests. What is not here is
// bulk, or comes from replicas.
type patient struct{ Ledger }

func (p patient) Release(ctx context.Context, stream string, n uint64) (release.Signed, error) {
	return timed(ctx, func(ctx context.Context) (release.Signed, error) { return p.Ledger.Release(ctx, stream, n) })
}

func (p patient) Releases(ctx context.Context, stream string, before uint64, limit int) ([]ledger.Summary, error) {
	return timed(ctx, func(ctx context.Context) ([]ledger.Summary, error) {
		return p.Ledger.Releases(ctx, stream, before, limit)
	})
}

func (p patient) Append(ctx context.Context, w ledger.Write) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.Append(ctx, w) })
}

func (p patient) Once(ctx context.Context, actor, key string) (once ledger.Once, found bool, err error) {
	err = timedOnly(ctx, func(ctx context.Context) (err error) {
		once, found, err = p.Ledger.Once(ctx, actor, key)
		return err
	})
	return once, found, err
}

func (p patient) Rollout(ctx context.Context, stream string) (ledger.Rollout, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Rollout, error) { return p.Ledger.Rollout(ctx, stream) })
}

func (p patient) Adopt(ctx context.Context, w ledger.Write) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.Adopt(ctx, w) })
}

func (p patient) Hosts(ctx context.Context) ([]ledger.Host, error) {
	return timed(ctx, p.Ledger.Hosts)
}

func (p patient) ApprovedHosts(ctx context.Context) (map[string]bool, error) {
	return timed(ctx, p.Ledger.ApprovedHosts)
}

func (p patient) ProposeHost(ctx context.Context, host string, c ledger.Change) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.ProposeHost(ctx, host, c) })
}

func (p patient) ApproveHost(ctx context.Context, host string, c ledger.Change) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.ApproveHost(ctx, host, c) })
}

func (p patient) Record(ctx context.Context, c ledger.Change) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.Record(ctx, c) })
}

func (p patient) Audit(ctx context.Context, f ledger.AuditFilter) ([]ledger.AuditEntry, error) {
	return timed(ctx, func(ctx context.Context) ([]ledger.AuditEntry, error) { return p.Ledger.Audit(ctx, f) })
}

func (p patient) Tokens(ctx context.Context) ([]ledger.Token, error) {
	return timed(ctx, p.Ledger.Tokens)
}

func (p patient) CreateToken(ctx context.Context, n ledger.NewToken, c ledger.Change) (token ledger.Token, secret string, err error) {
	err = timedOnly(ctx, func(ctx context.Context) (err error) {
		token, secret, err = p.Ledger.CreateToken(ctx, n, c)
		return err
	})
	return token, secret, err
}

func (p patient) RevokeToken(ctx context.Context, id int64, c ledger.Change) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.RevokeToken(ctx, id, c) })
}

func (p patient) Authenticate(ctx context.Context, secret string) (ledger.Token, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Token, error) { return p.Ledger.Authenticate(ctx, secret) })
}

func (p patient) Accounts(ctx context.Context) ([]ledger.Account, error) {
	return timed(ctx, p.Ledger.Accounts)
}

func (p patient) Account(ctx context.Context, login string) (ledger.Account, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Account, error) { return p.Ledger.Account(ctx, login) })
}

func (p patient) AccountOf(ctx context.Context, issuer, subject string) (ledger.Account, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Account, error) { return p.Ledger.AccountOf(ctx, issuer, subject) })
}

func (p patient) SaveAccount(ctx context.Context, a ledger.Account, c ledger.Change) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.SaveAccount(ctx, a, c) })
}

func (p patient) SignedIn(ctx context.Context, login string, step int64, at time.Time) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.SignedIn(ctx, login, step, at) })
}

func (p patient) Papers(ctx context.Context, kind string, f ledger.PaperFilter) ([]ledger.Paper, error) {
	return timed(ctx, func(ctx context.Context) ([]ledger.Paper, error) { return p.Ledger.Papers(ctx, kind, f) })
}

func (p patient) Paper(ctx context.Context, kind, id string) (ledger.Paper, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Paper, error) { return p.Ledger.Paper(ctx, kind, id) })
}

func (p patient) SavePaper(ctx context.Context, paper ledger.Paper, c ledger.Change) (ledger.Paper, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Paper, error) { return p.Ledger.SavePaper(ctx, paper, c) })
}

func (p patient) Approve(ctx context.Context, a ledger.Approval, c ledger.Change) error {
	return timedOnly(ctx, func(ctx context.Context) error { return p.Ledger.Approve(ctx, a, c) })
}

func (p patient) Approvals(ctx context.Context, kind string, ids ...string) ([]ledger.Approval, error) {
	return timed(ctx, func(ctx context.Context) ([]ledger.Approval, error) { return p.Ledger.Approvals(ctx, kind, ids...) })
}

func (p patient) Unreviewed(ctx context.Context, stream string, since time.Time, actions []string) ([]ledger.Summary, error) {
	return timed(ctx, func(ctx context.Context) ([]ledger.Summary, error) {
		return p.Ledger.Unreviewed(ctx, stream, since, actions)
	})
}

func (p patient) Counts(ctx context.Context, f ledger.CountFilter) ([]fleet.Count, error) {
	return timed(ctx, func(ctx context.Context) ([]fleet.Count, error) { return p.Ledger.Counts(ctx, f) })
}

func (p patient) Probes(ctx context.Context) ([]ledger.Probe, error) {
	return timed(ctx, p.Ledger.Probes)
}

func (p patient) Pick(ctx context.Context, id string) (ledger.Pick, error) {
	return timed(ctx, func(ctx context.Context) (ledger.Pick, error) { return p.Ledger.Pick(ctx, id) })
}
