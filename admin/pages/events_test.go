package pages

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// following opens a stream of events and reads its first event.
func following(t *testing.T, ctx context.Context, address string) (first string, end func()) {
	t.Helper()
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type: %s", got)
	}
	lines := bufio.NewScanner(resp.Body)
	var b strings.Builder
	for lines.Scan() && lines.Text() != "" {
		b.WriteString(strings.TrimPrefix(lines.Text(), "data: ") + "\n")
	}
	return b.String(), func() {
		for lines.Scan() { // until the server ends it
		}
		_ = resp.Body.Close()
	}
}

func TestBarFollowsTheFleet(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	server := httptest.NewServer(c.pages)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	first, end := following(t, ctx, server.URL+"/events/bar")
	if !strings.Contains(first, `id="bar"`) || !strings.Contains(first, "v1") {
		t.Errorf("the first event: %s", first)
	}
	cancel()
	end()
}

func TestStreamsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	ctx, cancel := context.WithCancel(t.Context())
	c.pages.opt.Ending = ctx
	server := httptest.NewServer(c.pages)
	defer server.Close()
	_, end := following(t, t.Context(), server.URL+"/events/bar")
	cancel()
	done := make(chan struct{})
	go func() { end(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("the stream goes on")
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	for range maxStreams {
		c.pages.streams <- struct{}{}
	}
	if a := c.get("/events/bar"); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d", a.StatusCode)
	}
	for range maxStreams {
		<-c.pages.streams
	}
}

func TestReleaseIsFollowedUntilAllServeIt(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	c.get("/events/release/1").has(t, "data: <p>● v1 on 1/1 replicas</p>", "event: end")
	if a := c.get("/events/release/x"); a.StatusCode != http.StatusNotFound {
		t.Errorf("%d", a.StatusCode)
	}
	if len(c.pages.streams) != 0 {
		t.Errorf("%d streams stay", len(c.pages.streams))
	}
}
