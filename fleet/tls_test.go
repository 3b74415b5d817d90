package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// authority signs certificates of one network.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() *authority {
	a := &authority{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key))))
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue is a certificate for 127.0.0.1 and its key, for either end.
func (a *authority) issue() tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	return tls.Certificate{PrivateKey: key, Certificate: [][]byte{must(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))}}
}

// SEC29 at the fleet listener: without the token, or a certificate of the right
// authority, nobody gets a release, enters the roster or reads a blob, and a
// replica sends neither report nor token to a node that it cannot verify.
func TestSEC29OnlyOursMayAsk(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(), newAuthority()
	client := func(certificates ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ours.pool(), Certificates: certificates}
	}
	const plain, encrypted, mutual = "plain", "encrypted", "mutual"
	const refusedHandshake = "ask control" // an alert, or a reset if the server closes first
	for name, c := range map[string]struct {
		listener, serverToken, token string
		tls                          *tls.Config
		problem                      string // of the source; empty: it is let in
	}{
		"the token":                         {plain, testToken, testToken, nil, ""},
		"no token":                          {plain, testToken, "", nil, "401 unauthenticated"},
		"another token":                     {plain, testToken, "of-the-flee", nil, "401 unauthenticated"},
		"a longer token":                    {plain, testToken, testToken + "t", nil, "401 unauthenticated"},
		"a server without token":            {plain, "", "", nil, "401 unauthenticated"},
		"a server without token, any token": {plain, "", testToken, nil, "401 unauthenticated"},
		"the token over TLS":                {encrypted, testToken, testToken, client(), ""},
		"no token over TLS":                 {encrypted, testToken, "", client(), "401 unauthenticated"},
		"TLS is no credential":              {encrypted, "", "", client(), "401 unauthenticated"},
		"an unknown server":                 {encrypted, testToken, testToken, &tls.Config{RootCAs: theirs.pool()}, "certificate signed by unknown authority"},
		"our certificate":                   {mutual, "", "", client(ours.issue()), ""},
		"our certificate without the token": {mutual, testToken, "", client(ours.issue()), "401 unauthenticated"},
		"our certificate and the token":     {mutual, testToken, testToken, client(ours.issue()), ""},
		"no certificate":                    {mutual, testToken, testToken, client(), refusedHandshake},
		"a certificate of another":          {mutual, testToken, testToken, client(theirs.issue()), refusedHandshake},
		"plain text to TLS":                 {mutual, testToken, testToken, nil, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, board, roster := newBank(t, 10), NewBoard(), must(NewRoster(RosterOptions{}))
			if err := board.Offer(t.Context(), Offer{All: b.now()}, b.blobs); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(must(NewServer(ServerOptions{Board: board, Roster: roster, Token: c.serverToken})))
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // handshakes that shall fail
			server.EnableHTTP2 = true
			server.TLS = &tls.Config{Certificates: []tls.Certificate{ours.issue()}}
			if c.listener == mutual {
				server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, ours.pool()
			}
			if c.listener == plain {
				server.Start()
			} else {
				server.StartTLS()
			}
			t.Cleanup(server.Close)
			url := server.URL
			if c.tls == nil {
				url = strings.Replace(url, "https:", "http:", 1)
			}
			source := must(NewHTTP(HTTPOptions{URL: url, Token: c.token, TLS: c.tls}))
			t.Cleanup(source.CloseIdleConnections)
			s, err := source.Next(t.Context(), Report{Replica: Replica{ID: "r", Boot: "1"}})
			_, blobErr := source.Blob(t.Context(), b.last.Tables["cn-prefixes"])
			members := roster.Members(func(string) uint64 { return 1 })
			if c.problem == "" {
				if err != nil || s == nil || s.Number != 1 || blobErr != nil || len(members) != 1 {
					t.Errorf("got %v, %v, blob %v, members %v", s, err, blobErr, members)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.problem) || s != nil || blobErr == nil || len(members) != 0 {
				t.Errorf("got %v, %v, blob %v, members %v; want %q", s, err, blobErr, members, c.problem)
			}
		})
	}
}

// The token goes to nobody else, whatever the answer says.
func TestTokenDoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	source := must(NewHTTP(HTTPOptions{URL: server.URL, Token: testToken}))
	t.Cleanup(source.CloseIdleConnections)
	if _, err := source.Next(t.Context(), Report{}); err == nil {
		t.Error("a redirect is an answer")
	}
	select {
	case token := <-asked:
		t.Errorf("another server was asked, with %q", token)
	default:
	}
}
