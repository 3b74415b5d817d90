package probe

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/miekg/dns"
)

// systemDNS names the servers that resolve names for this machine.
const systemDNS = "/etc/resolv.conf"

// maxAliases bounds a chain of CNAMEs.
const maxAliases = 8

// resolver asks DNS itself: only the answer shows an alias of a name that does not
// exist, and no file of this machine hides it.
type resolver struct {
	servers []string
	port    uint16
}

func newResolver(server string, port int) (*resolver, error) {
	r := &resolver{port: uint16(port)}
	if server != "" {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(server, "53")
		}
		r.servers = []string{server}
		return r, nil
	}
	system, err := dns.ClientConfigFromFile(systemDNS)
	if err != nil {
		return nil, fmt.Errorf("find the DNS servers of this machine: %w", err)
	}
	for _, s := range system.Servers {
		r.servers = append(r.servers, net.JoinHostPort(s, system.Port))
	}
	return r, nil
}

// dangling is an alias of a name that does not exist.
type dangling struct{ host, target string }

// Error names both.
func (d dangling) Error() string {
	return d.host + " is an alias of " + d.target + ", which does not exist"
}

// noAnswer is a server that did not say.
type noAnswer struct{ error }

// Unwrap is the cause.
func (n noAnswer) Unwrap() error { return n.error }

// lookup is the host's addresses: IPv4, and IPv6 where there is no other.
func (r *resolver) lookup(ctx context.Context, host string) ([]netip.AddrPort, error) {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		addrs, err := r.addresses(ctx, host, kind)
		if err != nil || len(addrs) > 0 {
			return addrs, err
		}
	}
	return nil, nil
}

// addresses follows aliases, which a server that resolves does by itself.
func (r *resolver) addresses(ctx context.Context, host string, kind uint16) ([]netip.AddrPort, error) {
	name := dns.Fqdn(host)
	for range maxAliases {
		answer, err := r.ask(ctx, name, kind)
		if err != nil {
			return nil, err
		}
		asked, addrs := name, []netip.AddrPort{}
		for _, record := range answer.Answer {
			switch record := record.(type) {
			case *dns.CNAME:
				if dns.CanonicalName(record.Hdr.Name) == dns.CanonicalName(name) {
					name = record.Target
				}
			case *dns.A:
				addrs = r.add(addrs, record.A)
			case *dns.AAAA:
				addrs = r.add(addrs, record.AAAA)
			}
		}
		switch {
		case len(addrs) > 0:
			return addrs, nil
		case answer.Rcode == dns.RcodeNameError && name != dns.Fqdn(host):
			return nil, dangling{host, name[:len(name)-1]}
		case answer.Rcode == dns.RcodeNameError, name == asked:
			return nil, nil
		}
	}
	return nil, noAnswer{fmt.Errorf("%s is an alias of an alias, more than %d times", host, maxAliases)}
}

func (r *resolver) add(addrs []netip.AddrPort, ip net.IP) []netip.AddrPort {
	if addr, ok := netip.AddrFromSlice(ip); ok {
		addrs = append(addrs, netip.AddrPortFrom(addr.Unmap(), r.port))
	}
	return addrs
}

// ask asks one server after the other, and again over TCP what did not fit.
func (r *resolver) ask(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	question := new(dns.Msg).SetQuestion(name, kind)
	question.SetEdns0(1232, false) // DNS flag day 2020: what passes unfragmented
	var failed error
	for _, server := range r.servers {
		answer, _, err := new(dns.Client).ExchangeContext(ctx, question, server)
		if err == nil && answer.Truncated {
			answer, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, question, server)
		}
		if err == nil && answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
			err = fmt.Errorf("%s answers %s", server, cmp.Or(dns.RcodeToString[answer.Rcode], strconv.Itoa(answer.Rcode)))
		}
		if err == nil {
			return answer, nil
		}
		failed = err
	}
	return nil, noAnswer{fmt.Errorf("look up %s: %w", name, failed)}
}
