package release

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// LoaderOptions are what a process knows of itself and no release can change.
type LoaderOptions struct {
	Deployment string          // required; who must have signed
	Suffixes   domain.Suffixes // required; every host of every answer lies below one
	Trust      *signed.Trust   // required
	Keys       *Keyring        // required; its session keys, and its list keys if there are lists
	Stream     string          // default StreamEdge
	Geo        *policy.Geo     // default none
	Replica    policy.Replica
}

// Loader turns a Signed into a Snapshot. It believes nothing that it was not
// started with: signature, deployment, stream, number, hosts, keys, records and
// the way that the golden requests go are all checked here again, whoever has
// checked them before. It is immutable.
type Loader struct {
	opt      LoaderOptions
	sessions map[string]policy.SessionKey
	lists    map[string]whitelist.Key
	golden   []GoldenRequest
}

// NewLoader checks the options.
func NewLoader(opt LoaderOptions) (*Loader, error) {
	var p fault.Problems
	if opt.Deployment == "" {
		p.Addf("--deployment", "is missing")
	}
	if opt.Suffixes.String() == "" {
		p.Addf("--allowed-suffixes", "without one no host is allowed")
	}
	if opt.Trust == nil {
		p.Addf("--trust-keys", "without public keys no release is believed")
	}
	if opt.Keys == nil || len(opt.Keys.Session.All()) == 0 {
		p.Addf("--session-key-file", "is missing")
	}
	if err := p.Err("bad_loader", "releases cannot be loaded"); err != nil {
		return nil, err
	}
	if opt.Stream == "" {
		opt.Stream = StreamEdge
	}
	l := &Loader{opt: opt, sessions: map[string]policy.SessionKey{}, lists: map[string]whitelist.Key{}}
	for _, k := range opt.Keys.Session.All() {
		l.sessions[k.ID()] = policy.SessionKey{ID: k.ID(), Secret: k.Secret()}
	}
	for _, k := range opt.Keys.List.All() {
		key, err := whitelist.NewKey(k.ID(), k.Secret())
		if err != nil {
			return nil, err
		}
		l.lists[k.ID()] = key
	}
	var err error
	if l.golden, err = GoldenRequests(); err != nil {
		return nil, err
	}
	return l, nil
}

// Load is the Snapshot of a release that may follow cur, which is nil when there
// is none. Parts whose digest is unchanged are taken from cur, so the cost is that
// of what changed; a renewal of records replaces only answers. Every failure,
// a panic included, is an error with a stable code, and cur stays usable.
func (l *Loader) Load(ctx context.Context, s Signed, blobs Blobs, cur *Snapshot) (next *Snapshot, err error) {
	defer recoverLoad(s.Number, &next, &err)
	cur = cur.released()
	m, digest, err := openManifest(s, l.opt.Trust)
	if err != nil {
		return nil, err
	}
	if m.Deployment != l.opt.Deployment || m.Stream != l.opt.Stream {
		return nil, fault.New(fault.Invalid, "other_deployment", "release %d is of %s/%s, this process serves %s/%s",
			m.Number, m.Deployment, m.Stream, l.opt.Deployment, l.opt.Stream).WithHint("check --deployment and the source")
	}
	book, err := openBook(s.Records, l.opt.Trust)
	if err != nil {
		return nil, err
	}
	if err := book.matches(m, digest); err != nil {
		return nil, err
	}
	mark := signed.Mark{Number: m.Number, Seq: book.Seq, Digest: digest}
	if err := mark.After(cur.Mark()); err != nil {
		return nil, refuseMark(err)
	}
	next = &Snapshot{Number: m.Number, Seq: book.Seq, Digest: digest, Created: m.Created, Issued: time.Unix(book.Issued, 0).UTC(),
		Manifest: m, Signed: s}
	records := verified{book: book, trust: l.opt.Trust}
	if cur != nil && cur.Number == m.Number {
		err = next.renew(cur, records)
	} else {
		c := compilation{loader: l, next: next, cur: cur, blobs: blobs}
		if err = c.compile(ctx, records); err == nil {
			err = walker{l.golden, l.opt.Suffixes.Allows}.walk(next, cur)
		}
		if err == nil {
			err = l.Guard(next, cur)
		}
	}
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Draft compiles a manifest that nobody has signed, for previews and for Guard.
// Its answers carry no records; it must never be served.
func (l *Loader) Draft(ctx context.Context, m *Manifest, blobs Blobs, cur *Snapshot) (next *Snapshot, err error) {
	defer recoverLoad(m.Number, &next, &err)
	if err := m.check(); err != nil {
		return nil, err
	}
	next = &Snapshot{Number: m.Number, Created: m.Created, Manifest: m}
	c := compilation{loader: l, next: next, cur: cur.released(), blobs: blobs}
	if err := c.compile(ctx, unsigned{m}); err != nil {
		return nil, err
	}
	if err := (walker{golden: l.golden}).walk(next, c.cur); err != nil {
		return nil, err
	}
	return next, nil
}

// recoverLoad turns a panic into an error: a release must not be able to end the process.
func recoverLoad(number uint64, next **Snapshot, err *error) {
	if r := recover(); r != nil {
		*next, *err = nil, fmt.Errorf("release %d: %w", number, panicked(r))
	}
}

// panicked is the error that a recovered panic is reported as, with its stack.
func panicked(r any) error {
	return fault.New(fault.Internal, "load_panic", "a part of the release cannot be loaded").
		WithHint("this is a mistake in the program: report it with the release").
		Because(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
}

// renew makes next from cur with new records and nothing else new.
func (s *Snapshot) renew(cur *Snapshot, records recorder) error {
	s.Lists, s.parts = cur.Lists, cur.parts
	served := make([]Served, 0, len(cur.Apps))
	for i := range cur.Manifest.Document.Apps {
		served = append(served, *cur.Apps[cur.Manifest.Document.Apps[i].Key])
	}
	return s.answers(served, records)
}

// sessionKeys are the keys that a release names, in its order: the first seals.
func (l *Loader) sessionKeys(ids []string) (*policy.SessionKeys, error) {
	var keys []policy.SessionKey
	for _, id := range ids {
		key, ok := l.sessions[id]
		if !ok {
			return nil, missingKey("session", id)
		}
		keys = append(keys, key)
	}
	return policy.NewSessionKeys(keys[0], keys[1:]...)
}

func (l *Loader) listKeys(ids []string) ([]whitelist.Key, error) {
	var keys []whitelist.Key
	for _, id := range ids {
		key, ok := l.lists[id]
		if !ok {
			return nil, missingKey("list", id)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func missingKey(purpose, id string) error {
	return fault.New(fault.Invalid, "missing_key", "the release needs the %s key %s, which is not here", purpose, id).
		WithHint(fmt.Sprintf("bring the file that the other nodes use and start again with --%s-key-file", purpose))
}

// codeStale is the code of what is older than what is there.
const codeStale = "stale"

func refuseMark(err error) error {
	code, hint := "bad_number", "find out who signed this number"
	switch {
	case errors.Is(err, signed.ErrStale):
		code, hint = codeStale, "a newer release is in use; to bring old content back, publish it anew: POST /api/v1/releases/N/relive"
	case errors.Is(err, signed.ErrFork):
		code, hint = "fork", "two publishers signed one number: find the second one before anything else"
	}
	return fault.New(fault.Conflict, code, "the release cannot follow the one in use").WithHint(hint).Because(err)
}
