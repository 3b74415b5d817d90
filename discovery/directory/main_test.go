package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

const region = "cn-hangzhou"

// book is a registry whose pages a test writes.
type book struct {
	kind string

	mu       sync.Mutex // guards the rest
	pages    map[string]discovery.Snapshot
	problem  error            // of the catalogue and of every list
	problems map[string]error // of single lists
	refused  map[string]error // what Watch returns at once
	hidden   map[string]bool  // names that the catalogue lacks
	hangs    bool             // the catalogue does not answer
	silent   bool             // no list comes
	changed  map[string]chan struct{}
	watches  int // that run
}

func newBook(kind string) *book {
	return &book{kind: kind, pages: map[string]discovery.Snapshot{}, problems: map[string]error{}, refused: map[string]error{}, hidden: map[string]bool{}, changed: map[string]chan struct{}{}}
}

func (b *book) Name() string { return b.kind }
func (b *book) Close()       {}

func (b *book) Register(context.Context, discovery.Instance) (discovery.Lease, error) {
	return nil, errors.New("nobody registers here")
}

func (b *book) Services(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	hangs := b.hangs
	b.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem != nil {
		return nil, b.problem
	}
	names := slices.Sorted(maps.Keys(b.pages))
	return slices.DeleteFunc(names, func(n string) bool { return b.hidden[n] }), nil
}

func (b *book) Watch(ctx context.Context, name string, out discovery.Observer) error {
	b.mu.Lock()
	b.watches++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.watches--
		delete(b.changed, name)
		b.mu.Unlock()
	}()
	var told uint64
	there := false
	for ctx.Err() == nil {
		b.mu.Lock()
		page, named := b.pages[name]
		problem, silent, refused := errors.Join(b.problem, b.problems[name]), b.silent, b.refused[name]
		if b.changed[name] == nil {
			b.changed[name] = make(chan struct{})
		}
		changed := b.changed[name]
		b.mu.Unlock()
		if !named && told > 0 && there {
			page.Version = told + 1 // a registry says of what it lacks that nobody is there
		}
		if refused != nil {
			return refused
		}
		if silent {
			<-ctx.Done()
			return nil
		}
		if problem == nil && (page.Version > told || told == 0) {
			told = max(page.Version, 1)
			page.Version = told
			there = len(page.Instances)+len(page.Rejected) > 0
			out.Publish(page)
		}
		out.Checked(problem)
		select {
		case <-changed:
		case <-time.After(time.Second): // looks again, as a real one does
		case <-ctx.Done():
		}
	}
	return nil
}

// change does it and wakes all watches, or those of the names.
func (b *book) change(do func(), names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	if names == nil {
		names = slices.Collect(maps.Keys(b.changed))
	}
	for _, name := range names {
		if b.changed[name] != nil {
			close(b.changed[name])
			delete(b.changed, name)
		}
	}
}

// write replaces what the registry says about a name.
func (b *book) write(name string, instances ...discovery.Instance) {
	b.change(func() {
		for i := range instances {
			instances[i].Source = b.kind
		}
		b.pages[name] = discovery.Snapshot{Service: name, Version: b.pages[name].Version + 1, Instances: instances}
	}, name)
}

// drop takes instances off a list that still accept connections, with more than half
// of the others.
func (b *book) drop(name string, left, vanished []discovery.Instance) {
	b.change(func() {
		for _, all := range [][]discovery.Instance{left, vanished} {
			for i := range all {
				all[i].Source = b.kind
			}
		}
		b.pages[name] = discovery.Snapshot{Service: name, Version: b.pages[name].Version + 1, Instances: left, LastResort: vanished}
	}, name)
}

func (b *book) reject(name string, rejected ...discovery.Rejected) {
	b.change(func() {
		page := b.pages[name]
		page.Version++
		page.Rejected = rejected
		b.pages[name] = page
	}, name)
}

// tear takes a name out of the registry.
func (b *book) tear(name string) { b.change(func() { delete(b.pages, name) }, name) }

func (b *book) fail(err error) { b.change(func() { b.problem = err }) }

// at is an instance of a service, 10.0.0.N:8080, in the region.
func at(service string, n int) discovery.Instance {
	a := discovery.Address{Host: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), Port: 8080}
	return discovery.Instance{ID: service + "-" + a.String(), Service: service, Address: a, Source: "book",
		Coordinates: discovery.Coordinates{Cluster: "production", Region: region, Env: "prod", Version: "v1"}}
}

