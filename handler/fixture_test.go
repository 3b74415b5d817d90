package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// The clean-up of rotated files never ends (lumberjack has no way to stop it).
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// testNow is when tests happen.
var testNow = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// current is a keeper whose release a test sets.
type current struct {
	atomic.Pointer[release.Snapshot]
}

func (c *current) Current() *release.Snapshot { return c.Load() }

// fixture is a Handler that answers from testdata/bank.yaml.
type fixture struct {
	handler  *Handler
	registry *prometheus.Registry
	current  *current
	keys     *release.Keyring
	loader   *release.Loader
	key      whitelist.Key // of lists
	dir      string        // of the key files
	now      atomic.Int64  // nanoseconds after testNow
}

func newFixture(tb testing.TB, with ...func(*Options)) *fixture {
	tb.Helper()
	f := newReplica(tb, tb.TempDir(), with...)
	f.current.Store(f.snapshotOf(tb, 412, nil))
	return f
}

// newReplica is a fixture before its first release. It reads its keys from dir,
// as every other replica on that directory does.
func newReplica(tb testing.TB, dir string, with ...func(*Options)) *fixture {
	tb.Helper()
	f := &fixture{registry: prometheus.NewRegistry(), current: new(current), dir: dir}
	f.keys, f.loader = newKeys(tb, dir)
	list := f.keys.List.Current()
	var err error
	if f.key, err = whitelist.NewKey(list.ID(), list.Secret()); err != nil {
		tb.Fatal(err)
	}
	opt := Options{
		Releases: f.current, Registry: f.registry, HashID: f.key.Hash,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		CORSOrigins:    []string{"https://m.bank.example"},
		Replica:        policy.Replica{Region: "sh", Cluster: "k1", Env: "test"},
		Databases:      policy.GeoDigests{City: "c17"},
		Now:            f.clock,
	}
	for _, w := range with {
		w(&opt)
	}
	if f.handler, err = New(opt); err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *fixture) clock() time.Time { return testNow.Add(time.Duration(f.now.Load())) }

// get asks the public listener. Headers are pairs of name and value.
func (f *fixture) get(target string, headers ...string) *httptest.ResponseRecorder {
	return f.do(http.MethodGet, target, "", headers...)
}

func (f *fixture) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, content)
	r.RemoteAddr = "203.0.113.9:40000"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "peer" {
			r.RemoteAddr = headers[i+1]
			continue
		}
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.Public().ServeHTTP(w, r)
	return w
}

// answer is what a client reads.
type answer struct {
	App, Region, Domain, Fallback, Record, Session string
	Alternates                                     []string
	Release                                        uint64
	TTL                                            int
	Code                                           string
}

// ask is get for a request that must be answered 200.
func (f *fixture) ask(tb testing.TB, target string, headers ...string) answer {
	tb.Helper()
	a, ok := f.try(tb, target, headers...)
	if !ok {
		tb.FailNow()
	}
	return a
}

// try is ask for goroutines that must not end the test.
func (f *fixture) try(tb testing.TB, target string, headers ...string) (a answer, ok bool) {
	tb.Helper()
	w := f.get(target, headers...)
	if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusOK || err != nil {
		tb.Errorf("%s %v: %d %s, %v", target, headers, w.Code, w.Body, err)
		return a, false
	}
	return a, true
}

func read(tb testing.TB, w *httptest.ResponseRecorder) answer {
	tb.Helper()
	var a answer
	dec := json.NewDecoder(w.Body)
	if err := dec.Decode(&a); err != nil {
		tb.Fatalf("answer is not JSON: %v", err)
	}
	return a
}

// metric is the text exposition of the metrics, as Prometheus reads it.
func (f *fixture) exposition(tb testing.TB) string {
	tb.Helper()
	w := httptest.NewRecorder()
	f.handler.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		tb.Fatalf("metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// counter is the value of a metric without labels.
func (f *fixture) counter(tb testing.TB, name string) int {
	tb.Helper()
	for line := range strings.SplitSeq(f.exposition(tb), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return int(n)
		}
	}
	tb.Fatalf("no metric %s", name)
	return 0
}

// wantMetric fails unless the exposition holds the line.
func (f *fixture) wantMetric(tb testing.TB, line string) {
	tb.Helper()
	text := f.exposition(tb)
	if slices.Contains(strings.Split(text, "\n"), line) {
		return
	}
	name, _, _ := strings.Cut(line, "{")
	var near []string
	for l := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(l, name) && !strings.HasSuffix(l, " 0") {
			near = append(near, l)
		}
	}
	tb.Errorf("no metric line %s; there are\n%s", line, strings.Join(near, "\n"))
}

