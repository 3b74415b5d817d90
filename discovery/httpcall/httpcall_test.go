package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery/baggage"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/fault"
)

// A01: a name goes in, and everything but the place arrives as it was.
func TestCallByName(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s %s %s", r.Method, r.Host, r.URL, r.Header.Get("X-Mine"), body)
	})
	p := &picks{}
	six := httptest.NewUnstartedServer(echo)
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = six.Listener.Close()
	six.Listener = l
	six.Start()
	t.Cleanup(six.Close)
	p.set(1, serving(t, "order-core", "prod", echo), serving(t, "passport_server.rpc_service", "prod", echo),
		instance(t, "six", "prod", l.Addr().String())) // T25
	client := clientOf(t, New(p, nil))
	for _, service := range []string{"order-core", "passport_server.rpc_service", "six"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+service+"/a%2Fb?q=1", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Mine", "kept")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := "PUT " + service + "/a%2Fb?q=1 kept body"; string(text) != want {
			t.Errorf("%q, want %q", text, want)
		}
		if req.URL.Host != service || req.Host != service || len(req.Header) != 1 {
			t.Errorf("the request was changed: %s, %s, %v", req.URL, req.Host, req.Header)
		}
		if pick, ok := PickOf(resp); !ok || pick.Instance.Service != service || resp.Request.URL.Host != service {
			t.Errorf("the response is of %+v, request %s", pick, resp.Request.URL)
		}
	}
	if _, ok := PickOf(&http.Response{Request: &http.Request{}}); ok {
		t.Error("a response of others has a pick")
	}
}

// A01: an address is refused, or passed through by who says so.
func TestAddresses(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	there := serving(t, "order-core", "prod", says("here", &calls)).Address
	p := &picks{}
	p.set(1)
	plain, through := New(p, nil), New(p, nil)
	through.PassThrough = true
	for _, host := range []string{there.String(), "127.0.0.1", "[::1]", "[::1]:80", "order-core:80", "api.example.com"} {
		body := &closing{Reader: strings.NewReader("x")}
		req := httptest.NewRequest(http.MethodPost, "http://"+host+"/", body)
		_, err := plain.RoundTrip(req)
		if fault.CodeOf(err) != "address_called" || !body.closed {
			t.Errorf("%s: %v; body closed %v", host, err, body.closed)
		}
	}
	if calls.Load() != 0 || len(p.lanes) != 0 {
		t.Errorf("%d calls, %d picks", calls.Load(), len(p.lanes))
	}
	if text, err := get(t, clientOf(t, through), t.Context(), "http://"+there.String()+"/"); text != "here" || err != nil {
		t.Errorf("passed through: %q, %v", text, err)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// A pick without a match is the error of the call, as it is, and nothing is sent.
func TestNoMatch(t *testing.T) {
	t.Parallel()
	p := &picks{own: route.Query{Env: "test"}}
	p.set(1, instance(t, "order-core", "prod", "127.0.0.1:1"))
	transport := New(p, nil)
	body := &closing{Reader: strings.NewReader("x")}
	_, err := transport.RoundTrip(httptest.NewRequest(http.MethodPost, "http://order-core/", body))
	if none, ok := err.(*route.NoMatch); !ok || none.Service != "order-core" || !body.closed {
		t.Errorf("%v; body closed %v", err, body.closed)
	}
	_, err = get(t, clientOf(t, transport), t.Context(), "http://order-core/")
	if none, ok := errors.AsType[*route.NoMatch](err); !ok || none.Known != 1 {
		t.Errorf("through a client: %v", err)
	}
}

// T80: a call that fails says where it went, and why not elsewhere.
func TestFailedCall(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there now
	p := &picks{}
	p.set(1, instance(t, "order-core", "prod", l.Addr().String()))
	_, err = get(t, clientOf(t, New(p, nil)), t.Context(), "http://order-core/")
	failed, ok := errors.AsType[*Error](err)
	if !ok || failed.Service != "order-core" || failed.Pick.Instance.Address.String() != l.Addr().String() ||
		failed.Attempts != 1 || failed.Stop != guard.Single || !strings.Contains(err.Error(), "single instance") || p.outcomes() != "unreachable" {
		t.Errorf("%v; outcomes %s", err, p.outcomes())
	}
	if failed, ok := errors.AsType[*url.Error](err); !ok || failed.Timeout() {
		t.Errorf("%v is a timeout", err)
	}
}

func TestCancelledCall(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}), make(chan struct{})
	p := &picks{}
	p.set(1, serving(t, "order-core", "prod", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := get(t, clientOf(t, New(p, nil)), ctx, "http://order-core/"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the instance works on")
	}
}

func TestDeadlineIsATimeout(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	p := &picks{}
	p.set(1, serving(t, "order-core", "prod", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	})))
	defer close(ended)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := get(t, clientOf(t, New(p, nil)), ctx, "http://order-core/")
	if failed, ok := errors.AsType[*url.Error](err); !ok || !failed.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is no timeout", err)
	}
}

// Relative redirects are by name, and picked again; one to an address is refused.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var to atomic.Value
	to.Store("/b")
	p := &picks{}
	p.set(1, serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			http.Redirect(w, r, to.Load().(string), http.StatusFound)
			return
		}
		fmt.Fprint(w, r.Host, r.URL.Path)
	})))
	client := clientOf(t, New(p, nil))
	if text, err := get(t, client, t.Context(), "http://order-core/a"); text != "order-core/b" || err != nil || len(p.lanes) != 2 {
		t.Errorf("%q, %v after %d picks", text, err, len(p.lanes))
	}
	to.Store("http://127.0.0.1:1/")
	if _, err := get(t, client, t.Context(), "http://order-core/a"); fault.CodeOf(err) != "address_called" {
		t.Errorf("a redirect to an address: %v", err)
	}
}

