package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/internal/fault"
)

func TestOpenNacos(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"a:8848", "a:8848,[2001:db8::1]:8848/?namespace=dev&group=G&cluster=hz", "127.0.0.1:8848?username-file=u&password-file=p",
		"a:8848?tls=true&token-file=t", "a:8848?plain-token=true&token-file=t",
	} {
		source, err := Open("nacos://"+target, Options{Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if source.Name() != "nacos" {
			t.Errorf("name %q", source.Name())
		}
		source.Close()
	}
	for target, says := range map[string]string{
		"":                       `"" is not HOST:PORT`,
		"a":                      "is not HOST:PORT",
		"a:8848?user=x":          "user: no such key",
		"a:8848?password=x":      "a password in a URL ends in logs",
		"a:8848?username-file=x": "go together",
		"a:8848?group=":          "not be empty",
		"127.0.0.1:8848?token-file=x&username-file=u&password-file=p": "is instead of",
		"a:8848?token-file=x":                    "the token would go to a:8848 in plain text",
		"a:8848?username-file=u&password-file=p": "the password would go to a:8848",
	} {
		source, err := Open("nacos://"+target, Options{})
		if err == nil || source != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", target, err, says)
		}
	}
	if _, err := Open("nacos://a:8848", Options{Dialect: &Dialect{Names: []string{"("}}}); fault.CodeOf(err) != "invalid_dialect" {
		t.Errorf("a bad dialect: %v", err)
	}
}

// T38: a poll finds what changed while the server was away, within 10 s; nobody asks
// more often than every two seconds.
func TestNacosChangesAreFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
		d.silent = true
		pairs := instance("orders", "10.0.0.1:80").meta()
		d.put("orders", "10.0.0.1", 80, pairs)
		w, end := watching(t, n, "orders")
		time.Sleep(time.Minute)
		if asked := d.calls("list"); asked < 20 || asked > 31 {
			t.Errorf("%d questions in a minute, want one in two to three seconds", asked)
		}
		d.crash()
		d.put("orders", "10.0.0.2", 80, pairs)
		time.Sleep(30 * time.Second)
		if s, _ := w.Current(); len(s.Instances) != 1 || w.State().Problem == nil {
			t.Errorf("while it is away: %v, problem %v", addresses(s), w.State().Problem)
		}
		d.mu.Lock()
		if len(d.dials) > 1+30 {
			t.Errorf("%d connections in 30 s", len(d.dials))
		}
		d.mu.Unlock()
		d.restart()
		time.Sleep(10 * time.Second)
		if s, _ := w.Current(); len(s.Instances) != 2 || w.State().Problem != nil {
			t.Errorf("10 s after it came back: %v, problem %v", addresses(s), w.State().Problem)
		}
		_ = end()
	}))
}

// T29 and T31 in Nacos: an empty list of a server that has restarted removes nobody
// who lives, and the last instance that left is gone within 10 s.
func TestNacosEmptyLists(t *testing.T) {
	t.Parallel()
	const empty = `{"hosts":[],"reachProtectionThreshold":false}`
	for _, c := range []struct {
		name   string
		known  int
		alive  int
		empty  time.Duration // how long Nacos names nobody
		within time.Duration // after which the list is empty; 0: never
	}{
		{"the only one left, T31", 1, 1, time.Hour, 9 * time.Second},
		{"the only one, the server restarted", 1, 1, 4 * time.Second, 0},
		{"five live, T29", 5, 5, time.Hour, 0},
		{"one of five lives", 5, 1, time.Hour, 0},
		{"all five are dead", 5, 0, time.Hour, 9 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, inNacos("a:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
				d.silent = true
				for _, in := range five()[:c.known] {
					d.put("orders", in.Address.Host, 80, in.meta())
				}
				d.live(five()[:c.alive]...)
				w, end := watching(t, n, "orders")
				time.Sleep(10 * time.Second)
				before, changed := w.Current()
				if len(before.Instances) != c.known {
					t.Fatalf("at first: %v", addresses(before))
				}
				until := time.Now().Add(c.empty)
				d.do(func() {
					d.says = func(string) string {
						if time.Now().Before(until) {
							return empty
						}
						return ""
					}
				})
				select {
				case <-changed:
					if s, _ := w.Current(); c.within == 0 || len(s.Instances) != 0 {
						t.Errorf("the list became %v", addresses(s))
					}
				case <-time.After(c.within + time.Minute):
					if c.within > 0 {
						t.Error("the list stayed")
					}
				}
				if took := c.empty - time.Until(until); c.within > 0 && took > c.within {
					t.Errorf("empty after %s, want %s", took, c.within)
				}
				if c.within == 0 && c.empty == time.Hour && (w.State().Problem == nil || d.count(t, emptyHeld) == 0) {
					t.Error("no alarm")
				}
				_ = end()
			}))
		})
	}
}

