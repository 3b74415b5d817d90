package caller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// home is where the callers of these tests are.
func home() discovery.Coordinates {
	return discovery.Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v1"}
}

// instance is one of a service at an address, in the coordinates of home but for
// the env and version.
func instance(service, address, env, version string) discovery.Instance {
	a, err := discovery.ParseAddress(address)
	if err != nil {
		panic(err)
	}
	c := home()
	c.Env, c.Version = env, version
	return discovery.Instance{ID: service + "-" + address, Service: service, Address: a, Coordinates: c,
		Started: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Source: "main"}
}

// instances are n of a service, at 10.0.x.y:80.
func instances(n int, service, env, version string) (all []discovery.Instance) {
	for i := range n {
		all = append(all, instance(service, fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), env, version))
	}
	return all
}

// rule sends prod to a version in the coordinates of home.
func rule(service, version string) rules.Rule {
	return rules.Rule{Service: service, Updated: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC), File: service + ".yaml",
		Selector: rules.Selector{Cluster: "production", Region: "cn-hangzhou", Env: "prod"},
		Strategy: rules.Strategy{Version: version, Weight: 100}}
}

// node is a control node: it answers the paths of package wire, and counts.
type node struct {
	mu      sync.Mutex // guards the rest
	epoch   string
	version uint64
	lists   map[string]wire.Service
	changes map[string]uint64 // the version that changed a service last
	loaded  map[string]uint64 // the version that changed its loads last
	rules   *rules.Signed
	partial map[string]string
	changed chan struct{}
	deaf    bool // no wake-up reaches a question that waits
	hasty   bool // questions do not wait
	down    bool
	unread  bool // the rules have not been read
	takes   int  // bytes of a batch at most; 0: any
	asks    []time.Time
	last    wire.Ask
	full    int
	batches []wire.Batch
	keys    signed.Keys
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	keys, err := signed.NewKeys(signed.Publisher)
	if err != nil {
		tb.Fatal(err)
	}
	return &node{epoch: "e1", version: 1, lists: map[string]wire.Service{}, changes: map[string]uint64{}, loaded: map[string]uint64{},
		changed: make(chan struct{}), keys: keys}
}

// change changes the node and wakes whoever waits.
func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	f()
	if !n.deaf {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// list makes these the instances of a service.
func (n *node) list(service string, all ...discovery.Instance) {
	n.change(func() { n.put(service, wire.Service{Instances: all}) })
}

func (n *node) put(service string, s wire.Service) {
	text, err := json.Marshal(s.Instances)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	s.Digest = hex.EncodeToString(sum[:8])
	n.lists[service], n.changes[service] = s, n.version
}

// load makes these the loads of a service, by instance ID. It wakes nobody.
func (n *node) load(service string, said map[string]wire.Load) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	s := n.lists[service]
	s.Load = said
	n.lists[service], n.loaded[service] = s, n.version
}

// sign makes a release of rules.
func (n *node) sign(number uint64, set rules.Set) *rules.Signed {
	manifest, err := json.Marshal(map[string]any{"format": 1, "deployment": "dispatch", "stream": rules.Stream("cn-hangzhou"), "number": number, "rules": set})
	if err != nil {
		panic(err)
	}
	signature, err := n.keys.Current().SignDetached(signed.TypManifest, manifest)
	if err != nil {
		panic(err)
	}
	return &rules.Signed{Number: number, Manifest: manifest, Signature: signature}
}