// A certificate is for the name that is called, whichever instance is picked.
func TestCertificateIsForTheName(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.TLS.ServerName) }))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		p := &picks{}
		there := instance(t, "example.com", "prod", server.Listener.Addr().String())
		other := there
		other.Service = "order-core"
		p.set(1, there, other)
		base := defaultBase()
		base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		base.TLSClientConfig.NextProtos = nil
		base.ForceAttemptHTTP2 = http2
		client := clientOf(t, New(p, base))
		want := map[bool]string{false: "HTTP/1.1 example.com", true: "HTTP/2.0 example.com"}[http2]
		if text, err := get(t, client, t.Context(), "https://example.com/"); text != want || err != nil {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
		client.CloseIdleConnections()
		if _, err := get(t, client, t.Context(), "https://order-core/"); err == nil || !strings.Contains(err.Error(), "not order-core") {
			t.Errorf("the certificate of another name: %v", err)
		}
	}
}

// B02, B04: three hops. The third sees what the entry stamped, although the one
// between belongs to the base and was called without a word about lanes.
func TestLaneOverThreeHops(t *testing.T) {
	t.Parallel()
	// A in t2 calls B, which is in t0 only, which calls C, which is in both.
	b, c := &picks{own: route.Query{Env: "t0"}}, &picks{}
	hop := func(name string, next http.RoundTripper) http.Handler {
		return Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lane := caller.LaneOf(r.Context())
			fmt.Fprintf(w, "%s:%s/%s/%s[%s] ", name, lane.Env, lane.Base, lane.Person, r.Header.Get(baggage.Header))
			if next != nil {
				text, err := get(t, &http.Client{Transport: next}, r.Context(), "http://c/")
				fmt.Fprint(w, text, err)
			}
		}))
	}
	fromB := New(b, nil)
	t.Cleanup(fromB.CloseIdleConnections)
	b.set(1, serving(t, "c", "t0", hop("c-t0", nil)), serving(t, "c", "t2", hop("c-t2", nil)))
	c.set(1, serving(t, "b", "t0", hop("b-t0", fromB)))

	entry := &picks{own: route.Query{Env: "t2", Base: "t0"}}
	entry.all = c.all
	client := clientOf(t, New(entry, nil))
	ask := func(ctx context.Context, headers http.Header) string {
		t.Helper()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://b/", nil)
		req.Header = headers
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	// The process's own lane, T60.
	if got, want := ask(t.Context(), nil), "b-t0:t2/t0/[env_id=t2,base_env=t0] c-t2:t2/t0/[env_id=t2,base_env=t0] <nil>"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// Traffic beats the process; a person and baggage of others travel along.
	ctx := caller.WithLane(t.Context(), route.Query{Env: "t0", Person: "li"})
	want := "b-t0:t0//li[env_id=t0,dispatch_person=li,other=1] c-t0:t0//li[env_id=t0,dispatch_person=li,other=1] <nil>"
	if got := ask(ctx, http.Header{"Baggage": {"other=1, env_id=forged"}}); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// D09: a person is named by hand at the first hop, and by baggage from then on.
func TestPersonByHand(t *testing.T) {
	t.Parallel()
	p := &picks{}
	p.set(1, serving(t, "c", "prod", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Baggage")) })))
	transport := New(p, nil)
	t.Cleanup(transport.CloseIdleConnections)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Dispatch-Version", "zlt2")
	Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := get(t, &http.Client{Transport: transport}, r.Context(), "http://c/")
		fmt.Fprint(w, text, err)
	})).ServeHTTP(w, r)
	if got := w.Body.String(); got != "dispatch_person=zlt2<nil>" {
		t.Errorf("%s", got)
	}
}

func TestMiddlewareRefusesALaneItCannotRead(t *testing.T) {
	t.Parallel()
	for _, h := range []http.Header{{"Baggage": {"env_id=%zz"}}, {"X-Dispatch-Version": {strings.Repeat("a", 200)}}} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = h
		Middleware(says("served", nil)).ServeHTTP(w, r)
		if w.Code != http.StatusUnprocessableEntity || strings.Contains(w.Body.String(), "served") {
			t.Errorf("%v: %d %s", h, w.Code, w.Body)
		}
	}
}

// The edge believes nobody outside about lanes.
func TestStripBaggage(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{"Baggage": {"env_id=prod,a=1", "dispatch_person=li"}, "X-Dispatch-Version": {"li"}, "X-Other": {"1"}}
	StripBaggage(Middleware(http.HandlerFunc(func(_ http.ResponseWriter, inside *http.Request) {
		if lane := caller.LaneOf(inside.Context()); lane != (route.Query{}) {
			t.Errorf("lane %+v", lane)
		}
		if inside.Header.Get("Baggage") != "a=1" || inside.Header.Get("X-Dispatch-Version") != "" || inside.Header.Get("X-Other") != "1" {
			t.Errorf("headers %v", inside.Header)
		}
	}))).ServeHTTP(httptest.NewRecorder(), r)
	if len(r.Header["Baggage"]) != 2 {
		t.Error("the request that came in was changed")
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	Count(&n, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n.Load() != 1 {
			t.Errorf("%d in work", n.Load())
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	func() {
		defer func() { _ = recover() }()
		Count(&n, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	if n.Load() != 0 {
		t.Errorf("%d in work at the end", n.Load())
	}
}
