package httpcall

import (
	"net/http"
	"sync/atomic"

	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/internal/fault"
)

// Middleware puts the lane of each request into its context, where it counts before
// the process's own. A request whose lane cannot be read is answered with 422.
func Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := baggage.In(r.Context(), r.Header[baggage.Header], r.Header.Get(baggage.PersonHeader))
		if err != nil {
			fault.Write(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// StripBaggage takes the lane out of requests that come from outside: who may be
// routed where is not theirs to say. Baggage of others stays.
func StripBaggage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside := r.WithContext(r.Context())
		inside.Header = r.Header.Clone()
		inside.Header.Del(baggage.PersonHeader)
		inside.Header.Del(baggage.Header)
		if rest := baggage.Strip(r.Header[baggage.Header]); rest != "" {
			inside.Header.Set(baggage.Header, rest)
		}
		next.ServeHTTP(w, inside)
	})
}

// Count counts the requests in work, for the load that heartbeats report.
func Count(inWork *atomic.Int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inWork.Add(1)
		defer inWork.Add(-1)
		next.ServeHTTP(w, r)
	})
}
