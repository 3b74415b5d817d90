// Package actions has one function for each thing an operator can do. Page, API
// and command line call the same function, so all get the same checks, the same
// audit and the same answer.
//
// Every function that changes what edges serve ends in commit (commit.go): the
// next manifest is signed, loaded as an edge would load it, written in one
// transaction with its audit row, and served by this process before the caller
// hears of it. A failure at any step changes nothing.
//
// Two kinds of change exist. A normal one names the release it was made from and
// is refused when another came first; one replica, the canary, serves it before
// everybody may. An emergency names the values its author saw and is tried again
// on whatever is newest: it is what everybody may serve plus the action, reaches
// all at once, and ends a canary that still runs. When the database was restored
// from a backup, normal changes stop, and emergencies go on from what is served.
//
// Rules of internal calls (inner_*.go) are releases of a stream of their own. They
// skip the canary and the lists, so they do not end in commit: they are checked
// against the region's directory, signed and appended, and callers fetch them.
//
// RunRollouts (rollout.go) takes the ledger's releases to the fleet and decides
// over canaries, whichever control node began them. It and KeepRecordsFresh run in
// goroutines of their caller's; RunRollouts owns the two that it starts, and ends
// them with its context. Actions may be used by many at once: within the process
// writers queue on one lock, and between processes the ledger's compare-and-set
// decides.
//
// A database that is slow ends a request after Patience, with nothing changed. A
// fleet that is slow ends nothing: the answer says who lags behind, and why.
package actions

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// Write is what every change carries.
type Write struct {
	Actor    Actor
	Reason   string   // required: the audit trail is read by people
	Key      string   // idempotency key; empty: none
	Confirm  string   // what the person typed, where a change must be confirmed: see Confirmation
	Override []string // safety rules to go past, by name; the actor needs the role for it

	once *ledger.Once // the answer to remember under Key; nil without one
}

func (w Write) change(action, target string) ledger.Change {
	return ledger.Change{By: w.Actor.Name, Reason: w.Reason, Action: action, Target: target, Once: w.once}
}

// releases are what the actions need of the ledger to read and append releases.
type releases interface {
	Release(ctx context.Context, stream string, n uint64) (release.Signed, error)
	Releases(ctx context.Context, stream string, before uint64, limit int) ([]ledger.Summary, error)
	Append(ctx context.Context, w ledger.Write) error
	Once(ctx context.Context, actor, key string) (once ledger.Once, found bool, err error)
	rollouts
}

// rollouts say how far a release has come, and bring back what a ledger has lost.
type rollouts interface {
	Rollout(ctx context.Context, stream string) (ledger.Rollout, error)
	Promote(ctx context.Context, stream string, number uint64, c ledger.Change) error
	Adopt(ctx context.Context, w ledger.Write) error
}

// contents are the lists, tables and records of releases.
type contents interface {
	Blob(ctx context.Context, d release.Digest) ([]byte, error)
	Raw(ctx context.Context, d release.Digest) ([]byte, error)
	PutBlobs(ctx context.Context, blobs iter.Seq[whitelist.Blob]) error
	SaveRecords(ctx context.Context, stream string, r release.RecordSet, c ledger.Change) error
	bulk
}

