// Package admin_test holds the admin API to its manual, as a caller meets it:
// over HTTP, with a real store on SQLite and on MariaDB, real keys and a real
// keeper. It lies below cmd/dispatch because nobody else may open a store.
package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/admin"
	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/pages"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

const deployment = "test"

// bank is release 1 of every test: two apps, two regions each, one list.
const bank = `apps:
  - key: mobile
    default: true
    fallback: wap.bank.example
    regions:
      - key: sh
        capacity: 60
        failover: [hf]
        endpoints:
          - {key: sh-main, domain: wapabst.a.com.cn}
          - {key: sh-spare, domain: wapabst2.a.com.cn, state: standby}
      - key: hf
        capacity: 40
        failover: [sh]
        endpoints:
          - {key: hf-main, domain: wapcdst.b.com.cn}
    policies:
      - key: staff
        when: {in_list: staff}
        then: {region: hf}
    otherwise: {split: [{region: sh, of: 6000}, {region: hf, of: 4000}]}
  - key: corporate
    fallback: corp.bank.example
    regions:
      - key: sh
        failover: [hf]
        endpoints:
          - {key: main, domain: corp-sh.bank.example}
      - key: hf
        failover: [sh]
        endpoints:
          - {key: main, domain: corp-hf.bank.example}
    otherwise: {region: sh}
lists:
  - {key: staff, of: device, owner: release-team, expires: 2099-12-31, ids: [d-1001, d-1002]}
`

// kept is bank without the ids, which then stay as they are.
var kept = strings.Replace(bank, ", ids: [d-1001, d-1002]", "", 1)

// edit is kept with some texts replaced by others.
func edit(t *testing.T, pairs ...string) string {
	t.Helper()
	text := kept
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the document has no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// control is one control node in this process.
type control struct {
	t      *testing.T
	url    string
	kind   string // of database
	dsn    string
	dir    string // keys, the copy on disk, and the SQLite file
	store  *store.Store
	keys   *release.Keyring
	keeper *release.Keeper
	do     *actions.Actions
	tokens map[string]string // secrets by role
	log    *printed
	clock  *clock
	strict *atomic.Bool // safety rules as people have them

	passwords *cheap
	cookies   *cookies
	pages     *pages.Pages
	options   signin.Options // for start to complete
}

// clock is the store's time; tests move it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// printed is what was logged.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// each runs the test on both databases, with bank published as release 1.
func each(t *testing.T, test func(t *testing.T, c *control)) {
	t.Helper()
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, published(t, kind))
		})
	}
}

// published is a control node that has released bank.
func published(t *testing.T, kind string) *control {
	t.Helper()
	c := empty(t, kind, nil)
	c.publish(0, bank, "").ok()
	return c
}

// empty is a control node without a release. wrap, if any, stands between it and its store.
func empty(t *testing.T, kind string, wrap func(*store.Store) actions.Ledger) *control {
	t.Helper()
	c := &control{t: t, kind: kind, dir: t.TempDir(), log: new(printed), clock: new(clock), tokens: map[string]string{},
		passwords: new(cheap), cookies: newCookies()}
	c.dsn = "sqlite:" + filepath.Join(c.dir, "dispatch.db")
	if kind == "mysql" {
		c.dsn = "mysql:" + testenv.MariaDB(t)
	}
	if _, err := store.Migrate(t.Context(), c.dsn); err != nil {
		t.Fatal(err)
	}
	c.start(wrap)
	for _, role := range actions.AllRoles() {
		_, secret, err := c.store.CreateToken(t.Context(), ledger.NewToken{Type: "api", Name: role, Role: role}, ledger.Change{By: "test", Reason: "test"})
		must(t, err)
		c.tokens[role] = secret
	}
	c.approveAll()
	return c
}

// restless is a ledger that does not tell the safety rules what was done a moment
// ago, so that tests do in a second what people may not. strict ends that.
type restless struct {
	actions.Ledger
	strict *atomic.Bool
}

func (r restless) Audit(ctx context.Context, f ledger.AuditFilter) ([]ledger.AuditEntry, error) {
	asRulesAsk := ledger.AuditFilter{Stream: release.StreamEdge, Since: f.Since, Limit: 1000}
	if f == asRulesAsk && !f.Since.IsZero() && !r.strict.Load() {
		return nil, nil
	}
	return r.Ledger.Audit(ctx, f)
}

// approveAll approves the hosts of bank.
func (c *control) approveAll() {
	c.t.Helper()
	doc, err := release.Parse("bank.yaml", []byte(bank))
	must(c.t, err)
	for host := range doc.Domains() {
		c.approve(host)
	}
}

