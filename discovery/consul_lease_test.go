package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"dispatch.example/dispatch/internal/fault"
)

// agentState is what an agent remembers; wipe is its restart.
type agentState struct {
	mu      sync.Mutex
	checks  map[string]bool
	entries []api.AgentServiceRegistration
	calls   []string
	delay   time.Duration // of the next renewal
	unknown string        // what it says about a check that it does not know
	code    int
}

func newAgentState() *agentState {
	return &agentState{checks: map[string]bool{}, code: http.StatusInternalServerError, unknown: `CheckID "x" does not have associated TTL`}
}

func (a *agentState) wipe() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.checks)
}

// told are the entries that it was asked to make.
func (a *agentState) told() []api.AgentServiceRegistration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.entries)
}

// happened lists the calls since the last time.
func (a *agentState) happened() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	a.calls = nil
	return calls
}

func (a *agentState) answer(q question) (int, string) {
	a.mu.Lock()
	action := strings.Split(strings.TrimPrefix(q.path, "/v1/agent/"), "/")
	name := strings.Join(action[:2], "/")
	a.calls = append(a.calls, name)
	delay := a.delay
	if name == "check/update" {
		a.delay = 0
	}
	defer a.mu.Unlock()
	switch name {
	case "service/orders-10.0.0.1-80":
		return http.StatusNotFound, "null"
	case "service/register":
		var entry api.AgentServiceRegistration
		if err := json.Unmarshal([]byte(q.body), &entry); err != nil {
			return http.StatusBadRequest, err.Error()
		}
		a.entries = append(a.entries, entry)
		for _, check := range entry.Checks {
			a.checks[check.CheckID] = true
		}
	case "service/deregister":
		clear(a.checks)
	case "check/update":
		if delay > 0 {
			a.mu.Unlock()
			<-time.After(delay)
			a.mu.Lock()
		}
		if !a.checks[action[2]] {
			return a.code, a.unknown
		}
	}
	return http.StatusOK, ""
}

// registered is one instance at the fake, kept by Run until end.
func registered(t *testing.T, f *fakeConsul, c *consul, a *agentState) (r *Registration, end func() error) {
	t.Helper()
	f.mu.Lock()
	f.agent = a.answer
	f.mu.Unlock()
	f.set(func(question) reply { return reply{index: "5"} })
	in, err := instance("orders", "10.0.0.1:80").filled("consul")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := c.Register(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	r = &Registration{source: c, log: slog.New(slog.DiscardHandler), linger: DefaultLinger, held: []*held{{in: in, lease: lease}}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() error { cancel(); return <-done }
}

// A18, T19: what Consul is told about the lease.
func TestEntryHasItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		_, end := registered(t, f, c, a)
		if err := end(); err != nil {
			t.Error(err)
		}
		e := a.told()[0]
		if len(e.Checks) != 1 || e.Checks[0].TTL != "15s" || e.Checks[0].DeregisterCriticalServiceAfter != "5m0s" || e.Checks[0].Status != api.HealthPassing {
			t.Errorf("checks %+v", e.Checks)
		}
		if e.Meta["cluster"] != "production" || e.Meta["region"] != "cn-hangzhou" || e.Meta["env"] != "prod" || e.Meta["version"] != "v2.3.1" {
			t.Errorf("meta %v", e.Meta)
		}
		if e.Address != "10.0.0.1" || e.Port != 80 || e.Name != "orders" {
			t.Errorf("entry %+v", e)
		}
	}))
}

// T12, T13: an agent that forgot is told again, and is never passed in a loop.
func TestForgottenEntryIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]struct {
		code int
		text string
	}{
		"500 of old versions": {500, `CheckID "service:orders" does not have associated TTL`},
		"404 of new versions": {404, `Unknown check ID "service:orders". Ensure that the check ID is passed, not the check name.`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
				a := newAgentState()
				a.code, a.unknown = says.code, says.text
				r, end := registered(t, f, c, a)
				time.Sleep(12 * time.Second)
				a.wipe()
				a.happened()
				time.Sleep(RenewEvery)
				if got := strings.Join(a.happened(), " "); got != "check/update service/orders-10.0.0.1-80 service/register check/update" {
					t.Errorf("within one renewal: %s", got)
				}
				time.Sleep(RenewEvery)
				if got := strings.Join(a.happened(), " "); got != "check/update" || r.Problem() != nil {
					t.Errorf("after it: %s, problem %v", got, r.Problem())
				}
				_ = end()
			}))
		})
	}
}

