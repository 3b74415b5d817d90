package fleet

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between clients and Redis.
type proxy struct {
	addr     string
	server   string
	cutAfter atomic.Int64 // bytes of a client after which its connection is cut; negative: never
	deafened atomic.Int64 // subscriptions up to this one get pongs and nothing else
	carried  atomic.Int64 // connections so far
	pongs    atomic.Int64 // that the proxy answered itself
}

func newProxy(tb testing.TB, server string) *proxy {
	tb.Helper()
	l := must(new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0"))
	p := &proxy{addr: l.Addr().String(), server: server}
	p.cutAfter.Store(-1)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.carry(ctx, client) })
		}
	})
	tb.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
	})
	return p
}

// url is the proxy's address in the form of --redis.
func (p *proxy) url() string { return "redis://" + p.addr }

// deafen drops everything that Redis sends to the subscriptions that are open now.
// Pings are answered.
func (p *proxy) deafen() { p.deafened.Store(p.carried.Load()) }

// carry serves one connection until either end closes it or ctx ends.
func (p *proxy) carry(ctx context.Context, client net.Conn) {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	both := func() { _, _ = client.Close(), server.Close() }
	defer context.AfterFunc(ctx, both)()
	id := p.carried.Add(1)
	var subscribed atomic.Bool
	deaf := func() bool { return subscribed.Load() && id <= p.deafened.Load() }
	var back sync.WaitGroup
	back.Go(func() {
		defer both()
		copyWhile(client, server, func(text []byte) int {
			if deaf() {
				return 0
			}
			return len(text)
		})
	})
	left := p.cutAfter.Load()
	copyWhile(server, client, func(text []byte) int {
		n := len(text)
		if strings.Contains(string(text), "subscribe") {
			subscribed.Store(true)
		}
		if deaf() && strings.Contains(string(text), "ping") {
			p.pongs.Add(1)
			_, _ = client.Write([]byte("+PONG\r\n"))
			return 0
		}
		if left >= 0 {
			n = int(min(int64(n), left))
			if left -= int64(n); left == 0 {
				_, _ = server.Write(text[:n])
				both()
			}
		}
		return n
	})
	both()
	back.Wait()
}

// copyWhile copies as many bytes of each read as pass says, until an end is closed.
func copyWhile(to, from net.Conn, pass func([]byte) int) {
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:pass(buf[:n])]); err != nil {
			return
		}
	}
}