// start opens the store and serves the API and the console over it.
func (c *control) start(wrap func(*store.Store) actions.Ledger) {
	c.t.Helper()
	c.build(wrap)
	log := slog.New(slog.NewJSONHandler(c.log, nil))
	opt := c.options
	opt.Actions, opt.Sessions, opt.Log, opt.Now = c.do, c.store, log, c.clock.now
	who, err := signin.New(opt)
	must(c.t, err)
	shown, err := pages.New(c.do, pages.Options{Log: log, Visitors: who, SignIn: who, Now: c.clock.now})
	must(c.t, err)
	c.pages = shown
	server := httptest.NewServer(admin.New(c.do, admin.Options{Log: log, SignIn: who, Pages: shown}))
	c.t.Cleanup(server.Close)
	c.url = server.URL + "/api/v1"
}

// build opens the store and makes the actions over it.
func (c *control) build(wrap func(*store.Store) actions.Ledger) {
	c.t.Helper()
	keys, err := release.LoadKeys(release.KeyFilesIn(filepath.Join(c.dir, "keys")), true)
	must(c.t, err)
	seal := store.SealKeys{Current: keys.ListSeal.Current().Secret()}
	if all := keys.ListSeal.All(); len(all) > 1 {
		seal.Previous = all[1].Secret()
	}
	st, err := store.Open(c.t.Context(), c.dsn, store.Options{Now: c.clock.now, Seal: seal, Timeout: time.Minute}) // a busy machine must not fail tests
	must(c.t, err)
	c.t.Cleanup(func() { _ = st.Close() })
	suffixes, err := domain.NewSuffixes([]string{"a.com.cn", "b.com.cn", "bank.example"})
	must(c.t, err)
	loader, err := release.NewLoader(release.LoaderOptions{Deployment: deployment, Suffixes: suffixes, Trust: keys.Trust(), Keys: keys})
	must(c.t, err)
	disk, err := release.OpenDisk(filepath.Join(c.dir, "releases"))
	must(c.t, err)
	keeper, err := release.NewKeeper(loader, disk)
	must(c.t, err)
	var book actions.Ledger = st
	if wrap != nil {
		book = wrap(st)
	}
	if c.strict == nil {
		c.strict = new(atomic.Bool)
	}
	do, err := actions.New(actions.Options{Ledger: restless{book, c.strict}, Log: slog.New(slog.NewJSONHandler(c.log, nil)), Keeper: keeper, Loader: loader, Keys: keys, Suffixes: suffixes, Deployment: deployment, Passwords: c.passwords, Now: c.clock.now})
	must(c.t, err)
	c.store, c.keys, c.keeper, c.do = st, keys, keeper, do
}

// sibling is another control node on the same database, with the same keys and tokens.
func (c *control) sibling() *control {
	other := *c
	other.dir = c.t.TempDir()
	must(c.t, os.CopyFS(filepath.Join(other.dir, "keys"), os.DirFS(filepath.Join(c.dir, "keys"))))
	for _, entry := range must2(os.ReadDir(filepath.Join(other.dir, "keys")))(c.t) {
		must(c.t, os.Chmod(filepath.Join(other.dir, "keys", entry.Name()), 0o600))
	}
	other.start(nil)
	return &other
}

// second is a sibling that serves the newest release.
func (c *control) second() *control {
	other := c.sibling()
	newest, err := other.store.Latest(c.t.Context(), release.StreamEdge)
	must(c.t, err)
	must(c.t, other.keeper.Accept(c.t.Context(), newest, other.store, "database"))
	return other
}

