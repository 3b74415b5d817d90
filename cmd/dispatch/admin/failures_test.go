package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

// Whatever is sent twice under one idempotency key is done once and answered alike.
func TestAnIdempotencyKeyMakesEveryChangeSafeToRepeat(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		release, administrator := actions.ReleaseEngineer, actions.Administrator
		for name, r := range map[string]request{
			"publish":   {release, "POST", "/releases?reason=test", edit(t, "capacity: 60", "capacity: 61"), nil},
			"emergency": {actions.OnCall, "POST", "/emergency", swapOut, nil},
			"relive":    {actions.OnCall, "POST", "/releases/1/relive", `{"reason":"test"}`, nil},
			"import":    {actions.ListManager, "POST", "/lists/staff/import?reason=test&confirm=staff", "d-1\nd-2\n", nil},
			"patch":     {actions.ListManager, "PATCH", "/lists/staff", `{"add":["e-1","e-2"],"remove":["no"],"reason":"test"}`, nil},
			"table":     {release, "POST", "/tables/cn?reason=test", "10.0.0.0/8,east\n", nil},
			"propose":   {release, "POST", "/hosts", `{"host":"new.a.com.cn","reason":"test"}`, nil},
		} {
			base := fmt.Sprintf(`"%d"`, c.current())
			r.headers = []string{"Idempotency-Key", "key of " + name, "If-Match", base}
			first := c.call(r).ok()
			var again *reply
			c.untouched(func() { again = c.call(r).ok() })
			if string(first.body) != string(again.body) || first.header.Get("ETag") != again.header.Get("ETag") {
				t.Errorf("%s: first %s, then %s", name, first.body, again.body)
			}
			c.untouched(func() {
				r.body = strings.NewReplacer("test", "another reason", "burns", "drowns", "capacity: 61", "capacity: 62", "d-1", "d-9", "10.0", "11.0").Replace(r.body)
				c.call(r).refused(http.StatusConflict, "idempotency_key_used")
			})
		}
		// The key is the caller's own.
		c.post(actions.Approver, "/approvals/new.a.com.cn", `{"reason":"test"}`, "Idempotency-Key", "key of propose").ok()

		// A secret is not kept, so it is not shown again.
		token := request{administrator, "POST", "/tokens", `{"name":"one","role":"viewer","reason":"test"}`, []string{"Idempotency-Key", "k"}}
		c.call(token).ok()
		c.untouched(func() {
			if p := c.call(token).refused(http.StatusConflict, "token_made"); p.Hint == "" {
				t.Error("token_made says no next step")
			}
		})
		revoke := request{administrator, "DELETE", "/tokens/1?reason=test", "", []string{"Idempotency-Key", "k2"}}
		c.call(revoke).ok()
		c.untouched(func() { c.call(revoke).ok() })
	})
}

// What is kept of a request to know it again cannot be guessed: a patch may hold
// nothing but a telephone number.
func TestARequestIsKeptOnlyAsAKeyedHash(t *testing.T) {
	t.Parallel()
	var kept [2]string
	for i := range kept {
		c := published(t, "sqlite") // each has keys of its own
		c.patch(`{"add":["13800138000"],"reason":"test"}`, "Idempotency-Key", "k").ok()
		must(t, c.raw().QueryRowContext(t.Context(), "SELECT hex(request) FROM idempotency").Scan(&kept[i]))
	}
	if len(kept[0]) != 64 || kept[0] == kept[1] {
		t.Errorf("the request is kept as %s, elsewhere as %s", kept[0], kept[1])
	}
}

// The same request twice at the same time is one release and two equal answers.
func TestARequestThatComesTwiceAtOnceIsDoneOnce(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		nodes := []*control{c, c}
		if c.kind == "mysql" {
			nodes[1] = c.second()
		}
		replies := make([]*reply, 8)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() {
				replies[i], _ = nodes[i%2].try(t.Context(), request{role: actions.OnCall, method: "POST", path: "/emergency",
					headers: []string{"Idempotency-Key", "one"}}, strings.NewReader(swapOut))
			})
		}
		wg.Wait()
		for _, r := range replies {
			if r == nil || r.outcome().Release != 2 || string(r.body) != string(replies[0].body) {
				t.Errorf("one answer is %+v", r)
			}
		}
		for _, node := range nodes { // also the node that only repeated the answer serves it
			if node.current() != 2 {
				t.Errorf("a node serves release %d, want 2", node.current())
			}
		}
	})
}

