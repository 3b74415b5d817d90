package httpcall

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/guard"
)

// reads is a body of a caller of ours.
type reads func([]byte) (int, error)

func (r reads) Read(p []byte) (int, error) { return r(p) }

// swallow reads whatever comes.
func swallow(t *testing.T) discovery.Instance {
	return serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
}

// What a request's own body does is not its callee's fault, and opens no breaker.
func TestBadBodiesBlameNobody(t *testing.T) {
	t.Parallel()
	broken := errors.New("invalid chunk")
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
	}{
		"breaks at once": {body: reads(func([]byte) (int, error) { return 0, broken })},
		"breaks later":   {body: io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), reads(func([]byte) (int, error) { return 0, broken }))},
		"never comes":    {body: reads(func([]byte) (int, error) { <-stuck; return 0, io.ErrUnexpectedEOF })},
		"is too short":   {body: io.MultiReader(strings.NewReader("four")), length: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, transport, client := calling(t, guard.Settings{Deadline: 50 * time.Millisecond}, swallow(t))
			for range 25 {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://order-core/", c.body)
				req.ContentLength = c.length
				began := time.Now()
				_ = textOf(client.Do(req))
				if took := time.Since(began); took > 150*time.Millisecond+slack() {
					t.Errorf("it took %s of 50 ms", took)
				}
			}
			if got := p.outcomes(); strings.ReplaceAll(got, "canceled", "") != strings.Repeat(" ", 24) {
				t.Errorf("outcomes %s", got)
			}
			if word := transport.Guard().State()["order-core"].Word; word != "closed" {
				t.Errorf("the breaker is %s", word)
			}
		})
	}
}

// A body that cannot be had again is not the second instance's fault.
func TestBodyThatIsNotToBeHadAgain(t *testing.T) {
	t.Parallel()
	p, _, client := calling(t, guard.Settings{}, status(t, 503), swallow(t))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://order-core/", strings.NewReader("x"))
	req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
	if got := textOf(client.Do(req)); !strings.Contains(got, "the file is gone") || p.outcomes() != "failed canceled" {
		t.Errorf("%q, outcomes %s", got, p.outcomes())
	}
}

// A body that is fed slowly arrives whole, and what a server does meanwhile is its own
// fault.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	p, _, client := calling(t, guard.Settings{}, swallow(t))
	in, out := io.Pipe()
	go func() {
		for range 10 {
			<-time.After(10 * time.Millisecond)
			_, _ = io.WriteString(out, "word ")
		}
		_ = out.Close()
	}()
	got := textOf(client.Post("http://order-core/", "text/plain", in))
	if got != strings.Repeat("word ", 10) || p.outcomes() != "answered" {
		t.Errorf("%q, outcomes %s", got, p.outcomes())
	}
	p, _, client = calling(t, guard.Settings{}, modes(t)["reset"])
	got = textOf(client.Post("http://order-core/", "text/plain", io.MultiReader(strings.NewReader("x"))))
	if p.outcomes() != "failed" {
		t.Errorf("%q, outcomes %s", got, p.outcomes())
	}
}

// Who gives up, or whose time is up, need not wait for the body to move.
func TestBlockedBodyKeepsNobody(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	defer close(stuck)
	_, _, client := calling(t, guard.Settings{Deadline: time.Hour}, swallow(t))
	ctx, giveUp := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, giveUp)
	began := time.Now()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://order-core/", reads(func([]byte) (int, error) { <-stuck; return 0, io.EOF }))
	if _, err := client.Do(req); !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// What net/http refuses to send was nobody's to answer.
func TestUnsendableRequestsBlameNobody(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Request){
		"header value": func(r *http.Request) { r.Header.Set("Name", "a\nb") },
		"header name":  func(r *http.Request) { r.Header["a b"] = []string{"c"} },
		"method":       func(r *http.Request) { r.Method = "GE T" },
		"scheme":       func(r *http.Request) { r.URL.Scheme = "gopher" },
	} {
		p, transport, client := calling(t, guard.Settings{}, swallow(t), swallow(t))
		for range 25 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://order-core/", nil)
			change(req)
			if resp, err := client.Do(req); err == nil {
				t.Errorf("%s: %v", name, textOf(resp, nil))
			}
		}
		if got := p.outcomes(); strings.ReplaceAll(got, "canceled", "") != strings.Repeat(" ", 24) || transport.Guard().State()["order-core"].Word != "closed" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
