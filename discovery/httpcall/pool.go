package httpcall

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// dialTimeout is what callers give a connection: three that fail put an instance out.
	dialTimeout = 500 * time.Millisecond
	// handshakeTimeout is what TLS may take on top.
	handshakeTimeout = 3 * time.Second
	// idleFor is how long a connection without a call is kept.
	idleFor = 90 * time.Second
	// maxIdle connections to one instance are kept: as many as calls at one time.
	maxIdle = 64
)

func defaultBase() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
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
}

// pools are those of one service, of which one is in use.
type pools struct {
	now atomic.Pointer[pool]
	mu  sync.Mutex // held while now is replaced
}

// poolsOf makes what is missing. A name gets here only when it was picked for, so
// there are no more than services. The empty name is for addresses.
func (t *Transport) poolsOf(service string) *pools {
	if all, ok := t.services.Load(service); ok {
		return all.(*pools)
	}
	first := &pools{}
	first.now.Store(newPool(t.base, service, 0))
	all, _ := t.services.LoadOrStore(service, first)
	return all.(*pools)
}

// newPool copies an *http.Transport. Its certificates are for the name that is
// called: the address is another with each instance.
func newPool(base http.RoundTripper, service string, number uint64) *pool {
	transport, ok := base.(*http.Transport)
	if !ok {
		return &pool{number, base}
	}
	transport = transport.Clone()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{}
	}
	if transport.TLSClientConfig.ServerName == "" {
		transport.TLSClientConfig.ServerName = service
	}
	return &pool{number, transport}
}

// poolFor is the pool for a pick. Rules that are newer than the pool replace it:
// its idle connections are closed now, the others when their calls have ended. A
// pick by older rules, that was made a moment ago, uses the new one.
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
	now.close()
	return next
}

// CloseIdleConnections closes connections that no call uses.
func (t *Transport) CloseIdleConnections() {
	t.services.Range(func(_, all any) bool {
		all.(*pools).now.Load().close()
		return true
	})
}

func (p *pool) close() {
	if idle, ok := p.send.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}
