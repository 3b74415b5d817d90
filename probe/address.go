package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// allowed are the networks in which hosts may lie although they are private.
type allowed []netip.Prefix

// never are networks that no option opens: nothing of a bank serves apps there, and
// a metadata service does.
var never = [...]netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), // link-local; metadata of most clouds
	netip.MustParsePrefix("fe80::/10"),      // link-local
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("fd00:ec2::254/128"),
	netip.MustParsePrefix("0.0.0.0/8"),   // this machine, by another name
	netip.MustParsePrefix("224.0.0.0/4"), // multicast
	netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved, broadcast
	netip.MustParsePrefix("::/96"),          // IPv4 inside IPv6: what is dialled then is decided elsewhere
	netip.MustParsePrefix("64:ff9b::/96"),   // the same, by NAT64
	netip.MustParsePrefix("64:ff9b:1::/48"), // the same, local
	netip.MustParsePrefix("2001::/32"),      // the same, by Teredo
	netip.MustParsePrefix("2002::/16"),      // the same, by 6to4
}

// inner are networks that only an option opens.
var inner = [...]netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared, RFC 6598
	netip.MustParsePrefix("192.0.0.0/24"),  // protocol assignments
	netip.MustParsePrefix("198.18.0.0/15"), // benchmarks
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

// check refuses an address that no probe may go to. ::ffff:127.0.0.1 is 127.0.0.1.
func (a allowed) check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case addr == netip.IPv6Loopback(): // it lies in ::/96, too
	case slices.ContainsFunc(never[:], in):
		return fmt.Errorf("%s is link-local or reserved, where nothing serves apps", addr)
	}
	if slices.ContainsFunc(inner[:], in) && !slices.ContainsFunc(a, in) {
		return fmt.Errorf("%s is private, and --probe-allow does not name its network", addr)
	}
	return nil
}

// control is for net.Dialer: it sees the address that is about to be dialled.
func (a allowed) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return blocked{fmt.Errorf("read address %q: %w", address, err)}
	}
	if err := a.check(to.Addr()); err != nil {
		return blocked{err}
	}
	return nil
}

// blocked is the refusal to dial.
type blocked struct{ error }

// Unwrap is why.
func (b blocked) Unwrap() error { return b.error }