func (c *control) approve(host string) {
	c.t.Helper()
	must(c.t, c.store.ProposeHost(c.t.Context(), host, ledger.Change{By: "proposer", Reason: "test"}))
	must(c.t, c.store.ApproveHost(c.t.Context(), host, ledger.Change{By: "second person", Reason: "test"}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must2[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// request is one call. Role "" sends no token.
type request struct {
	role, method, path, body string
	headers                  []string // names and values
}

// reply is what came back.
type reply struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   []byte
}

// call sends a request.
func (c *control) call(r request) *reply {
	c.t.Helper()
	return c.send(c.t.Context(), r, strings.NewReader(r.body))
}

func (c *control) send(ctx context.Context, r request, body io.Reader) *reply {
	c.t.Helper()
	reply, err := c.try(ctx, r, body)
	must(c.t, err)
	return reply
}

func (c *control) try(ctx context.Context, r request, body io.Reader) (*reply, error) {
	body, err := c.confirming(r, body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, body)
	if err != nil {
		return nil, err
	}
	if r.role != "" {
		req.Header.Set("Authorization", "Bearer "+c.tokens[r.role])
	}
	for i := 0; i < len(r.headers); i += 2 {
		req.Header.Set(r.headers[i], r.headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return &reply{t: c.t, what: r.method + " " + r.path, status: resp.StatusCode, header: resp.Header, body: data}, err
}

// confirming types what an emergency or a relive must be confirmed with, unless the
// body says something itself: what is refused without is another test's business.
func (c *control) confirming(r request, body io.Reader) (io.Reader, error) {
	n, relive := strings.CutSuffix(strings.TrimPrefix(r.path, "/releases/"), "/relive")
	if r.method != http.MethodPost || !relive && !strings.HasPrefix(r.path, "/emergency") {
		return body, nil
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var said map[string]json.RawMessage
	var e actions.Emergency
	number, _ := strconv.ParseUint(n, 10, 64)
	if json.Unmarshal(text, &said) != nil || said == nil || said["confirm"] != nil || !relive && json.Unmarshal(text, &e) != nil {
		return bytes.NewReader(text), nil
	}
	confirm := c.do.Confirmation(e)
	if relive {
		confirm = c.do.ConfirmRelive(number)
	}
	if said["confirm"], err = json.Marshal(confirm); err != nil {
		return nil, err
	}
	text, err = json.Marshal(said)
	return bytes.NewReader(text), err
}

func (c *control) get(role, path string) *reply {
	c.t.Helper()
	return c.call(request{role: role, method: http.MethodGet, path: path})
}

func (c *control) post(role, path, body string, headers ...string) *reply {
	c.t.Helper()
	return c.call(request{role: role, method: http.MethodPost, path: path, body: body, headers: headers})
}

// publish sends a document as the release engineer; query is more of the query.
func (c *control) publish(base uint64, document, query string, headers ...string) *reply {
	c.t.Helper()
	return c.post(actions.ReleaseEngineer, "/releases?reason=test&file=bank.yaml&"+query, document,
		append([]string{"If-Match", strconv.FormatUint(base, 10)}, headers...)...)
}

// ok fails unless the call succeeded.
func (r *reply) ok() *reply {
	r.t.Helper()
	if r.status/100 != 2 {
		r.t.Fatalf("%s: %d %s", r.what, r.status, r.body)
	}
	return r
}

// into reads the body.
func (r *reply) into(v any) {
	r.t.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		r.t.Fatalf("%s: %v in %s", r.what, err, r.body)
	}
}

// outcome is what tests read of a change's answer.
type outcome struct {
	Release      uint64
	Acknowledged struct{ Replicas, Of int }
	Preview      *struct {
		Changes []release.Difference
		Buckets []release.BucketMove
		Moved   map[string]int
		Refused *struct{ Code, Detail, Hint string }
	}
	Warnings                         []fault.Problem
	Added, Removed, Already, Unknown int
	Report                           struct {
		Lines, IDs, Bad, Added, Removed, Unchanged int
		Problems                                   []fault.Problem
	}
}

func (r *reply) outcome() (o outcome) {
	r.t.Helper()
	r.ok().into(&o)
	return o
}

// problem is what every error is.
type problem struct {
	Title, Code, Detail, Hint string
	Status                    int
	Problems                  []fault.Problem
	Data                      json.RawMessage
}

// refused fails unless the answer is a problem with the status and code.
func (r *reply) refused(status int, code string) (p problem) {
	r.t.Helper()
	if r.status != status || r.header.Get("Content-Type") != "application/problem+json" {
		r.t.Fatalf("%s: %d %s %s, want the problem %d %s", r.what, r.status, r.header.Get("Content-Type"), r.body, status, code)
	}
	r.into(&p)
	if p.Code != code || p.Status != status || p.Title == "" || p.Detail == "" {
		r.t.Fatalf("%s: %+v, want code %s", r.what, p, code)
	}
	return p
}

// at gives the lines of the problems by path, and fails unless the paths are these.
func (p problem) at(t *testing.T, paths ...string) map[string]int {
	t.Helper()
	lines, got := map[string]int{}, []string{}
	for _, one := range p.Problems {
		lines[one.Path] = one.Line
		got = append(got, one.Path)
	}
	slices.Sort(got)
	slices.Sort(paths)
	if !slices.Equal(got, paths) {
		t.Errorf("problems are at %q, want %q: %+v", got, paths, p.Problems)
	}
	return lines
}

// rows is how many rows the audit chain has.
func (c *control) rows() uint64 {
	c.t.Helper()
	head, err := c.store.AuditHead(c.t.Context())
	must(c.t, err)
	return head.Seq
}

// current is the number that is served.
func (c *control) current() uint64 {
	if s := c.keeper.Current(); s != nil {
		return s.Number
	}
	return 0
}

// untouched fails if f released anything or left a trace in the audit chain.
func (c *control) untouched(f func()) {
	c.t.Helper()
	rows, current := c.rows(), c.current()
	f()
	newest, err := c.store.Head(c.t.Context(), release.StreamEdge)
	must(c.t, err)
	if c.rows() != rows || c.current() != current || newest != current {
		c.t.Errorf("something was changed: rows %d to %d, release %d to %d, newest %d", rows, c.rows(), current, c.current(), newest)
	}
}

// serves is the domain that an app's region serves first.
func (c *control) serves(app, region string) string {
	c.t.Helper()
	var view struct {
		Regions []struct {
			Key, State string
			Endpoints  []struct{ Key, Domain, State string }
		}
	}
	c.get(actions.Viewer, "/apps/"+app).ok().into(&view)
	for _, r := range view.Regions {
		for _, e := range r.Endpoints {
			if r.Key == region && e.State == "active" {
				return e.Domain
			}
		}
	}
	return ""
}
