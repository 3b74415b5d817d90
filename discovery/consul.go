package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// blockFor is how long a question waits for a change. Consul adds up to a
	// sixteenth, so a change that woke nobody is seen within 10 s all the same.
	blockFor     = 8 * time.Second
	blockTimeout = 9200 * time.Millisecond
	askTimeout   = 5 * time.Second // of a question that does not wait
	dialTimeout  = 2 * time.Second
	maxAnswer    = 32 << 20 // bytes: about 20,000 instances
)

// consul is a Source that speaks to Consul agents.
type consul struct {
	options consulOptions
	agents  []*api.Client // of options.hosts
	http    *http.Transport
	metrics *metrics
	probe   prober
	dialect *translator
}

func openConsul(target string, opt Options) (Catalog, error) {
	options, err := parseConsul(target, opt.Log)
	if err != nil {
		return nil, err
	}
	c, err := newConsul(options, opt, &net.Dialer{Timeout: dialTimeout})
	if err != nil {
		return nil, err // and no *consul that is nil inside a Catalog that is not
	}
	return c, nil
}

// dialer opens connections: to Consul, and to instances that are probed.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

func newConsul(options consulOptions, opt Options, dial dialer) (*consul, error) {
	dialect, err := newTranslator(opt.Dialect)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics("consul", opt.Registry)
	if err != nil {
		return nil, fmt.Errorf("open consul: %w", err)
	}
	c := &consul{options: options, metrics: m, probe: prober{dial}, dialect: dialect, http: &http.Transport{
		DialContext: dial.DialContext, TLSClientConfig: options.tls, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}}
	client := &http.Client{
		Transport: plainHeaders{c.http},
		// A redirect would carry the token to wherever it points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	scheme := "http"
	if options.tls != nil {
		scheme = "https"
	}
	for _, host := range options.hosts {
		agent, err := api.NewClient(&api.Config{Address: host, Scheme: scheme, Transport: c.http, HttpClient: client, Datacenter: options.datacenter})
		if err != nil {
			return nil, fmt.Errorf("open consul %s: %w", host, err)
		}
		c.agents = append(c.agents, agent)
	}
	return c, nil
}

func (c *consul) Name() string { return "consul" }

func (c *consul) Close() { c.http.CloseIdleConnections() }

// token is read anew for each request. Empty: what the environment says.
func (c *consul) token() (string, error) {
	if c.options.tokenFile == "" {
		return "", nil
	}
	return readSecret(c.options.tokenFile)
}

// query are the options of a request to an agent.
func (c *consul) query(ctx context.Context) (*api.QueryOptions, error) {
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	return (&api.QueryOptions{Token: token}).WithContext(ctx), nil
}

// list asks an agent for the healthy instances of a service. With an index it
// waits for something newer; without, it asks the leader, which asks its peers
// whether it still is the leader.
func (c *consul) list(ctx context.Context, agent int, service string, index uint64) (answer, error) {
	timeout := askTimeout
	if index > 0 {
		timeout = blockTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q, err := c.query(ctx)
	if err != nil {
		return answer{}, &problem{unreachable, err}
	}
	q.RequireConsistent, q.WaitIndex = index == 0, index
	if index > 0 {
		q.WaitTime = blockFor
	}
	entries, meta, err := c.agents[agent].Health().Service(service, "", true, q)
	if err != nil {
		return answer{}, &problem{kindOf(err), fmt.Errorf("ask consul %s for %s: %w", c.options.hosts[agent], service, err)}
	}
	if err := c.whole(agent, service, meta); err != nil {
		return answer{}, err
	}
	a, r := answer{index: meta.LastIndex}, newReader(c.Name(), service, c.dialect)
	for _, e := range entries {
		// The server has filtered already; a proxy that drops the parameter has not.
		if e.Checks.AggregatedStatus() != api.HealthPassing {
			continue
		}
		host := e.Service.Address
		if host == "" {
			host = e.Node.Address
		}
		r.add(&a, entry{id: e.Service.ID, host: host, port: e.Service.Port, pairs: e.Service.Meta})
	}
	return a, nil
}

// Services asks the first agent that answers. The service consul is the registry
// itself, and nobody's to call.
func (c *consul) Services(ctx context.Context) ([]string, error) {
	var errs []error
	for agent := range c.agents {
		names, err := c.services(ctx, agent)
		if err == nil {
			return names, nil
		}
		c.metrics.problem(kindIn(err))
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (c *consul) services(ctx context.Context, agent int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q, err := c.query(ctx)
	if err != nil {
		return nil, &problem{unreachable, err}
	}
	tags, meta, err := c.agents[agent].Catalog().Services(q)
	if err != nil {
		return nil, &problem{kindOf(err), fmt.Errorf("ask consul %s for its services: %w", c.options.hosts[agent], err)}
	}
	if err := c.whole(agent, "its services", meta); err != nil {
		return nil, err
	}
	delete(tags, "consul")
	return slices.Sorted(maps.Keys(tags)), nil
}

// whole says why an answer cannot be believed, nil if it can.
func (c *consul) whole(agent int, what string, meta *api.QueryMeta) error {
	host := c.options.hosts[agent]
	switch {
	case !meta.KnownLeader:
		return &problem{noLeader, fmt.Errorf("ask consul %s for %s: it knows no leader", host, what)}
	case meta.ResultsFilteredByACLs:
		return &problem{filtered, fmt.Errorf("ask consul %s for %s: the token may not see everything\ntry: give it service:read and node:read", host, what)}
	}
	return nil
}

func kindOf(err error) problemKind {
	status, ok := errors.AsType[api.StatusError](err)
	switch {
	case ok && strings.Contains(status.Body, "No cluster leader"):
		return noLeader
	case ok:
		return refused
	}
	return unreachable
}

// plainHeaders makes the headers of an answer readable to the client library,
// which stops reading them at the first that it dislikes and then takes a list
// that was filtered for a whole one.
type plainHeaders struct{ next http.RoundTripper }

func (p plainHeaders) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if err != nil {
		return nil, err // the client wraps it with the URL
	}
	for name, missing := range map[string]string{"X-Consul-Index": "", "X-Consul-Lastcontact": "0", "Age": ""} {
		if _, err := strconv.ParseUint(resp.Header.Get(name), 10, 64); err != nil {
			resp.Header.Del(name)
			if missing != "" {
				resp.Header.Set(name, missing)
			}
		}
	}
	if resp.Header.Get("X-Consul-Knownleader") == "" { // a proxy dropped it: it says nothing
		resp.Header.Set("X-Consul-Knownleader", "true")
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body} // a longer list breaks off and is no JSON
	return resp, nil
}