// T15: one renewal that takes 12 s does not cost the lease.
func TestSlowRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		_, end := registered(t, f, c, a)
		time.Sleep(RenewEvery + time.Second)
		a.mu.Lock()
		a.delay = 12 * time.Second
		a.mu.Unlock()
		a.happened()
		time.Sleep(DefaultTTL - RenewEvery)
		if got := strings.Join(a.happened(), " "); got != "check/update check/update" {
			t.Errorf("within the lease: %s, want another renewal after the slow one", got)
		}
		time.Sleep(12 * time.Second) // the slow one ends
		_ = end()
	}))
}

// A13, T28: the entry goes first, then callers have time to hear it.
func TestEndDeregistersAndLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		_, end := registered(t, f, c, a)
		time.Sleep(7 * time.Second)
		a.happened()
		started := time.Now()
		if err := end(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(a.happened(), " "); got != "service/deregister" {
			t.Errorf("at the end: %s", got)
		}
		if took := time.Since(started); took != DefaultLinger {
			t.Errorf("Run went on for %s, want %s", took, DefaultLinger)
		}
	}))
}

// A Consul that is away at the end makes an error, and does not keep the process.
func TestEndWithoutConsul(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		r, end := registered(t, f, c, newAgentState())
		time.Sleep(time.Second)
		f.crash()
		time.Sleep(3 * RenewEvery)
		if r.Problem() == nil {
			t.Error("no problem is shown")
		}
		started := time.Now()
		if err := end(); err == nil || time.Since(started) > releaseTimeout+DefaultLinger {
			t.Errorf("Run = %v after %s", err, time.Since(started))
		}
		f.restart()
	}))
}

// C15: an agent takes renewals by itself. What the leader does not know of us, or
// cannot say, shows within a minute, and so does the end of it.
func TestLeaderIsAskedForOurEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		r, end := registered(t, f, c, newAgentState())
		ours := instance("orders", "10.0.0.1:80")
		good := reply{index: "5", instances: []Instance{ours}}
		asked := func() int { return len(f.questions(0)) }
		time.Sleep(time.Second) // look between two renewals
		for _, c := range []struct {
			name  string
			says  reply
			after time.Duration
			want  float64
		}{
			{"the leader has it", good, time.Minute, 1},
			{"the leader lost it", reply{index: "5"}, time.Minute, 0},
			{"the leader has it again", good, RenewEvery, 1},
			{"there is no leader", reply{status: 500, body: "No cluster leader"}, time.Minute, 0},
			{"there is one again", good, RenewEvery, 1},
			{"nobody answers", reply{index: "5", instances: good.instances, delay: time.Hour}, time.Minute, 0},
			{"somebody does", good, RenewEvery, 1},
		} {
			f.set(func(question) reply { return c.says })
			before := asked()
			time.Sleep(c.after)
			if got := writable(t, f.registry); got != c.want {
				t.Errorf("%s: writable %v, want %v", c.name, got, c.want)
			}
			if n := asked() - before; c.want == 1 && c.after == time.Minute && n > 4 {
				t.Errorf("%s: %d questions in a minute", c.name, n)
			}
			if err := r.Problem(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		f.mu.Lock()
		f.agent = func(question) (int, string) { return http.StatusInternalServerError, "disk full" }
		f.mu.Unlock()
		time.Sleep(RenewEvery)
		if writable(t, f.registry) != 0 {
			t.Error("an agent that refuses passes for writable")
		}
		_ = end()
	}))
}

