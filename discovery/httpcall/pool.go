package httpcall

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
)

const (
	// handshakeTimeout is what TLS may take on top.
	handshakeTimeout = 3 * time.Second
	// idleFor is how long a connection without a call is kept.
	idleFor = 90 * time.Second
	// maxIdle connections to one instance are kept: as many as calls at one time.
	maxIdle = 64
)

// probes find a peer that is gone while a call waits for its answer, in 8 s.
func probes() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}
}

func defaultBase() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: guard.DialLimit, KeepAliveConfig: probes()}).DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     idleFor,
		MaxIdleConnsPerHost: maxIdle,
		ForceAttemptHTTP2:   true,
	}
}

// pool is the connections to one service that were made under one number of its rules.
type pool struct {
	number uint64
	send   http.RoundTripper
	ours   bool        // send is a copy of an *http.Transport
	old    atomic.Bool // newer rules have another pool

	mu    sync.RWMutex // guards texts
	texts map[discovery.Address]string
}

// maxTexts bounds what a pool keeps of instances that came and went.
const maxTexts = 4096

// text is an address as a URL has it. It is kept, because each call needs it.
func (p *pool) text(a discovery.Address) string {
	p.mu.RLock()
	text := p.texts[a]
	p.mu.RUnlock()
	if text != "" {
		return text
	}
	text = a.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.texts == nil || len(p.texts) == maxTexts {
		p.texts = map[discovery.Address]string{}
	}
	p.texts[a] = text
	return text
}

// pools are those of one service, of which one is in use.
type pools struct {
	now atomic.Pointer[pool]
	mu  sync.Mutex // held while now is replaced
}

// poolsOf makes what is missing. A name gets here only when it was picked for, so
// there are no more than services. The empty name is for addresses.
func (t *Transport) poolsOf(service string) *pools {
	if all := (*t.services.Load())[service]; all != nil {
		return all
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := *t.services.Load()
	if all := before[service]; all != nil {
		return all
	}
	first := &pools{}
	first.now.Store(newPool(t.base, service, 0))
	all := maps.Clone(before)
	all[service] = first
	t.services.Store(&all)
	return first
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// unconnected is a connection that could not be made.
type unconnected struct{ error }

// Unwrap is why.
func (e *unconnected) Unwrap() error { return e.error }

// limited dials as guards have it: within the limit, and with an end to silence.
func limited(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, guard.DialLimit)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, &unconnected{err}
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		endSilence(tcp, silentFor)
		return &link{TCPConn: tcp}, nil
	}
}

// newPool copies an *http.Transport. Its certificates are for the name that is
// called: the address is another with each instance.
func newPool(base http.RoundTripper, service string, number uint64) *pool {
	transport, ok := base.(*http.Transport)
	if !ok {
		return &pool{number: number, send: base}
	}
	transport = transport.Clone()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{}
	}
	if transport.TLSClientConfig.ServerName == "" {
		transport.TLSClientConfig.ServerName = service
	}
	if service != "" {
		limit(transport)
	}
	return &pool{number: number, send: transport, ours: true}
}

// limit changes how a Transport dials, but for the functions that net/http advises
// against.
func limit(t *http.Transport) {
	//lint:ignore SA1019 whoever sets it has it
	if t.DialContext == nil && t.Dial == nil {
		t.DialContext = (&net.Dialer{KeepAliveConfig: probes()}).DialContext
	}
	if t.DialContext != nil {
		t.DialContext = limited(t.DialContext)
	}
	if t.DialTLSContext != nil {
		t.DialTLSContext = limited(t.DialTLSContext)
	}
}

// poolFor is the pool for a pick. Rules that are newer than the pool replace it:
// its idle connections are closed now, the others when their calls have ended, and after
// idleFor at the latest. A pick by older rules, that was made a moment ago, uses the new one.
func (t *Transport) poolFor(service string, number uint64) *pool {
	all := t.poolsOf(service)
	now := all.now.Load()
	if number <= now.number {
		return now
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if now = all.now.Load(); number <= now.number {
		return now
	}
	next := newPool(t.base, service, number)
	all.now.Store(next)
	now.old.Store(true)
	now.close()
	return next
}

// CloseIdleConnections closes connections that no call uses.
func (t *Transport) CloseIdleConnections() {
	for _, all := range *t.services.Load() {
		all.now.Load().close()
	}
}

func (p *pool) close() {
	if idle, ok := p.send.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}