func (n *node) publish(number uint64, all ...rules.Rule) {
	s := n.sign(number, rules.Set{Rules: all})
	n.change(func() { n.rules = s })
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	var answer any
	switch r.URL.Path {
	case wire.RecordsPath:
		if n.takes > 0 && len(body) > n.takes {
			http.Error(w, `{"status":413,"code":"too_large"}`, http.StatusRequestEntityTooLarge)
			return
		}
		var b wire.Batch
		if err := json.Unmarshal(body, &b); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n.mu.Lock()
		n.batches = append(n.batches, b)
		n.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	case wire.TablesPath:
		var q wire.Ask
		if err := json.Unmarshal(body, &q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer = n.answer(r.Context(), q)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(text) // a caller that is gone needs no answer
}

func (n *node) answer(ctx context.Context, q wire.Ask) wire.Tables {
	hold := time.NewTimer(wire.HoldFor)
	defer hold.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asks, n.last = append(n.asks, time.Now()), q
	for waited := false; ; waited = true {
		t := wire.Tables{Epoch: n.epoch, Version: n.version, Full: q.Epoch != n.epoch, Services: map[string]wire.Service{}, Partial: n.partial, Unread: n.unread}
		for name, s := range n.lists {
			if (t.Full || n.changes[name] > q.Version) && (len(q.Services) == 0 || slices.Contains(q.Services, name)) {
				t.Services[name] = s
			} else if n.loaded[name] > q.Version {
				if t.Loads == nil {
					t.Loads = map[string]map[string]wire.Load{}
				}
				t.Loads[name] = s.Load
			}
		}
		if n.rules != nil && n.rules.Number != q.Number {
			t.Rules = n.rules
		}
		if t.Full {
			n.full++
		}
		if n.down || t.Full || t.Rules != nil || len(t.Services) > 0 || waited && n.deaf || n.hasty {
			return t
		}
		changed := n.changed
		n.mu.Unlock()
		select {
		case <-changed:
		case <-hold.C:
			n.mu.Lock()
			if !n.deaf {
				return t
			}
			continue // what was missed comes with the answer
		case <-ctx.Done():
			n.mu.Lock()
			return t
		}
		n.mu.Lock()
	}
}

// counted is how many questions were asked, and how many answers were full.
func (n *node) counted() (asked, full int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.asks), n.full
}

// network brings requests to nodes by their host, without a network. It counts.
type network struct {
	nodes map[string]*node

	mu       sync.Mutex // guards the rest
	requests int
	cut      bool
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.requests++
	cut := n.cut
	n.mu.Unlock()
	to := n.nodes[r.URL.Host]
	if cut || to == nil || to.isDown() {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		to.ServeHTTP(w, r)
	}()
	select {
	case <-done:
	case <-r.Context().Done():
		<-done
		return nil, r.Context().Err()
	}
	if to.isDown() {
		return nil, errors.New("connection reset")
	}
	return w.Result(), nil
}

func (n *node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests
}

// options of a caller whose control nodes are those of the network.
func options(n *node) Options {
	return Options{ID: "test", Self: home(), Control: []string{"https://control:8083"}, Trust: signed.TrustOf(n.keys)}
}

// started is a caller that runs until the test ends, over a network without sockets.
func started(t *testing.T, net http.RoundTripper, opt Options) *Caller {
	t.Helper()
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if net != nil {
		c.transport = net
	}
	run(t, c)
	return c
}

// run runs a caller; the function that it returns ends it.
func run(t *testing.T, c *Caller) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

func ready(t *testing.T, c *Caller) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// one is the network with one control node.
func one(n *node) *network { return &network{nodes: map[string]*node{"control:8083": n}} }

// picks counts the addresses of so many picks; errors stand under their text.
func picks(ctx context.Context, c *Caller, service string, times int) map[string]int {
	counts := map[string]int{}
	for range times {
		p, err := c.Pick(ctx, service)
		if err != nil {
			counts["error: "+err.Error()]++
			continue
		}
		counts[p.Instance.Address.String()]++
	}
	return counts
}

func among(counts map[string]int) string { return strings.Join(slices.Sorted(maps.Keys(counts)), " ") }

// logged collects the log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// metric is the value of a metric, of all its series or of those with a label's value.
func metric(t *testing.T, registry *prometheus.Registry, name string, value ...string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := 0
			for _, label := range m.GetLabel() {
				if slices.Contains(value, label.GetValue()) {
					has++
				}
			}
			if has == len(value) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