// A Consul that hangs at the first agent does not use up the time of the second.
func TestHangingAgentLeavesTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500,b:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a := newAgentState()
		f.set(func(question) reply { return reply{index: "5"} })
		f.agent = func(q question) (int, string) {
			if q.host == "a:8500" {
				<-time.After(time.Minute)
			}
			return a.answer(q)
		}
		ctx, cancel := context.WithTimeout(t.Context(), registerTimeout)
		defer cancel()
		if _, err := c.Register(ctx, instance("orders", "10.0.0.1:80")); err != nil || len(a.told()) != 1 {
			t.Errorf("Register = %v, %d entries", err, len(a.told()))
		}
		time.Sleep(time.Minute) // what hangs ends
	}))
}

// A12: what an agent is asked to check besides the lease.
func TestCheckBesideTheLease(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]api.AgentServiceCheck{
		"a:8500?check=tcp":                          {TCP: "[2001:db8::1]:80"},
		"a:8500?check=http":                         {HTTP: "http://[2001:db8::1]:80/", Method: "GET"},
		"a:8500?check=http&check-path=/healthz?a=b": {HTTP: "http://[2001:db8::1]:80/healthz?a=b", Method: "GET"},
	} {
		options, err := parseConsul(target, quiet())
		if err != nil {
			t.Fatal(err)
		}
		l := &consulLease{consul: &consul{options: options}, in: instance("orders", "[2001:db8::1]:80")}
		want.CheckID, want.Name, want.Status, want.Interval, want.Timeout = "answers:"+l.in.ID, "answers", api.HealthPassing, "5s", "2s"
		e := l.entry()
		if e.Address != "2001:db8::1" || len(e.Checks) != 2 || e.Checks[0].TTL != "15s" || !reflect.DeepEqual(*e.Checks[1], want) {
			t.Errorf("%s: %+v", target, e.Checks)
		}
	}
}

// After three renewals that failed, the next agent takes the entry; at the end it
// is removed from both.
func TestAnotherAgentTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500,b:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		a, b := newAgentState(), newAgentState()
		r, end := registered(t, f, c, a)
		f.mu.Lock()
		var broken atomic.Bool
		broken.Store(true)
		f.agent = func(q question) (int, string) {
			if q.host == "b:8500" {
				return b.answer(q)
			}
			if broken.Load() {
				return http.StatusInternalServerError, "rpc error"
			}
			return a.answer(q)
		}
		f.mu.Unlock()
		time.Sleep(5*RenewEvery + time.Second)
		if entries := b.told(); len(entries) != 1 || r.Problem() != nil {
			t.Errorf("%d entries at b, problem %v", len(entries), r.Problem())
		}
		broken.Store(false)
		a.happened()
		b.happened()
		if err := end(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(append(a.happened(), b.happened()...), " "); got != "service/deregister service/deregister" {
			t.Errorf("at the end: %s", got)
		}
	}))
}

// What an agent refuses is an error at once and leaves nothing.
func TestRefusedRegistration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, asking("a:8500,b:8500", func(t *testing.T, f *fakeConsul, c *consul) {
		f.set(func(question) reply { return reply{index: "5"} })
		var calls []string
		f.agent = func(q question) (int, string) {
			calls = append(calls, q.host+" "+q.path)
			switch {
			case strings.Contains(q.path, "/service/orders"):
				return http.StatusNotFound, "unknown service ID"
			case strings.Contains(q.path, "deregister"):
				return http.StatusOK, ""
			}
			return http.StatusForbidden, "Permission denied"
		}
		_, err := c.Register(t.Context(), instance("orders", "10.0.0.1:80"))
		if fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "service:write for orders") {
			t.Errorf("Register = %v", err)
		}
		if n := len(calls); n != 3 || strings.HasPrefix(calls[n-1], "b:") {
			t.Errorf("calls %v, want one agent alone", calls)
		}
		var none Lease
		f.crash()
		if none, err = c.Register(t.Context(), instance("orders", "10.0.0.1:80")); err == nil || none != nil {
			t.Errorf("Register without Consul = %v, %v", none, err)
		}
		if errors.Is(err, context.Canceled) {
			t.Errorf("Register = %v", err)
		}
		f.restart()
	}))
}
