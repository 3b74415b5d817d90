package discovery

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// nacosTimeout and nacosAfter together are under the 10 s in which a change is seen.
	nacosTimeout = 3 * time.Second
	// nacosPage is how many names one page of the catalogue has; maxPages bounds what
	// a server that never comes to an end may cost.
	nacosPage = 500
	maxPages  = 200
	// loginLeft is the part of a login's life that is not used, so that it does not
	// end on its way: a tenth.
	loginLeft = 10
)

// nacosOptions are what the URL says.
type nacosOptions struct {
	hosts                               []string
	namespace, group, cluster           string
	tokenFile, usernameFile, passwdFile string
	tls                                 *tls.Config // nil: plain text
}

func parseNacos(text string) (nacosOptions, error) {
	t := newTarget(text)
	o := nacosOptions{hosts: t.hosts, namespace: t.take("namespace"), group: t.take("group"), cluster: t.take("cluster"),
		tokenFile: t.take("token-file"), usernameFile: t.take("username-file"), passwdFile: t.take("password-file")}
	if o.group == "" {
		o.group = "DEFAULT_GROUP"
	}
	if o.cluster == "" {
		o.cluster = "DEFAULT"
	}
	if (o.usernameFile == "") != (o.passwdFile == "") {
		t.problems.Addf("password-file", "username-file and password-file go together")
	}
	secret := ""
	switch {
	case o.tokenFile != "" && o.usernameFile != "":
		t.problems.Addf("token-file", "is instead of username-file and password-file")
	case o.tokenFile != "":
		secret = "token"
	case o.usernameFile != "":
		secret = "password"
	}
	o.tls = t.tls()
	t.guardSecret(secret, o.tls != nil)
	return o, t.err("nacos URL cannot be used", "token-file, or username-file and password-file")
}

// nacos is a Source that speaks to Nacos servers, by version 1 of their open API:
// servers from 1.3 to 2.x have it. It was tested on a double that speaks the
// recorded protocol and that the official Go SDK passes too, not on a real server.
type nacos struct {
	options nacosOptions
	http    *http.Transport
	client  *http.Client
	metrics *metrics
	probe   prober
	dialect *translator

	mu      sync.Mutex // guards the login
	login   string     // empty: none
	expires time.Time
}

func openNacos(target string, opt Options) (Catalog, error) {
	options, err := parseNacos(target)
	if err != nil {
		return nil, err
	}
	n, err := newNacos(options, opt, &net.Dialer{Timeout: dialTimeout})
	if err != nil {
		return nil, err // and no *nacos that is nil inside a Catalog that is not
	}
	return n, nil
}

func newNacos(options nacosOptions, opt Options, dial dialer) (*nacos, error) {
	dialect, err := newTranslator(opt.Dialect)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics("nacos", opt.Registry)
	if err != nil {
		return nil, fmt.Errorf("open nacos: %w", err)
	}
	n := &nacos{options: options, metrics: m, probe: prober{dial}, dialect: dialect, http: &http.Transport{
		DialContext: dial.DialContext, TLSClientConfig: options.tls, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}}
	// A redirect would carry the token to wherever it points.
	n.client = &http.Client{Transport: n.http, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return n, nil
}

// Name is nacos.
func (n *nacos) Name() string { return "nacos" }

// Close lets go of connections.
func (n *nacos) Close() { n.http.CloseIdleConnections() }

// statusError is an answer that is no success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// denied says whether an answer asks for another login.
func denied(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.status == http.StatusForbidden || e.status == http.StatusUnauthorized)
}

// call asks one server. A login that it no longer knows is made again once.
func (n *nacos) call(ctx context.Context, server int, method, path string, form url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, nacosTimeout)
	defer cancel()
	token, err := n.token(ctx, server, false)
	if err != nil {
		return nil, err
	}
	text, err := n.send(ctx, server, request{method: method, path: path, form: form, token: token})
	if denied(err) && n.options.usernameFile != "" {
		if token, err = n.token(ctx, server, true); err != nil {
			return nil, err
		}
		text, err = n.send(ctx, server, request{method: method, path: path, form: form, token: token})
	}
	return text, err
}

// request is one to a server.
type request struct {
	method, path string
	form         url.Values
	token        string
}

