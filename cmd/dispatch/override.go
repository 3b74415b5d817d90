package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/handler"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/release"
)

const (
	// overrideLife is how long an override lasts unless it says otherwise.
	overrideLife = 4 * time.Hour
	// maxOverrideBody is what release accepts of an override in writing.
	maxOverrideBody = 64 << 10
)

// breakGlass is the Unix socket on which dispatch override talks to this
// process. It needs nothing but the process and its keeper: no database, no
// network, no other node. Whoever asks must be the login that the process runs
// as, or root; the kernel says who it is.
type breakGlass struct {
	keeper *release.Keeper
	trust  *signed.Trust
	log    *slog.Logger
	now    func() time.Time

	refused  prometheus.Counter // overrides that were found and not believed
	lastSaid string             // of found's caller: the last of them, and why
}

// overrideState is what the socket answers.
type overrideState struct {
	Release  uint64              `json:"release"` // that is served here, under the override
	Override *release.Overriding `json:"override"`
	Problem  string              `json:"problem,omitempty"` // a restart would forget it
}

func newBreakGlass(p *process) *breakGlass {
	p.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatch_override_active",
		Help: "1 while an override is laid over the release here: page after an hour, make a release of it."}, func() float64 {
		if p.keeper.Status().Override != nil {
			return 1
		}
		return 0
	}))
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_override_refused_total",
		Help: "Overrides found in Redis that changed nothing here because they are not signed by us, over, for others or do not fit. When it rises the log says which; if a signature is bad, somebody else writes to Redis."})
	p.registry.MustRegister(refused)
	return &breakGlass{keeper: p.keeper, trust: p.trust, log: p.log, now: p.now, refused: refused}
}

// check is the line of /readyz.
func (b *breakGlass) check() handler.Check {
	return handler.Check{Name: "no override", Probe: func() error {
		s := b.keeper.Status()
		if s.OverrideErr != "" {
			return errors.New(s.OverrideErr)
		}
		o := s.Override
		if o == nil {
			return nil
		}
		return fmt.Errorf("%s is in force until %s, by %s: %s", o.ID, o.Until.UTC().Format(time.RFC3339), o.By, o.Reason)
	}}
}

// run takes an override away when its time is over, and says when one ends by a
// release.
func (b *breakGlass) run(ctx context.Context) error {
	var shown *release.Overriding
	for {
		changed := b.keeper.Changed()
		again := b.keeper.Expire()
		now := b.keeper.Status().Override
		if shown != nil && (now == nil || now.ID != shown.ID) {
			b.log.WarnContext(ctx, "an override is over", "override", shown.ID, "by", shown.By)
		}
		if now != nil && (shown == nil || now.ID != shown.ID) {
			b.log.WarnContext(ctx, "an override is in force", "override", now.ID, "by", now.By, "reason", now.Reason, "until", now.Until,
				"try", "make a release of it soon: POST /api/v1/overrides/reconcile")
		}
		shown = now
		var over <-chan time.Time
		timer := time.NewTimer(time.Until(again))
		if !again.IsZero() {
			over = timer.C
		}
		select {
		case <-changed:
		case <-over:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// listenUnix opens the socket for its owner alone. A socket that nobody answers
// on is left over from a process that was killed.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		if c, dialled := new(net.Dialer).DialContext(ctx, "unix", path); dialled == nil {
			_ = c.Close() // somebody lives there
			return nil, fmt.Errorf("listen for --override-socket: another process answers on %s\ntry: another --data or --override-socket", path)
		}
		info, gone := os.Lstat(path)
		if gone != nil || info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("listen for --override-socket: %w\ntry: another --override-socket; its path has at most about 100 bytes", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen for --override-socket: %w", err)
		}
		if l, err = new(net.ListenConfig).Listen(ctx, "unix", path); err != nil {
			return nil, fmt.Errorf("listen for --override-socket: %w", err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("close %s to others: %w", path, err), l.Close())
	}
	return l, nil
}

// peerKey is where a connection's peer stands in the context of its requests.
type peerKey struct{}

// server answers on the socket.
func (b *breakGlass) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /override", func(w http.ResponseWriter, r *http.Request) { b.answer(w, nil) })
	mux.HandleFunc("POST /override", func(w http.ResponseWriter, r *http.Request) { b.answer(w, b.set(r)) })
	mux.HandleFunc("DELETE /override", func(w http.ResponseWriter, r *http.Request) { b.answer(w, b.clear(r)) })
	s := handler.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := admit(r.Context(), os.Geteuid()); err != nil {
			b.log.WarnContext(r.Context(), "somebody was refused on the override socket", "err", err)
			fault.Write(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	}), b.log)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		uid, err := peerUID(c)
		return context.WithValue(ctx, peerKey{}, peer{uid, err})
	}
	return s
}

// peer is who is at the other end of a connection, as the kernel knows it.
type peer struct {
	uid int
	err error
}

// admit lets own and root in.
func admit(ctx context.Context, own int) error {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok || p.err != nil {
		return fault.New(fault.Denied, "unknown_peer", "the system does not say who is asking").Because(p.err)
	}
	if p.uid != own && p.uid != 0 {
		return fault.New(fault.Denied, "other_login", "%s may not override what this process serves", login(p.uid)).
			WithHint("run the command as " + login(own) + " or root")
	}
	return nil
}

// login is a name that people know, or the number where there is none.
func login(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(uid)
}

// set lays an override over what is served: a plain one in the name of who asks,
// a signed one in that of its key.
func (b *breakGlass) set(r *http.Request) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxOverrideBody))
	if err != nil {
		return fault.New(fault.TooLarge, "bad_override", "the override has more than %d bytes", maxOverrideBody).Because(err)
	}
	o, err := b.read(r.Context(), data)
	if err != nil {
		return err
	}
	return b.keeper.Override(r.Context(), o)
}

func (b *breakGlass) read(ctx context.Context, data []byte) (*release.Override, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return release.OpenOverride(data, b.trust)
	}
	var o release.Override
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return nil, fault.New(fault.Invalid, "bad_override", "the override cannot be read: %v", err)
	}
	asker, _ := ctx.Value(peerKey{}).(peer) // admit has looked
	o.By, o.Created, o.Deployment = login(asker.uid), b.now().UTC().Truncate(time.Second), ""
	if o.Until.IsZero() {
		o.Until = o.Created.Add(overrideLife)
	}
	if o.ID == "" {
		o.ID = newOverrideID()
	}
	return &o, nil
}

// newOverrideID is short enough to be read out over the telephone.
func newOverrideID() string { return "override-" + rand.Text()[:6] }

// clear takes away what is in force.
func (b *breakGlass) clear(r *http.Request) error {
	o := b.keeper.Status().Override
	if o == nil {
		return fault.New(fault.NotFound, "no_override", "no override is in force here")
	}
	if err := b.keeper.Override(r.Context(), nil); err != nil {
		return err
	}
	asker, _ := r.Context().Value(peerKey{}).(peer) // admit has looked
	b.log.WarnContext(r.Context(), "the override was taken away", "override", o.ID, "by", login(asker.uid))
	return nil
}

func (b *breakGlass) answer(w http.ResponseWriter, err error) {
	if err != nil {
		if fault.KindOf(err) == fault.Internal {
			// The one who asks owns the process: nothing is to be kept from them.
			err = fault.New(fault.Unavailable, "override_failed", "%v", err)
		}
		fault.Write(w, err)
		return
	}
	now := b.keeper.Status()
	state := overrideState{Release: now.Number, Override: now.Override, Problem: now.OverrideErr}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state) // the caller has gone; nothing is left to tell them
}
