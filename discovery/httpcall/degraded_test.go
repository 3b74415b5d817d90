package httpcall

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/guard"
	"dispatch.example/dispatch/discovery/route"
)

// value is a Degraded that answers a text, and keeps why.
func value(why *error) Degraded {
	return func(_ *http.Request, err error) (*http.Response, error) {
		*why = err
		return &http.Response{Body: io.NopCloser(strings.NewReader("default"))}, nil
	}
}

// C21: a service with a degraded value gives it when it cannot answer, flagged with why.
func TestDegradedValue(t *testing.T) {
	t.Parallel()
	all := modes(t)
	for mode, want := range map[string]string{
		"refused": "unreachable", "hang": "silent", "reset": "failed", "503": "failed", "500": "failed",
		"ok": "", "404": "", "429": "", "stall": "",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			_, transport, client := calling(t, guard.Settings{Deadline: 200 * time.Millisecond}, all[mode])
			var why error
			transport.Degraded = map[string]Degraded{"order-core": value(&why)}
			resp, err := client.Get("http://order-core/")
			if err != nil {
				t.Fatal(err)
			}
			text := textOf(resp, nil)
			if DegradedOf(resp) != want || (text == "default") != (want != "") || resp.Request.URL.Host != "order-core" {
				t.Errorf("%q, flagged %q; want %q", text, DegradedOf(resp), want)
			}
			if failed, ok := errors.AsType[*Error](why); ok != (want != "") || ok && failed.Outcome.String() != want {
				t.Errorf("the value was told %v", why)
			}
		})
	}
	if DegradedOf(nil) != "" {
		t.Error("no response is a degraded one")
	}
}

// C21: while the breaker is open, within a millisecond, and nobody is called.
func TestDegradedValueWhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	p := &picks{}
	p.set(1, status(t, 500))
	g, err := guard.New(p, guard.Options{Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	transport := NewGuarded(g, nil)
	client := clientOf(t, transport)
	for range 25 {
		_ = textOf(client.Get("http://order-core/"))
	}
	var open *guard.Open
	if _, err := client.Get("http://order-core/"); !errors.As(err, &open) || open.Record != "abc-1" {
		t.Fatalf("%v", err)
	}
	calls := len(p.ended)
	var why error
	transport.Degraded = map[string]Degraded{"order-core": value(&why)} // as if set before
	best := time.Hour
	for range 20 {
		began := time.Now()
		resp, err := client.Post("http://order-core/", "text/plain", strings.NewReader("x"))
		best = min(best, time.Since(began))
		if err != nil || resp.StatusCode != http.StatusOK || DegradedOf(resp) != "breaker" || !errors.As(why, &open) {
			t.Fatalf("%+v, %v, %v", resp, err, why)
		}
		_ = resp.Body.Close()
		if _, ok := PickOf(resp); ok {
			t.Error("a degraded value has a pick")
		}
	}
	if best > time.Millisecond || len(p.ended) != calls {
		t.Errorf("it took %s at best, and %d calls", best, len(p.ended)-calls)
	}
	families, _ := reg.Gather()
	var counted float64
	for _, f := range families {
		if f.GetName() == "dispatch_guard_degraded_total" {
			counted = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != 20 {
		t.Errorf("%v degraded values were counted", counted)
	}
	g.SetOff(true)
	if resp, err := client.Get("http://order-core/"); err != nil || DegradedOf(resp) != "failed" {
		t.Errorf("without guards: %v, %v", resp, err)
	}
}

// Nobody to ask is a reason; a caller that gave up, or is set up wrongly, is none. A
// value that declines leaves the call as it ended.
func TestDegradedValueForWhom(t *testing.T) {
	t.Parallel()
	var why error
	p, transport, client := calling(t, guard.Settings{})
	transport.Degraded = map[string]Degraded{"order-core": value(&why)}
	if resp, err := client.Get("http://order-core/"); err != nil || DegradedOf(resp) != "nobody" {
		t.Errorf("nobody: %v", err)
	} else if _, ok := why.(*route.NoMatch); !ok {
		t.Errorf("nobody: %v", why)
	}
	var none *route.NoMatch
	if _, err := client.Get("http://stock/"); !errors.As(err, &none) {
		t.Errorf("another service: %v", err)
	}
	p.set(1, modes(t)["hang"])
	ctx, giveUp := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, giveUp)
	if _, err := get(t, client, ctx, "http://order-core/"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	c, err := caller.New(caller.Options{Self: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod"},
		Registry: registered(t, status(t, 200)), Services: []string{"order-core"}})
	if err != nil {
		t.Fatal(err)
	}
	unready := New(c, nil) // nothing is loaded: Run does not run
	unready.Degraded = transport.Degraded
	if _, err := clientOf(t, unready).Get("http://order-core/"); err == nil {
		t.Error("a caller without lists is hidden by a degraded value")
	}

	p.set(1, status(t, 503))
	for _, declines := range []Degraded{
		func(*http.Request, error) (*http.Response, error) { return nil, nil },
		func(*http.Request, error) (*http.Response, error) { return nil, errors.New("nothing kept") },
	} {
		transport.Degraded = map[string]Degraded{"order-core": declines}
		resp, err := client.Get("http://order-core/")
		if err != nil || resp.StatusCode != 503 || textOf(resp, nil) != "Service Unavailable" {
			t.Errorf("declined: %v, %v", resp, err)
		}
	}
}
