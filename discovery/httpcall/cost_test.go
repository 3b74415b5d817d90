package httpcall

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/trace"
)

// maxAdded allocations of a guarded call over a plain one.
const maxAdded = 12

// layer is a part of the path of a call, on top of those before it.
type layer struct {
	name   string
	client *http.Client
	url    string
	ctx    context.Context
}

// layers are a plain call and what comes on top, one by one.
func layers(tb testing.TB) []layer {
	in := canned(tb)
	in.Env = "t2"
	source := registered(tb, in)
	ctx, cancel := context.WithCancel(context.Background()) // as that of a server's request
	tb.Cleanup(cancel)
	own, cancelOwn := context.WithTimeout(ctx, time.Hour)
	tb.Cleanup(cancelOwn)
	inTrace := trace.In(ctx, traced, "")
	plain := &http.Client{Transport: defaultBase()}
	tb.Cleanup(plain.CloseIdleConnections)
	through := func(off bool, lane route.Query) *http.Client {
		g, err := guard.New(callerIn(tb, source, "order-core", "t2", lane), guard.Options{Default: guard.Settings{Off: off}})
		if err != nil {
			tb.Fatal(err)
		}
		return clientOf(tb, NewGuarded(g, nil))
	}
	lane := route.Query{Env: "t2", Base: "t0"}
	const name = "http://order-core/path"
	return []layer{
		{"plain", plain, "http://" + in.Address.String() + "/path", ctx},
		{"pick and address", through(true, route.Query{}), name, own},
		{"lane", through(true, lane), name, own},
		{"deadline", through(true, lane), name, ctx},
		{"guard", through(false, lane), name, ctx},
		{"trace", through(false, lane), name, inTrace},
	}
}

// canned is an instance that answers each request with the same bytes, and costs nothing.
func canned(tb testing.TB) discovery.Instance {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go func() {
				defer func() { _ = conn.Close() }()
				request, answer := make([]byte, 4096), []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
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
	}()
	return instance(tb, "order-core", "prod", l.Addr().String())
}

// once makes one call and reads it to the end.
func (l layer) once(tb testing.TB, room []byte) {
	req, err := http.NewRequestWithContext(l.ctx, http.MethodGet, l.url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	for err == nil {
		_, err = resp.Body.Read(room)
	}
	if err != io.EOF {
		tb.Fatal(err)
	}
	_ = resp.Body.Close()
}

// The whole guarded call has at most 12 allocations more than a plain one.
func TestAllocationsOfAGuardedCall(t *testing.T) {
	if raceDetector {
		return // the detector allocates
	}
	room := make([]byte, 64)
	var first, before float64
	for at, l := range layers(t) {
		l.once(t, room)  // connects
		n := math.Inf(1) // the least of five: the garbage collector empties pools of net/http
		for range 5 {
			n = min(n, testing.AllocsPerRun(200, func() { l.once(t, room) }))
		}
		if at == 0 {
			first, before = n, n
		}
		t.Logf("%-18s %+3.0f", l.name, n-before)
		before = n
	}
	if added := before - first; added > maxAdded {
		t.Errorf("%.0f allocations more than a plain call's %.0f, at most %d", added, first, maxAdded)
	}
}

// What each layer costs on top of the one before, with net/http and sockets.
func BenchmarkHTTPCall(b *testing.B) {
	room := make([]byte, 64)
	for _, l := range layers(b) {
		b.Run(l.name, func(b *testing.B) {
			l.once(b, room)
			b.ReportAllocs()
			for b.Loop() {
				l.once(b, room)
			}
		})
	}
}

// What all layers cost on top of net/http, which does nothing here.
func BenchmarkRoundTrip(b *testing.B) {
	in := instance(b, "order-core", "t2", "10.0.0.1:80")
	t := New(callerIn(b, registered(b, in), "order-core", "t2", route.Query{Env: "t2", Base: "t0"}), nothing{})
	req, err := http.NewRequestWithContext(trace.In(b.Context(), traced, ""), http.MethodGet, "http://order-core/path", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.RoundTrip(req); err != nil {
			b.Fatal(err)
		}
	}
}

type nothing struct{}

func (nothing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}
