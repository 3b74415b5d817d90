package wire

import (
	"net/netip"
	"net/url"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// CheckControl returns URLs of fleet listeners without what may follow the port, and
// says what is wrong with them.
func CheckControl(p *fault.Problems, urls []string) (nodes []string) {
	for _, text := range urls {
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https":
			p.Addf("Control", "%q is not https://HOST:PORT of a fleet listener", text)
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			p.Addf("Control", "%s is beyond this machine and would send the token in plain text: use https", u.Host)
		default:
			nodes = append(nodes, u.Scheme+"://"+u.Host)
		}
	}
	return nodes
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
