package browser

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite"
	_ "github.com/go-sql-driver/mysql"

	"dispatch.example/dispatch/internal/testenv"
)

// Every page has its first byte in 100 ms when there is much: 2,000 releases, 200
// policies, 1,000,000 rows of audit and a list of 5,000,000 ids; a search of the
// audit trail has 300 ms. The small form has less of all, and is generous: it finds a
// page that reads everything, not a busy machine.
func TestPagesAreSoonThere(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		document := manyPolicies(t)
		s := serve(t, "--bootstrap", document, "--four-eyes", "off", "--probes", "off", "--allowed-suffixes", "bank.example")
		s.fill(t)
		must(t, s.End())
		db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(s.Log), "data", "dispatch.db"))
		must(t, err)
		lengthen(t, db)
		must(t, s.Start(t.Context()))
		s.measure(t, "sqlite")
	})
	if *full {
		t.Run("mariadb", speedOfMariaDB)
	}
}

func speedOfMariaDB(t *testing.T) {
	document, dsn := manyPolicies(t), testenv.MariaDB(t)
	keys := serve(t, "--bootstrap", document, "--four-eyes", "off", "--probes", "off", "--allowed-suffixes", "bank.example") // SQLite makes them
	must(t, keys.End())
	path, err := program()
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), path, "migrate", "--db", "mysql:"+dsn).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "keys"), os.DirFS(filepath.Join(filepath.Dir(keys.Log), "data", "keys"))))
	made, err := filepath.Glob(filepath.Join(dir, "keys", "*"))
	must(t, err)
	for _, file := range made {
		must(t, os.Chmod(file, 0o600))
	}
	token := filepath.Join(dir, "fleet.token")
	if out, err := exec.CommandContext(t.Context(), path, "keys", "new", "--fleet-token-file", token).CombinedOutput(); err != nil {
		t.Fatalf("make a token: %v\n%s", err, out)
	}
	flags := []string{"--fleet-token-file", token}
	for _, name := range []string{"publisher", "record", "session", "list", "list-seal"} {
		flags = append(flags, "--"+name+"-key-file", filepath.Join(dir, "keys", name+".jwks"))
	}
	s := serve(t, append(flags, "--db", "mysql:"+dsn, "--bootstrap", document, "--probes", "off", "--allowed-suffixes", "bank.example")...)
	s.approveFirst(t)
	s.fill(t)
	db, err := sql.Open("mysql", dsn)
	must(t, err)
	lengthen(t, db)
	s.measure(t, "mariadb")
}

// manyPolicies is a document with 200 policies and two lists.
func manyPolicies(t *testing.T) string {
	t.Helper()
	path := manyRegions(t, []string{"mobile"}, []string{"sh", "hf"})
	text, err := os.ReadFile(path)
	must(t, err)
	var b strings.Builder
	b.WriteString("    policies:\n")
	for i := range 200 {
		fmt.Fprintf(&b, "      - {key: rule-%d, when: {app_version: \">=%d, <%d\", platform: ios}, then: {region: %s}}\n", i, i+1, i+2, []string{"sh", "hf"}[i%2])
	}
	b.WriteString("      - {key: staff, when: {in_list: staff}, then: {region: hf}}\n      - {key: big, when: {in_list: big}, then: {region: hf}}\n    otherwise:")
	whole := strings.Replace(string(text), "    otherwise:", b.String(), 1) +
		"lists:\n  - {key: staff, of: device, owner: team, expires: 2099-12-31, ids: [d-1]}\n  - {key: big, of: device, owner: team, expires: 2099-12-31, ids: [d-1]}\n"
	must(t, os.WriteFile(path, []byte(whole), 0o600))
	return path
}

// fill publishes releases and brings the long list.
func (s *Server) fill(t *testing.T) {
	t.Helper()
	for i := range pick(50, 2000) {
		must(t, s.Call(t.Context(), s.Token, "PATCH /lists/staff", map[string]any{"add": []string{fmt.Sprintf("d-new-%d", i)}, "reason": "one more"}, nil))
	}
	var ids strings.Builder
	for i := range pick(10_000, 5_000_000) {
		fmt.Fprintf(&ids, "d-%08d\n", i)
	}
	must(t, s.Call(t.Context(), s.Token, "POST /lists/big/import?confirm="+Environment+"/big&reason=all+of+them", []byte(ids.String()+"d-1\n"), nil, "Content-Type", "text/plain"))
}

// lengthen adds rows to the audit trail. They chain, and their hashes are made up:
// nobody verifies them here.
func lengthen(t *testing.T, db *sql.DB) {
	t.Helper()
	defer func() { must(t, db.Close()) }()
	var seq, at int64
	var prev []byte
	must(t, db.QueryRowContext(t.Context(), "SELECT seq, at, hash FROM audit ORDER BY seq DESC LIMIT 1").Scan(&seq, &at, &prev))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	const columns = 10
	const batch = 100
	row := "(?,?,?,?,?,?,?,?,?,?,?)"
	insert, err := tx.PrepareContext(t.Context(), "INSERT INTO audit (seq, at, actor, action, target, reason, details, stream, number, prev, hash) VALUES "+strings.TrimSuffix(strings.Repeat(row+",", batch), ","))
	must(t, err)
	args := make([]any, 0, batch*(columns+1))
	for i := range int64(pick(10_000, 1_000_000)) {
		seq++
		hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(seq)))
		args = append(args, seq, at+i, fmt.Sprintf("person-%d", i%97), "patch", fmt.Sprintf("list-%d", i%13), "seed", "{}", nil, nil, prev, hash[:])
		if prev = hash[:]; len(args) == cap(args) {
			_, err := insert.ExecContext(t.Context(), args...)
			must(t, err)
			args = args[:0]
		}
	}
	must(t, tx.Commit())
}

// measure asks for every page, and for two searches of the audit trail.
func (s *Server) measure(t *testing.T, database string) {
	t.Helper()
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	paths, err := w.Pages(s)
	must(t, err)
	paths = append(paths, "/audit?actor=person-7", "/audit?target=list-3&action=patch", "/audit?actor=nobody")
	cookies := w.cookies(t, s)
	for _, path := range paths {
		took := firstByte(t, s.Console+path, cookies)
		figure("PAGE", "%-8s %4d ms %s", database, took.Milliseconds(), path)
		most := pick(time.Second, 100*time.Millisecond)
		if strings.HasPrefix(path, "/audit?") {
			most *= 3
		}
		if took > most {
			t.Errorf("%s of %s has its first byte after %s, not %s", path, database, took, most)
		}
	}
}

// firstByte is the median of five.
func firstByte(t *testing.T, url string, cookies []*http.Cookie) time.Duration {
	t.Helper()
	var all []time.Duration
	for range 5 {
		var begin time.Time
		var took time.Duration
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotFirstResponseByte: func() { took = time.Since(begin) }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		must(t, err)
		for _, c := range cookies {
			req.AddCookie(c)
		}
		begin = time.Now()
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		all = append(all, took)
	}
	slices.Sort(all)
	return all[len(all)/2]
}
