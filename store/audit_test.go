package store

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/migrations"
	"dispatch.example/dispatch/whitelist"

	"dispatch.example/dispatch/ledger"
)

func fillIn(text string, oldnew ...string) string {
	return strings.NewReplacer(oldnew...).Replace(text)
}

// dropGuards does what the owner of the database can.
func dropGuards(tb testing.TB, s *Store) {
	tb.Helper()
	for _, trigger := range []string{"audit_insert", "audit_insert_head", "audit_update", "audit_delete"} {
		must(tb, rawSQL(s, "DROP TRIGGER "+trigger))
	}
}

// SEC19: whatever the owner of the database did, verify names the first bad row.
// A cut whose head was moved back as well is seen only against a head that was
// kept outside.
func TestSEC19VerifyNamesTheFirstBadRow(t *testing.T) {
	swap := []string{"UPDATE audit SET seq = 99 WHERE seq = 3", "UPDATE audit SET seq = 3 WHERE seq = 4", "UPDATE audit SET seq = 4 WHERE seq = 99"}
	cut := []string{"DELETE FROM audit WHERE seq > 10",
		"UPDATE audit_head SET seq = 10, hash = (SELECT hash FROM audit WHERE seq = 10)"}
	tests := []struct {
		name   string
		damage []string
		known  bool // a head was kept outside
		bad    uint64
		say    string
	}{
		{"nothing", nil, false, 0, ""},
		{"nothing, with a head kept outside", nil, true, 0, ""},
		{"actor edited", []string{"UPDATE audit SET actor = 'eve' WHERE seq = 3"}, false, 3, "edited"},
		{"time edited", []string{"UPDATE audit SET at = at + 1 WHERE seq = 1"}, false, 1, "edited"},
		{"details edited", []string{"UPDATE audit SET details = '{}' WHERE seq = 20"}, false, 20, "edited"},
		{"release removed", []string{"UPDATE audit SET number = NULL WHERE seq = 5"}, false, 5, "edited"},
		{"hash edited", []string{"UPDATE audit SET hash = prev WHERE seq = 5"}, false, 5, "edited"},
		{"first deleted", []string{"DELETE FROM audit WHERE seq = 1"}, false, 1, "missing"},
		{"middle deleted", []string{"DELETE FROM audit WHERE seq = 4"}, false, 4, "missing"},
		{"two exchanged", swap, false, 3, "edited or moved"},
		{"all reversed", []string{"UPDATE audit SET seq = -seq", "UPDATE audit SET seq = seq + 21"}, false, 1, "edited or moved"},
		{"last ten deleted", []string{"DELETE FROM audit WHERE seq > 10"}, false, 11, "cut"},
		{"all deleted", []string{"DELETE FROM audit"}, false, 1, "cut"},
		{"last ten deleted and head moved back", cut, true, 11, "cut"},
		{"the same without a head kept outside", cut, false, 0, ""},
		{"head moved alone", []string{"UPDATE audit_head SET hash = (SELECT hash FROM audit WHERE seq = 2)"}, false, 20, "audit_head"},
	}
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			s := openTest(t, newDSN(t, kind), testOptions())
			for n := range uint64(20) {
				must(t, s.Append(t.Context(), next(n, n+1)))
			}
			kept, err := s.AuditHead(t.Context())
			must(t, err)
			dropGuards(t, s)
			save := []string{"CREATE TABLE kept AS SELECT * FROM audit", "CREATE TABLE kept_head AS SELECT * FROM audit_head"}
			restore := []string{"DELETE FROM audit", "INSERT INTO audit SELECT * FROM kept",
				"DELETE FROM audit_head", "INSERT INTO audit_head SELECT * FROM kept_head"}
			run := func(statements []string) {
				for _, q := range statements {
					must(t, rawSQL(s, q))
				}
			}
			run(save)
			for _, test := range tests {
				t.Run(test.name, func(t *testing.T) {
					run(test.damage)
					var known []ledger.AuditHead
					if test.known {
						known = []ledger.AuditHead{kept}
					}
					check, err := s.VerifyAudit(t.Context(), known...)
					must(t, err)
					if check.Bad != test.bad || !strings.Contains(check.Problem, test.say) {
						t.Errorf("check = %d %q, want %d %q", check.Bad, check.Problem, test.bad, test.say)
					}
					run(restore)
				})
			}
		})
	}
}

