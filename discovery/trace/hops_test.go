package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/grpccall"
	"dispatch.example/dispatch/discovery/httpcall"
	"dispatch.example/dispatch/discovery/trace"
)

// chain are services a to e, each of which calls the next: a, c and e over HTTP, b and
// d over gRPC. All write one line a request into one log.
type chain struct {
	t      *testing.T
	addrs  map[string]string
	client *http.Client
	conns  map[string]health.HealthClient

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// Write implements io.Writer for the services' loggers.
func (c *chain) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

const order = "abcde"

// forward is what each service does: a line, and a call to the next one.
func (c *chain) forward(ctx context.Context, self int) error {
	slog.New(trace.Handler(slog.NewJSONHandler(c, nil))).InfoContext(ctx, "request", "service", order[self:self+1])
	if self+1 == len(order) {
		return nil
	}
	next := order[self+1 : self+2]
	if client := c.conns[next]; client != nil {
		_, err := client.Check(ctx, &health.HealthCheckRequest{})
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+next+"/", nil)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// overGRPC is a service whose call is the health check.
type overGRPC struct {
	health.UnimplementedHealthServer
	chain *chain
	self  int
}

func (s overGRPC) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	return &health.HealthCheckResponse{}, s.chain.forward(ctx, s.self)
}

// start starts the five and what they call each other with.
func start(t *testing.T) *chain {
	t.Helper()
	c := &chain{t: t, addrs: map[string]string{}, conns: map[string]health.HealthClient{}}
	var registry strings.Builder
	registry.WriteString("instances:\n")
	for i := range order {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		name := order[i : i+1]
		c.addrs[name] = l.Addr().String()
		fmt.Fprintf(&registry, "  - {service: %s, address: %q, cluster: k1, region: r1, env: test, version: v1}\n", name, l.Addr())
		if i%2 == 1 {
			server := grpc.NewServer(grpccall.ServerOptions(nil)...)
			health.RegisterHealthServer(server, overGRPC{chain: c, self: i})
			go func() { _ = server.Serve(l) }()
			t.Cleanup(server.Stop)
			continue
		}
		server := &http.Server{Handler: httpcall.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := c.forward(r.Context(), i); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
			}
		}))}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	calls := c.caller(registry.String())
	transport := httpcall.New(calls, nil)
	t.Cleanup(transport.CloseIdleConnections)
	c.client = &http.Client{Transport: transport}
	for _, name := range []string{"b", "d"} {
		conn, err := grpc.NewClient("dispatch:///"+name, append(grpccall.DialOptions(calls), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c.conns[name] = health.NewHealthClient(conn)
	}
	return c
}

func (c *chain) caller(registry string) *caller.Caller {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "registry.yaml")
	if err := os.WriteFile(path, []byte(registry), 0o600); err != nil {
		c.t.Fatal(err)
	}
	source, err := discovery.Open("static:"+path, discovery.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(source.Close)
	calls, err := caller.New(caller.Options{Self: discovery.Coordinates{Cluster: "k1", Region: "r1", Env: "test", Version: "v1"},
		Registry: source, Services: strings.Split(order, "")})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- calls.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	if err := calls.Ready(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return calls
}

// C05, C25, T93: one trace through both transports, and the order of its hops from
// the IDs of their spans.
func TestOneTraceThroughHTTPAndGRPC(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{"begun by the app": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "begun by the first": "", "unreadable": "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			t.Cleanup(http.DefaultClient.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.addrs["a"]+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(trace.Header, header)
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
			lines := strings.Split(strings.TrimSpace(c.log.String()), "\n")
			if len(lines) != len(order) {
				t.Fatalf("%d lines:\n%s", len(lines), c.log.String())
			}
			parent := trace.Parse(header)
			id, caller := parent.TraceID().String(), ""
			if parent.IsValid() {
				caller = parent.SpanID().String()
			}
			for i, text := range lines {
				var line struct{ Service, TraceID, SpanID, ParentSpanID string }
				if err := json.Unmarshal([]byte(text), &line); err != nil {
					t.Fatal(err)
				}
				if i == 0 && !parent.IsValid() {
					id = line.TraceID
				}
				if line.Service != order[i:i+1] || line.TraceID != id || len(id) != 32 || strings.Trim(id, "0") == "" || line.ParentSpanID != caller || len(line.SpanID) != 16 {
					t.Errorf("hop %d of trace %s below span %s: %s", i, id, caller, text)
				}
				caller = line.SpanID
			}
		})
	}
}

// C27: a caller that knows no trace sends no header, and its calls work.
func TestCallsWorkWithoutATrace(t *testing.T) {
	t.Parallel()
	c := start(t)
	sent := make(chan http.Header, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent <- r.Header })}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	calls := c.caller(fmt.Sprintf("instances:\n  - {service: a, address: %q, cluster: k1, region: r1, env: test, version: v1}\n", l.Addr()))
	transport := httpcall.New(calls, nil)
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://a/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if header := <-sent; header.Get(trace.Header) != "" || header.Get(trace.StateHeader) != "" {
		t.Errorf("%v", header)
	}
	if _, err := c.conns["b"].Check(t.Context(), &health.HealthCheckRequest{}); err != nil { // and over gRPC
		t.Error(err)
	}
}
