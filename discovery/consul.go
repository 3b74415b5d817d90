package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
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
}

func openConsul(target string, opt Options) (Source, error) {
	options, err := parseConsul(target, opt.Log)
	if err != nil {
		return nil, err
	}
	c, err := newConsul(options, opt, &net.Dialer{Timeout: dialTimeout})
	if err != nil {
		return nil, err // and no *consul that is nil inside a Source that is not
	}
	return c, nil
}

// dialer opens connections: to Consul, and to instances that are probed.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

func newConsul(options consulOptions, opt Options, dial dialer) (*consul, error) {
	m, err := newMetrics("consul", opt.Registry)
	if err != nil {
		return nil, fmt.Errorf("open consul: %w", err)
	}
	c := &consul{options: options, metrics: m, probe: prober{dial}, http: &http.Transport{
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

// token is read anew for each request, because it is exchanged while we run.
// Empty: what the environment says.
func (c *consul) token() (string, error) {
	if c.options.tokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.options.tokenFile)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// query are the options of a request to an agent.
func (c *consul) query(ctx context.Context) (*api.QueryOptions, error) {
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	return (&api.QueryOptions{Token: token}).WithContext(ctx), nil
}

// answer is what an agent says about a service.
type answer struct {
	instances []Instance
	rejected  []Rejected
	index     uint64 // 0: missing or no number
}

// problem is a failure with its word for metrics.
type problem struct {
	kind problemKind
	err  error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

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
	switch {
	case !meta.KnownLeader:
		return answer{}, &problem{noLeader, fmt.Errorf("ask consul %s for %s: it knows no leader", c.options.hosts[agent], service)}
	case meta.ResultsFilteredByACLs:
		return answer{}, &problem{filtered, fmt.Errorf("ask consul %s for %s: the token may not see everything\ntry: give it service:read and node:read", c.options.hosts[agent], service)}
	}
	a := answer{index: meta.LastIndex}
	for _, entry := range entries {
		// The server has filtered already; a proxy that drops the parameter has not.
		if entry.Checks.AggregatedStatus() == api.HealthPassing {
			a.add(service, entry)
		}
	}
	return a, nil
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

// add turns an entry into an instance, or rejects it.
func (a *answer) add(service string, entry *api.ServiceEntry) {
	s, host := entry.Service, entry.Service.Address
	if host == "" {
		host = entry.Node.Address
	}
	in := Instance{ID: s.ID, Service: service, Source: "consul"}
	reject := func(why string) {
		a.rejected = append(a.rejected, Rejected{ID: s.ID, Address: net.JoinHostPort(host, strconv.Itoa(s.Port)), Why: why})
	}
	address, err := newAddress(host, s.Port)
	if err != nil {
		reject(err.Error())
		return
	}
	in.Address = address
	if err := in.readMeta(s.Meta); err != nil {
		reject(err.Error())
		return
	}
	if err := in.Validate(); err != nil {
		reject(err.Error())
		return
	}
	a.instances = append(a.instances, in)
}

// meta is how a registry that keeps pairs of text keeps the fields of an instance.
func (in Instance) meta() map[string]string {
	pairs := map[string]string{keyCluster: in.Cluster, keyRegion: in.Region, keyEnv: in.Env, keyVersion: in.Version}
	if !in.Started.IsZero() {
		pairs[keyStarted] = in.Started.UTC().Format(time.RFC3339Nano)
	}
	if in.Weight != nil {
		pairs[keyWeight] = strconv.Itoa(*in.Weight)
	}
	maps.Copy(pairs, in.Labels)
	return pairs
}

// readMeta is the reverse of meta.
func (in *Instance) readMeta(pairs map[string]string) error {
	in.Coordinates = Coordinates{pairs[keyCluster], pairs[keyRegion], pairs[keyEnv], pairs[keyVersion]}
	if text, stated := pairs[keyWeight]; stated {
		weight, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("weight %q is no whole number", text)
		}
		in.Weight = &weight
	}
	if text := pairs[keyStarted]; text != "" {
		started, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return fmt.Errorf("started %q is no time", text)
		}
		in.Started = started
	}
	for key, value := range pairs {
		if isOurs(key) {
			continue
		}
		if in.Labels == nil {
			in.Labels = map[string]string{}
		}
		in.Labels[key] = value
	}
	return nil
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
