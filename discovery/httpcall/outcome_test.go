package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
)

// What the outcome of an attempt is, and which call is made again at another instance,
// which answers ok.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	all := modes(t)
	const replayable, stream = "replayable", "stream"
	for _, c := range []struct {
		mode, method, body, key string
		outcomes                string // of all attempts
		want                    string // body of the answer, or a part of the error
	}{
		{"ok", "GET", "", "", "answered", "ok"},
		{"refused", "GET", "", "", "unreachable answered", "ok"},
		{"refused", "POST", replayable, "", "unreachable answered", "ok"},
		{"refused", "POST", stream, "", "unreachable", string(guard.NoBody)},
		{"black", "POST", replayable, "", "unreachable answered", "ok"}, // A41
		{"hang", "GET", "", "", "silent", string(guard.NoTime)},
		{"hang", "POST", replayable, "", "silent", string(guard.NotIdempotent)},
		{"reset", "GET", "", "", "failed answered", "ok"},
		{"reset", "PUT", replayable, "", "failed answered", "ok"},
		{"reset", "POST", replayable, "", "failed", string(guard.NotIdempotent)},
		{"reset", "POST", replayable, "42", "failed answered", "ok"},
		{"reset", "PUT", stream, "", "failed", string(guard.NoBody)},
		{"stall", "GET", "", "", "silent", "deadline exceeded"},
		{"cut", "GET", "", "", "failed", "unexpected EOF"},
		{"500", "GET", "", "", "failed", "Internal Server Error"},
		{"501", "GET", "", "", "answered", "Not Implemented"},
		{"502", "GET", "", "", "failed answered", "ok"},
		{"503", "DELETE", "", "", "failed answered", "ok"},
		{"503", "POST", replayable, "", "failed", "Service Unavailable"},
		{"503", "POST", replayable, "42", "failed answered", "ok"},
		{"504", "OPTIONS", "", "", "failed answered", "ok"},
		{"505", "GET", "", "", "answered", "HTTP Version Not Supported"},
		{"429", "GET", "", "", "answered", "Too Many Requests"},
		{"404", "GET", "", "", "answered", "Not Found"},
	} {
		t.Run(strings.Join([]string{c.mode, c.method, c.body, c.key}, "_"), func(t *testing.T) {
			t.Parallel()
			p, _, client := calling(t, guard.Settings{Deadline: 1200 * time.Millisecond}, all[c.mode], all["ok"])
			var body io.Reader
			switch c.body {
			case replayable:
				body = strings.NewReader("the body")
			case stream:
				body = io.MultiReader(strings.NewReader("the body"))
			}
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://order-core/", body)
			if err != nil {
				t.Fatal(err)
			}
			if c.key != "" {
				req.Header.Set("Idempotency-Key", c.key)
			}
			began := time.Now()
			got := textOf(client.Do(req))
			if !strings.Contains(got, c.want) || p.outcomes() != c.outcomes {
				t.Errorf("%q, outcomes %s; want %q and %s", got, p.outcomes(), c.want, c.outcomes)
			}
			if took := time.Since(began); c.mode == "black" && (took < guard.DialLimit || took > 550*time.Millisecond+slack()) {
				t.Errorf("A41: it took %s until the next instance answered", took)
			}
		})
	}
}

// slack is what a machine under load may add to a time; nothing where figures are taken.
func slack() time.Duration {
	if *full {
		return 0
	}
	return 200 * time.Millisecond
}

