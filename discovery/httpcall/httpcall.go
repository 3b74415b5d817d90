// Package httpcall sends HTTP requests to services by their names, and takes the
// lane of those that come in:
//
//	client := &http.Client{Transport: httpcall.New(c, nil)} // c is a *caller.Caller
//	client.Get("http://order-core/path")
//
//	http.Server{Handler: httpcall.Middleware(mux)}          // inside
//	http.Server{Handler: httpcall.StripBaggage(mux)}        // at the edge, for callers that are not ours
//
// For each request a Transport picks an instance for the lane of the request's
// context, replaces the name in the URL by its address, and sends the lane on as
// W3C baggage. The Host header stays the name, and so does what an https certificate
// must be for. Connections live in a pool for each service: when the service's rules
// change, all are made anew, once; nothing else ends a healthy one but 90 s without
// a call.
//
// It owns no goroutine beside those of net/http's connections; CloseIdleConnections
// ends them. What fails is told and not tried again: a pick without a match is the
// picker's error as it is, a *route.NoMatch; a call that failed is an *Error with the
// instance. An address instead of a name is refused, unless PassThrough is set. A
// request whose lane cannot be read is answered with 422.
package httpcall

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

// Picker chooses instances. A *caller.Caller is one.
type Picker interface {
	Pick(ctx context.Context, service string) (caller.Pick, error)
	// Lane is the one that Pick goes by: that of the traffic, else the process's own.
	Lane(ctx context.Context) route.Query
}

var _ Picker = (*caller.Caller)(nil)

// Transport is an http.RoundTripper. It may be used by many at once.
type Transport struct {
	// PassThrough sends requests for addresses (a port, an IP address, a name of three
	// or more parts) there. Without it they are refused: business code knows names.
	// Set it before the first request.
	PassThrough bool

	picker   Picker
	base     http.RoundTripper
	services sync.Map // name → *pools
}

// New returns a Transport that picks with p. A base that is an *http.Transport is
// copied for each pool; another is used as it is, and nil is one that suits calls
// between services: 500 ms to connect, no proxy.
func New(p Picker, base http.RoundTripper) *Transport {
	if base == nil {
		base = defaultBase()
	}
	return &Transport{picker: p, base: base}
}

// RoundTrip implements http.RoundTripper. Guards belong here, around attempt:
// another attempt picks again.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.attempt(req)
}

// attempt picks and sends once.
func (t *Transport) attempt(req *http.Request) (*http.Response, error) {
	service := req.URL.Host
	if isAddress(req.URL) {
		if t.PassThrough {
			return t.poolsOf("").now.Load().send.RoundTrip(req)
		}
		closeBody(req)
		return nil, fault.New(fault.Invalid, "address_called", "%s is an address; calls name services", service).
			WithHint("write http://SERVICE/path; an address for tests belongs into the caller's overrides")
	}
	pick, err := t.picker.Pick(req.Context(), service)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	call := &call{service: service, pick: pick}
	ctx := context.WithValue(req.Context(), callKey{}, call)
	resp, err := t.poolFor(service, pick.Number).send.RoundTrip(t.outgoing(ctx, req, call))
	if err != nil {
		return nil, &Error{Service: service, Pick: pick, Err: err}
	}
	resp.Request = req.WithContext(ctx) // with the name: relative redirects stay by name
	return resp, nil
}

// outgoing is a copy of the request for the instance that was picked.
func (t *Transport) outgoing(ctx context.Context, req *http.Request, call *call) *http.Request {
	out := req.WithContext(ctx)
	call.to = *req.URL
	call.to.Host = call.pick.Instance.Address.String()
	out.URL, out.Host = &call.to, cmp.Or(req.Host, call.service)
	lane := baggage.Out(ctx, t.picker.Lane(ctx), req.Header[baggage.Header])
	out.Header = req.Header.Clone()
	if lane != "" {
		if out.Header == nil {
			out.Header = http.Header{}
		}
		out.Header.Set(baggage.Header, lane)
	} else {
		delete(out.Header, baggage.Header)
	}
	return out
}

// isAddress says whether a URL names a place and not a service.
func isAddress(u *url.URL) bool {
	if u.Port() != "" || strings.Count(u.Host, ".") > 1 {
		return true
	}
	_, err := netip.ParseAddr(u.Hostname())
	return err == nil
}

// closeBody keeps to the contract of http.RoundTripper, also where nothing is sent.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // it is not read
	}
}

type callKey struct{}

// call is one attempt, in the context of what is sent.
type call struct {
	service string
	pick    caller.Pick
	to      url.URL
}

// PickOf is the pick that a response came from. ok is false for a response that no
// Transport brought.
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

// Error is a call that failed after its instance was picked.
type Error struct {
	Service string
	Pick    caller.Pick
	Err     error
}

// Error names service and instance.
func (e *Error) Error() string {
	return "call " + e.Service + " at " + e.Pick.Instance.Address.String() + ": " + e.Err.Error()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout says whether the cause is one; package url asks for it.
func (e *Error) Timeout() bool {
	t, ok := e.Err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}
