// Package signin knows who a browser is: sessions kept on the server, passwords
// with a second factor, and an identity provider.
//
// A session is a random id in a cookie; what belongs to it lies in the store under
// the hash of the id. It ends after half an hour without a request, unless it is
// armed, and after twelve hours in any case; when somebody signs out; and when the
// account's epoch rises, which it does with each change of its roles, its password
// or its second factor and when it is disabled. Who somebody is and what they may is
// read from their account at each request, never from the session.
//
// Credentials are checked by admin/actions, which slows guesses down and writes the
// audit rows. A provider that is away costs its own people the way in, nobody else
// (oidc.go). The package starts no goroutine.
package signin

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/alexedwards/scs/v2"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// Visitor is who has signed in.
type Visitor struct {
	actions.Actor
	Display      string    // name for people
	Armed        time.Time // until then the session stays open without a request; zero: it is not armed
	MustChange   bool      // signed in with a one-time password, or without the second factor that is required: only the page that changes it opens
	SecondFactor bool      // the account has one
	BreakGlass   bool      // the account is for emergencies
	Local        bool      // the account has a password here
}

// NeedsSecondFactor says whether the account should have a second factor and has none.
func (v Visitor) NeedsSecondFactor() bool {
	return !v.SecondFactor && v.Local && actions.NeedsSecondFactor(v.Roles)
}

// Options say how people sign in. Actions and Sessions are required.
type Options struct {
	Actions     *actions.Actions
	Sessions    Sessions
	Log         *slog.Logger                     // default: discard
	Address     func(r *http.Request) netip.Addr // of the client; default: the peer
	RequireTOTP bool                             // accounts that should have a second factor do nothing without
	Provider    *Provider                        // nil: local accounts alone
	Now         func() time.Time                 // default time.Now
}

// SignIn keeps sessions.
type SignIn struct {
	do       *actions.Actions
	opt      Options
	sessions *scs.SessionManager
	cross    *http.CrossOriginProtection
}

// New checks the options. It asks no provider: one that is down must not stop the start.
func New(opt Options) (*SignIn, error) {
	if opt.Actions == nil || opt.Sessions == nil {
		return nil, errors.New("signin: actions and sessions are both needed")
	}
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Address == nil {
		opt.Address = peer
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &SignIn{do: opt.Actions, opt: opt, sessions: newSessions(opt.Sessions), cross: http.NewCrossOriginProtection()}, nil
}

func peer(r *http.Request) netip.Addr {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // always one, but in tests
	return addr.Addr()
}

// Visitor is who sends the request; nobody is fault.Unauthenticated.
func (s *SignIn) Visitor(r *http.Request) (Visitor, error) {
	session, err := s.current(r)
	if err != nil {
		return Visitor{}, err
	}
	account, err := s.do.Account(r.Context(), session.login())
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Visitor{}, err
	}
	if err != nil || account.Disabled || account.Epoch != session.epoch() {
		return Visitor{}, ended()
	}
	if account.BreakGlass && !account.Armed.After(s.opt.Now()) {
		return Visitor{}, ended()
	}
	session.touch(r)
	return s.visitor(account, session.armed()), nil
}

func (s *SignIn) visitor(a ledger.Account, armed time.Time) Visitor {
	v := Visitor{Actor: actions.Actor{Name: a.Login, Roles: a.Roles}, Display: cmp.Or(a.Name, a.Login), Armed: armed,
		SecondFactor: len(a.Secret) > 0, BreakGlass: a.BreakGlass, Local: a.Issuer == ""}
	v.MustChange = a.MustChange || v.NeedsSecondFactor() && (s.opt.RequireTOTP || a.BreakGlass)
	return v
}

func signedOut() error {
	return fault.New(fault.Unauthenticated, "signed_out", "nobody is signed in").WithHint("sign in at /login")
}

func ended() error {
	return fault.New(fault.Unauthenticated, "session_ended", "the session has ended").WithHint("sign in again at /login")
}

// In signs in with a password and begins a session.
func (s *SignIn) In(w http.ResponseWriter, r *http.Request, c actions.Credentials) (Visitor, error) {
	c.From = s.opt.Address(r)
	account, err := s.do.SignIn(r.Context(), c)
	if err != nil {
		if kind := fault.KindOf(err); kind == fault.Unauthenticated || kind == fault.Denied {
			s.opt.Log.WarnContext(r.Context(), "sign-in refused", "code", fault.CodeOf(err), "from", c.From.String())
		}
		return Visitor{}, err
	}
	return s.begin(w, r, account)
}

// begin begins a session for an account that has just proved itself, under a new id.
// The one that the browser had before ends.
func (s *SignIn) begin(w http.ResponseWriter, r *http.Request, account ledger.Account) (Visitor, error) {
	if account.BreakGlass {
		s.opt.Log.WarnContext(r.Context(), "break-glass account in use", "login", account.Login, "from", s.opt.Address(r).String(), "until", account.Armed)
	}
	if err := s.renew(w, r, account, time.Time{}); err != nil {
		return Visitor{}, err
	}
	return s.visitor(account, time.Time{}), nil
}

// Out ends the session of the request.
func (s *SignIn) Out(w http.ResponseWriter, r *http.Request) error {
	session, err := s.current(r)
	if fault.KindOf(err) == fault.Unauthenticated {
		s.forget(w)
		return nil
	}
	if err != nil {
		return err
	}
	login := session.login()
	if err := session.end(); err != nil {
		return err
	}
	s.forget(w)
	return s.do.SignedOut(r.Context(), login)
}

// Arm keeps a session open without a request, and without a second factor in an
// emergency, for a shift. The code is one of the account's second factor.
func (s *SignIn) Arm(w http.ResponseWriter, r *http.Request, code string) (until time.Time, err error) {
	session, err := s.current(r)
	if err != nil {
		return until, err
	}
	if err := s.do.ShowSecondFactor(r.Context(), session.login(), code, s.opt.Address(r)); err != nil {
		return until, err
	}
	account, err := s.do.Account(r.Context(), session.login())
	if err != nil {
		return until, err
	}
	until = s.opt.Now().Add(armedFor)
	return until, s.renew(w, r, account, until)
}

// Proof is what the visitor of the request shows to change their own account.
func (s *SignIn) Proof(r *http.Request, v Visitor, password string) actions.Proof {
	return actions.Proof{Login: v.Name, Password: password, From: s.opt.Address(r)}
}

// Again begins a new session for somebody whose own change ended all of theirs.
func (s *SignIn) Again(w http.ResponseWriter, r *http.Request, account ledger.Account) error {
	return s.renew(w, r, account, time.Time{})
}
