package discovery

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
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

const (
	// deregisterAfter cleans up after a process that was killed. It stops no calls:
	// the lease did that.
	deregisterAfter = 5 * time.Minute
	// minDeregister is the least that Consul honours.
	minDeregister = time.Minute
)

// consulOptions are what the URL says.
type consulOptions struct {
	hosts           []string
	tokenFile       string
	datacenter      string
	tls             *tls.Config // nil: plain text
	ttl             time.Duration
	deregisterAfter time.Duration
}

// consulURL reads the pairs of a URL and collects what is wrong with them.
type consulURL struct {
	pairs    url.Values
	problems fault.Problems
}

// parseConsul reads HOST:PORT[,HOST:PORT]?key=value&… . A URL with several hosts is
// none for net/url.
func parseConsul(target string, log *slog.Logger) (consulOptions, error) {
	hosts, query, _ := strings.Cut(target, "?")
	pairs, err := url.ParseQuery(query)
	u := &consulURL{pairs: pairs}
	if err != nil {
		u.problems.Addf("", "the part after ? cannot be read: %s", err)
	}
	o := consulOptions{hosts: u.hosts(strings.TrimSuffix(hosts, "/")), tokenFile: u.take("token-file"), datacenter: u.take("datacenter"),
		ttl: u.duration("ttl", DefaultTTL), deregisterAfter: u.duration("deregister-after", deregisterAfter)}
	if o.deregisterAfter < minDeregister {
		u.problems.Addf("deregister-after", "%s is less than Consul's minimum of %s", o.deregisterAfter, minDeregister)
	}
	if o.ttl < time.Second {
		u.problems.Addf("ttl", "%s is less than a second", o.ttl)
	} else if o.ttl < 3*RenewEvery {
		log.Warn("a lease shorter than three renewals: one slow answer makes this instance critical", "ttl", o.ttl, "renewed every", RenewEvery)
	}
	o.tls = u.tls()
	u.guardToken(o)
	for key := range u.pairs {
		hint := "no such key"
		if key == "token" {
			hint = "a token in a URL ends in logs; use token-file or CONSUL_HTTP_TOKEN"
		}
		u.problems.Addf(key, "%s", hint)
	}
	slices.SortFunc(u.problems, func(a, b fault.Problem) int { return compare(a.Path, b.Path) })
	return o, u.problems.Err("invalid_discovery", "consul URL cannot be used")
}

// take removes a pair, so that what is left over is unknown.
func (u *consulURL) take(key string) string {
	values := u.pairs[key]
	delete(u.pairs, key)
	if len(values) == 0 {
		return ""
	}
	if len(values) > 1 || values[0] == "" {
		u.problems.Addf(key, "must be stated once and not be empty")
	}
	return values[0]
}

func (u *consulURL) flag(key string) bool {
	switch value := u.take(key); value {
	case "true":
		return true
	case "", "false":
	default:
		u.problems.Addf(key, "must be true or false")
	}
	return false
}

func (u *consulURL) duration(key string, otherwise time.Duration) time.Duration {
	text := u.take(key)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		u.problems.Addf(key, "%q is no duration such as 15s", text)
		return otherwise
	}
	return d
}

func (u *consulURL) hosts(text string) []string {
	hosts := strings.Split(text, ",")
	for _, host := range hosts {
		name, port, err := net.SplitHostPort(host)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || name == "" {
			u.problems.Addf("host", "%q is not HOST:PORT", host)
		}
	}
	return hosts
}

// tls is nil unless asked for by tls=true or by one of its files.
func (u *consulURL) tls() *tls.Config {
	wanted := u.flag("tls")
	ca, cert, key, name := u.take("ca"), u.take("cert"), u.take("key"), u.take("server-name")
	if !wanted && ca+cert+key+name == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		text, err := os.ReadFile(ca)
		config.RootCAs = x509.NewCertPool()
		if err != nil {
			u.problems.Addf("ca", "%s", err)
		} else if !config.RootCAs.AppendCertsFromPEM(text) {
			u.problems.Addf("ca", "%s holds no certificate in PEM", ca)
		}
	}
	if cert+key != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			u.problems.Addf("cert", "cannot be used with its key: %s", err)
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

// guardToken refuses to show a token to the network.
func (u *consulURL) guardToken(o consulOptions) {
	allowed := u.flag("plain-token")
	token := o.tokenFile != "" || os.Getenv("CONSUL_HTTP_TOKEN") != "" || os.Getenv("CONSUL_HTTP_TOKEN_FILE") != ""
	if allowed || o.tls != nil || !token {
		return
	}
	for _, host := range o.hosts {
		name, _, err := net.SplitHostPort(host)
		ip, bad := netip.ParseAddr(name)
		if err == nil && name != "localhost" && (bad != nil || !ip.IsLoopback()) {
			u.problems.Addf("tls", "the token would go to %s in plain text; use tls=true, or plain-token=true if that network is yours", host)
		}
	}
}
