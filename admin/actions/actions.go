// Package actions has one function for each thing an operator can do. Page, API
// and command line call the same function, so all get the same checks, the same
// audit and the same answer.
//
// Every function that changes what edges serve ends in commit (commit.go): the
// next manifest is signed, loaded as an edge would load it, written in one
// transaction with its audit row, and served by this process before the caller
// hears of it. A failure at any step changes nothing.
//
// Two kinds of change exist. A normal one names the release it was made from
// and is refused when another came first. An emergency names the values its
// author saw, and is tried again on whatever release is newest.
//
// Actions owns no goroutine; KeepRecordsFresh runs in one of its caller's. It
// may be used by many at once: within the process writers queue on one lock, and
// between processes the ledger's compare-and-set decides.
package actions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// The roles. A token has exactly one.
const (
	Viewer          = "viewer"
	ListManager     = "list-manager"
	ReleaseEngineer = "release-engineer"
	OnCall          = "on-call"
	Approver        = "approver"
	Administrator   = "administrator"
)

// Actor is who asks: the name of a token and its role.
type Actor struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// Write is what every change carries.
type Write struct {
	Actor  Actor
	Reason string // required: the audit trail is read by people
	Key    string // idempotency key; empty: none

	once *ledger.Once // the answer to remember under Key; nil without one
}

func (w Write) change(action, target string) ledger.Change {
	return ledger.Change{By: w.Actor.Name, Reason: w.Reason, Action: action, Target: target, Once: w.once}
}

// releases are what the actions need of the ledger to read and append releases.
type releases interface {
	Latest(ctx context.Context, stream string) (release.Signed, error)
	Release(ctx context.Context, stream string, n uint64) (release.Signed, error)
	Releases(ctx context.Context, stream string, before uint64, limit int) ([]ledger.Summary, error)
	Append(ctx context.Context, w ledger.Write) error
	Once(ctx context.Context, actor, key string) (once ledger.Once, found bool, err error)
}

// contents are the lists, tables and records of releases.
type contents interface {
	Blob(ctx context.Context, d release.Digest) ([]byte, error)
	Raw(ctx context.Context, d release.Digest) ([]byte, error)
	PutBlobs(ctx context.Context, blobs iter.Seq[whitelist.Blob]) error
	SaveRecords(ctx context.Context, stream string, r release.RecordSet, c ledger.Change) error
}

type hosts interface {
	Hosts(ctx context.Context) ([]ledger.Host, error)
	ApprovedHosts(ctx context.Context) (map[string]bool, error)
	ProposeHost(ctx context.Context, host string, c ledger.Change) error
	ApproveHost(ctx context.Context, host string, c ledger.Change) error
}

type trail interface {
	Record(ctx context.Context, c ledger.Change) error
	Audit(ctx context.Context, f ledger.AuditFilter) ([]ledger.AuditEntry, error)
	VerifyAudit(ctx context.Context, known ...ledger.AuditHead) (ledger.AuditCheck, error)
}

type tokens interface {
	Tokens(ctx context.Context) ([]ledger.Token, error)
	CreateToken(ctx context.Context, n ledger.NewToken, c ledger.Change) (ledger.Token, string, error)
	RevokeToken(ctx context.Context, id int64, c ledger.Change) error
	Authenticate(ctx context.Context, secret string) (ledger.Token, error)
}

// Ledger is where the control plane writes things down. *store.Store is one.
type Ledger interface {
	releases
	contents
	hosts
	trail
	tokens
}

// publisher is the source that a Keeper names for what this process released.
const publisher = "publisher"

// Options say where the actions work. All but Geo are required.
type Options struct {
	Ledger     Ledger
	Keeper     *release.Keeper // what this process serves
	Loader     *release.Loader // how an edge would load a release
	Keys       *release.Keyring
	Suffixes   domain.Suffixes
	Deployment string
	Geo        *policy.Geo
}

// Actions does what operators ask for.
type Actions struct {
	Options
	turn chan struct{} // holds one token: whoever has it may make a release
}

// New checks the options.
func New(opt Options) (*Actions, error) {
	if opt.Ledger == nil || opt.Keeper == nil || opt.Loader == nil || opt.Deployment == "" || opt.Suffixes.String() == "" {
		return nil, errors.New("actions: ledger, keeper, loader, deployment and suffixes are all needed")
	}
	if opt.Keys == nil || len(opt.Keys.Publisher.All()) == 0 || len(opt.Keys.Record.All()) == 0 ||
		len(opt.Keys.Session.All()) == 0 || len(opt.Keys.List.All()) == 0 {
		return nil, errors.New("actions: publisher, record, session and list keys are all needed")
	}
	a := &Actions{Options: opt, turn: make(chan struct{}, 1)}
	a.turn <- struct{}{}
	return a, nil
}

// turnTime is how long one action may keep the others waiting: a database that
// hangs must not hold up the emergency behind it for longer. What a release of
// lists with five million ids needs is seconds.
const turnTime = 30 * time.Second

// alone runs f while no other action of this process makes a release.
func (a *Actions) alone(ctx context.Context, f func(context.Context) error) error {
	select {
	case <-a.turn:
		defer func() { a.turn <- struct{}{} }()
		limited, cancel := context.WithTimeout(ctx, turnTime)
		defer cancel()
		return f(limited)
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "busy", "another change took too long").WithHint("try again").Because(ctx.Err())
	}
}

// latest is the newest release of the ledger and its manifest; zero values when
// there is none. A ledger that lacks what is being served is a conflict.
func (a *Actions) latest(ctx context.Context) (release.Signed, *release.Manifest, error) {
	s, err := a.Ledger.Latest(ctx, release.StreamEdge)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return release.Signed{}, nil, fmt.Errorf("read the newest release: %w", err)
	}
	if err := notBehind(a.Keeper.Current(), s); err != nil {
		return release.Signed{}, nil, err
	}
	if s.Number == 0 {
		return release.Signed{}, nil, nil
	}
	m, err := release.DecodeManifest(s.Manifest)
	if err != nil {
		return release.Signed{}, nil, fmt.Errorf("read release %d: %w", s.Number, err)
	}
	return s, m, nil
}

// notBehind refuses a ledger that ends before the release in use, or has another
// one under its number.
func notBehind(cur *release.Snapshot, newest release.Signed) error {
	switch {
	case cur == nil || cur.Number < newest.Number:
		return nil
	case cur.Number > newest.Number:
		return fault.New(fault.Conflict, "store_behind", "the database ends at release %d and %d is being served", newest.Number, cur.Number).
			WithHint("the database was probably restored from a backup: restore a newer one before changing anything")
	case cur.Digest != release.DigestOf(newest.Manifest):
		return fault.New(fault.Conflict, "fork", "the database has another release %d than the one that is being served", cur.Number).
			WithHint("two publishers used one number: find the second one before changing anything")
	}
	return nil
}

// manifestOf is a release by number.
func (a *Actions) manifestOf(ctx context.Context, n uint64) (*release.Manifest, error) {
	s, err := a.Ledger.Release(ctx, release.StreamEdge, n)
	if err != nil {
		return nil, err
	}
	m, err := release.DecodeManifest(s.Manifest)
	if err != nil {
		return nil, fmt.Errorf("read release %d: %w", n, err)
	}
	return m, nil
}

// now is when a change is made. Releases carry it; nothing compares with it.
func now() time.Time { return time.Now().UTC() }

// document is what m holds, also of no manifest.
func document(m *release.Manifest) *release.Document { return &cmp.Or(m, &release.Manifest{}).Document }