// textOf is the body of an answer, or the error of the call or of reading it.
func textOf(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A41: the dial limit holds for any net/http transport, also one that would wait for
// half a minute; an address that is passed through has its own.
func TestDialLimitOfAnyTransport(t *testing.T) {
	t.Parallel()
	all := modes(t)
	patient := &net.Dialer{Timeout: 30 * time.Second}
	for name, base := range map[string]*http.Transport{"bare": {}, "patient": {DialContext: patient.DialContext}} {
		p := &picks{inTurn: true}
		p.set(1, all["black"], all["ok"])
		began := time.Now()
		got := textOf(clientOf(t, New(p, base)).Get("http://order-core/"))
		if took := time.Since(began); got != "ok" || took < guard.DialLimit || took > 550*time.Millisecond+slack() {
			t.Errorf("%s: %q after %s", name, got, took)
		}
		if base.DialContext != nil && name == "bare" {
			t.Error("the base was changed")
		}
	}
}

// The second attempt sends the whole body again, and is the one that the response names.
func TestTheBodyIsSentAgain(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	p, _, client := calling(t, guard.Settings{}, status(t, 503), serving(t, "order-core", "prod", echo))
	body := strings.Repeat("0123456789", 100_000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://order-core/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if pick, ok := PickOf(resp); !ok || pick.Instance.Address != p.all[1].Address {
		t.Errorf("the response is of %+v", pick.Instance)
	}
	if got := textOf(resp, nil); got != body {
		t.Errorf("%d bytes arrived, want %d", len(got), len(body))
	}
}

// An error names all that an operator needs, and the next step.
func TestErrorText(t *testing.T) {
	t.Parallel()
	one, two := refused(t), refused(t)
	c := callerIn(t, registered(t, one, two), "order-core", "prod", caller.LaneOf(t.Context()))
	_, err := get(t, clientOf(t, New(c, nil)), t.Context(), "http://order-core/")
	failed, ok := errors.AsType[*Error](err)
	if !ok || failed.Attempts != 2 || failed.Outcome != caller.Unreachable || failed.Stop != guard.UsedUp {
		t.Fatalf("%v", err)
	}
	id := failed.Pick.ID()
	for _, part := range []string{"call order-core at " + failed.Pick.Instance.Address.String(), "unreachable", "connection refused", "attempt 2",
		"retries are used up", "record " + id, "\ntry: dispatchctl explain call " + id} {
		if id == "" || !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	if r, _, err := c.Explain(id); err != nil || r.Chosen != failed.Pick.Instance.Address.String() {
		t.Errorf("%+v, %v", r, err)
	}
}

// How a body ends is told once, whoever reads how much of it.
func TestEndsOfABody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		read func(t *testing.T, resp *http.Response, giveUp context.CancelFunc)
		mode string
		want string
	}{
		{"read and closed", func(t *testing.T, resp *http.Response, _ context.CancelFunc) {
			_, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_ = resp.Body.Close()
		}, "ok", "answered"},
		{"closed unread", func(t *testing.T, resp *http.Response, _ context.CancelFunc) { _ = resp.Body.Close() }, "stall", "answered"},
		{"given up", func(t *testing.T, resp *http.Response, giveUp context.CancelFunc) {
			_, _ = io.ReadFull(resp.Body, make([]byte, 4))
			giveUp()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}, "stall", "canceled"},
		{"read too late", func(t *testing.T, resp *http.Response, _ context.CancelFunc) {
			<-time.After(400 * time.Millisecond)
			if text, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%q, %v", text, err)
			}
		}, "stall", "canceled"},
		{"stalls under its reader", func(t *testing.T, resp *http.Response, _ context.CancelFunc) {
			_, err := io.ReadAll(resp.Body)
			if failed, ok := errors.AsType[*Error](err); !ok || failed.Outcome != caller.Silent || !failed.Timeout() {
				t.Error(err)
			}
		}, "stall", "silent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _, client := calling(t, guard.Settings{Deadline: 300 * time.Millisecond}, modes(t)[c.mode])
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://order-core/", nil)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if p.outcomes() != "" {
				t.Errorf("told before the body: %s", p.outcomes())
			}
			c.read(t, resp, giveUp)
			_ = resp.Body.Close()
			if p.outcomes() != c.want {
				t.Errorf("outcomes %q, want %q", p.outcomes(), c.want)
			}
			if err := resp.Request.Context().Err(); (err != nil) != (c.name == "given up") {
				t.Errorf("the context of the response's request: %v", err)
			}
		})
	}
}

// What a caller gave up, at any time, is nobody's fault.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hang", "black"} {
		p, _, client := calling(t, guard.Settings{}, modes(t)[mode])
		ctx, giveUp := context.WithTimeoutCause(t.Context(), time.Hour, nil)
		time.AfterFunc(100*time.Millisecond, giveUp)
		if _, err := get(t, client, ctx, "http://order-core/"); !errors.Is(err, context.Canceled) || p.outcomes() != "canceled" {
			t.Errorf("%s: %v, outcomes %q", mode, err, p.outcomes())
		}
	}
	p, _, client := calling(t, guard.Settings{}, modes(t)["ok"])
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := get(t, client, ctx, "http://order-core/"); !errors.Is(err, context.Canceled) || p.outcomes() != "" {
		t.Errorf("%v, outcomes %q", err, p.outcomes())
	}
}

// R3: a call returns within 50 ms of its deadline, its own or its service's, whatever
// the instance does.
func TestDeadlineIsKept(t *testing.T) {
	t.Parallel()
	all := modes(t)
	const deadline = 300 * time.Millisecond
	for _, mode := range []string{"hang", "stall", "black"} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s_own_%v", mode, own), func(t *testing.T) {
				t.Parallel()
				set, ctx := guard.Settings{Deadline: deadline}, t.Context()
				if own {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
					set.Deadline = time.Hour
				}
				p, _, client := calling(t, set, all[mode])
				began := time.Now()
				_, err := get(t, client, ctx, "http://order-core/")
				took := time.Since(began)
				t.Logf("%s after its deadline", took-deadline)
				if err == nil || took < deadline-5*time.Millisecond || took > deadline+50*time.Millisecond+slack() {
					t.Errorf("%s, %v", took, err)
				}
				told := map[bool]string{false: "silent", true: "canceled"}[own] // 300 ms are less than a service takes
				if failed, ok := errors.AsType[*Error](err); !ok || !failed.Timeout() || failed.Outcome != caller.Silent || p.outcomes() != told {
					t.Errorf("%v, outcomes %q", err, p.outcomes())
				}
			})
		}
	}
}
