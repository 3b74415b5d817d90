package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/probe"
)

// probeFlags say how hosts are probed.
type probeFlags struct {
	Probes     string        `enum:"on,off" default:"on" help:"A control node probes every registered host (DNS, TLS, HTTPS); off also leaves out the rules that judge by it. With --demo only the demo's own hosts on this machine are probed."`
	ProbeEvery time.Duration `default:"5s" help:"How often each host is probed, 30 % earlier or later; at least 1s, and at most 10s so that what is known stays fresh."`
	ProbePath  string        `default:"/" help:"What is asked for; any answer below 500 says that the host is up."`
	ProbePort  int           `default:"443" help:"Port that hosts are probed on."`
	ProbeAllow []string      `placeholder:"CIDR" help:"Private networks in which hosts may lie; others are never connected to."`
	ProbeCA    string        `name:"probe-ca" env:"DISPATCH_PROBE_CA" placeholder:"FILE" help:"Who must have signed the certificates of hosts (default: those whom this machine believes)."`
	ProbeDNS   string        `name:"probe-dns" env:"DISPATCH_PROBE_DNS" placeholder:"ADDRESS" help:"DNS server that resolves hosts (default: those of /etc/resolv.conf)."`

	// A demo sends all hosts to itself.
	lookup func(ctx context.Context, host string) ([]netip.AddrPort, error)
	roots  *x509.CertPool
	allow  []netip.Prefix
}

func (f *probeFlags) validate(p *fault.Problems) {
	f.allow = nil
	for _, s := range f.ProbeAllow {
		prefix, err := parsePrefix(s)
		if err != nil {
			p.Addf("--probe-allow", "%q is not an address or CIDR", s)
			continue
		}
		f.allow = append(f.allow, prefix)
	}
	if f.ProbeEvery < time.Second || f.ProbeEvery > 10*time.Second {
		p.Addf("--probe-every", "%s is not between 1s and 10s", f.ProbeEvery)
	}
	if f.ProbePort < 1 || f.ProbePort > 65535 {
		p.Addf("--probe-port", "%d is no port", f.ProbePort)
	}
	if !strings.HasPrefix(f.ProbePath, "/") {
		p.Addf("--probe-path", "%q does not begin with a slash", f.ProbePath)
	}
}

// probes says whether this process probes. A demo leaves this machine alone unless
// it says where its hosts are.
func (c *serveCmd) probes() bool {
	return c.Role.controls() && c.Probe.Probes == "on" && (!c.Demo || c.Probe.lookup != nil)
}

// options are what the flags say to the prober.
func (f *probeFlags) options() (probe.Options, error) {
	opt := probe.Options{Every: f.ProbeEvery, Path: f.ProbePath, Port: f.ProbePort, DNS: f.ProbeDNS, AllowCIDRs: f.allow, Lookup: f.lookup, RootCAs: f.roots}
	if f.ProbeCA == "" {
		return opt, nil
	}
	text, err := os.ReadFile(f.ProbeCA)
	if err != nil {
		return opt, fmt.Errorf("--probe-ca: %w", err)
	}
	if opt.RootCAs = x509.NewCertPool(); !opt.RootCAs.AppendCertsFromPEM(text) {
		return opt, errors.New("--probe-ca: the file holds no certificate in PEM form")
	}
	return opt, nil
}
