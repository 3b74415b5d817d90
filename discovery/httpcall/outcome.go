package httpcall

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/outlier"
)

// outcomeOf is what an attempt, or the body of its answer, says about the instance.
func (c *call) outcomeOf(resp *http.Response, err error) caller.Outcome {
	if err == nil {
		if failing(resp.StatusCode) {
			return caller.Failed
		}
		return caller.Answered
	}
	timeout, _ := errors.AsType[net.Error](err)
	switch gone := c.req.Context().Err(); {
	case gone != nil && !errors.Is(gone, context.DeadlineExceeded):
		return caller.Canceled
	case c.now.feed.starved(), outlier.OwnFault(err), !sendable(c.req):
		return caller.Canceled
	case c.ctx.Err() != nil:
		return caller.Silent
	case c.unsent(err):
		return caller.Unreachable
	case timeout != nil && timeout.Timeout(): // of the base
		return caller.Silent
	}
	return caller.Failed
}

// sendable says whether net/http sends such a request at all. A header with a line feed
// in it, that somebody typed, is no failure of who would have got it.
func sendable(req *http.Request) bool {
	for name, values := range req.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			return false
		}
	}
	return (req.URL.Scheme == "http" || req.URL.Scheme == "https") && (req.Method == "" || httpguts.ValidHeaderFieldName(req.Method)) // both are tokens
}

// failing says whether a status means that the instance cannot: a 501 or 505 is about
// what was asked.
func failing(status int) bool {
	return status >= 500 && status < 600 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported
}

// passing says whether another instance may do better.
func passing(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// unsent says whether there was no connection, so that nothing was sent. A connection
// to a server that cannot prove its name is none. What net/http itself sent before on
// one that broke could be sent again, or it had not begun anew.
func (c *call) unsent(err error) bool {
	switch c.now.stage.Load() {
	case asked:
		return true
	case got:
		return false
	}
	if _, ok := errors.AsType[*unconnected](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err) // of a base that is not ours
	return ok && op.Op == "dial"
}

// idempotent says whether a request may be sent twice although the first may have
// had its effect.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != ""
}
