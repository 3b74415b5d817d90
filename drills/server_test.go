package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/heartbeat"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/internal/signed"
)

// serverPart is an instance of a service, and of SERVICE-rpc when it speaks gRPC too.
//
//	GET /               a call, with the faults that were asked for
//	POST /drill/faults  faults, as JSON
//	POST /drill/burn    from now on one processor is busy
//	GET /drill/counts   counts, as JSON
type serverPart struct {
	Service  string
	Listen   string
	RPC      string `json:",omitempty"` // address of gRPC; empty: none
	Registry string `json:",omitempty"` // where it registers; empty: nowhere
	Version  string
	Control  *controlled `json:",omitempty"` // told every 10 s how busy this process is
	Bare     bool        `json:",omitempty"` // without what the layer does at the callee, and the same answer to all
}

// faults are what a server does wrong, evenly spread: Fail of 100 calls get a 503,
// Slow of 100 wait for Wait first, or until Until.
type faults struct {
	Fail, Slow int           `json:",omitempty"`
	Wait       time.Duration `json:",omitempty"`
	Until      time.Time     `json:",omitzero"`
}

// counts are what a server saw.
type counts struct {
	Calls, RPCs int64
	Open, Most  int64 // connections now, and at most
}

// server is a serverPart that plays.
type server struct {
	health.UnimplementedHealthServer
	faults            atomic.Pointer[faults]
	calls, rpcs       atomic.Int64
	mu                sync.Mutex // guards the rest
	connections, peak int64
}

func (p *serverPart) play(ctx context.Context, log *slog.Logger) error {
	s := &server{}
	s.faults.Store(&faults{})
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.Listen)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: httpcall.Middleware(s.handler()), ConnState: s.connection, ReadHeaderTimeout: 5 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if p.Bare {
			return canned(ctx, l)
		}
		return ended(web.Serve(l))
	})
	stop := web.Shutdown
	addresses := map[string]net.Listener{p.Service: l}
	if p.RPC != "" {
		rl, err := new(net.ListenConfig).Listen(ctx, "tcp", p.RPC)
		if err != nil {
			return err
		}
		opts := grpccall.ServerOptions(nil)
		if p.Bare {
			opts = nil
		}
		rpc := grpc.NewServer(opts...)
		health.RegisterHealthServer(rpc, s)
		group.Go(func() error { return rpc.Serve(rl) })
		addresses[p.Service+rpcSuffix] = rl
		stop = func(ctx context.Context) error {
			rpc.GracefulStop()
			return web.Shutdown(ctx)
		}
	}
	group.Go(func() error { return p.stay(ctx, addresses, stop, log) })
	return group.Wait()
}

// rpcSuffix makes the name of the service that speaks gRPC.
const rpcSuffix = "-rpc"

// stay registers where it was told to, and leaves with ctx: first the registry, then the rest.
func (p *serverPart) stay(ctx context.Context, at map[string]net.Listener, stop func(context.Context) error, log *slog.Logger) error {
	if p.Registry == "" {
		fmt.Println(ready)
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return stop(ending)
	}
	source, err := discovery.Open(p.Registry, discovery.Options{Log: log})
	if err != nil {
		return err
	}
	defer source.Close()
	var all []discovery.Instance
	for name, l := range at {
		address, err := discovery.ParseAddress(l.Addr().String())
		if err != nil {
			return err
		}
		all = append(all, discovery.Instance{Service: name, Address: address, Coordinates: home(p.Version)})
	}
	reg, err := discovery.Register(ctx, source, discovery.RegisterOptions{Log: log, Force: true}, all...)
	if err != nil {
		return err
	}
	fmt.Println(ready)
	group, ctx := errgroup.WithContext(ctx)
	if p.Control != nil {
		tokens, err := signed.ReadTokens(p.Control.TokenFile)
		if err != nil {
			return err
		}
		beat, err := heartbeat.New(heartbeat.Options{Control: []string{p.Control.URL}, Token: tokens[0], Instances: reg.Instances(), Log: log})
		if err != nil {
			return err
		}
		group.Go(func() error { return beat.Run(ctx) })
	}
	group.Go(func() error { return reg.RunThen(ctx, stop) })
	return group.Wait()
}

// canned answers whatever is sent with the same bytes, until ctx ends: it costs as
// little as a server can.
func canned(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil // it was closed
		}
		go func() { // until the caller closes, or the process ends
			defer func() { _ = conn.Close() }()
			request, answer := make([]byte, 4<<10), []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			for {
				if _, err := conn.Read(request); err != nil {
					return
				}
				if _, err := conn.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if s.fault(r.Context(), s.calls.Add(1)) {
			http.Error(w, "a fault that was asked for", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "served") // whoever is gone reads nothing
	})
	mux.HandleFunc("POST /drill/faults", func(w http.ResponseWriter, r *http.Request) {
		var f faults
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.faults.Store(&f)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /drill/burn", func(w http.ResponseWriter, _ *http.Request) {
		go func() { // until the process ends
			for n := uint64(1); n != 0; n++ {
			}
		}()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /drill/counts", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		c := counts{Calls: s.calls.Load(), RPCs: s.rpcs.Load(), Open: s.connections, Most: s.peak}
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(c) // whoever is gone reads nothing
	})
	return mux
}

// fault waits if call n is a slow one, and says whether it fails.
func (s *server) fault(ctx context.Context, n int64) bool {
	f := s.faults.Load()
	if chosen(n, f.Slow) {
		timer := time.NewTimer(max(f.Wait, time.Until(f.Until)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return chosen(n, f.Fail)
}

// chosen spreads so many of 100 evenly.
func chosen(n int64, of100 int) bool { return n*int64(of100)%100 < int64(of100) }

// Check implements health.HealthServer: it is the one method that callers call.
func (s *server) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if s.fault(ctx, s.rpcs.Add(1)) {
		return nil, status.Error(codes.Unavailable, "a fault that was asked for")
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

// connection counts them.
func (s *server) connection(_ net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.connections++
		s.peak = max(s.peak, s.connections)
	case http.StateClosed, http.StateHijacked:
		s.connections--
	}
}

// setFaults makes the server at an address do wrong from now on.
func setFaults(t testing.TB, address string, f faults) {
	t.Helper()
	text, err := json.Marshal(f)
	must(t, err)
	direct(t, http.MethodPost, address, "/drill/faults", text)
}

// countsOf are what the server at an address saw.
func countsOf(t testing.TB, address string) (c counts) {
	t.Helper()
	must(t, json.Unmarshal(direct(t, http.MethodGet, address, "/drill/counts", nil), &c))
	return c
}

// direct asks an address past the layer.
func direct(t testing.TB, method, address, path string, body []byte) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, bytes.NewReader(body))
	must(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}).Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s at %s: %s: %s", method, path, address, resp.Status, text)
	}
	return text
}
