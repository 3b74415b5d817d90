package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// behindToxiproxy is a new database whose network the test can spoil.
func behindToxiproxy(t *testing.T) (dsn string, proxy *toxiproxy.Proxy) {
	t.Helper()
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(newDSN(t, "mysql"), "mysql:"))
	must(t, err)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy = toxiproxy.NewProxy(server, "mariadb", "127.0.0.1:0", cfg.Addr)
	must(t, proxy.Start())
	t.Cleanup(func() {
		proxy.Toxics.ResetToxics(context.Background()) // else they hold their goroutines
		proxy.Stop()
	})
	cfg.Addr = proxy.Listen
	return "mysql:" + cfg.FormatDSN(), proxy
}

func poison(t *testing.T, proxy *toxiproxy.Proxy, kind, stream, attributes string) {
	t.Helper()
	_, err := proxy.Toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%s}}`, kind, stream, attributes)))
	must(t, err)
}

// P13 at the store: when each answer of the database takes 10 s, whatever the
// control plane asks of it fails within 3 s and says why, and works again as soon
// as the database does. How long /route takes is not for the store to say: it has
// no part in it.
func TestP13ASlowDatabaseFailsClearly(t *testing.T) {
	dsn, proxy := behindToxiproxy(t)
	s := openTest(t, dsn, Options{Seal: testOptions().Seal}) // with the real time-out
	approve(t, s, "a.example")
	token, secret, err := s.CreateToken(t.Context(), ledger.NewToken{Type: "adm", Name: "ci", Role: "release"}, by("ada"))
	must(t, err)
	must(t, s.Append(t.Context(), canary(0, 1))) // it works before

	poison(t, proxy, "latency", "downstream", `"latency": 10000`)
	asks := map[string]func(context.Context) error{
		"Append":      func(ctx context.Context) error { return s.Append(ctx, next(1, 2, "a.example")) },
		"Promote":     func(ctx context.Context) error { return s.Promote(ctx, release.StreamEdge, 1, by("ada")) },
		"ProposeHost": func(ctx context.Context) error { return s.ProposeHost(ctx, "b.example", by("ada")) },
		"RevokeToken": func(ctx context.Context) error { return s.RevokeToken(ctx, token.ID, by("ada")) },
		"SaveReplicas": func(ctx context.Context) error {
			return s.SaveReplicas(ctx, []fleet.Member{member("a", time.Now(), 1)})
		},
		"PutBlobs": func(ctx context.Context) error {
			return s.PutBlobs(ctx, blobs(whitelist.Blob{Digest: digest("x"), Bytes: []byte("x")}))
		},
		"SaveAccount": func(ctx context.Context) error { return s.SaveAccount(ctx, person("ada"), by("root")) },
		"SavePaper":   func(ctx context.Context) error { _, err := s.SavePaper(ctx, draft("d"), by("ada")); return err },
		"Approve":     func(ctx context.Context) error { return s.Approve(ctx, signature("d", "ada"), by("bob")) },
		"Session":     func(ctx context.Context) error { _, _, err := s.Session(ctx, "hash"); return err },
		"AddCounts": func(ctx context.Context) error {
			return s.AddCounts(ctx, ledger.Counts{Replica: "r", Boot: "b", Counts: []fleet.Count{{App: "app", N: 1}}})
		},
		"Counts":       func(ctx context.Context) error { _, err := s.Counts(ctx, ledger.CountFilter{}); return err },
		"Audit":        func(ctx context.Context) error { _, err := s.Audit(ctx, ledger.AuditFilter{Actor: "ada"}); return err },
		"Latest":       func(ctx context.Context) error { _, err := s.Latest(ctx, release.StreamEdge); return err },
		"Rollout":      func(ctx context.Context) error { _, err := s.Rollout(ctx, release.StreamEdge); return err },
		"Authenticate": func(ctx context.Context) error { _, err := s.Authenticate(ctx, secret); return err },
		"VerifyAudit":  func(ctx context.Context) error { _, err := s.VerifyAudit(ctx); return err },
		"AuditHead":    func(ctx context.Context) error { _, err := s.AuditHead(ctx); return err },
		"Ping":         s.Ping,
	}
	var group sync.WaitGroup
	for name, ask := range asks {
		group.Go(func() {
			start := time.Now()
			err := ask(t.Context())
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("%s took %v, want at most 3 s", name, took)
			}
			want(t, err, fault.Unavailable, "store_timeout")
		})
	}
	group.Wait()

	must(t, proxy.Toxics.RemoveToxic(t.Context(), "latency_downstream"))
	must(t, s.Append(t.Context(), next(1, 2, "a.example")))
	if check := verify(t, s); check.Head.Seq != 5 {
		t.Errorf("%d audit rows, want those of the 5 changes that were acknowledged", check.Head.Seq)
	}
}

// P13, of several control nodes: one that loses its network inside a change does
// not hold up the others for longer than the server waits for it to speak, 10 s.
func TestP13ANodeThatIsCutOffHoldsUpNobody(t *testing.T) {
	t.Parallel() // it waits
	direct := newDSN(t, "mysql")
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(direct, "mysql:"))
	must(t, err)
	proxy, err := testenv.NewProxy(cfg.Addr)
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	cfg.Addr = proxy.Addr()
	cut := openTest(t, "mysql:"+cfg.FormatDSN(), Options{Timeout: 500 * time.Millisecond})
	other := openTest(t, direct, testOptions())
	must(t, cut.Append(t.Context(), next(0, 1)))
	err = cut.change(t.Context(), &entry{Change: withAction(next(0, 1), "hold").Change}, func(tx *gormDB) error {
		proxy.Freeze()
		return tx.Exec("DO 1").Error
	})
	want(t, err, fault.Unavailable, "store_timeout")
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	must(t, other.Append(ctx, next(1, 2)))
	t.Logf("the other node waited for %v", time.Since(start).Round(time.Millisecond))
	verify(t, other)
}