// bulk is what only whole lists need.
type bulk interface {
	MissingBlobs(ctx context.Context, digests []release.Digest) ([]release.Digest, error)
	Reseal(ctx context.Context, n int) (int, error)
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

// accounts are the people who sign in.
type accounts interface {
	Accounts(ctx context.Context) ([]ledger.Account, error)
	Account(ctx context.Context, login string) (ledger.Account, error)
	AccountOf(ctx context.Context, issuer, subject string) (ledger.Account, error)
	SaveAccount(ctx context.Context, a ledger.Account, c ledger.Change) error
	SignedIn(ctx context.Context, login string, step int64, at time.Time) error
}

// papers are what people work on beside the releases.
type papers interface {
	Papers(ctx context.Context, kind string, f ledger.PaperFilter) ([]ledger.Paper, error)
	Paper(ctx context.Context, kind, id string) (ledger.Paper, error)
	SavePaper(ctx context.Context, p ledger.Paper, c ledger.Change) (ledger.Paper, error)
}

// approvals are what second people signed, and what waits for one.
type approvals interface {
	Approve(ctx context.Context, a ledger.Approval, c ledger.Change) error
	Approvals(ctx context.Context, kind string, ids ...string) ([]ledger.Approval, error)
	Unreviewed(ctx context.Context, stream string, since time.Time, actions []string) ([]ledger.Summary, error)
}

// picks are what callers recorded of their decisions.
type picks interface {
	Pick(ctx context.Context, id string) (ledger.Pick, error)
}

// observations are what replicas and probers saw.
type observations interface {
	AddCounts(ctx context.Context, c ledger.Counts) error
	Counts(ctx context.Context, f ledger.CountFilter) ([]fleet.Count, error)
	SaveProbes(ctx context.Context, probes []ledger.Probe) error
	Probes(ctx context.Context) ([]ledger.Probe, error)
	picks
}

// registers are kept row by row.
type registers interface {
	hosts
	trail
	tokens
	accounts
}

// working is what people work on and sign.
type working interface {
	papers
	approvals
}

// Ledger is where the control plane writes things down. *store.Store is one.
type Ledger interface {
	releases
	contents
	registers
	working
	observations
}

// publisher is the source that a Keeper names for what this process released.
const publisher = "publisher"

// CanaryTime is how long a canary serves before everybody may, where Options say nothing.
const CanaryTime = 10 * time.Second

// Options say where the actions work. All that stand before Geo are required.
type Options struct {
	Ledger     Ledger
	Keeper     *release.Keeper // what this process serves
	Loader     *release.Loader // how an edge would load a release
	Keys       *release.Keyring
	Suffixes   domain.Suffixes
	Deployment string
	Geo        *policy.Geo
	Fleet      Fleet         // nil: this process alone serves
	Region     string        // of this node: whose rules it publishes
	Inner      Inner         // nil: this node follows no registry
	PicksKept  time.Duration // how long records of calls are kept; default ledger.PicksKept
	RulesHeard func() uint64 // the highest number of rules that a caller follows; nil: nobody asks
	RulesMade  func()        // hears that rules were published; nil: nobody does
	Copies     release.Blobs // that this process has beside the ledger, on its disk; nil: none
	CanaryTime time.Duration // default CanaryTime
	Probes     bool          // whether probers run; without them no rule can judge a target's health
	Trials     Trials        // who can try a draft on recent requests; nil: nobody
	FourEyes   bool          // two people for what needs two
	Waits      func(Waiting) // hears once a minute what waits for people; nil: nobody does
	Env        string        // of this installation; stands in what people type to confirm
	Passwords  Passwords     // default argon2id
	LookedUp   func(LookUp)  // hears of each look-up of a person; nil: nobody
	Signals    []string      // HOST:PORT that signals of grays may ask; none: none

	Log *slog.Logger     // default: discard
	Now func() time.Time // default time.Now
}

// Actions does what operators ask for.
type Actions struct {
	Options
	turn chan struct{} // holds one token: whoever has it may make a release
	desk *desk         // what is offered to the fleet
	woke chan struct{} // holds one token when RunRollouts shall look now
	rung chan struct{} // holds one token when RunSchedules shall look now
	door *door         // before the accounts

	grayWatch *grayWatches                  // what this process saw of running grays
	asking    *turns                        // one look-up of a person at a time, for each who asks
	audited   *atomic.Pointer[AuditChecked] // the last verification of the trail
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
	if opt.Fleet == nil {
		opt.Fleet = solo{}
	}
	if opt.CanaryTime <= 0 {
		opt.CanaryTime = CanaryTime
	}
	if opt.PicksKept == 0 {
		opt.PicksKept = ledger.PicksKept
	}
	if opt.Passwords == nil {
		opt.Passwords = Argon2id()
	}
	opt.Ledger = patient{opt.Ledger}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	a := &Actions{Options: opt, turn: make(chan struct{}, 1), desk: newDesk(), woke: make(chan struct{}, 1), rung: make(chan struct{}, 1), door: newDoor(), grayWatch: newGrayWatches(),
		asking: new(turns), audited: new(atomic.Pointer[AuditChecked])}
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

// now is when a change is made. Releases carry it; nothing compares with it.
func (a *Actions) now() time.Time { return a.Now().UTC() }

// document is what m holds, also of no manifest.
func document(m *release.Manifest) *release.Document { return &cmp.Or(m, &release.Manifest{}).Document }