// What is no answer of Nacos changes nothing, and the next server is asked.
func TestNacosNoAnswerKeepsTheList(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]struct {
		status int
		text   string
	}{
		"status 500":     {500, "caused: java.lang.NullPointerException"},
		"status 403":     {403, "authorization failed!"},
		"status 429":     {429, ""},
		"a redirect":     {302, ""},
		"no JSON":        {200, "<html>"},
		"half of JSON":   {200, `{"hosts":[{"ip":"10.0.0.1"`},
		"no list":        {200, `{"name":"x"}`},
		"no hosts":       {200, `{"hosts":null}`},
		"empty":          {200, ""},
		"another format": {200, `{"code":0,"data":{"hosts":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, inNacos("a:8848,b:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
				d.silent = true
				for _, in := range five() {
					d.put("orders", in.Address.Host, 80, in.meta())
				}
				w, end := watching(t, n, "orders")
				time.Sleep(time.Second)
				hosts, healed := map[string]int{}, false
				d.do(func() {
					d.broken = func(r *http.Request) (int, string) {
						hosts[r.Host]++
						if healed && r.Host == "b:8848" {
							return 0, ""
						}
						return bad.status, bad.text
					}
				})
				time.Sleep(10 * time.Minute)
				if s, _ := w.Current(); len(s.Instances) != 5 || s.Version != 1 {
					t.Errorf("version %d with %v, want the list unchanged", s.Version, addresses(s))
				}
				if state := w.State(); state.Problem == nil || state.Age < 9*time.Minute {
					t.Errorf("state %+v", state)
				}
				d.do(func() {
					if len(hosts) != 2 || hosts["a:8848"] > 200 || hosts["b:8848"] > 200 {
						t.Errorf("asked %v in ten minutes, want both, and not often", hosts)
					}
					healed = true
				})
				time.Sleep(2 * nacosAfter)
				if state := w.State(); state.Problem != nil {
					t.Errorf("after one healed: %v", state.Problem)
				}
				_ = end()
			}))
		})
	}
}

// T40: when nobody is healthy Nacos calls all of them so. They stay, because the
// dead may be only late, and each says that its health is not known.
func TestNacosThreshold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
		for _, in := range five() {
			d.put("orders", in.Address.Host, 80, in.meta())
		}
		w, end := watching(t, n, "orders")
		time.Sleep(nacosUnhealthy - time.Second)
		if s, _ := w.Current(); len(s.Instances) != 5 || s.Instances[0].Labels[LabelHealth] != "" {
			t.Fatalf("at first: %+v", s.Instances)
		}
		time.Sleep(5 * time.Second)
		s, _ := w.Current()
		for _, in := range s.Instances {
			if in.Labels[LabelHealth] != healthUnknown {
				t.Errorf("%s passes for healthy: %v", in.Address, in.Labels)
			}
		}
		if len(s.Instances) != 5 || d.count(t, threshold) == 0 {
			t.Errorf("%d instances, %v counted", len(s.Instances), d.count(t, threshold))
		}
		d.put("orders", "10.0.0.1", 80, five()[0].meta()) // one renews: Nacos tells the truth again
		time.Sleep(nacosPollTo)
		if s, _ := w.Current(); !lists("10.0.0.1:80")(s) || s.Instances[0].Labels[LabelHealth] != "" || len(s.LastResort) != 0 {
			t.Errorf("after it: %+v, last resort %v", s.Instances, s.LastResort)
		}
		_ = end()
	}))
}

// T25, T26: what Nacos and other clients write beside the metadata.
func TestNacosEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
		d.silent = true
		add := func(ip string, change func(*nacosHost)) {
			meta := home()
			h := d.put("orders", ip, 80, map[string]string{"cluster": meta.Cluster, "region": meta.Region, "env": meta.Env, "version": meta.Version})
			change(&h.nacosHost)
		}
		add("10.0.0.1", func(h *nacosHost) { h.Metadata["preserved.register.source"] = "SPRING_CLOUD" })
		add("10.0.0.2", func(h *nacosHost) { *h.Weight = 0.5 })
		add("10.0.0.3", func(h *nacosHost) { *h.Weight, h.Metadata["weight"] = 0, "70" }) // drained in the console
		add("10.0.0.4", func(h *nacosHost) { *h.Enabled = false })
		add("10.0.0.5", func(h *nacosHost) { h.Healthy = false })
		add("10.0.0.6", func(h *nacosHost) { h.Weight, h.Enabled = nil, new(true) })
		add("[2001:db8::7]", func(h *nacosHost) { h.Metadata["weight"] = "70" })
		add("10.0.0.8", func(h *nacosHost) { delete(h.Metadata, "env") })
		add("10.0.0.9", func(h *nacosHost) { h.Metadata["note"] = strings.Repeat("x", 513) })
		add("10.0.0.10", func(h *nacosHost) { *h.Weight = 101 })
		w, end := watching(t, n, "orders")
		time.Sleep(time.Second)
		s, _ := w.Current()
		shares, why := map[string]int{}, []string{}
		for _, in := range s.Instances {
			shares[in.Address.String()+" "+in.ID] = in.Share()
			if len(in.Labels) != 0 {
				t.Errorf("labels %v", in.Labels)
			}
		}
		for _, r := range s.Rejected {
			why = append(why, r.Address+" "+r.Why)
			if want := "orders-" + strings.TrimSuffix(r.Address, ":80") + "-80"; r.ID != want {
				t.Errorf("the id of a rejected entry is %q, want %s", r.ID, want)
			}
		}
		if text, want := fmt.Sprint(shares), "map[10.0.0.1:80 orders-10.0.0.1-80:100 10.0.0.2:80 orders-10.0.0.2-80:50 10.0.0.3:80 orders-10.0.0.3-80:0 "+
			"10.0.0.6:80 orders-10.0.0.6-80:100 [2001:db8::7]:80 orders-2001:db8::7-80:70]"; text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
		// A server that lists what is not enabled says so.
		d.do(func() {
			d.says = func(string) string { return `{"hosts":[{"ip":"10.0.0.1","port":80,"healthy":true,"enabled":false}]}` }
		})
		if a, err := n.list(t.Context(), 0, "orders"); err != nil || len(a.instances)+len(a.rejected) != 0 {
			t.Errorf("one that is not enabled: %+v, %v", a, err)
		}
		for _, says := range []string{"10.0.0.8:80 instance 10.0.0.8:80 of orders cannot be used\n  env: is required", "the value has 513 bytes", "must be 0 to 10000, got 10100"} {
			if !strings.Contains(strings.Join(why, "\n"), says) {
				t.Errorf("%q is not in %q", says, why)
			}
		}
		_ = end()
	}))
}

// Beats come every 5 s; what Nacos has forgotten is entered again with all it says.
func TestNacosLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
		in, err := instance("orders", "10.0.0.1:80").filled("nacos")
		if err != nil {
			t.Fatal(err)
		}
		lease, err := n.Register(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		renew := func() error {
			time.Sleep(RenewEvery)
			return lease.Renew(t.Context())
		}
		for range 12 {
			if err := renew(); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := n.list(t.Context(), 0, "orders"); err != nil || len(a.instances) != 1 || !a.instances[0].Equal(in) {
			t.Errorf("after a minute: %+v, %v; want %+v", a, err, in)
		}
		if beats, entered := d.calls("PUT"), d.calls("POST"); beats != 12 || entered != 1 {
			t.Errorf("%d beats, %d registrations", beats, entered)
		}
		d.do(func() { clear(d.hosts) })
		if err := renew(); err != nil {
			t.Errorf("what Nacos forgot: %v", err)
		}
		if a, err := n.list(t.Context(), 0, "orders"); err != nil || len(a.instances) != 1 || !a.instances[0].Equal(in) {
			t.Errorf("after it forgot: %+v, %v", a, err)
		}
		d.do(func() {
			d.broken = func(*http.Request) (int, string) { return http.StatusServiceUnavailable, "server is DOWN now" }
		})
		for range lostAfter - 1 {
			if err := renew(); err == nil || !strings.Contains(err.Error(), "DOWN") {
				t.Errorf("a renewal that fails: %v", err)
			}
		}
		if writable(t, d.registry) != 0 {
			t.Error("the registry passes for writable")
		}
		d.do(func() { d.broken, d.asked = nil, nil })
		if err := renew(); err != nil || d.calls("beat") != 1 {
			t.Errorf("after it came back: %v, %v", err, d.asked)
		}
		if writable(t, d.registry) != 1 {
			t.Error("the registry passes for read-only")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if a, err := n.list(t.Context(), 0, "orders"); err != nil || len(a.instances) != 0 {
			t.Errorf("after the release: %+v, %v", a, err)
		}
	}))
}

// writable is the gauge of a registry, -1 if it was never set.
func writable(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "dispatch_discovery_registry_writable" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// T35: a service that keeps persistent instances takes no others. That is an error
// with what to do, after one try.
func TestNacosPersistentService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848,b:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
		d.persistent["public##DEFAULT_GROUP@@orders"] = true
		lease, err := n.Register(t.Context(), instance("orders", "10.0.0.1:80"))
		if fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "nacos_persistent" || !strings.Contains(err.Error(), "delete the service orders") || lease != nil {
			t.Errorf("Register = %v, %v", lease, err)
		}
		if tries := d.calls("POST"); tries != 1 {
			t.Errorf("%d tries, want 1", tries)
		}
	}))
}

// T41: of twenty first registrations at once some are refused, and tried again.
func TestNacosFirstRegistrations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848", func(t *testing.T, d *nacosDouble, n *nacos) {
		d.silent, d.refuse = true, 12
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if _, err := n.Register(t.Context(), instance("orders", fmt.Sprintf("10.0.0.%d:80", i+1))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if a, err := n.list(t.Context(), 0, "orders"); err != nil || len(a.instances) != 20 {
			t.Errorf("%d of 20 are listed, %v", len(a.instances), err)
		}
		d.do(func() { d.refuse = 1000 })
		if _, err := n.Register(t.Context(), instance("orders", "10.0.1.1:80")); err == nil || !strings.Contains(err.Error(), "service not found") {
			t.Errorf("one that is refused for good: %v", err)
		}
		d.do(func() {
			if refused := 1000 - d.refuse; refused != enterTries {
				t.Errorf("%d tries, want %d", refused, enterTries)
			}
		})
	}))
}

// T36: a process with two ports has two names, and both are found; T23: an id of a
// live instance is refused.
func TestNacosTwoPorts(t *testing.T) {
	t.Parallel()
	d := newNacosDouble()
	source := openFor(t, "nacos://"+d.serving(t)+"?namespace=bank&group=core")
	rpc := Instance{Service: "passport_server.rpc_service", Address: listener(t), Coordinates: home(), Labels: map[string]string{"zone": "a"}}
	control := Instance{Service: "passport_server.control_service", Address: listener(t), Coordinates: home()}
	reg, end := running(t, source, rpc, control)
	for i, in := range []Instance{rpc, control} {
		w, _ := watching(t, source, in.Service)
		s := await(t, w, soon, lists(in.Address.String()))
		if !s.Instances[0].Equal(reg.Instances()[i]) {
			t.Errorf("found %+v, registered %+v", s.Instances[0], reg.Instances()[i])
		}
		defer await(t, w, soon, lists())
	}
	other := reg.Instances()[0]
	other.Address = listener(t)
	if _, err := source.Register(t.Context(), other); fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) != "id_taken" {
		t.Errorf("id of a live instance: %v", err)
	}
	d.do(func() {
		for key, h := range d.hosts {
			if !strings.HasPrefix(h.key, "bank##core@@passport_server.") {
				t.Errorf("entered as %s", key)
			}
		}
	})
	if err := end(); err != nil {
		t.Error(err)
	}
}

// Nacos counts; a list that is shorter than it says, or has no count, is an error.
func TestNacosServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, inNacos("a:8848,b:8848?group=g", func(t *testing.T, d *nacosDouble, n *nacos) {
		d.silent = true
		var want []string
		for i := range 2*nacosPage + 1 {
			name := fmt.Sprintf("s-%04d", i)
			d.put("g@@"+name, "10.0.0.1", 80, nil)
			want = append(want, name)
		}
		d.put("other", "10.0.0.1", 80, nil)
		if got, err := n.Services(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d services, %v; want %d", len(got), err, len(want))
		}
		if asked := d.calls("service/list"); asked != 3 {
			t.Errorf("%d questions, want 3", asked)
		}
		for text, says := range map[string]string{
			`{"count":3,"doms":["a"]}`: "it has 3 and names 1", `{}`: "no list of services", `{"count":"x"}`: "no list of services", "<html>": "no list of services",
		} {
			d.do(func() {
				d.asked = nil
				d.broken = func(r *http.Request) (int, string) {
					if r.URL.Query().Get("pageNo") != "1" {
						return http.StatusOK, `{"count":3,"doms":[]}`
					}
					return http.StatusOK, text
				}
			})
			if got, err := n.Services(t.Context()); err == nil || got != nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "b:8848") {
				t.Errorf("%s: %v, %v; want %q of both", text, got, err, says)
			}
		}
		d.do(func() {
			d.broken = func(*http.Request) (int, string) { return http.StatusOK, `{"count":2,"doms":["g@@orders","accounts"]}` }
		})
		if got, err := n.Services(t.Context()); err != nil || !slices.Equal(got, []string{"accounts", "orders"}) {
			t.Errorf("names with their group: %v, %v", got, err)
		}
		d.do(func() {
			d.broken = func(*http.Request) (int, string) { return http.StatusOK, `{"count":100000000,"doms":["a"]}` }
		})
		if _, err := n.Services(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("a list without an end: %v", err)
		}
		d.do(func() {
			d.broken = func(r *http.Request) (int, string) {
				if r.Host == "a:8848" {
					return http.StatusInternalServerError, "down"
				}
				return 0, ""
			}
		})
		if got, err := n.Services(t.Context()); err != nil || len(got) != len(want) {
			t.Errorf("with one server away: %d, %v", len(got), err)
		}
	}))
}

// A login is made when it is needed and again when the server forgot it; neither
// password nor token is ever in a URL.
func TestNacosLogin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	user, password, token := write("u", "nacos\n"), write("p", "wrong\n"), write("t", "token-1\n")
	synctest.Test(t, inNacos("a:8848?plain-token=true&username-file="+user+"&password-file="+password, func(t *testing.T, d *nacosDouble, n *nacos) {
		d.silent, d.password = true, "sesame & co"
		var urls []string
		d.broken = func(r *http.Request) (int, string) { urls = append(urls, r.URL.String()); return 0, "" }
		if _, err := n.Register(t.Context(), instance("orders", "10.0.0.1:80")); fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "username-file") {
			t.Errorf("with a wrong password: %v", err)
		}
		write("p", "sesame & co\n")
		lease, err := n.Register(t.Context(), instance("orders", "10.0.0.1:80"))
		if err != nil {
			t.Fatal(err)
		}
		logins := d.calls("login")
		for range 10 {
			if err := lease.Renew(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if d.calls("login") != logins {
			t.Errorf("%d logins more", d.calls("login")-logins)
		}
		d.do(func() { d.void = d.tokens }) // it restarted: no login is valid any more
		if err := lease.Renew(t.Context()); err != nil || d.calls("login") != logins+1 {
			t.Errorf("after the login ended: %v, %d logins more", err, d.calls("login")-logins)
		}
		time.Sleep(5 * time.Hour)
		if err := lease.Renew(t.Context()); err != nil || d.calls("login") != logins+2 {
			t.Errorf("after 5 h: %v, %d logins more", err, d.calls("login")-logins)
		}
		for _, u := range urls {
			if plain, _ := url.QueryUnescape(u); strings.Contains(plain, "sesame") || strings.Contains(plain, "token") {
				t.Errorf("a secret is in %s", u)
			}
		}
	}))
	synctest.Test(t, inNacos("a:8848?plain-token=true&token-file="+token, func(t *testing.T, d *nacosDouble, n *nacos) {
		d.password, d.tokens = "x", 1
		if _, err := n.list(t.Context(), 0, "orders"); err != nil {
			t.Errorf("with a token: %v", err)
		}
		write("t", "token-2\n")
		if _, err := n.list(t.Context(), 0, "orders"); !denied(err) {
			t.Errorf("with another: %v", err)
		}
	}))
}

// A13: the end removes the entry, and no beat comes after it that would make it again.
func TestNacosEndDeregisters(t *testing.T) {
	t.Parallel()
	d := newNacosDouble()
	source := openFor(t, "nacos://"+d.serving(t))
	_, end := running(t, source, Instance{Service: "orders", Address: listener(t), Coordinates: home()})
	if err := end(); err != nil {
		t.Error(err)
	}
	d.do(func() {
		if len(d.hosts) != 0 || !strings.HasPrefix(d.asked[len(d.asked)-1], "DELETE") {
			t.Errorf("%d left, calls %v", len(d.hosts), d.asked)
		}
	})
}

// FuzzNacosAnswer: whatever a server answers makes a list of valid instances, or an error.
func FuzzNacosAnswer(f *testing.F) {
	host, err := json.Marshal(nacosHost{IP: "10.0.0.1", Port: 80, Weight: new(1.0), Healthy: true, Metadata: instance("orders", "10.0.0.1:80").meta()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"hosts":[` + string(host) + `]}`)
	f.Add(`{"hosts":[{"ip":"::1","port":-1,"weight":1e300,"healthy":true,"metadata":null}],"reachProtectionThreshold":true}`)
	f.Add(`{"hosts":{}}`)
	d := newNacosDouble()
	source, err := Open("nacos://"+d.serving(f), Options{})
	if err != nil {
		f.Fatal(err)
	}
	defer source.Close()
	f.Fuzz(func(t *testing.T, text string) {
		d.do(func() { d.says = func(string) string { return text } })
		a, err := source.(*nacos).list(context.Background(), 0, "orders")
		if p, ok := errors.AsType[*problem](err); err != nil && (!ok || p.kind == "") {
			t.Errorf("%v", err)
		}
		for _, in := range a.instances {
			if err := in.Validate(); err != nil || in.ID == "" {
				t.Errorf("%+v was let through: %v", in, err)
			}
		}
	})
}
