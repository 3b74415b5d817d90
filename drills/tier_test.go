package drills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/httpcall"
)

// tierPart is a service within a chain, with so many workers. Each request takes one
// until it is answered, also GET /health: a pool that is full answers nothing.
type tierPart struct {
	Listen   string
	Workers  int
	Registry string // with the layer on
	Calls    string // the service that each request calls
	At       string // its address, with the layer off
	// Soft is the deadline of calls that the service can do without: when they fail, a
	// degraded value takes their place. 0: it needs them.
	Soft time.Duration `json:",omitempty"`
	Off  bool          // call as seed 002 did: no deadline, three tries
}

func (p *tierPart) play(ctx context.Context, log *slog.Logger) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.Listen)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	call := p.plain()
	if !p.Off {
		client, err := p.layer(ctx, group, log)
		if err != nil {
			return err
		}
		call = func(ctx context.Context) error { return get(ctx, client, "http://"+p.Calls+"/") }
	}
	web := &http.Server{Handler: httpcall.Middleware(p.handler(call)), ReadHeaderTimeout: 5 * time.Second}
	group.Go(func() error { return ended(web.Serve(l)) })
	group.Go(func() error {
		<-ctx.Done()
		return web.Close()
	})
	fmt.Println(ready)
	return group.Wait()
}

// layer is a client with default guards, and for what is soft a deadline and a value.
func (p *tierPart) layer(ctx context.Context, group *errgroup.Group, log *slog.Logger) (*http.Client, error) {
	source, err := discovery.Open(p.Registry, discovery.Options{Log: log})
	if err != nil {
		return nil, err
	}
	c, err := caller.New(caller.Options{Self: home("v1"), Registry: source, Services: []string{p.Calls}, Log: log})
	if err != nil {
		return nil, err
	}
	group.Go(func() error { return c.Run(ctx) })
	g, err := guard.New(c, guard.Options{Services: map[string]guard.Settings{p.Calls: {Deadline: p.Soft}}, Log: log})
	if err != nil {
		return nil, err
	}
	transport := httpcall.NewGuarded(g, nil)
	if p.Soft > 0 {
		transport.Degraded = map[string]httpcall.Degraded{p.Calls: func(*http.Request, error) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("nothing cached"))}, nil
		}}
	}
	return &http.Client{Transport: transport}, c.Ready(ctx)
}

// plain calls as net/http does when nobody thinks of time: also for a client that has gone.
func (p *tierPart) plain() func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.Workers}}
	return func(ctx context.Context) (err error) {
		for range 3 {
			if err = get(context.WithoutCancel(ctx), client, "http://"+p.At+"/"); err == nil {
				return nil
			}
		}
		return err
	}
}

func (p *tierPart) handler(call func(context.Context) error) http.Handler {
	workers := make(chan struct{}, p.Workers)
	var errNoWorker = errors.New("no worker was free")
	work := func(ctx context.Context, do func() error) error {
		select {
		case workers <- struct{}{}:
			defer func() { <-workers }()
			return do()
		case <-ctx.Done():
			return errNoWorker
		}
	}
	answer := func(do func(context.Context) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := work(r.Context(), func() error { return do(r.Context()) }); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			_, _ = io.WriteString(w, served) // whoever is gone reads nothing
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", answer(call))
	mux.HandleFunc("GET /health", answer(func(context.Context) error { return nil }))
	return mux
}

// waits are how long answers to GET /health took, by tier; none within a second counts
// as a second.
func waits(ctx context.Context, tiers []string) [][]time.Duration {
	all := make([][]time.Duration, len(tiers))
	var probes sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Second}
	defer client.CloseIdleConnections()
	for i, address := range tiers {
		probes.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					begin := time.Now()
					if err := get(context.WithoutCancel(ctx), client, "http://"+address+"/health"); err != nil {
						all[i] = append(all[i], time.Second)
					} else {
						all[i] = append(all[i], time.Since(begin))
					}
				}
			}
		})
	}
	probes.Wait()
	return all
}
