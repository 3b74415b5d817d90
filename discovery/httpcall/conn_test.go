package httpcall

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
)

// secure is a client over TLS to example.com that trusts this server.
func secure(t *testing.T, s *httptest.Server, p *picks) *http.Client {
	base := defaultBase()
	base.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	base.TLSClientConfig.NextProtos = nil
	return clientOf(t, New(p, base))
}

// Once there was a connection, a POST may have had its effect, whatever TLS says then.
func TestPostIsSentOnceOverTLS(t *testing.T) {
	t.Parallel()
	var effects atomic.Int64
	trusted := httptest.NewTLSServer(nil)
	t.Cleanup(trusted.Close)
	serve := func(plain bool) discovery.Instance { // one that answers outside of TLS, or in it
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		set := trusted.TLS.Clone()
		set.NextProtos = nil
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // the test is over
				}
				go func() {
					defer func() { _ = c.Close() }()
					s := tls.Server(c, set)
					r, err := http.ReadRequest(bufio.NewReader(s))
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					effects.Add(1)
					to := io.Writer(s)
					if plain {
						to = c
					}
					_, _ = io.WriteString(to, "HTTP/1.1 500 so\r\nContent-Length: 0\r\n\r\n")
				}()
			}
		}()
		return instance(t, "example.com", "prod", l.Addr().String())
	}
	p := &picks{inTurn: true}
	p.set(1, serve(true), serve(false))
	got := textOf(secure(t, trusted, p).Post("https://example.com/pay", "text/plain", strings.NewReader("100")))
	if effects.Load() != 1 || p.outcomes() != "failed" {
		t.Errorf("%q: it had its effect %d times, outcomes %s", got, effects.Load(), p.outcomes())
	}
}

// A handshake that fails is no connection: nothing was sent, another instance is asked.
func TestHandshakesThatFail(t *testing.T) {
	t.Parallel()
	good := httptest.NewTLSServer(says("ok", nil))
	t.Cleanup(good.Close)
	newer := httptest.NewUnstartedServer(says("ok", nil))
	newer.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	newer.StartTLS()
	t.Cleanup(newer.Close)
	closes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closes.Close() })
	go func() {
		for {
			c, err := closes.Accept()
			if err != nil {
				return // the test is over
			}
			_ = c.Close()
		}
	}()
	plain := httptest.NewServer(says("ok", nil))
	t.Cleanup(plain.Close)
	for name, address := range map[string]net.Addr{
		"closes in it": closes.Addr(), "no common version": newer.Listener.Addr(), "plain HTTP": plain.Listener.Addr(),
	} {
		p := &picks{inTurn: true}
		p.set(1, instance(t, "example.com", "prod", address.String()), instance(t, "example.com", "prod", good.Listener.Addr().String()))
		base := defaultBase()
		base.TLSClientConfig = good.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		base.TLSClientConfig.MaxVersion = tls.VersionTLS12
		got := textOf(clientOf(t, New(p, base)).Post("https://example.com/", "text/plain", strings.NewReader("x")))
		if got != "ok" || p.outcomes() != "unreachable answered" {
			t.Errorf("%s: %q, outcomes %s", name, got, p.outcomes())
		}
	}
}

// Who answers 503 under load is not connected to anew for each answer.
func TestRetriesKeepConnections(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	busy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "busy")
	}))
	busy.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	busy.Start()
	t.Cleanup(busy.Close)
	_, _, client := calling(t, guard.Settings{}, instance(t, "order-core", "prod", busy.Listener.Addr().String()), status(t, 200))
	for range 9 {
		if got := textOf(client.Get("http://order-core/")); got != "OK" {
			t.Error(got)
		}
		<-time.After(5 * time.Millisecond) // the rest of the answer is read meanwhile
	}
	if n := opened.Load(); n > 2 {
		t.Errorf("%d connections for 9 calls, one after the other", n)
	}
}

