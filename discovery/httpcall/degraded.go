package httpcall

import (
	"errors"
	"net/http"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
)

// DegradedHeader flags a degraded value, with why: breaker, nobody, unreachable,
// failed or silent.
const DegradedHeader = "Dispatch-Degraded"

// Degraded answers a request whose service cannot, from memory: nothing limits it.
// why is a *guard.Open, a *route.NoMatch or an *Error. The body of the request is
// gone. Without a response, or with an error, the call ends as it did. The response and
// its header are copied, so they may be those of other calls too; a body may not.
type Degraded func(req *http.Request, why error) (*http.Response, error)

// DegradedOf is why a response is a degraded value; empty if it is none. A service
// that hands such a value on may hand the flag on too.
func DegradedOf(resp *http.Response) string {
	if resp == nil {
		return ""
	}
	return resp.Header.Get(DegradedHeader)
}

// instead is the end of a call that failed: the degraded value of its service, or
// the response, or why it failed.
func (c *call) instead(resp *http.Response, why error) (*http.Response, error) {
	value := c.transport.Degraded[c.req.URL.Host]
	reason := reasonOf(why)
	if value != nil && reason != "" {
		if instead, err := value(c.req, why); err == nil && instead != nil {
			if resp != nil {
				_ = resp.Body.Close() // another answer takes its place
			}
			c.transport.guard.Degraded(c.req.URL.Host, reason)
			return flagged(instead, c.req, reason), nil
		}
	}
	if resp != nil {
		return resp, nil
	}
	return nil, why
}

// reasonOf is the flag of a failure; empty for one that no value may hide: the caller
// gave up, or is set up wrongly.
func reasonOf(why error) string {
	if _, ok := errors.AsType[*guard.Open](why); ok {
		return guard.Refused
	}
	if _, ok := errors.AsType[*route.NoMatch](why); ok {
		return guard.Nobody
	}
	if failed, ok := errors.AsType[*Error](why); ok && failed.Outcome != caller.Canceled {
		return failed.Outcome.String()
	}
	return ""
}

// flagged is a copy of a value with what http.RoundTripper promises.
func flagged(value *http.Response, req *http.Request, reason string) *http.Response {
	copied := *value
	resp := &copied
	resp.Header = value.Header.Clone()
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Header.Set(DegradedHeader, reason)
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if resp.StatusCode == 0 {
		resp.StatusCode = http.StatusOK
	}
	if resp.Status == "" {
		resp.Status = http.StatusText(resp.StatusCode)
	}
	if resp.Proto == "" {
		resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.1", 1, 1
	}
	resp.Request = req
	return resp
}
