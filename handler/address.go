package handler

import (
	"net/http"
	"net/netip"
	"strings"
)

// proxies are the networks whose word about the client is believed.
type proxies []netip.Prefix

// newProxies brings prefixes into the form that contain compares: IPv4 written
// as IPv6 becomes IPv4, host bits go.
func newProxies(prefixes []netip.Prefix) proxies {
	out := make(proxies, 0, len(prefixes))
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out = append(out, p.Masked())
	}
	return out
}

func (p proxies) contain(a netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// The sources of an address, as decision records and explain name them.
const (
	sourcePeer         = "peer"
	sourceForwardedFor = "x-forwarded-for"
	sourceForwarded    = "forwarded"
)

// origin is where a request came from.
type origin struct {
	addr    netip.Addr // of the client, without zone, IPv4 as IPv4; invalid when nothing is known
	source  string     // what gave addr; empty with an invalid one
	trusted bool       // the TCP peer is one of our proxies
	bad     bool       // a forwarded entry could not be read
}

// client finds the address of the client: the TCP peer, unless that is one of
// our proxies; then the right-most address of the forwarded chain that is not.
// An entry that cannot be read ends the walk at the last good one, because
// everything left of it was written by somebody we cannot name.
//
// X-Forwarded-For is used when it is there at all, else Forwarded. A proxy that
// writes only Forwarded must remove X-Forwarded-For, as it must remove every
// header of that kind that it does not write.
func (p proxies) client(r *http.Request) origin {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return origin{}
	}
	o := origin{addr: plain(peer.Addr()), source: sourcePeer}
	if o.trusted = p.contain(o.addr); !o.trusted {
		return o
	}
	c, source := chain{trusted: p}, sourceForwardedFor
	if lines := r.Header["X-Forwarded-For"]; len(lines) > 0 {
		for _, line := range lines {
			c.forwardedFor(line)
		}
	} else {
		source = sourceForwarded
		for _, line := range r.Header["Forwarded"] {
			c.forwarded(line)
		}
	}
	if c.at.IsValid() {
		o.addr, o.source = c.at, source
	}
	o.bad = c.bad
	return o
}

// chain reads forwarded entries from left to right and keeps what a walk from
// right to left would stop at: each untrusted or unreadable entry starts anew.
type chain struct {
	trusted proxies
	at      netip.Addr
	bad     bool
}

func (c *chain) hop(entry string) {
	a, ok := parseHop(entry)
	switch {
	case !ok:
		c.at, c.bad = netip.Addr{}, true
	case !c.at.IsValid() || !c.trusted.contain(a):
		c.at = a
	}
}

// forwardedFor reads one X-Forwarded-For line. Empty entries are ignored (RFC 9110, 5.6.1.2).
func (c *chain) forwardedFor(line string) {
	for entry := range strings.SplitSeq(line, ",") {
		if entry = strings.Trim(entry, " \t"); entry != "" {
			c.hop(entry)
		}
	}
}

// forwarded reads one Forwarded line (RFC 7239). An element without for, or
// with a quote that never ends, is an entry that cannot be read: a client must
// not swallow the proxy's element into a string that the client opened.
func (c *chain) forwarded(line string) {
	for more := true; more; {
		var element string
		var closed bool
		element, line, more, closed = cutQuoted(line, ',')
		if strings.Trim(element, " \t") == "" {
			continue
		}
		if !closed {
			c.hop("")
			continue
		}
		c.hop(forOf(element))
	}
}

// forOf is the node of an element's for parameter, or empty.
func forOf(element string) string {
	for more := true; more; {
		var pair string
		pair, element, more, _ = cutQuoted(element, ';')
		name, value, _ := strings.Cut(pair, "=")
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			value = strings.Trim(value, " \t")
			if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			return value
		}
	}
	return ""
}

// cutQuoted cuts s at the first sep outside double quotes. closed is false when
// a quote was still open at the end of before.
func cutQuoted(s string, sep byte) (before, after string, found, closed bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true, true
		}
	}
	return s, "", false, !quoted
}

// parseHop reads an address with or without brackets and port.
func parseHop(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return plain(a), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plain(ap.Addr()), true
	}
	if n := len(s); n > 2 && s[0] == '[' && s[n-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : n-1]); err == nil && a.Is6() {
			return plain(a), true
		}
	}
	return netip.Addr{}, false
}

// plain is the form in which addresses are compared and looked up.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
