// Package signin knows who a browser is: sessions kept on the server, passwords
// with a second factor, and an identity provider.
package signin

import (
	"net/http"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
)

// Visitor is who has signed in.
type Visitor struct {
	actions.Actor
	Display    string    // name for people
	Armed      time.Time // until then no second factor is asked for in an emergency
	MustChange bool      // signed in with a one-time password: only the page that changes it opens
}

// SignIn keeps sessions.
type SignIn struct{}

// Visitor is who sends the request; nobody is fault.Unauthenticated.
func (s *SignIn) Visitor(r *http.Request) (Visitor, error) {
	return Visitor{}, fault.New(fault.Unauthenticated, "signed_out", "nobody is signed in").WithHint("sign in at /login") // unbuilt
}
