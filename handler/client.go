package handler

import (
	"net/http"
	"net/netip"
)

// ClientAddress finds the client of a request, as decisions do, for other listeners:
// the peer, unless that is one of the trusted proxies.
func ClientAddress(trusted []netip.Prefix) func(*http.Request) netip.Addr {
	p := newProxies(trusted)
	return func(r *http.Request) netip.Addr { return p.client(r).addr }
}
