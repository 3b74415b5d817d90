package discovery

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

// target reads HOST:PORT[,HOST:PORT]?key=value&… and collects what is wrong with
// it. A URL with several hosts is none for net/url.
type target struct {
	hosts    []string
	pairs    url.Values
	problems fault.Problems
}

func newTarget(text string) *target {
	hosts, query, _ := strings.Cut(text, "?")
	pairs, err := url.ParseQuery(query)
	t := &target{pairs: pairs}
	if err != nil {
		t.problems.Addf("", "the part after ? cannot be read: %s", err)
	}
	t.hosts = strings.Split(strings.TrimSuffix(hosts, "/"), ",")
	for _, host := range t.hosts {
		name, port, err := net.SplitHostPort(host)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || name == "" {
			t.problems.Addf("host", "%q is not HOST:PORT", host)
		}
	}
	return t
}

// err is everything that was wrong, and every key that nobody took.
func (t *target) err(detail, secret string) error {
	for key := range t.pairs {
		hint := "no such key"
		if key == "token" || key == "password" || key == "username" {
			hint = "a " + key + " in a URL ends in logs; use " + secret
		}
		t.problems.Addf(key, "%s", hint)
	}
	slices.SortStableFunc(t.problems, func(a, b fault.Problem) int { return compare(a.Path, b.Path) })
	return t.problems.Err("invalid_discovery", detail)
}

// take removes a pair, so that what is left over is unknown.
func (t *target) take(key string) string {
	values := t.pairs[key]
	delete(t.pairs, key)
	if len(values) == 0 {
		return ""
	}
	if len(values) > 1 || values[0] == "" {
		t.problems.Addf(key, "must be stated once and not be empty")
	}
	return values[0]
}

func (t *target) flag(key string) bool {
	switch value := t.take(key); value {
	case "true":
		return true
	case "", "false":
	default:
		t.problems.Addf(key, "must be true or false")
	}
	return false
}

func (t *target) duration(key string, otherwise time.Duration) time.Duration {
	text := t.take(key)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.problems.Addf(key, "%q is no duration such as 15s", text)
		return otherwise
	}
	return d
}

// tls is nil unless asked for by tls=true or by one of its files.
func (t *target) tls() *tls.Config {
	wanted := t.flag("tls")
	ca, cert, key, name := t.take("ca"), t.take("cert"), t.take("key"), t.take("server-name")
	if !wanted && ca+cert+key+name == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		text, err := os.ReadFile(ca)
		config.RootCAs = x509.NewCertPool()
		if err != nil {
			t.problems.Addf("ca", "%s", err)
		} else if !config.RootCAs.AppendCertsFromPEM(text) {
			t.problems.Addf("ca", "%s holds no certificate in PEM", ca)
		}
	}
	if cert+key != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			t.problems.Addf("cert", "cannot be used with its key: %s", err)
		}
		// Read again for each connection: certificates are exchanged while we run.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				return nil, fmt.Errorf("load client certificate: %w", err)
			}
			return &pair, nil
		}
	}
	return config
}

// readSecret reads a file anew for each use: secrets are exchanged while we run.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// guardSecret refuses to show a secret to the network in plain text.
func (t *target) guardSecret(what string, secure bool) {
	if t.flag("plain-token") || secure || what == "" {
		return
	}
	for _, host := range t.hosts {
		name, _, err := net.SplitHostPort(host)
		ip, bad := netip.ParseAddr(name)
		if err == nil && name != "localhost" && (bad != nil || !ip.IsLoopback()) {
			t.problems.Addf("tls", "the %s would go to %s in plain text; use tls=true, or plain-token=true if that network is yours", what, host)
		}
	}
}
