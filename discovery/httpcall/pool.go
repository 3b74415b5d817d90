package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
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

// pool is the connections that were made under one number of the rules.
type pool struct {
	number uint64
	send   http.RoundTripper
}

func defaultBase() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     idleFor,
		MaxIdleConnsPerHost: maxIdle,
		ForceAttemptHTTP2:   true,
	}
}

func newPool(base http.RoundTripper, number uint64) *pool {
	transport, ok := base.(*http.Transport)
	if !ok {
		return &pool{number, base}
	}
	transport = transport.Clone()
	if transport.DialTLSContext == nil {
		transport.DialTLSContext = dialTLS(transport)
	}
	return &pool{number, transport}
}

// poolOf is the pool for a pick. Rules that are newer than the pool replace it:
// its idle connections are closed now, the others when their calls have ended. A
// pick by older rules, that was made a moment ago, uses the new one.
func (t *Transport) poolOf(number uint64) *pool {
	now := t.pool.Load()
	if number <= now.number {
		return now
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now = t.pool.Load(); number <= now.number {
		return now
	}
	next := newPool(t.base, number)
	t.pool.Store(next)
	now.close()
	return next
}

// CloseIdleConnections closes connections that no call uses.
func (t *Transport) CloseIdleConnections() { t.pool.Load().close() }

func (p *pool) close() {
	if idle, ok := p.send.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

// dialTLS makes the certificate be for the name that is called: the address is
// another with each instance.
func dialTLS(t *http.Transport) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := t.TLSClientConfig.Clone()
		if config == nil {
			config = &tls.Config{}
		}
		if config.ServerName == "" {
			config.ServerName = nameFor(ctx, address)
		}
		if t.TLSHandshakeTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, t.TLSHandshakeTimeout)
			defer cancel()
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return secured, nil
	}
}

func nameFor(ctx context.Context, address string) string {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.service
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