// A change of which nobody knows whether it was written is settled by its key.
func TestALostCommitIsSettledByItsKey(t *testing.T) {
	t.Parallel()
	lose := true
	c := empty(t, "sqlite", func(s *store.Store) actions.Ledger { return forgetful{s, &lose} })
	header := []string{"Idempotency-Key", "k"}
	c.publish(0, bank, "", header...).refused(http.StatusServiceUnavailable, "store_unavailable")
	if c.current() != 0 {
		t.Fatal("what failed is served")
	}
	if o := c.publish(0, bank, "", header...).outcome(); o.Release != 1 || c.current() != 1 {
		t.Errorf("the second try made release %d and %d is served, want 1", o.Release, c.current())
	}
}

// forgetful is a store that loses the connection at its first commit.
type forgetful struct {
	*store.Store
	lose *bool
}

func (f forgetful) Append(ctx context.Context, w ledger.Write) error {
	err := f.Store.Append(ctx, w)
	if *f.lose && err == nil {
		*f.lose = false
		return fault.New(fault.Unavailable, "store_unavailable", "the database cannot be used now")
	}
	return err
}

// e47: a database that goes away is a clear answer, what is served goes on, and
// when it is back nothing has to be restarted.
func TestADatabaseThatIsAwaySaysSo(t *testing.T) {
	t.Parallel()
	c := empty(t, "mysql", nil)
	line := newLine(t, &c.dsn)
	c.start(nil)
	c.publish(0, bank, "").ok()
	line.cut()
	for _, r := range []*reply{c.get(actions.Viewer, "/hosts"), c.emergency(swapOut)} {
		if p := r.refused(http.StatusServiceUnavailable, "store_unavailable"); p.Hint == "" || strings.Contains(string(r.body), "127.0.0.1") {
			t.Errorf("the refusal is %s", r.body)
		}
	}
	if c.current() != 1 {
		t.Errorf("release %d is served", c.current())
	}
	line.mend()
	c.emergency(swapOut).ok()
	if c.log.String() != "" {
		t.Errorf("it is logged, and answered: %s", c.log)
	}
}

// line is what lies between us and a database.
type line struct {
	t        *testing.T
	to, addr string
	mu       sync.Mutex
	l        net.Listener
	open     []net.Conn
	wg       sync.WaitGroup
}

// newLine puts a line into the DSN.
func newLine(t *testing.T, dsn *string) *line {
	t.Helper()
	_, rest, _ := strings.Cut(*dsn, "tcp(")
	to, _, _ := strings.Cut(rest, ")")
	l := &line{t: t, to: to, addr: "127.0.0.1:0"}
	l.mend()
	*dsn = strings.Replace(*dsn, to, l.addr, 1)
	t.Cleanup(l.cut)
	return l
}

func (l *line) mend() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.addr)
	must(l.t, err)
	l.l, l.addr = listener, listener.Addr().String()
	l.wg.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.to)
			if err != nil {
				_ = near.Close()
				continue
			}
			l.mu.Lock()
			l.open = append(l.open, near, far)
			l.mu.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				l.wg.Go(func() { _, _ = io.Copy(pair[0], pair[1]); _ = pair[0].Close() })
			}
		}
	})
}

func (l *line) cut() {
	_ = l.l.Close()
	l.mu.Lock()
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
	l.mu.Unlock()
	l.wg.Wait()
}

