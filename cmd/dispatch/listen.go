package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"dispatch.example/dispatch/handler"
)

// listeners are those of the role; the others are nil.
type listeners struct {
	public net.Listener
	adminL net.Listener
	ops    net.Listener
	fleetL net.Listener

	overrideL net.Listener // a Unix socket
}

// listen opens all listeners, so that an address that is taken is known at once.
func (p *process) listen(ctx context.Context) error {
	if !p.cfg.Role.serves() {
		return p.listenTCP(ctx)
	}
	opened, err := listenUnix(ctx, p.cfg.OverrideSocket)
	if err != nil {
		return err
	}
	p.overrideL = opened
	if err := p.listenTCP(ctx); err != nil {
		_ = opened.Close() // nothing was served on it
		return err
	}
	return nil
}

func (p *process) listenTCP(ctx context.Context) error {
	var opened []net.Listener
	serves, controls := p.cfg.Role.serves(), p.cfg.Role.controls()
	for _, l := range []struct {
		wanted     bool
		flag, addr string
		into       *net.Listener
	}{
		{serves, "--listen", p.cfg.Listen, &p.public},
		{controls, "--admin-listen", p.cfg.AdminListen, &p.adminL},
		{true, "--ops-listen", p.cfg.OpsListen, &p.ops},
		{controls, "--fleet-listen", p.cfg.Fleet.FleetListen, &p.fleetL},
	} {
		if !l.wanted {
			continue
		}
		got, err := new(net.ListenConfig).Listen(ctx, "tcp", l.addr)
		if err != nil {
			for _, o := range opened {
				_ = o.Close() // nothing was served on it
			}
			return fmt.Errorf("listen for %s: %w\ntry: another address, or end the process that has this one", l.flag, err)
		}
		opened = append(opened, got)
		*l.into = got
	}
	return nil
}

// spareFiles are what the process needs beside public connections: to its
// database, to other nodes, and for files.
const spareFiles = 512

// connections is --max-connections, or fewer where the system allows fewer: a
// process without files cannot write a release to its disk either. Go has raised
// the soft limit to the hard one.
func (c *serveCmd) connections(log *slog.Logger) int {
	allowed := maxOpenFiles() - spareFiles
	if c.MaxConnections <= allowed {
		return c.MaxConnections
	}
	allowed = max(allowed, 1)
	log.Warn("the system allows fewer connections than --max-connections", "allowed", allowed, "flag", c.MaxConnections,
		"try", "a higher limit of open files: LimitNOFILE in systemd, ulimits in compose, ulimit -n in a shell")
	return allowed
}

// maxOpenFiles is how many files and connections this process may have open.
func maxOpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// announce says where the process listens, before anything else may take time.
func (p *process) announce() {
	var b strings.Builder
	for _, l := range []struct {
		name string
		l    net.Listener
		url  string
	}{
		{"public", p.public, "http://%s/route"},
		{"admin", p.adminL, "http://%s/api/v1/openapi.json"},
		{"ops", p.ops, "http://%s/metrics"},
		{"fleet", p.fleetL, p.cfg.Fleet.scheme() + "://%s"},
	} {
		if l.l != nil {
			fmt.Fprintf(&b, "%-8s "+l.url+"\n", l.name, reachable(l.l.Addr()))
		}
	}
	fmt.Fprint(p.out.out, b.String())
}

// reachable is an address as somebody on this machine would type it.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("localhost", port)
}

// serve runs one server until ctx ends, then lets requests under way finish.
func (p *process) serve(ctx context.Context, s *http.Server, l net.Listener) error {
	if l == p.adminL || l == p.fleetL {
		s.Handler = traced(s.Handler)
	}
	served := make(chan error, 1)
	go func() {
		if s.TLSConfig != nil {
			served <- s.ServeTLS(l, "", "")
			return
		}
		served <- s.Serve(l)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.ShutdownTimeout)
	defer cancel()
	if err := s.Shutdown(end); err != nil {
		_ = s.Close() // some request outlasted the time-out
	}
	<-served
	return nil
}

// adminServer has no limit on the time of a request: an import may take minutes.
func adminServer(h http.Handler, log *slog.Logger) *http.Server {
	s := handler.Server(h, log)
	s.ReadTimeout, s.WriteTimeout = 0, 10*time.Minute
	return s
}
