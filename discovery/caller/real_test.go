package caller

import (
	"context"
	"maps"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
)

// board is where a control node has its rules from.
type board struct {
	mu      sync.Mutex // guards the rest
	now     rules.Signed
	changed chan struct{}
}

func (b *board) Read() bool { return true }

func (b *board) Current() (rules.Signed, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.changed
}

func (b *board) publish(s *rules.Signed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = *s
	close(b.changed)
	b.changed = make(chan struct{})
}

// memory keeps the records that a directory is given.
type memory struct {
	mu      sync.Mutex // guards the rest
	records []wire.Record
	views   map[string]route.View
	lists   map[string][]discovery.Instance
}

func (*memory) SaveReports(context.Context, []wire.Report) error      { return nil }
func (*memory) Reports(context.Context) ([]wire.Report, error)        { return nil, nil }
func (*memory) Verdicts(context.Context) ([]directory.Verdict, error) { return nil, nil }
func (m *memory) SaveRecords(_ context.Context, b wire.Batch, lists map[string][]discovery.Instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, b.Records...)
	for _, v := range b.Views {
		m.views[v.Key] = v
	}
	maps.Copy(m.lists, lists)
	return nil
}

// The other side for real: a directory that follows a file, over HTTP. Lists and
// rules arrive, and control can make a recorded pick again (A47, A52, A60).
func TestWithRealControlNode(t *testing.T) {
	t.Parallel()
	path := registryFile(t, mixed()...)
	source, err := discovery.Open("static:"+path, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keeps := &memory{views: map[string]route.View{}, lists: map[string][]discovery.Instance{}}
	d, err := directory.New(directory.Options{Region: "cn-hangzhou", Registries: []directory.Registry{{Name: "main", Source: source}}, Memory: keeps})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	rulesOf := &board{changed: make(chan struct{})}
	node := newNode(t) // for its keys
	first := rule("orders", "v2")
	rulesOf.publish(node.sign(1, rules.Set{Rules: []rules.Rule{first}}))
	s, err := directory.NewServer(d, rulesOf)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer func() {
		s.Stop()
		server.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	opt := options(node)
	opt.Control, opt.Service, opt.Services = []string{server.URL}, "gateway", []string{"orders", "nobody"}
	c := started(t, nil, opt)
	ready(t, c)
	p, err := c.Pick(Keep(t.Context()), "orders")
	if err != nil || p.Instance.Address.String() != "10.0.0.2:80" || p.Number != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := c.Pick(t.Context(), "nobody"); err == nil {
		t.Error("nobody was picked")
	}
	reaches := func(what, want string) {
		t.Helper()
		began := time.Now()
		for deadline := began.Add(20 * time.Second); ; {
			got := among(picks(t.Context(), c, "orders", 50))
			if got == want {
				t.Logf("%s: used after %v", what, time.Since(began).Round(time.Millisecond))
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: picks go to %s, want %s", what, got, want)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	rulesOf.publish(node.sign(2, rules.Set{Rules: []rules.Rule{rule("orders", "v1")}}))
	reaches("rules", "10.0.0.1:80")
	writeRegistry(t, path, instance("orders", "10.0.0.9:80", "prod", "v1")) // the only one: it serves although it warms
	reaches("list", "10.0.0.9:80")

	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		keeps.mu.Lock()
		at := slices.IndexFunc(keeps.records, func(r wire.Record) bool { return r.ID == p.ID() })
		if at >= 0 {
			r, v := keeps.records[at], keeps.views[keeps.records[at].View]
			table := route.Compile(route.Input{Service: r.Service, Home: v.Home, Instances: keeps.lists[v.Digest], Rules: []rules.Rule{first},
				Number: v.Number, Direct: v.Direct, Isolate: v.Isolate, Scale: v.Scale})
			keeps.mu.Unlock()
			if e := table.Explain(r.Lane, r.Draw); e.Chosen != r.Chosen || r.Chosen != p.Instance.Address.String() {
				t.Errorf("made again: %+v, the record is %+v of view %+v", e, r, v)
			}
			return
		}
		keeps.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the record did not arrive")
		}
	}
}
