package main

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// Validate completes the defaults that depend on other flags and names
// everything wrong at once. kong calls it after parsing.
func (c *serveCmd) Validate() error {
	var p fault.Problems
	c.proxies = nil
	for _, s := range c.TrustedProxies {
		prefix, err := parsePrefix(s)
		if err != nil {
			p.Addf("--trusted-proxies", "%q is not an address or CIDR", s)
			continue
		}
		c.proxies = append(c.proxies, prefix)
	}
	if !c.Demo && len(c.AllowedSuffixes) == 0 {
		p.Addf("--allowed-suffixes", "is required: name the suffixes your domains lie under, such as bank.example")
	}
	if c.Role.controls() {
		c.validateControl(&p)
	} else {
		c.validateEdge(&p)
	}
	if c.MaxConnections < 1 {
		p.Addf("--max-connections", "%d would answer nobody", c.MaxConnections)
	}
	if c.Demo && c.Role != roleAll {
		p.Addf("--demo", "runs everything in one process; leave --role out")
	}
	c.Fleet.validate(&p, c.Role)
	c.Inner.InnerRegion = cmp.Or(c.Inner.InnerRegion, c.Region)
	c.Inner.validate(&p, c.Role)
	c.Gray.validate(&p, c.Role)
	c.Probe.validate(&p)
	c.Trace.validate(&p, c.Role)
	if place := c.replica(); strings.HasPrefix(c.Fleet.Discovery, "consul:") && (place.Cluster == "" || place.Region == "" || place.Env == "" || place.Version == "") {
		p.Addf("--discovery", "enters this replica with its coordinates: give --cluster, --region, --env and --version-label")
	}
	return p.Err("bad_flags", "the command line is wrong:")
}

// validateControl looks at the flags of what takes changes.
func (c *serveCmd) validateControl(p *fault.Problems) {
	for _, name := range c.AdminHosts {
		if problem := hostProblem(name); problem != "" {
			p.Addf("--admin-hosts", "%q %s", name, problem)
		}
	}
	c.SignIn.validate(p)
	dialect, _, ok := strings.Cut(c.DB, ":")
	if c.DB != "" && (!ok || (dialect != "sqlite" && dialect != "mysql")) {
		p.Addf("--db", "must be sqlite:FILE or mysql:DSN")
	}
	if c.FourEyes == "off" && dialect == "mysql" {
		p.Addf("--four-eyes", "off is for SQLite only; with MySQL two people approve every host")
	}
	if c.Demo && dialect == "mysql" {
		p.Addf("--demo", "runs on SQLite only; leave --db out")
	}
	if c.Fleet.TrustKeys != "" {
		p.Addf("--trust-keys", "is for --role edge; this role trusts its own publisher and record keys")
	}
}

// validateEdge refuses what an edge must not have: whoever breaks into one must
// find no way to the database and no key that signs.
func (c *serveCmd) validateEdge(p *fault.Problems) {
	for _, f := range []struct{ flag, value string }{
		{"--db", c.DB}, {"--publisher-key-file", c.PublisherKeyFile}, {"--record-key-file", c.RecordKeyFile},
		{"--list-seal-key-file", c.ListSealKeyFile}, {"--bootstrap", c.Bootstrap}, {"--audit-sink", c.AuditSink},
		{"--oidc-issuer", c.SignIn.OIDCIssuer}, {"--oidc-client-secret-file", c.SignIn.OIDCClientSecretFile},
	} {
		if f.value != "" {
			p.Addf(f.flag, "is for a control node; an edge must not have it")
		}
	}
	if c.FourEyes == "off" {
		p.Addf("--four-eyes", "is for a control node; an edge must not have it")
	}
	if c.Fleet.TrustKeys == "" {
		p.Addf("--trust-keys", "is required: the file that dispatch keys export prints on a control node")
	}
	if !c.Fleet.sources() {
		p.Addf("--control", "an edge needs somewhere to get releases from: --control, --discovery, --redis or several of them")
	}
}

func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return prefix.Masked(), nil
}

// validate looks at the flags that connect nodes.
func (f *fleetFlags) validate(p *fault.Problems, r role) {
	host, _, err := net.SplitHostPort(f.FleetListen)
	if err != nil {
		p.Addf("--fleet-listen", "%q is not an address like 127.0.0.1:8083", f.FleetListen)
	}
	if (f.FleetTLSCert == "") != (f.FleetTLSKey == "") {
		p.Addf("--fleet-tls-cert", "needs --fleet-tls-key, and the other way round")
	}
	if r.controls() && err == nil && !loopback(host) && f.FleetTLSCert == "" {
		p.Addf("--fleet-listen", "%s can be reached from other machines, and plain text is for loopback only: give --fleet-tls-cert and --fleet-tls-key", f.FleetListen)
	}
	for _, control := range f.Control {
		if problem := controlProblem(control); problem != "" {
			p.Addf("--control", "%s", problem)
		}
	}
	if scheme, _, ok := strings.Cut(f.Discovery, ":"); f.Discovery != "" && (!ok || (scheme != "static" && scheme != "consul")) {
		p.Addf("--discovery", "must be static:FILE or consul://HOST:PORT")
	}
	f.validateRedis(p)
	if f.CanaryTime < 0 {
		p.Addf("--canary-time", "%s is less than nothing", f.CanaryTime)
	}
}

// controlProblem says why the fleet listener at a URL must not be asked, empty if
// it may: the question carries the token.
func controlProblem(control string) string {
	switch u, err := url.Parse(control); {
	case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || (u.Scheme != "http" && u.Scheme != "https"):
		return fmt.Sprintf("%q is not a URL like https://control-1:8083", control)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return control + " is another machine, and plain text is for loopback only: https://…"
	}
	return ""
}

func (f *fleetFlags) validateRedis(p *fault.Problems) {
	if scheme, _, ok := strings.Cut(f.Redis, "://"); f.Redis != "" && (!ok || !redisSchemes[scheme]) {
		p.Addf("--redis", "must be redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
	}
	if f.SessionMap == "redis" && f.Redis == "" {
		p.Addf("--session-map", "redis needs --redis")
	}
}

var redisSchemes = map[string]bool{"redis": true, "rediss": true, "unix": true,
	"redis+sentinel": true, "rediss+sentinel": true, "redis+cluster": true, "rediss+cluster": true}

// loopback says whether only this machine reaches the host. A name may lead
// anywhere, but for the one that means this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