// P13: a database that hangs is an answer within seconds.
func TestADatabaseThatHangsIsASoonAnswer(t *testing.T) {
	t.Parallel()
	c := empty(t, "mysql", nil)
	db := c.raw()
	tx := must2(db.BeginTx(t.Context(), nil))(t)
	must2(tx.ExecContext(t.Context(), "LOCK TABLES tokens WRITE"))(t)
	start := time.Now()
	r := c.get(actions.Viewer, "/me")
	p := r.refused(http.StatusServiceUnavailable, "store_timeout")
	if took := time.Since(start); took > 5*time.Second || p.Hint == "" || r.header.Get("Retry-After") == "" {
		t.Errorf("after %s: %+v", took, p)
	}
	must2(tx.ExecContext(t.Context(), "UNLOCK TABLES"))(t)
	must(t, tx.Rollback())
	c.get(actions.Viewer, "/me").ok()
}

// P7, A26: a database that was restored from a backup publishes nothing over
// numbers that are taken, and one with another history is noticed.
func TestADatabaseBehindWhatIsServedChangesNothing(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.publish(1, edit(t, "capacity: 60", "capacity: 61"), "").ok()
	other := empty(t, "sqlite", nil) // its database knows nothing
	adopt := func(n uint64) {
		s, err := c.store.Release(t.Context(), release.StreamEdge, n)
		must(t, err)
		loader, err := release.NewLoader(release.LoaderOptions{Deployment: deployment, Suffixes: c.do.Suffixes, Trust: c.keys.Trust(), Keys: c.keys})
		must(t, err)
		keeper, err := release.NewKeeper(loader, nil)
		must(t, err)
		must(t, keeper.Accept(t.Context(), s, c.store, "disk"))
		other.do.Keeper, other.do.Loader, other.do.Keys = keeper, loader, c.keys
	}
	adopt(2)
	for _, r := range []*reply{other.publish(0, bank, ""), other.bring("d-1\n", ""), other.patch(`{"add":["d-1"],"reason":"test"}`),
		other.post(actions.Administrator, "/keys/rehash", `{"reason":"test"}`)} {
		if p := r.refused(http.StatusConflict, "store_behind"); !strings.Contains(p.Hint, "releases adopt") {
			t.Errorf("store_behind names no next step: %q", p.Hint)
		}
	}
	if rows := must2(other.store.Head(t.Context(), release.StreamEdge))(t); rows != 0 {
		t.Errorf("release %d was written", rows)
	}
	fresh := published(t, "sqlite")
	other = fresh
	adopt(1)
	fresh.emergency(swapOut).refused(http.StatusConflict, "fork")
}

// A caller who goes away is no fault of ours.
func TestACallerWhoLeavesIsNotLogged(t *testing.T) {
	t.Parallel()
	var c *control
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	c = empty(t, "sqlite", func(s *store.Store) actions.Ledger {
		return slowHosts{s, func(inner context.Context) { leave(); <-inner.Done(); close(left) }}
	})
	if _, err := c.try(ctx, request{role: actions.Viewer, method: "GET", path: "/hosts"}, nil); err == nil {
		t.Error("the call was not left")
	}
	<-left
	c.get(actions.Viewer, "/me").ok()
	if log := c.log.String(); log != "" {
		t.Errorf("it was logged: %s", log)
	}
}

// slowHosts is a store that answers after its caller has gone.
type slowHosts struct {
	*store.Store
	wait func(context.Context)
}

func (s slowHosts) Hosts(ctx context.Context) ([]ledger.Host, error) {
	s.wait(ctx)
	return s.Store.Hosts(ctx)
}

// P24: a change that is refused leaves no row, one that is done leaves one. The
// rows of each kind are counted where they are made; here all of them together.
func TestP24TheTrailIsWholeAfterEverything(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.emergency(swapOut).ok()
		c.emergency(swapOut).refused(http.StatusConflict, "expect_mismatch")
		c.bring("d-1\n", "").ok()
		c.publish(1, kept, "").refused(http.StatusConflict, "stale_base")
		c.publish(3, edit(t, "capacity: 60", "capacity: 61"), "").ok()
		c.get(actions.Viewer, "/audit/verify").ok()
		for number := uint64(1); number <= 4; number++ {
			if rows := c.auditRows(fmt.Sprintf("release=%d", number)); len(rows) != 1 {
				t.Errorf("release %d has %d rows: %+v", number, len(rows), rows)
			}
		}
	})
}
