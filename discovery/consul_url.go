package discovery

import (
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"time"
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
	check           string // http, tcp or empty: what the agent asks instances besides their lease
	checkPath       string // of http
}

// parseConsul reads HOST:PORT[,HOST:PORT]?key=value&… .
func parseConsul(text string, log *slog.Logger) (consulOptions, error) {
	t := newTarget(text)
	o := consulOptions{hosts: t.hosts, tokenFile: t.take("token-file"), datacenter: t.take("datacenter"),
		ttl: t.duration("ttl", DefaultTTL), deregisterAfter: t.duration("deregister-after", deregisterAfter),
		check: t.take("check"), checkPath: t.take("check-path")}
	if o.deregisterAfter < minDeregister {
		t.problems.Addf("deregister-after", "%s is less than Consul's minimum of %s", o.deregisterAfter, minDeregister)
	}
	if o.ttl < time.Second {
		t.problems.Addf("ttl", "%s is less than a second", o.ttl)
	} else if o.ttl < 3*RenewEvery {
		log.Warn("a lease shorter than three renewals: one slow answer makes this instance critical", "ttl", o.ttl, "renewed every", RenewEvery)
	}
	switch {
	case o.check != "" && o.check != "http" && o.check != "tcp":
		t.problems.Addf("check", "%q is neither http nor tcp", o.check)
	case o.check == "http" && o.checkPath == "":
		o.checkPath = "/"
	case o.check != "http" && o.checkPath != "":
		t.problems.Addf("check-path", "is for check=http alone")
	case o.checkPath != "" && !strings.HasPrefix(o.checkPath, "/"):
		t.problems.Addf("check-path", "%q does not begin with /", o.checkPath)
	}
	o.tls = t.tls()
	token := ""
	if o.tokenFile != "" || os.Getenv("CONSUL_HTTP_TOKEN") != "" || os.Getenv("CONSUL_HTTP_TOKEN_FILE") != "" {
		token = "token"
	}
	t.guardSecret(token, o.tls != nil)
	return o, t.err("consul URL cannot be used", "token-file or CONSUL_HTTP_TOKEN")
}