// send makes a request and reads the answer. Forms travel in the body of a POST
// alone: what a servlet does with the body of a PUT differs between servers.
func (n *nacos) send(ctx context.Context, server int, r request) ([]byte, error) {
	scheme := "http"
	if n.options.tls != nil {
		scheme = "https"
	}
	at, body := scheme+"://"+n.options.hosts[server]+"/nacos"+r.path, io.Reader(nil)
	if r.method == http.MethodPost {
		body = strings.NewReader(r.form.Encode())
	} else {
		at += "?" + r.form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, at, body)
	if err != nil {
		return nil, err
	}
	if r.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if r.token != "" { // never in the URL, which ends in logs
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{resp.StatusCode, strings.TrimSpace(string(text[:min(len(text), 300)]))}
	}
	return text, nil
}

// token is what requests carry, empty for none.
func (n *nacos) token(ctx context.Context, server int, anew bool) (string, error) {
	switch {
	case n.options.tokenFile != "":
		return readSecret(n.options.tokenFile)
	case n.options.usernameFile == "":
		return "", nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !anew && n.login != "" && time.Now().Before(n.expires) {
		return n.login, nil
	}
	username, err := readSecret(n.options.usernameFile)
	if err != nil {
		return "", err
	}
	password, err := readSecret(n.options.passwdFile)
	if err != nil {
		return "", err
	}
	text, err := n.send(ctx, server, request{method: http.MethodPost, path: "/v1/auth/login",
		form: url.Values{"username": {username}, "password": {password}}})
	if err != nil {
		return "", fmt.Errorf("log in: %w", err)
	}
	var answer struct {
		Token string `json:"accessToken"`
		TTL   int64  `json:"tokenTtl"` // seconds
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Token == "" {
		return "", errors.New("log in: the answer holds no token")
	}
	life := time.Duration(answer.TTL) * time.Second
	n.login, n.expires = answer.Token, time.Now().Add(life-life/loginLeft)
	return n.login, nil
}

// wrap says what was asked of whom, with its word for metrics.
func (n *nacos) wrap(err error, server int, what string) error {
	kind := unreachable
	if _, ok := errors.AsType[*statusError](err); ok {
		kind = refused
	}
	return &problem{kind, fmt.Errorf("ask nacos %s for %s: %w", n.options.hosts[server], what, err)}
}

// form is what every request states.
func (n *nacos) form(pairs ...string) url.Values {
	f := url.Values{"groupName": {n.options.group}}
	if n.options.namespace != "" {
		f.Set("namespaceId", n.options.namespace)
	}
	for i := 0; i < len(pairs); i += 2 {
		f.Set(pairs[i], pairs[i+1])
	}
	return f
}

// Services asks the first server that answers, page by page.
func (n *nacos) Services(ctx context.Context) ([]string, error) {
	var errs []error
	for server := range n.options.hosts {
		names, err := n.services(ctx, server)
		if err == nil {
			return names, nil
		}
		n.metrics.problem(kindIn(err))
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (n *nacos) services(ctx context.Context, server int) ([]string, error) {
	const what = "its services"
	names := []string{}
	for page := 1; page <= maxPages; page++ {
		text, err := n.call(ctx, server, http.MethodGet, "/v1/ns/service/list",
			n.form("pageNo", strconv.Itoa(page), "pageSize", strconv.Itoa(nacosPage)))
		if err != nil {
			return nil, n.wrap(err, server, what)
		}
		var answer struct {
			Count *int     `json:"count"`
			Names []string `json:"doms"`
		}
		if err := json.Unmarshal(text, &answer); err != nil || answer.Count == nil {
			return nil, n.wrap(fmt.Errorf("page %d is no list of services", page), server, what)
		}
		for _, name := range answer.Names {
			names = append(names, strings.TrimPrefix(name, n.options.group+"@@"))
		}
		if len(names) >= *answer.Count || len(answer.Names) == 0 {
			if len(names) < *answer.Count {
				return nil, n.wrap(fmt.Errorf("it has %d and names %d", *answer.Count, len(names)), server, what)
			}
			slices.Sort(names)
			return slices.Compact(names), nil
		}
	}
	return nil, n.wrap(fmt.Errorf("there are more than %d", maxPages*nacosPage), server, what)
}
