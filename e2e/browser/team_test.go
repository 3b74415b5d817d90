package browser

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/miekg/dns"
)

// team is an installation with two people for everything: four eyes are on, and
// everybody has one role.
type team struct {
	*Server
	hosts     *hosts
	passwords map[string]string // one-time, by login; the login is the role
}

// newTeam starts one that serves examples/mobile-bank.yaml, whose hosts are up.
func newTeam(t *testing.T) *team {
	t.Helper()
	h := newHosts(t)
	s := serve(t, "--bootstrap", filepath.Join("..", "..", "examples", "mobile-bank.yaml"), "--region", "sh",
		"--allowed-suffixes", "a.com.cn,b.com.cn,bank.example", "--probe-every", "1s",
		"--probe-dns", h.dns, "--probe-port", h.port, "--probe-allow", "127.0.0.1/32", "--probe-ca", h.ca)
	g := &team{s, h, map[string]string{}}
	s.approveFirst(t)
	for _, role := range []string{"viewer", "list-manager", "release-engineer", "on-call", "approver", "user-admin"} {
		g.account(t, role, false, role)
	}
	return g
}

// approveFirst is the second person that the first document waits for.
func (s *Server) approveFirst(t *testing.T) {
	t.Helper()
	var registered struct{ Hosts []struct{ Host string } }
	must(t, s.Call(t.Context(), s.Token, "GET /hosts", nil, &registered))
	if len(registered.Hosts) == 0 {
		t.Fatal("no host of the first document waits")
	}
	for _, host := range registered.Hosts {
		must(t, s.Call(t.Context(), s.Token, "POST /approvals/"+host.Host, map[string]string{"reason": "first document"}, nil))
	}
	must(t, s.End())
	must(t, s.Start(t.Context()))
	var head struct{ Current uint64 }
	must(t, s.Call(t.Context(), s.Token, "GET /releases?limit=1", nil, &head))
	if head.Current != 1 {
		t.Fatalf("release %d is current after the hosts were approved", head.Current)
	}
}

// account makes an account.
func (g *team) account(t *testing.T, login string, glass bool, roles ...string) {
	t.Helper()
	var made struct{ Password string }
	must(t, g.Call(t.Context(), g.Token, "POST /accounts", map[string]any{"login": login, "name": "The " + login, "roles": roles, "break_glass": glass, "reason": "test"}, &made))
	g.passwords[login] = made.Password
}

// as is a window in which somebody has signed in.
func (g *team) as(t *testing.T, login string, look Look) *Tab {
	t.Helper()
	w := tab(t, g.Server, look)
	if once := g.passwords[login]; once != Chosen {
		must(t, w.FirstSignIn(g.Server, login, once))
		g.passwords[login] = Chosen
	} else {
		must(t, w.SignIn(g.Server, login, Chosen))
	}
	return w
}

// up waits until probers see the hosts up.
func (g *team) up(t *testing.T, hosts ...string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		var seen struct {
			Hosts map[string]struct{ State string }
		}
		must(t, g.Call(t.Context(), g.Token, "GET /probes", nil, &seen))
		waiting := ""
		for _, host := range hosts {
			if seen.Hosts[host].State != "up" {
				waiting = host
			}
		}
		if waiting == "" {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%s is not seen up: %+v", waiting, seen)
		}
		<-tick.C
	}
}

// hosts are all hosts of the test, on one address of this machine.
type hosts struct {
	dns, port, ca string

	mu   sync.Mutex // guards down
	down map[string]bool
}

// fail lets a host show no certificate, or show it again.
func (h *hosts) fail(host string, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down[host] = down
}

func newHosts(t *testing.T) *hosts {
	t.Helper()
	h := &hosts{down: map[string]bool{}, ca: filepath.Join(t.TempDir(), "ca.pem")}
	cert := h.certificate(t)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // hosts that are down make it complain
	web.TLS = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.down[hello.ServerName] {
			return nil, errors.New("down")
		}
		return &cert, nil
	}}
	web.StartTLS()
	t.Cleanup(web.Close)
	at, err := url.Parse(web.URL)
	must(t, err)
	h.port = at.Port()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	names := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(resolve)}
	served := make(chan error, 1)
	started := make(chan struct{})
	names.NotifyStartedFunc = func() { close(started) }
	go func() { served <- names.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { must(t, names.Shutdown()); must(t, <-served) })
	h.dns = conn.LocalAddr().String()
	return h
}

// resolve finds every name here.
func resolve(w dns.ResponseWriter, asked *dns.Msg) {
	answer := new(dns.Msg)
	answer.SetReply(asked)
	for _, q := range asked.Question {
		if q.Qtype == dns.TypeA {
			answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(127, 0, 0, 1)})
		}
	}
	_ = w.WriteMsg(answer) // who asked asks again
}

// certificate is one for all hosts under the allowed suffixes; the file ca is who signed it.
func (h *hosts) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 90),
		DNSNames: []string{"*.a.com.cn", "*.b.com.cn", "*.bank.example"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	must(t, os.WriteFile(h.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// change is the release engineer's new draft from the newest document, by the page.
func change(t *testing.T, w *Tab, s *Server, title, old, now string) {
	t.Helper()
	w.Do(t, chromedp.Navigate(s.Console+"/changes/new"))
	document, err := chromedp.Run(w.Ctx, chromedp.Value(chromedp.CSS("[name=document]")))
	must(t, err)
	if !strings.Contains(document, old) {
		t.Fatalf("the document has no %q:\n%s", old, document)
	}
	w.Do(t, Type("[name=title]", title), Type("[name=document]", strings.Replace(document, old, now, 1)), Type("[name=reason]", "agreed"), w.Go("main form .row button"))
}
