package client

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// maxQuery is the server's limit for a query, in bytes; attributes travel there.
const maxQuery = 2 << 10

// check reports every mistake at once and returns the addresses to ask.
func (o Options) check() ([]*url.URL, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("options: "+format, args...)) }

	if !sendable(o.App) {
		wrong("App is required: the key of the app in the dispatch configuration")
	}
	switch {
	case len(o.Keys) == 0 && !o.AllowUnsigned:
		wrong("Keys is required: pin the record keys of dispatch keys export, or set AllowUnsigned for a development server")
	case len(o.Keys) > 0 && o.AllowUnsigned:
		wrong("AllowUnsigned contradicts Keys: a client with pinned keys believes only records")
	}
	if len(o.Keys) > 0 && o.Deployment == "" {
		wrong("Deployment is required: the name given to dispatch serve --deployment")
	}
	for kid, key := range o.Keys {
		if !sendable(kid) || strings.Contains(kid, ",") || len(key) != ed25519.PublicKeySize {
			wrong("Keys[%q] must have an id without commas and be %d bytes of Ed25519", kid, ed25519.PublicKeySize)
		}
	}
	if len(o.Suffixes) == 0 {
		wrong("Suffixes is required: the domains under which every answer must lie")
	}
	for _, s := range o.Suffixes {
		if !normalHost(s) {
			wrong("Suffixes: %q is no host name in lower-case ASCII with at least two labels", s)
		}
	}
	if !inside(o.BuiltIn, o.Suffixes) {
		wrong("BuiltIn %q must be a host name inside Suffixes", o.BuiltIn)
	}
	hosts, err := bootstrap(o.Bootstrap, attrQuery(o.Attrs))
	return hosts, errors.Join(append(errs, err)...)
}

func attrQuery(attrs map[string]string) string {
	q := url.Values{}
	for name, value := range attrs {
		q.Set("attr."+name, value)
	}
	return q.Encode() // sorted by name
}

func bootstrap(raw []string, query string) ([]*url.URL, error) {
	var errs []error
	if len(query) > maxQuery {
		errs = append(errs, fmt.Errorf("options: Attrs take %d bytes as a query, the limit is %d", len(query), maxQuery))
	}
	seen := map[string]bool{}
	var hosts []*url.URL
	for _, s := range raw {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			errs = append(errs, fmt.Errorf("options: Bootstrap: %q is no address of the form https://HOST", s))
		case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
			errs = append(errs, fmt.Errorf("options: Bootstrap: %q must be https; plain http is for loopback only", s))
		case seen[u.Host]:
			errs = append(errs, fmt.Errorf("options: Bootstrap: host %s is named twice", u.Host))
		default:
			seen[u.Host] = true
			u = u.JoinPath("v1", "route")
			u.RawQuery = query
			hosts = append(hosts, u)
		}
	}
	if len(raw) < 2 {
		errs = append(errs, errors.New("options: Bootstrap needs at least two hosts, so that one can fail"))
	}
	return hosts, errors.Join(errs...)
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// publisherKey is how the ids of keys begin that sign releases, never records.
const publisherKey = "publisher-"

// ParseKeys reads the record keys of a JWKS, such as dispatch keys export prints, by key id.
// Keys of other kinds and purposes are passed over; a private key is an error, because an
// app must not carry one.
func ParseKeys(jwks []byte) (map[string]ed25519.PublicKey, error) {
	var set struct {
		Keys []struct {
			Kty, Crv, Kid, X string
			D                *string
		}
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, fmt.Errorf("read key set: %w", err)
	}
	keys := map[string]ed25519.PublicKey{}
	for i, k := range set.Keys {
		if k.D != nil {
			return nil, fmt.Errorf("read key set: key %d is private", i)
		}
		if k.Kty != "OKP" || k.Crv != "Ed25519" || strings.HasPrefix(k.Kid, publisherKey) {
			continue
		}
		x, err := base64.RawURLEncoding.Strict().DecodeString(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize || k.Kid == "" {
			return nil, fmt.Errorf("read key set: key %d (%q) must have a kid and %d bytes in x", i, k.Kid, ed25519.PublicKeySize)
		}
		if keys[k.Kid] != nil {
			return nil, fmt.Errorf("read key set: key id %q stands twice", k.Kid)
		}
		keys[k.Kid] = x
	}
	if len(keys) == 0 {
		return nil, errors.New("read key set: it has no record key of type Ed25519")
	}
	return keys, nil
}

// normalHost accepts the form in which records carry hosts, and nothing that would first
// have to be brought into it: lower-case ASCII, at least two labels, no trailing dot, no
// port, no address.
func normalHost(host string) bool {
	if len(host) > 253 || net.ParseIP(host) != nil {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	top := labels[len(labels)-1] // of digits only: an address in one of its older forms
	return len(labels) >= 2 && strings.Trim(top, "0123456789") != ""
}

// inside says whether host is in normal form and equals a suffix or ends in one at the
// boundary of a label.
func inside(host string, suffixes []string) bool {
	if !normalHost(host) {
		return false
	}
	for _, s := range suffixes {
		if host == s || strings.HasSuffix(host, "."+s) {
			return true
		}
	}
	return false
}
