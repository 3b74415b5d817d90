package handler

import (
	"context"
	"net/http"
	"strings"
	"time"

	"dispatch.example/dispatch/whitelist"
)

// sessionIDHeader is where an app that cannot keep a token says its session's id.
const sessionIDHeader = "X-Session-Id"

// ofSession is what a session id is hashed as; the app's key follows.
const ofSession = "session/"

// sessions keeps the token of a session under a keyed hash of its app and id.
// *fleet.SessionMap has it.
type sessions interface {
	// Get is the token, empty if there is none; not ok: nobody knows. A request
	// waits for it: a few milliseconds at most.
	Get(ctx context.Context, key whitelist.Hash) (token string, ok bool)
	// Put keeps the token for its life. It must not wait.
	Put(key whitelist.Hash, token string, life time.Duration)
}

// readSessionID reads the header. It stands apart from the others so that only
// those who have a session map pay for it.
func (in *inputs) readSessionID(h http.Header) {
	if v := h[sessionIDHeader]; len(v) > 0 {
		in.put(fSessionID, v[0])
	}
}

// recall finds the token of a request that has a session id and no token, and
// says under which key the next one is kept. Where nobody knows whether there is
// a session none is kept, or a moment without Redis would move it for good.
func (h *Handler) recall(r *http.Request, s *scratch) (key whitelist.Hash, ok bool) {
	raw := s.in.value[fSessionID]
	if h.sessions == nil || s.in.value[fSession] != "" || strings.TrimSpace(raw) == "" {
		return key, false
	}
	app := s.dec.app
	id, why := app.IDs.Normalize(raw)
	if why != whitelist.Present {
		s.in.bad.note(badSession)
		return key, false
	}
	key = h.hashID(whitelist.Of(ofSession+app.App.Key), id)
	s.in.value[fSession], ok = h.sessions.Get(r.Context(), key)
	return key, ok
}

// remember keeps what the answer gave. An app's fallback is no session.
func (h *Handler) remember(key whitelist.Hash, s *scratch, life time.Duration) {
	if len(s.session) > 0 && life > 0 {
		h.sessions.Put(key, string(s.session), life)
	}
}
