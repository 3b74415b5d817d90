package httpcall

import (
	"net/http"
	"strings"
	"sync/atomic"

	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/trace"
	"dispatch.example/dispatch/internal/fault"
)

// Middleware puts the lane and the trace of each request into its context. The lane
// counts before the process's own. A request whose lane cannot be read is answered
// with 422; a trace that cannot be read is a new one.
func Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := baggage.In(r.Context(), r.Header[baggage.Header], r.Header.Get(baggage.PersonHeader))
		if err != nil {
			fault.Write(w, err)
			return
		}
		ctx = trace.In(ctx, strings.Join(r.Header[trace.Header], ","), strings.Join(r.Header[trace.StateHeader], ","))
		if r.Header.Get(guard.RetryHeader) != "" {
			ctx = guard.AsRetry(ctx)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// StripBaggage takes the lane out of requests that come from outside: who may be
// routed where is not theirs to say. Baggage of others stays, and so does the trace, of
// which few may say that it is recorded: trace.Door. It stands around Middleware, and
// around handlers of OpenTelemetry, which would believe the flag.
func StripBaggage(next http.Handler) http.Handler {
	door := trace.NewDoor()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside := r.WithContext(r.Context())
		inside.Header = r.Header.Clone()
		inside.Header.Del(baggage.PersonHeader)
		inside.Header.Del(baggage.Header)
		inside.Header.Del(guard.RetryHeader)
		if rest := baggage.Strip(r.Header[baggage.Header]); rest != "" {
			inside.Header.Set(baggage.Header, rest)
		}
		inside.Header.Del(trace.Header)
		if passed := door.Pass(strings.Join(r.Header[trace.Header], ",")); passed != "" {
			inside.Header.Set(trace.Header, passed)
		} else {
			inside.Header.Del(trace.StateHeader)
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
