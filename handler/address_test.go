package handler

import (
	"net/http"
	"net/netip"
	"testing"
)

func testProxies(prefixes ...string) proxies {
	var out []netip.Prefix
	for _, p := range prefixes {
		out = append(out, netip.MustParsePrefix(p))
	}
	return newProxies(out)
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	inside := testProxies("10.0.0.0/8", "fd00::/8", "::ffff:192.168.0.0/112")
	for _, tc := range []struct {
		name    string
		trusted proxies
		peer    string
		xff     []string
		fwd     []string
		want    string
		source  string
		proxy   bool
		bad     bool
	}{
		{name: "e42 nobody is trusted", peer: "1.2.3.4:5", xff: []string{"10.0.0.1"}, want: "1.2.3.4", source: "peer"},
		{name: "e42 right-most untrusted", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"9.9.9.9, 5.6.7.8, 10.0.0.7"}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
		{name: "untrusted peer, trusted entries", trusted: inside, peer: "8.8.8.8:1", xff: []string{"10.0.0.1"}, want: "8.8.8.8", source: "peer"},
		{name: "two lines are one list", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"9.9.9.9", "5.6.7.8, 10.0.0.7"}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
		{name: "the client's own line does not reach past the proxy's", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"10.0.0.1, 7.7.7.7", "5.6.7.8"}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
		{name: "all trusted: the left-most", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"10.0.0.9, 10.0.0.7"}, want: "10.0.0.9", source: "x-forwarded-for", proxy: true},
		{name: "unreadable entry ends the walk", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"9.9.9.9, junk, 10.0.0.7"}, want: "10.0.0.7", source: "x-forwarded-for", proxy: true, bad: true},
		{name: "unreadable last entry leaves the peer", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"9.9.9.9, unknown"}, want: "10.0.0.5", source: "peer", proxy: true, bad: true},
		{name: "empty entries are ignored", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"5.6.7.8, ,", " "}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
		{name: "blank line beside Forwarded", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{""}, fwd: []string{"for=9.9.9.9"}, want: "10.0.0.5", source: "peer", proxy: true},
		{name: "no header", trusted: inside, peer: "10.0.0.5:1", want: "10.0.0.5", source: "peer", proxy: true},
		{name: "entry with port", trusted: inside, peer: "10.0.0.5:1", xff: []string{"5.6.7.8:4711"}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
		{name: "bracketed entry", trusted: inside, peer: "10.0.0.5:1", xff: []string{"[2001:db8::1]"}, want: "2001:db8::1", source: "x-forwarded-for", proxy: true},
		{name: "e43 mapped peer is trusted", trusted: inside, peer: "[::ffff:10.0.0.5]:1",
			xff: []string{"::ffff:172.23.0.7"}, want: "172.23.0.7", source: "x-forwarded-for", proxy: true},
		{name: "e43 mapped prefix ends", trusted: inside, peer: "192.169.1.1:1", xff: []string{"5.6.7.8"}, want: "192.169.1.1", source: "peer"},
		{name: "e43 mapped prefix contains", trusted: inside, peer: "192.168.0.9:1", xff: []string{"5.6.7.8"}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
		{name: "e43 long form", trusted: inside, peer: "10.0.0.5:1", xff: []string{"2001:0DB8:0:0::1"}, want: "2001:db8::1", source: "x-forwarded-for", proxy: true},
		{name: "e43 zone", peer: "[fe80::1%eth0]:1", want: "fe80::1", source: "peer"},
		{name: "e43 zone in an entry", trusted: inside, peer: "10.0.0.5:1", xff: []string{"fe80::1%eth0"}, want: "fe80::1", source: "x-forwarded-for", proxy: true},
		{name: "unix socket", trusted: inside, peer: "@", xff: []string{"5.6.7.8"}, want: "invalid IP"},

		{name: "forwarded", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`for=9.9.9.9, For="5.6.7.8:80";proto=https;by=10.0.0.1, for=10.0.0.7`}, want: "5.6.7.8", source: "forwarded", proxy: true},
		{name: "forwarded, quoted IPv6", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`proto=http; for="[2001:db8:cafe::17]:4711"`}, want: "2001:db8:cafe::17", source: "forwarded", proxy: true},
		{name: "forwarded, comma and semicolon in quotes", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`for=5.6.7.8;ext="a,b;for=9.9.9.9\""`}, want: "5.6.7.8", source: "forwarded", proxy: true},
		{name: "forwarded, hidden node ends the walk", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`for=9.9.9.9, for=_hidden, for=10.0.0.7`}, want: "10.0.0.7", source: "forwarded", proxy: true, bad: true},
		{name: "forwarded, element without for", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`for=9.9.9.9, proto=https`}, want: "10.0.0.5", source: "peer", proxy: true, bad: true},
		{name: "forwarded, a quote opened by the client swallows nothing", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`for=9.9.9.9;x=", for="[2001:db8::1]"`}, want: "10.0.0.5", source: "peer", proxy: true, bad: true},
		{name: "forwarded, a quote opened on the client's line", trusted: inside, peer: "10.0.0.5:1",
			fwd: []string{`for=9.9.9.9;x="`, `for=5.6.7.8`}, want: "5.6.7.8", source: "forwarded", proxy: true, bad: true},
		{name: "X-Forwarded-For before Forwarded", trusted: inside, peer: "10.0.0.5:1",
			xff: []string{"5.6.7.8"}, fwd: []string{"for=9.9.9.9"}, want: "5.6.7.8", source: "x-forwarded-for", proxy: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &http.Request{RemoteAddr: tc.peer, Header: http.Header{}}
			if tc.xff != nil {
				r.Header["X-Forwarded-For"] = tc.xff
			}
			if tc.fwd != nil {
				r.Header["Forwarded"] = tc.fwd
			}
			got := tc.trusted.client(r)
			if got.addr.String() != tc.want || got.source != tc.source || got.trusted != tc.proxy || got.bad != tc.bad {
				t.Errorf("client = %v from %q trusted %v bad %v, want %s from %q %v %v",
					got.addr, got.source, got.trusted, got.bad, tc.want, tc.source, tc.proxy, tc.bad)
			}
		})
	}
}

// FuzzClientAddress holds the property that makes forwarded headers safe: what
// the client wrote to the left never changes what our own proxy wrote to the right.
func FuzzClientAddress(f *testing.F) {
	for _, seed := range []string{"", "9.9.9.9", "junk,", `for="`, `for=9.9.9.9;x="\`, "10.0.0.1", "::ffff:1.2.3.4", "fe80::1%eth0", "[::1]:80", `for="[2001:db8::1]:_x"`} {
		f.Add(seed)
	}
	trusted := testProxies("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, written string) {
		for _, header := range []struct{ name, ours string }{
			{"X-Forwarded-For", "5.6.7.8"},
			{"Forwarded", "for=5.6.7.8"},
		} {
			r := &http.Request{RemoteAddr: "10.0.0.5:1", Header: http.Header{header.name: {written, header.ours}}}
			if got := trusted.client(r).addr.String(); got != "5.6.7.8" {
				t.Errorf("%s: %q moved the client to %s", header.name, written, got)
			}
			// On one line, a quote that the client opened may hide the client behind
			// the proxy's own address, but never show an address of its choice.
			r.Header[header.name] = []string{written + ", " + header.ours}
			if got := trusted.client(r).addr.String(); got != "5.6.7.8" && got != "10.0.0.5" {
				t.Errorf("%s: %q on one line moved the client to %s", header.name, written, got)
			}
		}
	})
}
