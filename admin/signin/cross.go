package signin

import (
	"net/http"

	"dispatch.example/dispatch/internal/fault"
)

// Check refuses a write that another site may have sent from somebody's browser.
// Browsers say where a request comes from, in Sec-Fetch-Site or in Origin.
// http.CrossOriginProtection lets a request through that has neither, since no
// browser of today sends one; with a session's cookie it is refused.
// A bearer token is nothing that a browser sends by itself.
func (s *SignIn) Check(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	if r.Header.Get("Authorization") != "" {
		return nil
	}
	refused := fault.New(fault.Denied, "cross_origin", "the request seems to come from another site").
		WithHint("open the console in a tab of its own; a proxy in front must pass Host and Origin on as they came")
	if err := s.cross.Check(r); err != nil {
		return refused.Because(err)
	}
	if _, none := r.Cookie(cookieName); none == nil && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return refused
	}
	return nil
}