// buffer is a decision log in memory.
type buffer struct {
	mu     sync.Mutex
	text   bytes.Buffer
	closed bool
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *buffer) lines() []string {
	text := strings.TrimSuffix(b.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// newKeys reads the keyring in dir, which the first call makes, and a loader that trusts it.
func newKeys(tb testing.TB, dir string) (*release.Keyring, *release.Loader) {
	tb.Helper()
	ring, err := release.LoadKeys(release.KeyFilesIn(dir), true)
	if err != nil {
		tb.Fatal(err)
	}
	suffixes, err := domain.NewSuffixes([]string{"bank.example", "a.com.cn", "b.com.cn"})
	if err != nil {
		tb.Fatal(err)
	}
	loader, err := release.NewLoader(release.LoaderOptions{Deployment: "test", Suffixes: suffixes, Trust: ring.Trust(), Keys: ring})
	if err != nil {
		tb.Fatal(err)
	}
	return ring, loader
}

// snapshotOf is the release that testdata/bank.yaml makes as edit leaves it:
// signed, verified and compiled like any other.
func (f *fixture) snapshotOf(tb testing.TB, number uint64, edit func(*release.Document)) *release.Snapshot {
	tb.Helper()
	return f.load(tb, f.publish(tb, number, edit))
}

// published is a signed release and the blobs that it names.
type published struct {
	signed release.Signed
	blobs  memory
}

func (f *fixture) load(tb testing.TB, p published) *release.Snapshot {
	tb.Helper()
	snap, err := f.loader.Load(tb.Context(), p.signed, p.blobs, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return snap
}

func (f *fixture) publish(tb testing.TB, number uint64, edit func(*release.Document)) published {
	tb.Helper()
	text, err := os.ReadFile("testdata/bank.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	doc, err := release.Parse("bank.yaml", text)
	if err != nil {
		tb.Fatal(err)
	}
	if edit != nil {
		edit(doc)
	}
	ids := f.keys.IDs()
	change := release.Change{Document: doc, Keys: &ids, Lists: map[string]release.Digest{},
		Cause: release.Cause{Action: "publish", By: "test"}, Created: testNow.Add(-time.Hour), Above: number - 1}
	blobs := memory{}
	for i := range doc.Lists {
		f.store(tb, blobs, change.Lists, normalIDs(tb, doc, &doc.Lists[i]))
	}
	for _, app := range doc.Apps {
		change.Approve.Hosts = append(change.Approve.Hosts, app.Fallback)
		for _, r := range app.Regions {
			for _, e := range r.Endpoints {
				change.Approve.Hosts = append(change.Approve.Hosts, e.Domain)
			}
		}
	}
	m, err := release.First("test", release.StreamEdge, change)
	if err != nil {
		tb.Fatal(err)
	}
	signed, err := release.Sign(m, f.keys, testNow)
	if err != nil {
		tb.Fatal(err)
	}
	return published{signed, blobs}
}

// normalIDs brings the ids of a list into normal form, as every import does.
func normalIDs(tb testing.TB, doc *release.Document, l *release.List) *release.List {
	tb.Helper()
	folds, _ := doc.FoldsIDs(l.Key)
	normal, err := whitelist.NewNormalizer(doc.AbsentIDs, folds)
	if err != nil {
		tb.Fatal(err)
	}
	for i, raw := range *l.IDs {
		id, why := normal.Normalize(raw)
		if why != whitelist.Present {
			tb.Fatalf("list %s: %q is %v", l.Key, raw, why)
		}
		(*l.IDs)[i] = id
	}
	return l
}

// store moves the ids of a list out of the document into blobs.
func (f *fixture) store(tb testing.TB, blobs memory, index map[string]release.Digest, l *release.List) {
	tb.Helper()
	content, err := whitelist.Build(f.key, l.Of, slices.Values(*l.IDs))
	if err != nil {
		tb.Fatal(err)
	}
	for b := range content.Blobs() {
		blobs[b.Digest] = b.Bytes
	}
	data := content.Index().Bytes()
	digest := release.DigestOf(data)
	blobs[digest], index[l.Key] = data, digest
	l.IDs, l.Digest, l.Count = nil, digest.String(), content.Len()
}

// memory holds blobs.
type memory map[release.Digest][]byte

func (m memory) Blob(_ context.Context, d release.Digest) ([]byte, error) {
	data, ok := m[d]
	if !ok {
		return nil, fmt.Errorf("no blob %s", d)
	}
	return data, nil
}

// newRequest is a GET with a Host of its own; empty leaves the default one.
func newRequest(tb testing.TB, target, host string) *http.Request {
	tb.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = "203.0.113.9:40000"
	if host != "" {
		r.Host = host
	}
	return r
}

// serve answers r, which must be 200.
func (f *fixture) serve(tb testing.TB, r *http.Request) answer {
	tb.Helper()
	w := httptest.NewRecorder()
	f.handler.Public().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		tb.Fatalf("%s: %d %s", r.URL, w.Code, w.Body)
	}
	return read(tb, w)
}
