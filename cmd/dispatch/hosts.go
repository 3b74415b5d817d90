package main

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// hostNames are the names that a listener answers to, without ports: an SSH
// tunnel has another one. A page that made its own name lead to this machine
// still sends its own name, and gets nothing.
type hostNames map[string]bool

// newHostNames are the names that the flag gives. Without any they are the
// listener's own: the addresses it can be reached at, its name, and loopback.
func newHostNames(given []string, listener net.Addr, flag string) hostNames {
	names := hostNames{}
	for _, name := range given {
		names[plainHost(name)] = true
	}
	if len(given) > 0 {
		return names
	}
	host, _, _ := net.SplitHostPort(flag) // it was listened on
	for _, name := range []string{"localhost", "127.0.0.1", "::1", host} {
		names[plainHost(name)] = true
	}
	delete(names, "") // the host of :8081
	tcp, ok := listener.(*net.TCPAddr)
	if ok && !tcp.IP.IsUnspecified() {
		names[plainHost(tcp.IP.String())] = true
		return names
	}
	if name, err := os.Hostname(); err == nil {
		names[plainHost(name)] = true
	}
	own, _ := net.InterfaceAddrs() // without them --admin-hosts is needed, which the refusal says
	for _, addr := range own {
		if network, ok := addr.(*net.IPNet); ok {
			names[plainHost(network.IP.String())] = true
		}
	}
	return names
}

// plainHost is a name or address in the one form that is compared.
func plainHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(host)
}

// only lets requests through that name this listener. net/http has refused two
// Hosts, and of a request in absolute form r.Host is the host of its URI.
func (n hostNames) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := plainHost((&url.URL{Host: r.Host}).Hostname())
		if n[host] {
			next.ServeHTTP(w, r)
			return
		}
		fault.Write(w, fault.New(fault.Misdirected, "unknown_host", "this listener does not answer to the Host of the request").
			WithHint("use the address of --admin-listen, or start with --admin-hosts and the names that people use"))
	})
}

// hostProblem says why a name cannot be in --admin-hosts, empty if it can.
func hostProblem(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return ""
	}
	if u, err := url.Parse("//" + name); err != nil || name == "" || u.Host != name || u.Port() != "" || strings.ContainsAny(name, "*:@[]") {
		return "must be a name or an address, without scheme, port or pattern"
	}
	return ""
}
