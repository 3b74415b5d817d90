package testenv

import (
	"errors"
	"net"
	"sync"
)

// Proxy is a TCP address that stays while the server behind it changes, as the
// address of a database does at a failover. Point moves new connections only:
// those that are open stay with their server until one side ends them.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup
	flow     sync.RWMutex // held for reading to pass something on

	mu     sync.Mutex // guards the rest
	to     string     // empty: nowhere
	conns  map[net.Conn]struct{}
	frozen bool
}

// NewProxy listens on loopback and passes connections on to an address.
func NewProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	p.work.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Point sends new connections to another address.
func (p *Proxy) Point(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// Cut ends all connections and lets no new one through until Point.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = ""
	for c := range p.conns {
		_ = c.Close() // its copier may have closed it already
	}
}

// Freeze passes on nothing from now on, neither bytes nor the end of a
// connection, as a network that drops packets.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.frozen {
		p.frozen = true
		p.flow.Lock()
	}
}

// Close ends everything and waits for it.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Cut()
	p.mu.Lock()
	if p.frozen {
		p.frozen = false
		p.flow.Unlock()
	}
	p.mu.Unlock()
	p.work.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client went away before it was accepted
		}
		p.work.Go(func() { p.pass(client) })
	}
}

// pass copies both ways until one side ends.
func (p *Proxy) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	if to == "" {
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // the client sees its connection end, as it would without a proxy
	}
	defer func() { _ = server.Close() }()
	if !p.keep(to, client, server) {
		return
	}
	defer p.forget(client, server)
	var back sync.WaitGroup
	back.Go(func() { p.copy(client, server) })
	p.copy(server, client)
	back.Wait()
}

// copy ends when either side does, and ends the other.
func (p *Proxy) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, readErr := from.Read(buf)
		p.flow.RLock()
		_, writeErr := to.Write(buf[:n])
		if readErr != nil || writeErr != nil {
			_ = to.Close() // the other copy may have closed it
		}
		p.flow.RUnlock()
		if readErr != nil || writeErr != nil {
			return
		}
	}
}

// keep notes the connections for Cut, unless it was called meanwhile.
func (p *Proxy) keep(to string, conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to != to {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}
