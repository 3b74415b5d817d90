package pages

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bank = `apps:
  - key: mobile
    name: Mobile bank
    default: true
    fallback: wap.bank.example
    regions:
      - key: sh
        name: Shanghai
        capacity: 60
        failover: [hf]
        endpoints:
          - {key: sh-main, domain: wapabst.a.com.cn}
          - {key: sh-spare, domain: wapabst2.a.com.cn, state: standby}
      - key: hf
        name: Hefei
        capacity: 40
        failover: [sh]
        endpoints:
          - {key: hf-main, domain: wapcdst.b.com.cn}
    policies:
      - key: grow
        match_all: true
        then: {share: {region: hf, of: 500}}
    otherwise: {split: [{region: sh, of: 6000}, {region: hf, of: 4000}]}
`

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// book is a ledger that holds one release and nothing else.
type book struct {
	actions.Ledger // what is not below nobody here may call
	head           uint64
	counts         []fleet.Count
	audit          []ledger.AuditEntry
	fails          error
}

func (b *book) Rollout(context.Context, string) (ledger.Rollout, error) {
	return ledger.Rollout{Head: b.head, All: b.head}, b.fails
}

func (b *book) Releases(context.Context, string, uint64, int) ([]ledger.Summary, error) {
	if b.fails != nil {
		return nil, b.fails
	}
	return []ledger.Summary{{Number: 1, Action: "publish", By: "li.wei", Reason: "first", Created: time.Now().Add(-time.Hour)}}, nil
}

func (b *book) Counts(context.Context, ledger.CountFilter) ([]fleet.Count, error) {
	return b.counts, b.fails
}

func (b *book) Audit(context.Context, ledger.AuditFilter) ([]ledger.AuditEntry, error) {
	return b.audit, b.fails
}
func (b *book) Probes(context.Context) ([]ledger.Probe, error)         { return nil, b.fails }
func (b *book) Record(context.Context, ledger.Change) error            { return b.fails }
func (b *book) Hosts(context.Context) ([]ledger.Host, error)           { return nil, b.fails }
func (b *book) ApprovedHosts(context.Context) (map[string]bool, error) { return nil, b.fails }
func (b *book) Papers(context.Context, string, ledger.PaperFilter) ([]ledger.Paper, error) {
	return nil, b.fails
}

func (b *book) Paper(context.Context, string, string) (ledger.Paper, error) {
	return ledger.Paper{}, fault.New(fault.NotFound, "unknown_paper", "no such paper")
}

func (b *book) Approvals(context.Context, string, ...string) ([]ledger.Approval, error) {
	return nil, b.fails
}

func (b *book) Unreviewed(context.Context, string, time.Time, []string) ([]ledger.Summary, error) {
	return nil, b.fails
}

// visitors let in whoever the test says.
type visitors struct {
	who signin.Visitor
	err error
}

func (v *visitors) Visitor(*http.Request) (signin.Visitor, error) { return v.who, v.err }

// console is the pages over one release.
type console struct {
	t     *testing.T
	pages *Pages
	who   *visitors
	book  *book
	do    *actions.Actions
}

// open is a console whose visitor has the roles.
func open(t *testing.T, document string, roles ...string) *console {
	t.Helper()
	keys := must(release.LoadKeys(release.KeyFilesIn(t.TempDir()), true))
	suffixes := must(domain.NewSuffixes([]string{"a.com.cn", "b.com.cn", "bank.example"}))
	loader := must(release.NewLoader(release.LoaderOptions{Deployment: "test", Suffixes: suffixes, Trust: keys.Trust(), Keys: keys}))
	keeper := must(release.NewKeeper(loader, nil))
	c := &console{t: t, book: &book{}, who: &visitors{who: signin.Visitor{Actor: actions.Actor{Name: "li.wei", Roles: roles}}}}
	if document != "" {
		doc := must(release.Parse("bank.yaml", []byte(document)))
		ids := keys.IDs()
		m := must(release.First("test", release.StreamEdge, release.Change{Document: doc, Operational: &release.Operational{}, Keys: &ids,
			Cause: release.Cause{Action: "publish", By: "test"}, Approve: release.Approval{Hosts: slices.Collect(maps.Keys(doc.Domains()))},
			Created: time.Now().Add(-time.Hour)}))
		signed := must(release.Sign(m, keys, time.Now()))
		if err := keeper.Accept(t.Context(), signed, release.MemoryBlobs{}, "test"); err != nil {
			t.Fatal(err)
		}
		c.book.head = 1
	}
	c.do = must(actions.New(actions.Options{Ledger: c.book, Keeper: keeper, Loader: loader, Keys: keys, Suffixes: suffixes,
		Deployment: "test", Env: "test", FourEyes: true}))
	c.pages = must(New(c.do, Options{Visitors: c.who, Env: "test", Log: slog.New(slog.DiscardHandler)}))
	return c
}

// answer is what came back.
type answer struct {
	*http.Response
	text string
}

// get asks for a page as a browser does; headers are names and values.
func (c *console) get(path string, headers ...string) answer {
	return c.ask(http.MethodGet, path, "", headers...)
}

// post sends a form.
func (c *console) post(path string, form url.Values, headers ...string) answer {
	return c.ask(http.MethodPost, path, form.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

func (c *console) ask(method, path, body string, headers ...string) answer {
	c.t.Helper()
	r := httptest.NewRequestWithContext(c.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.pages.ServeHTTP(w, r)
	return answer{w.Result(), string(must(io.ReadAll(w.Body)))}
}

// has fails unless the page holds all the texts.
func (a answer) has(t *testing.T, texts ...string) answer {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.text, text) {
			t.Errorf("%d, the page has no %q:\n%s", a.StatusCode, text, a.text)
		}
	}
	return a
}
