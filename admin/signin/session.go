package signin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"

	"dispatch.example/dispatch/ledger"
)

// Sessions is where sessions are kept. *store.Store is one.
type Sessions interface {
	Session(ctx context.Context, hash string) (data []byte, found bool, err error)
	SaveSession(ctx context.Context, hash string, data []byte, until time.Time) error
	EndSession(ctx context.Context, hash string) error
}

const (
	cookieName = "__Host-dispatch" // the prefix makes browsers refuse it from a subdomain or without TLS
	idleFor    = 30 * time.Minute
	lifetime   = 12 * time.Hour
	armedFor   = 8 * time.Hour
	touchEvery = time.Minute // bounds how often a busy session is written
)

// newSessions is scs without its New, which starts a goroutine for a store of its own.
func newSessions(kept Sessions) *scs.SessionManager {
	return &scs.SessionManager{
		Lifetime:         lifetime,
		Store:            sessionStore{kept},
		Codec:            scs.GobCodec{},
		HashTokenInStore: true,
		// Without Persist the cookie ends with the browser too.
		Cookie: scs.SessionCookie{Name: cookieName, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode},
	}
}

// sessionStore is Sessions as scs wants it. scs calls the methods with a context alone.
type sessionStore struct{ kept Sessions }

func (s sessionStore) FindCtx(ctx context.Context, hash string) ([]byte, bool, error) {
	return s.kept.Session(ctx, hash)
}

func (s sessionStore) CommitCtx(ctx context.Context, hash string, data []byte, until time.Time) error {
	return s.kept.SaveSession(ctx, hash, data, until)
}

func (s sessionStore) DeleteCtx(ctx context.Context, hash string) error {
	return s.kept.EndSession(ctx, hash)
}

func (s sessionStore) Find(hash string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), hash)
}

func (s sessionStore) Commit(hash string, data []byte, until time.Time) error {
	return s.CommitCtx(context.Background(), hash, data, until)
}

func (s sessionStore) Delete(hash string) error { return s.DeleteCtx(context.Background(), hash) }

// What a session holds. Times are seconds of the Unix epoch: gob would have to know
// more about others.
const (
	keyLogin = "login"
	keyEpoch = "epoch"
	keyBegan = "began"
	keySeen  = "seen"
	keyArmed = "armed"
)

// session is the session of one request.
type session struct {
	s   *SignIn
	ctx context.Context // where scs keeps it
}

// current is the session of a request, if it has one that has not ended.
func (s *SignIn) current(r *http.Request) (session, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return session{}, signedOut()
	}
	ctx, err := s.sessions.Load(r.Context(), cookie.Value)
	if err != nil {
		return session{}, fmt.Errorf("read session: %w", err)
	}
	found := session{s, ctx}
	now := s.opt.Now()
	began, seen := found.time(keyBegan), found.time(keySeen)
	switch {
	case found.login() == "":
		return found, ended()
	case now.Sub(began) >= lifetime, now.Sub(seen) >= idleFor && !found.armed().After(now):
		return found, ended()
	default:
		return found, nil
	}
}

func (n session) login() string    { return n.s.sessions.GetString(n.ctx, keyLogin) }
func (n session) epoch() uint64    { return uint64(n.s.sessions.GetInt64(n.ctx, keyEpoch)) }
func (n session) armed() time.Time { return n.time(keyArmed) }

func (n session) time(key string) time.Time {
	seconds := n.s.sessions.GetInt64(n.ctx, key)
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// touch notes that the session is used. A database that does not take it costs the
// session some of its time, not the request.
func (n session) touch(r *http.Request) {
	now := n.s.opt.Now()
	if now.Sub(n.time(keySeen)) < touchEvery {
		return
	}
	n.s.sessions.Put(n.ctx, keySeen, now.Unix())
	if _, _, err := n.s.sessions.Commit(n.ctx); err != nil {
		n.s.opt.Log.WarnContext(r.Context(), "note that a session is used", "login", n.login(), "err", err)
	}
}

func (n session) end() error {
	login := n.login()
	if err := n.s.sessions.Destroy(n.ctx); err != nil {
		return fmt.Errorf("end session of %s: %w", login, err)
	}
	return nil
}

// renew begins a session under a new id and ends the one that the request had. A
// session that goes on keeps the time at which it began.
func (s *SignIn) renew(w http.ResponseWriter, r *http.Request, account ledger.Account, armed time.Time) error {
	now := s.opt.Now()
	began := now
	if old, err := s.current(r); err == nil {
		if old.login() == account.Login && !armed.IsZero() {
			began = old.time(keyBegan)
		}
		if err := old.end(); err != nil {
			return err
		}
	}
	ctx, err := s.sessions.Load(r.Context(), "")
	if err != nil {
		return fmt.Errorf("begin session: %w", err)
	}
	s.sessions.Put(ctx, keyLogin, account.Login)
	s.sessions.Put(ctx, keyEpoch, int64(account.Epoch))
	s.sessions.Put(ctx, keyBegan, began.Unix())
	s.sessions.Put(ctx, keySeen, now.Unix())
	if !armed.IsZero() {
		s.sessions.Put(ctx, keyArmed, armed.Unix())
	}
	s.sessions.SetDeadline(ctx, began.Add(lifetime).UTC())
	id, until, err := s.sessions.Commit(ctx)
	if err != nil {
		return fmt.Errorf("keep session of %s: %w", account.Login, err)
	}
	s.sessions.WriteSessionCookie(ctx, w, id, until)
	return nil
}

// forget makes the browser drop its cookie.
func (s *SignIn) forget(w http.ResponseWriter) {
	s.sessions.WriteSessionCookie(context.Background(), w, "", time.Time{})
}