// SEC19: whoever owns the database can rewrite the chain so that it fits
// together. Only a head that was kept outside shows it: the first kept one at or
// after the rewrite.
func TestSEC19RewriteIsShownByAHeadKeptOutside(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		var kept []ledger.AuditHead
		for n := range uint64(6) {
			must(t, s.Append(t.Context(), next(n, n+1)))
			head, err := s.AuditHead(t.Context())
			must(t, err)
			kept = append(kept, head)
		}
		dropGuards(t, s)
		for _, from := range []int64{4, 1} { // a part, then everything
			rewrite(t, s, from)
			if check := verify(t, s); check.Head.Seq != 6 {
				t.Errorf("the chain rewritten from %d does not fit together: %+v", from, check)
			}
			check, err := s.VerifyAudit(t.Context(), kept...)
			must(t, err)
			if check.Bad != uint64(from) {
				t.Errorf("check = %+v, want row %d", check, from)
			}
			check, err = s.VerifyAudit(t.Context(), kept[5])
			must(t, err)
			if check.Bad != 6 {
				t.Errorf("check against the last head = %+v, want row 6", check)
			}
		}
	})
}

// rewrite changes the actor of row from and recomputes all hashes after it.
func rewrite(t *testing.T, s *Store, from int64) {
	t.Helper()
	var rows []auditRow
	must(t, s.writer.Order("seq").Find(&rows).Error)
	var head ledger.AuditHead
	for _, r := range rows {
		if r.Seq >= from {
			r.Actor, r.Prev = "eve", head.Hash[:]
			sum := r.sum(head.Hash)
			must(t, rawSQL(s, "UPDATE audit SET actor = ?, prev = ?, hash = ? WHERE seq = ?", r.Actor, r.Prev, sum[:], r.Seq))
			r.Hash = sum[:]
		}
		copy(head.Hash[:], r.Hash)
	}
	must(t, rawSQL(s, "UPDATE audit_head SET hash = ?", head.Hash[:]))
}

func TestAuditFiltersAndPages(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			start := clock.now()
			for i := range 6 {
				must(t, s.Record(t.Context(), ledger.Change{By: fmt.Sprintf("p%d", i%2), Action: fmt.Sprintf("a%d", i%3), Target: "t"}))
				clock.advance(lastUsedEvery)
			}
			must(t, s.Append(t.Context(), next(0, 1)))
			tests := []struct {
				name   string
				filter ledger.AuditFilter
				want   string
			}{
				{"all", ledger.AuditFilter{}, "[7 6 5 4 3 2 1]"},
				{"actor", ledger.AuditFilter{Actor: "p1"}, "[6 4 2]"},
				{"actor's case counts", ledger.AuditFilter{Actor: "P1"}, "[]"},
				{"action and actor", ledger.AuditFilter{Actor: "p1", Action: "a0"}, "[4]"},
				{"target", ledger.AuditFilter{Target: "t", Limit: 2}, "[6 5]"},
				{"next page", ledger.AuditFilter{Target: "t", Limit: 2, Before: 5}, "[4 3]"},
				{"time", ledger.AuditFilter{Since: start.Add(lastUsedEvery), Until: start.Add(3 * lastUsedEvery)}, "[3 2]"},
				{"stream", ledger.AuditFilter{Stream: "edge"}, "[7]"},
				{"release", ledger.AuditFilter{Stream: "edge", Release: 2}, "[]"},
			}
			for _, test := range tests {
				t.Run(test.name, func(t *testing.T) {
					entries, err := s.Audit(t.Context(), test.filter)
					must(t, err)
					got := []uint64{}
					for _, e := range entries {
						got = append(got, e.Seq)
					}
					if fmt.Sprint(got) != test.want {
						t.Errorf("seqs = %v, want %s", got, test.want)
					}
				})
			}
		})
	}
}

// The hash is a format: rows written today must verify in ten years.
func TestAuditHashIsFixed(t *testing.T) {
	stream, number := "edge", int64(3)
	row := auditRow{Seq: 7, At: 1788249600000000, Actor: "ada", Action: "publish", Target: "t", Reason: "é", Details: "{}",
		Stream: &stream, Number: &number}
	const want = "75ed374e4e1b841b6d8999c976d4b094e605a5c8862545de9dde2132cb6e135e"
	if got := row.sum(digest("before")).String(); got != want {
		t.Errorf("sum = %s, want %s", got, want)
	}
}

// grantsInDesign are the statements in DESIGN.md.
func grantsInDesign(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("DESIGN.md")
	must(t, err)
	var grants []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "GRANT ") {
			grants = append(grants, strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
	}
	if len(grants) == 0 {
		t.Fatal("DESIGN.md names no grants")
	}
	return grants
}

