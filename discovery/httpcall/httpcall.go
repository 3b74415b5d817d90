// Package httpcall sends HTTP requests to services by their names, and takes the
// lane and the trace of those that come in:
//
//	client := &http.Client{Transport: httpcall.New(c, nil)} // c is a *caller.Caller
//	client.Get("http://order-core/path")
//
//	http.Server{Handler: httpcall.Middleware(mux)}          // inside
//	http.Server{Handler: httpcall.StripBaggage(mux)}        // at the edge, for callers that are not ours
//
// For each request a Transport picks an instance for the lane of the request's
// context, replaces the name in the URL by its address, and sends the lane on as
// W3C baggage and the trace as W3C trace context. The Host header stays the name, and
// so does what an https certificate must be for. Connections live in a pool for each
// service: when the service's rules change, all are made anew, once; nothing else ends
// a healthy one but 90 s without a call.
//
// Each call is guarded, see package guard; with settings, log and metrics:
//
//	g, err := guard.New(c, guard.Options{…})
//	transport := httpcall.NewGuarded(g, nil)
//	transport.Degraded = map[string]httpcall.Degraded{"advice": noAdvice}
//
// How an attempt ends, for guard and caller:
//
//	no connection within 500 ms, refused, no TLS     unreachable   tried again, if the body can be had again
//	the deadline passed, before or in the body       silent        no time to try again
//	broken connection, before or in the body         failed        tried again before the body, if idempotent
//	502, 503, 504                                    failed        tried again, if idempotent
//	other 5xx, but 501 and 505                       failed
//	all else, 429 too                                answered
//	the caller gave up                               canceled      says nothing
//	the request's own body broke, or was waited for  canceled
//	a request that net/http does not send            canceled
//	no file descriptor, port or memory here          canceled
//
// A deadline of the caller's own that left less than the service takes (its deadline,
// or 800 ms, what is slow) and passed is silent to the caller, and says nothing about
// instance and breaker either.
//
// A retry says so to the instance, where Middleware notes it: the calls of a request
// that is a retry are not tried again themselves, nor are theirs.
//
// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and what has the header
// Idempotency-Key. The deadline covers the body. The breaker learns of an answer from
// its headers, the instance when its body was read or closed, but the time of an attempt
// is that until the headers: a body that takes long is large, or its reader is slow. A
// stream that lives longer than the deadline of its service needs a deadline of its own.
//
// With an *http.Transport the deadline holds although the request's body does not come:
// the call returns, and a goroutine that such requests have waits until the Read that
// is under way returns. A server that passes bodies on bounds that by its ReadTimeout.
//
// Another goroutine reads the rest of an answer that a retry replaces, until the call
// ends. Beside these there are those of net/http's connections; CloseIdleConnections
// ends them. A peer that leaves what was sent unacknowledged for 3 s is gone, for 15 s
// where more than 16 KiB are sent: a busy one may take nothing for a while.
//
// A call that failed is an *Error, one that was not made a *guard.Open; a pick without
// a match is the caller's error as it is, a *route.NoMatch. A status is no error, as
// with net/http. An address instead of a name is refused, unless PassThrough is set;
// then it is not guarded. A request whose lane cannot be read is answered with 422.
package httpcall

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/internal/fault"
)

// Transport is an http.RoundTripper. It may be used by many at once.
type Transport struct {
	// PassThrough sends requests for addresses (a port, an IP address, a name of three
	// or more parts) there. Without it they are refused: business code knows names.
	// Set it before the first request.
	PassThrough bool
	// Degraded are the values of services whose calls may do without them. Set it
	// before the first request.
	Degraded map[string]Degraded

	guard *guard.Guard
	base  http.RoundTripper

	services atomic.Pointer[map[string]*pools] // by name; the map is replaced, never changed
	mu       sync.Mutex                        // held while it is replaced
}

// New returns a Transport that guards with the default settings. A base that is an
// *http.Transport is copied for each pool, where a connection must be made within
// guard.DialLimit and ends when the other side is silent; another is used as it is,
// and nil is one that suits calls between services: no proxy, many idle connections.
func New(c guard.Caller, base http.RoundTripper) *Transport {
	return NewGuarded(guard.Default(c), base)
}

// NewGuarded is New with a Guard, which may be that of other transports too.
func NewGuarded(g *guard.Guard, base http.RoundTripper) *Transport {
	if base == nil {
		base = defaultBase()
	}
	t := &Transport{guard: g, base: base}
	t.services.Store(&map[string]*pools{})
	return t
}

// Guard is what the calls are guarded by.
func (t *Transport) Guard() *guard.Guard { return t.guard }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isAddress(req.URL) {
		return (&call{transport: t, req: req}).run()
	}
	if t.PassThrough {
		return t.poolsOf("").now.Load().send.RoundTrip(req)
	}
	closeBody(req)
	return nil, fault.New(fault.Invalid, "address_called", "%s is an address; calls name services", req.URL.Host).
		WithHint("write http://SERVICE/path; an address for tests belongs into the caller's overrides")
}

// isAddress says whether a URL names a place and not a service.
func isAddress(u *url.URL) bool {
	return u.Port() != "" || strings.Count(u.Host, ".") > 1 || strings.HasPrefix(u.Host, "[")
}

// closeBody keeps to the contract of http.RoundTripper, also where nothing is sent.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // it is not read
	}
}

// PickOf is the pick that a response came from. ok is false for a response that no
// instance gave.
func PickOf(resp *http.Response) (pick caller.Pick, ok bool) {
	if resp == nil || resp.Request == nil {
		return caller.Pick{}, false
	}
	c, ok := resp.Request.Context().Value(callKey{}).(*call)
	if !ok {
		return caller.Pick{}, false
	}
	return c.pick, true
}
