package httpcall

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/internal/testenv"
)

// R3: a peer that falls silent on a kept connection is found in three seconds, although
// the caller would wait a minute, and the call goes to another instance.
func TestSilentPeerOnAKeptConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(says("one", nil))
	l := &testenv.Cuttable{Listener: server.Listener}
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	one := instance(t, "order-core", "prod", server.Listener.Addr().String())
	p, _, client := calling(t, guard.Settings{Deadline: time.Minute}, one, one, serving(t, "order-core", "prod", says("two", nil)))
	if text := textOf(client.Get("http://order-core/")); text != "one" {
		t.Fatal(text)
	}
	l.Cut(t)
	_ = l.Close() // net/http connects anew for what is idempotent: to nobody
	began := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://order-core/", nil)
	if err != nil {
		t.Fatal(err)
	}
	text := textOf(client.Do(req))
	took := time.Since(began)
	t.Logf("found in %s", took)
	if text != "two" || p.outcomes() != "answered unreachable answered" || took < 2*time.Second || took > 5*time.Second {
		t.Errorf("%q after %s, outcomes %s", text, took, p.outcomes())
	}
}

// A live server that takes nothing for six seconds gets the whole of a large body.
func TestBusyPeerIsWaitedFor(t *testing.T) {
	t.Parallel()
	const size = 30 << 20
	srv := serving(t, "order-core", "prod", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(6 * time.Second)
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	}))
	p, _, client := calling(t, guard.Settings{Deadline: 30 * time.Second}, srv)
	got := textOf(client.Post("http://order-core/", "text/plain", strings.NewReader(strings.Repeat("x", size))))
	if got != fmt.Sprint(size, nil) || p.outcomes() != "answered" {
		t.Errorf("%.200s, outcomes %s", got, p.outcomes())
	}
}