// The account that serves needs no right to edit history or the schema. The
// list is the one of DESIGN.md.
func TestServingAccountWithoutRightsToHistory(t *testing.T) {
	dsn := newDSN(t, "mysql")
	owner := openTest(t, dsn, testOptions())
	if owner.dialect != migrations.MySQL {
		t.Fatal("this test is about accounts of MySQL")
	}
	db := dsn[strings.LastIndex(dsn, "/")+1:]
	db, _, _ = strings.Cut(db, "?")
	user := "serve_" + db
	must(t, rawSQL(owner, "CREATE USER '"+user+"'@'127.0.0.1' IDENTIFIED BY 'pw'"))
	t.Cleanup(func() { must(t, rawSQL(owner, "DROP USER '"+user+"'@'127.0.0.1'")) })
	for _, grant := range grantsInDesign(t) {
		must(t, rawSQL(owner, fillIn(grant, "DATABASE.", db+".", "ACCOUNT", "'"+user+"'@'127.0.0.1'")))
	}
	s := openTest(t, fillIn(dsn, "root@", user+":pw@"), testOptions())
	approve(t, s, "a.example", "b.example")
	w := next(0, 1, "a.example")
	w.Change.Once = &ledger.Once{Key: "k"}
	w.Blobs = blobs(whitelist.Blob{Digest: digest("x"), Bytes: []byte("x"), Raw: []byte("d-1")})
	must(t, s.Append(t.Context(), w))
	must(t, s.RevokeHost(t.Context(), "b.example", by("ada")))
	for seq := range uint64(9) {
		must(t, s.SaveRecords(t.Context(), "edge", releaseRecords(1, seq+2), by("dispatch")))
	}
	token, secret, err := s.CreateToken(t.Context(), ledger.NewToken{Type: "adm", Name: "ci", Role: "release"}, by("ada"))
	must(t, err)
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Error(err)
	}
	must(t, s.RevokeToken(t.Context(), token.ID, by("ada")))
	must(t, s.Append(t.Context(), canary(1, 2)))
	must(t, s.Append(t.Context(), canary(2, 3)))
	must(t, s.Promote(t.Context(), "edge", 3, by("ada")))
	must(t, s.SaveReplicas(t.Context(), []fleet.Member{member("r1", time.Now(), 3)}))
	must(t, s.Adopt(t.Context(), next(3, 9, "c.example")))
	useConsole(t, s)
	useInner(t, s)
	if n, err := s.Reseal(t.Context(), 0); err != nil || n != 0 {
		t.Errorf("Reseal = %d, %v", n, err)
	}
	verify(t, s)
	for _, query := range []string{"DELETE FROM audit", "UPDATE audit SET actor = 'eve'", "UPDATE releases SET manifest = '{}'",
		"DROP TRIGGER audit_update", "DROP TABLE audit", "TRUNCATE TABLE audit", "DELETE FROM blobs", "DELETE FROM rollouts",
		"UPDATE approvals SET approver = 'eve'", "DELETE FROM approvals", "DELETE FROM accounts", "DELETE FROM papers"} {
		if err := rawSQL(s, query); err == nil || !strings.Contains(err.Error(), "denied") {
			t.Errorf("%s: error = %v, want denied", query, err)
		}
	}
}

// useConsole writes and changes one of each thing that the console keeps.
func useConsole(t *testing.T, s *Store) {
	t.Helper()
	for range 2 {
		a := person("ada")
		if seen, err := s.Account(t.Context(), "ada"); err == nil {
			a = seen
		}
		must(t, s.SaveAccount(t.Context(), a, by("root")))
		p := draft("d-1")
		if seen, err := s.Paper(t.Context(), p.Kind, p.ID); err == nil {
			p = seen
		}
		_, err := s.SavePaper(t.Context(), p, by("ada"))
		must(t, err)
		must(t, s.SaveSession(t.Context(), "hash", []byte("x"), time.Now().Add(time.Hour)))
		must(t, s.SaveProbes(t.Context(), []ledger.Probe{{Host: "a.example", Prober: "r1", Last: time.Now()}}))
		must(t, s.AddCounts(t.Context(), ledger.Counts{Replica: "r1", Boot: "b", Counts: []fleet.Count{
			{Minute: time.Now().Add(-48 * time.Hour), App: "app", N: 1}, {Minute: time.Now(), App: "app", N: 1}}}))
		must(t, s.RollUpCounts(t.Context(), time.Now()))
	}
	must(t, s.SignedIn(t.Context(), "ada", 99, time.Now()))
	must(t, s.EndSession(t.Context(), "hash"))
	must(t, s.Approve(t.Context(), signature("d-1", "ada"), by("bob")))
}
