package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"dispatch.example/dispatch/discovery/caller"
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
	case c.ctx.Err() != nil:
		return caller.Silent
	case unsent(err):
		return caller.Unreachable
	case timeout != nil && timeout.Timeout(): // of the base
		return caller.Silent
	}
	return caller.Failed
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
// to a server that cannot prove its name is none.
func unsent(err error) bool {
	if _, ok := errors.AsType[*unconnected](err); ok {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" { // of a base that is not ours
		return true
	}
	_, name := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return name || plain || alert
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
