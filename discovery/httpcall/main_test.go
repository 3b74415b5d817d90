package httpcall

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// picks is a guard.Caller over a list that a test sets. It knows environments and
// nothing else of a caller.Caller.
type picks struct {
	own    route.Query
	inTurn bool // picks go from the first instance to the last, not by chance

	mu     sync.Mutex // guards the rest
	all    []discovery.Instance
	number uint64
	lanes  []route.Query // of the picks so far
	ended  []end         // what was told of them
}

// end is how an attempt ended.
type end struct {
	at string
	o  caller.Outcome
}

func (p *picks) set(number uint64, all ...discovery.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number, p.all = number, all
}

func (p *picks) Lane(ctx context.Context) route.Query {
	lane := caller.LaneOf(ctx)
	if lane.Env == "" {
		lane.Env, lane.Base = p.own.Env, p.own.Base
	}
	return lane
}

func (p *picks) Pick(ctx context.Context, service string) (caller.Pick, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := p.Lane(ctx)
	p.lanes = append(p.lanes, lane)
	for _, env := range []string{lane.Env, lane.Base} {
		match := slices.DeleteFunc(slices.Clone(p.all), func(in discovery.Instance) bool {
			return in.Service != service || env != "" && in.Env != env
		})
		if len(match) > 0 {
			in := match[rand.IntN(len(match))]
			if p.inTurn {
				in = match[(len(p.lanes)-1)%len(match)]
			}
			return caller.Pick{Choice: route.Choice{Instance: &in, Reason: route.ByHome, Step: 1}, Number: p.number}, nil
		}
		if lane.Base == "" {
			break
		}
	}
	return caller.Pick{}, &route.NoMatch{Service: service, Lane: lane, Known: len(p.all)}
}

func (p *picks) PickOther(ctx context.Context, service string, not *discovery.Instance) (caller.Pick, error) {
	for range 16 {
		if pick, err := p.Pick(ctx, service); err != nil || pick.Instance.Address != not.Address {
			return pick, err
		}
	}
	return p.Pick(ctx, service)
}

func (p *picks) Done(_ context.Context, pick *caller.Pick, o caller.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, end{pick.Instance.Address.String(), o})
}

func (p *picks) Refused(context.Context, string) string { return "abc-1" }

// outcomes are those that were told so far, as words.
func (p *picks) outcomes() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, e := range p.ended {
		all = append(all, e.o.String())
	}
	return strings.Join(all, " ")
}

// instance is a server of a service in an environment.
func instance(tb testing.TB, service, env, address string) discovery.Instance {
	tb.Helper()
	a, err := discovery.ParseAddress(address)
	if err != nil {
		tb.Fatal(err)
	}
	return discovery.Instance{ID: service + "-" + address, Service: service, Address: a,
		Coordinates: discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: env, Version: "v1"}}
}

// serving is a server of a service until the test ends.
func serving(tb testing.TB, service, env string, h http.Handler) discovery.Instance {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	return instance(tb, service, env, server.Listener.Addr().String())
}

// clientOf is a client whose connections end with the test.
func clientOf(tb testing.TB, t *Transport) *http.Client {
	tb.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// get is the body of an answer.
func get(tb testing.TB, c *http.Client, ctx context.Context, url string) (string, error) {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return string(text), err
}

// says answers a text, and counts.
func says(text string, n *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n != nil {
			n.Add(1)
		}
		_, _ = io.WriteString(w, text)
	})
}
