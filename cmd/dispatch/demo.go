package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/handler"
)

// demo is what serve --demo has beside the product, so that its pages have something
// to show: apps that ask, and a server on this machine that stands for all hosts, so
// that probes find them. Nothing of it leaves the machine.
type demo struct {
	p     *process
	hosts net.Listener // of the server that stands for all hosts
	ca    *demoAuthority
}

// demoHosts is where the server that stands for all hosts listens.
var demoHosts = netip.MustParseAddr("127.0.0.1")

// demoProbeEvery lets a host be known as up within seconds of the start.
const demoProbeEvery = 2 * time.Second

// newDemo points probes at the demo's hosts; nil where none is wanted.
func newDemo(p *process) (*demo, error) {
	c := p.cfg
	if !c.Demo || c.DemoTraffic == "off" {
		return nil, nil
	}
	if err := c.innerDemo(); err != nil {
		return nil, err
	}
	ca, err := newDemoAuthority()
	if err != nil {
		return nil, fmt.Errorf("make the demo's certificates: %w", err)
	}
	d := &demo{p: p, ca: ca}
	c.Probe.roots = ca.pool()
	c.Probe.lookup = func(context.Context, string) ([]netip.AddrPort, error) {
		return []netip.AddrPort{d.hosts.Addr().(*net.TCPAddr).AddrPort()}, nil
	}
	c.Probe.allow = append(c.Probe.allow, netip.PrefixFrom(demoHosts, demoHosts.BitLen()))
	c.Probe.ProbeEvery = demoProbeEvery
	// The apps come from an address that nobody else has, and it alone is believed.
	c.proxies = append(c.proxies, netip.PrefixFrom(demoPeer, demoPeer.BitLen()))
	return d, nil
}

// listen opens the server that stands for all hosts.
func (d *demo) listen(ctx context.Context) (err error) {
	if d == nil {
		return nil
	}
	if d.hosts, err = new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(demoHosts, 0).String()); err != nil {
		return fmt.Errorf("listen for the demo's hosts: %w", err)
	}
	return nil
}

// run owns the goroutines.
func (d *demo) run(ctx context.Context, g *errgroup.Group) {
	if d == nil {
		return
	}
	// A probe that ends early is nothing to log.
	s := handler.Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), slog.New(slog.DiscardHandler))
	s.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: d.ca.certificate}
	g.Go(func() error { return d.p.serve(ctx, s, d.hosts) })
	g.Go(func() error { return newDemoTraffic("http://" + reachable(d.p.public.Addr())).run(ctx) })
}

// demoAuthority signs certificates for the demo's hosts. Its key is in memory only.
type demoAuthority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu    sync.Mutex // guards what follows
	hosts map[string]*tls.Certificate
}

// demoDays is how long the demo's certificates hold: above what probes warn of.
const demoDays = 90

// maxDemoHosts bounds the certificates: a document of the demo has a dozen.
const maxDemoHosts = 256

func newDemoAuthority() (*demoAuthority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &demoAuthority{key: key, hosts: map[string]*tls.Certificate{}}
	template := certificateFor("dispatch demo")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

func certificateFor(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, demoDays)}
}

func (a *demoAuthority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// certificate is one for the name that is asked for.
func (a *demoAuthority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cert := a.hosts[hello.ServerName]; cert != nil {
		return cert, nil
	}
	if hello.ServerName == "" || len(a.hosts) >= maxDemoHosts {
		return nil, errors.New("the demo has no certificate for this name")
	}
	template := certificateFor(hello.ServerName)
	template.DNSNames, template.KeyUsage = []string{hello.ServerName}, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", hello.ServerName, err)
	}
	cert := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.hosts[hello.ServerName] = cert
	return cert, nil
}
