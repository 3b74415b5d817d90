package httpcall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
)

const traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// T93: the trace of what came in goes out with each call, from this hop's span. Without
// one a caller's own headers stay.
func TestTraceTravels(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s|%s", r.Header.Get("Traceparent"), r.Header.Get("Tracestate"))
	})
	_, _, client := calling(t, guard.Settings{}, serving(t, "order-core", "prod", echo))
	call := func(ctx context.Context, parent, state string) string {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://order-core/", nil)
		req.Header.Set("Traceparent", parent)
		req.Header.Set("Tracestate", state)
		defer func() {
			if req.Header.Get("Traceparent") != parent || req.Header.Get("Tracestate") != state || len(req.Header) != 2 {
				t.Errorf("the request was changed: %v", req.Header)
			}
		}()
		return textOf(client.Do(req))
	}
	if got := call(t.Context(), "mine", "also=mine"); got != "mine|also=mine" {
		t.Errorf("without a trace: %q", got)
	}
	for _, c := range []struct {
		headers http.Header
		want    string
	}{
		{http.Header{"Traceparent": {traced}, "Tracestate": {"a=1", "b=2"}}, `^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01\|a=1,b=2$`},
		{http.Header{"Traceparent": {traced, traced}}, `^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\|$`}, // two are none
		{http.Header{}, `^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\|$`},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = c.headers
		Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got := call(r.Context(), "mine", "also=mine")
			if !regexp.MustCompile(c.want).MatchString(got) || strings.Contains(got, "00f067aa0ba902b7") {
				t.Errorf("%q, want %s", got, c.want)
			}
			if again := strings.Contains(got, "4bf92f3577b34da6a3ce929d0e0e4736"); again != (len(c.headers["Traceparent"]) == 1) {
				t.Errorf("%v became %q", c.headers, got)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}

// A failure at the end of a chain is tried again by the hop before it, and once more for
// each hop whose own attempt then failed, however many: the mark of a retry travels.
func TestRetriesDoNotMultiplyOverHops(t *testing.T) {
	t.Parallel()
	var last atomic.Int64
	level := []discovery.Instance{}
	for range 2 {
		level = append(level, serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			last.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		})))
	}
	for hops, want := range []int64{2, 3, 4, 5} {
		_, _, client := calling(t, guard.Settings{}, level...)
		last.Store(0)
		if got := textOf(client.Get("http://order-core/")); got != "" || last.Load() != want {
			t.Errorf("%q; behind %d hops the last was asked %d times, want %d", got, hops, last.Load(), want)
		}
		level = nil
		for range 2 {
			level = append(level, serving(t, "order-core", "prod", Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://order-core/", nil)
				_ = textOf(client.Do(req))
				w.WriteHeader(http.StatusServiceUnavailable)
			}))))
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(guard.RetryHeader, "1")
	StripBaggage(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get(guard.RetryHeader) != "" {
			t.Error("the edge lets the mark of a retry in")
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
}

// T92 on sockets: every instance is down, 1,000 calls a second with two retries each.
// The breaker is left to itself, so this is what users see.
func TestTotalOutageOnSockets(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	var all []discovery.Instance
	for range 4 {
		all = append(all, serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			attempts.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		})))
	}
	p := &picks{}
	p.set(1, all...)
	g, err := guard.New(p, guard.Options{Default: guard.Settings{Retries: 2}})
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, NewGuarded(g, nil))
	const calls = 1000
	var refused atomic.Int64
	var asked sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range calls {
		<-tick.C
		asked.Go(func() {
			resp, err := client.Get("http://order-core/")
			if _, open := errors.AsType[*guard.Open](err); open {
				refused.Add(1)
				return
			}
			_ = textOf(resp, err)
		})
	}
	asked.Wait()
	if n := attempts.Load(); n < 20 || n > calls*12/10 || refused.Load() < calls/2 {
		t.Errorf("%d attempts for %d calls, %d refused", n, calls, refused.Load())
	}
}

// HTTP/2 ends at the deadline too, and its connection serves on.
func TestGuardsOverHTTP2(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	p := &picks{}
	p.set(1, instance(t, "example.com", "prod", server.Listener.Addr().String()))
	g, err := guard.New(p, guard.Options{Default: guard.Settings{Deadline: 300 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	base := defaultBase()
	base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	base.TLSClientConfig.NextProtos = nil
	client := clientOf(t, NewGuarded(g, base))
	for _, want := range []string{"HTTP/2.0", "deadline exceeded", "HTTP/2.0"} {
		path := map[bool]string{true: "/hang"}[want == "deadline exceeded"]
		if got := textOf(client.Get("https://example.com" + path)); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if p.outcomes() != "answered silent answered" {
		t.Errorf("outcomes %s", p.outcomes())
	}
	// A certificate of another name: nobody is connected to.
	other := &picks{}
	other.set(1, instance(t, "order-core", "prod", server.Listener.Addr().String()))
	if got := textOf(clientOf(t, New(other, base)).Get("https://order-core/")); other.outcomes() != "unreachable" {
		t.Errorf("%q, outcomes %s", got, other.outcomes())
	}
}

// A connection that was handed over lives as long as its owners want.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	server := serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = both.Flush()
		line, _ := both.ReadString('\n')
		_, _ = both.WriteString(line)
		_ = both.Flush()
	}))
	p, _, client := calling(t, guard.Settings{Deadline: 100 * time.Millisecond}, server)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://order-core/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body is a %T", resp.Body)
	}
	defer func() { _ = conn.Close() }()
	<-time.After(200 * time.Millisecond) // past the deadline of the call
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" || p.outcomes() != "answered" {
		t.Errorf("%q, %v, outcomes %s", line, err, p.outcomes())
	}
}

// One Guard for two transports, and for a real caller: the breaker is the callee's.
func TestTransportsShareAGuard(t *testing.T) {
	t.Parallel()
	c := callerIn(t, registered(t, status(t, 500)), "order-core", "prod", route.Query{})
	g, err := guard.New(c, guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	one, two := clientOf(t, NewGuarded(g, nil)), clientOf(t, NewGuarded(g, nil))
	for range 30 {
		_ = textOf(one.Get("http://order-core/"))
	}
	_, err = two.Get("http://order-core/")
	open, ok := errors.AsType[*guard.Open](err)
	if !ok {
		t.Fatal(err)
	}
	if r, _, _ := c.Explain(open.Record); r.Reason != route.ByBreaker || r.Service != "order-core" {
		t.Errorf("%+v", r)
	}
}