// The rest of an answer that does not come keeps no retry waiting.
func TestRetriesWaitForNoBody(t *testing.T) {
	t.Parallel()
	half := raw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 503 so\r\nContent-Length: 100\r\n\r\nhalf")
	})
	_, _, client := calling(t, guard.Settings{}, half, status(t, 200))
	began := time.Now()
	if got := textOf(client.Get("http://order-core/")); got != "OK" || time.Since(began) > time.Second {
		t.Errorf("%q after %s", got, time.Since(began))
	}
}

// A degraded value may be one response for all calls.
func TestDegradedValueMayBeShared(t *testing.T) {
	t.Parallel()
	shared := &http.Response{Header: http.Header{"Content-Type": {"text/plain"}}}
	_, transport, client := calling(t, guard.Settings{}, status(t, 500))
	transport.Degraded = map[string]Degraded{"order-core": func(*http.Request, error) (*http.Response, error) { return shared, nil }}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				resp, err := client.Get("http://order-core/")
				if err != nil || DegradedOf(resp) == "" || resp.Header.Get("Content-Type") != "text/plain" {
					t.Errorf("%+v, %v", resp, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
	if len(shared.Header) != 1 || shared.Request != nil || shared.StatusCode != 0 {
		t.Errorf("the value was changed: %+v", shared)
	}
}

// A45 over HTTP/2: the connection of older rules ends with its last call.
func TestHTTP2ConnectionEndsWithItsRules(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var open atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	p, in := &picks{}, instance(t, "example.com", "prod", s.Listener.Addr().String())
	p.set(1, in)
	client := secure(t, s, p)
	if got := textOf(client.Get("https://example.com/")); got != "HTTP/2.0" {
		t.Fatal(got)
	}
	slow := make(chan string)
	for range 3 {
		go func() { slow <- textOf(client.Get("https://example.com/slow")) }()
	}
	<-time.After(100 * time.Millisecond)
	p.set(2, in)
	if got := textOf(client.Get("https://example.com/")); got != "HTTP/2.0" || open.Load() != 2 {
		t.Errorf("%q, %d connections", got, open.Load())
	}
	close(release)
	for range 3 {
		if got := <-slow; got != "HTTP/2.0" {
			t.Error(got)
		}
	}
	for began := time.Now(); open.Load() != 1; <-time.After(time.Millisecond) {
		if time.Since(began) > 2*time.Second {
			t.Fatalf("%d connections are open after the last call of older rules", open.Load())
		}
	}
}

// A service whose answers take four seconds to read is found well by their headers.
func TestLongBodiesCloseTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sick atomic.Bool
		w, p, transport, all := pooled(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if sick.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(2 * time.Second)
			_, _ = io.WriteString(w, "long")
		}))
		defer w.end()
		defer transport.CloseIdleConnections()
		p.set(7, all[0])
		client := &http.Client{Transport: transport}
		sick.Store(true)
		for range 25 {
			_ = textOf(client.Get("http://order-core/"))
		}
		sick.Store(false)
		time.Sleep(30 * time.Second)
		var probes []*http.Response
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://order-core/", nil)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			probes = append(probes, resp)
		}
		if word := transport.Guard().State()["order-core"].Word; word != "closed" {
			t.Errorf("after the headers of three probes it is %s", word)
		}
		told := len(p.ended)
		for _, resp := range probes {
			if got := textOf(resp, nil); got != "long" {
				t.Error(got)
			}
		}
		if len(p.ended) != told+3 {
			t.Errorf("instances were told of %d ends", len(p.ended)-told)
		}
	})
}

// A process without file descriptors blames nobody.
func TestOwnFaultsBlameNobody(t *testing.T) {
	t.Parallel()
	p := &picks{}
	p.set(1, instance(t, "order-core", "prod", "10.0.0.1:80"))
	base := defaultBase()
	base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	transport := New(p, base)
	for range 25 {
		_ = textOf(clientOf(t, transport).Get("http://order-core/"))
	}
	if got := p.outcomes(); strings.ReplaceAll(got, "canceled", "") != strings.Repeat(" ", 24) || transport.Guard().State()["order-core"].Word != "closed" {
		t.Error(got)
	}
}