func many(service string, n int) (all []discovery.Instance) {
	for i := range n {
		all = append(all, at(service, i))
	}
	return all
}

// follow runs a directory of these registries until the returned function ends it.
func follow(t testing.TB, memory Memory, books ...*book) (*Directory, func()) {
	t.Helper()
	opt := Options{Region: region, Memory: memory}
	for _, b := range books {
		opt.Registries = append(opt.Registries, Registry{b.kind, b})
	}
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d, running(t, d)
}

func running(t testing.TB, d *Directory) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// settle lets everything that is under way arrive.
func settle() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// addresses are those of a service in the view, with ! where it takes no traffic.
func addresses(v *View, service string) string {
	var all []string
	for _, s := range v.Services {
		for _, in := range s.Instances {
			if s.Name == service {
				mark := ""
				if !in.usable() {
					mark = "!" + in.Scale.Why
				}
				all = append(all, in.Address.String()+mark)
			}
		}
	}
	return strings.Join(all, " ")
}

func serviceNames(v *View) string {
	var all []string
	for _, s := range v.Services {
		all = append(all, s.Name)
	}
	return strings.Join(all, " ")
}

// shelf is a Memory that one process keeps.
type shelf struct {
	mu       sync.Mutex              // guards the rest
	reports  map[shelved]wire.Report // as in a database, two processes with one ID are two
	verdicts []Verdict
	batches  []wire.Batch
	lists    []map[string][]discovery.Instance
	saves    int // calls of SaveReports
	problem  error
}

// shelved is what a report is kept under.
type shelved struct {
	key
	address discovery.Address
	started int64
}

func shelfKey(r wire.Report) shelved {
	return shelved{key{r.Service, r.ID}, r.Address, r.Started.UnixMilli()}
}

func newShelf() *shelf { return &shelf{reports: map[shelved]wire.Report{}} }

func (s *shelf) SaveReports(_ context.Context, all []wire.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	for _, r := range all {
		s.reports[shelfKey(r)] = r
	}
	return s.problem
}

func (s *shelf) Reports(context.Context) ([]wire.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.reports)), s.problem
}

func (s *shelf) Verdicts(context.Context) ([]Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.verdicts), s.problem
}

func (s *shelf) SaveRecords(_ context.Context, b wire.Batch, lists map[string][]discovery.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == nil {
		s.batches, s.lists = append(s.batches, b), append(s.lists, lists)
	}
	return s.problem
}

func (s *shelf) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// put is a report that another node has taken.
func (s *shelf) put(r wire.Report) { s.do(func() { s.reports[shelfKey(r)] = r }) }

// boardOf is a RulesBoard that a test writes.
type boardOf struct {
	mu      sync.Mutex // guards the rest
	newest  rules.Signed
	changed chan struct{}
	unread  bool
}

func (b *boardOf) Read() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.unread
}

func newBoard() *boardOf { return &boardOf{changed: make(chan struct{})} }

func (b *boardOf) Current() (rules.Signed, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest, b.changed
}

func (b *boardOf) post(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest = rules.Signed{Number: number, Manifest: fmt.Appendf(nil, "manifest %d", number), Signature: "s"}
	close(b.changed)
	b.changed = make(chan struct{})
}

func serve(t testing.TB, d *Directory, board RulesBoard) *Server {
	t.Helper()
	s, err := NewServer(d, board)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send posts a body, or gets without one.
func send(s *Server, path string, body any) *httptest.ResponseRecorder {
	return sendIn(context.Background(), s, path, body)
}

func sendIn(ctx context.Context, s *Server, path string, body any) *httptest.ResponseRecorder {
	method, text := http.MethodGet, ""
	if body != nil {
		method = http.MethodPost
		if text, _ = body.(string); text == "" {
			text = string(plain(body))
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(text)))
	return w
}

// home are the coordinates of callers.
func home() discovery.Coordinates { return at("x", 0).Coordinates }

// ask sends an Ask of a caller here and decodes the answer.
func ask(t testing.TB, s *Server, a wire.Ask) wire.Tables {
	t.Helper()
	a.Caller, a.Home = "c1", home()
	w := send(s, wire.TablesPath, a)
	var got wire.Tables
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", w.Code, err, w.Body)
	}
	return got
}

// after is the Ask that follows an answer.
func after(got wire.Tables, services ...string) wire.Ask {
	return wire.Ask{Epoch: got.Epoch, Version: got.Version, Services: services}
}
