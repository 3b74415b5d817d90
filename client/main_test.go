package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"

	"dispatch.example/dispatch/client"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// newClient fails the test if the options are wrong, and closes the client at its end.
func newClient(t testing.TB, opt client.Options) *client.Client {
	t.Helper()
	c, err := client.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// bank serves the bootstrap hosts of options() without a network, so that it also works in
// virtual time. Each host answers with what the test put there.
type bank struct {
	mu    sync.Mutex
	hosts map[string]http.HandlerFunc
	asked []*http.Request
}

const (
	wap1 = "wap1.bank.example"
	wap2 = "wap2.bank.example"
)

// both hosts answer alike.
func both(h http.HandlerFunc) *bank {
	return &bank{hosts: map[string]http.HandlerFunc{wap1: h, wap2: h}}
}

func (b *bank) set(h http.HandlerFunc, hosts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, host := range hosts {
		b.hosts[host] = h
	}
}

// requests are those so far, oldest first.
func (b *bank) requests() []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*http.Request(nil), b.asked...)
}

func (b *bank) last() *http.Request {
	all := b.requests()
	return all[len(all)-1]
}

// RoundTrip runs the host's handler. A handler that panics with http.ErrAbortHandler breaks
// the connection.
func (b *bank) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	b.mu.Lock()
	b.asked = append(b.asked, req)
	h := b.hosts[req.URL.Host]
	b.mu.Unlock()
	defer func() {
		if recover() != nil {
			resp, err = nil, io.ErrUnexpectedEOF
		}
	}()
	w := httptest.NewRecorder()
	h(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func (b *bank) options() client.Options {
	opt := options()
	opt.Transport = b
	return opt
}

// says answers with a JSON body.
func says(body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text(body))
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hangs answers nothing until the caller gives up.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// breaks ends the connection without an answer.
func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// disk is a Store whose state a test can read, break and copy.
type disk struct {
	mu    sync.Mutex
	state []byte
	saves int
	err   error
}

func (d *disk) Load() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state, d.err
}

func (d *disk) Save(state []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.state, d.saves = state, d.saves+1
	}
	return d.err
}

func background() context.Context { return context.Background() }
