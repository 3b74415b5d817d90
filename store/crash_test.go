package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// publisherEnv makes the test binary a publisher on the database that it names.
const publisherEnv = "DISPATCH_TEST_PUBLISHER"

// publishUntilKilled appends release after release and never returns.
func publishUntilKilled(dsn string) {
	ctx := context.Background()
	s, err := Open(ctx, dsn, testOptions())
	for n := uint64(0); err == nil; n++ {
		if n == 0 {
			if n, err = s.Head(ctx, release.StreamEdge); err != nil {
				break
			}
		}
		if err = s.Append(ctx, crashRelease(n)); err == nil {
			fmt.Println(n + 1)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// crashRelease follows n. Its sizes vary, so that a kill finds it anywhere.
func crashRelease(n uint64) ledger.Write {
	w := next(n, n+1, "a.example")
	pad := strings.Repeat("x", int(n%7)*10_000)
	w.Signed.Manifest = fmt.Appendf(nil, `{"stream":"edge","number":%d,"pad":"%s"}`, n+1, pad)
	w.Signed.Signature = digest(string(w.Signed.Manifest)).String()
	w.Signed.Records.Bytes = fmt.Appendf(nil, `{"release":%d,"pad":"%s"}`, n+1, pad)
	w.Signed.Records.Signature = digest(string(w.Signed.Records.Bytes)).String()
	chunk := crashChunk(n + 1)
	w.Blobs = blobs(whitelist.Blob{Digest: digest(chunk), Bytes: []byte(chunk), Raw: []byte(chunk)})
	return w
}

func crashChunk(n uint64) string {
	return strings.Repeat(fmt.Sprint("chunk of ", n, " "), int(n%7)*1000+1)
}

// P5, P24: kill -9 at any moment of a publish leaves the old or the new release
// whole, with exactly one audit row each.
func TestP05P24KillLeavesWholeReleases(t *testing.T) {
	const kills = 10 // on each database; the full figure is 1,000
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			s := openTest(t, dsn, testOptions())
			approve(t, s, "a.example")
			var acknowledged uint64
			for range kills {
				acknowledged = max(acknowledged, killPublisher(t, dsn))
				for _, problem := range torn(t, s, acknowledged) {
					t.Error(problem)
				}
			}
			t.Logf("%d kills, %d releases", kills, acknowledged)
		})
	}
}

// killPublisher starts a publisher, kills it some milliseconds after its first
// release, and returns the last number that it was told is there.
func killPublisher(t *testing.T, dsn string) (last uint64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), publisherEnv+"="+dsn)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var kill *time.Timer
	for lines.Scan() {
		_, err := fmt.Sscan(lines.Text(), &last)
		must(t, err)
		if kill == nil {
			kill = time.AfterFunc(rand.N(40*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || kill == nil {
		t.Fatalf("the publisher ended by itself: %v", err)
	}
	return last
}

// torn lists what is not whole or not there once.
func torn(t *testing.T, s *Store, acknowledged uint64) (problems []string) {
	t.Helper()
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	head, err := s.Head(t.Context(), release.StreamEdge)
	must(t, err)
	if head < acknowledged || head > acknowledged+1 {
		say("head = %d, last acknowledged %d", head, acknowledged)
	}
	check, err := s.VerifyAudit(t.Context())
	must(t, err)
	if check.Bad != 0 {
		say("audit chain: %s", check.Problem)
	}
	for n := uint64(1); n <= head; n++ {
		got, err := s.Release(t.Context(), release.StreamEdge, n)
		must(t, err)
		if got.Signature != digest(string(got.Manifest)).String() || got.Records.Signature != digest(string(got.Records.Bytes)).String() ||
			got.Records.Release != n || string(got.Manifest) != string(crashRelease(n-1).Signed.Manifest) {
			say("release %d is torn", n)
		}
		raw, err := s.Raw(t.Context(), digest(crashChunk(n)))
		if err != nil || string(raw) != crashChunk(n) {
			say("blob of release %d: %v", n, err)
		}
	}
	for name, query := range map[string]string{
		"audit rows":       "SELECT COUNT(*) FROM audit WHERE action = 'publish'",
		"audited releases": "SELECT COUNT(DISTINCT number) FROM audit WHERE action = 'publish'",
		"release hosts":    "SELECT COUNT(*) FROM release_hosts WHERE host = 'a.example'",
		"record sets":      "SELECT COUNT(*) FROM record_sets WHERE stream = 'edge' AND seq = 1",
		"releases":         "SELECT COUNT(*) FROM releases WHERE stream = 'edge' AND number = parent + 1",
	} {
		var n uint64
		must(t, s.reader.Raw(query).Scan(&n).Error)
		if n != head {
			say("%d %s, want %d", n, name, head)
		}
	}
	return problems
}

// What the kill test looks for must not pass unseen: each half of a publish,
// written without the other.
func TestTornSeesHalfAPublish(t *testing.T) {
	halves := map[string]func(s *Store, tx *gormDB) error{
		"release without audit": func(s *Store, tx *gormDB) error { return s.insert(tx, crashRelease(0)) },
		"audit without release": func(s *Store, tx *gormDB) error {
			head, err := lockAuditHead(tx)
			if err != nil {
				return err
			}
			return appendAudit(tx, head, &entry{Change: ledger.Change{By: "ada", Action: "publish", Details: []byte("{}")}, stream: "edge", number: 1}, s.now())
		},
	}
	for name, half := range halves {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *Store) {
				approve(t, s, "a.example")
				must(t, s.write(t.Context(), func(tx *gormDB) error { return half(s, tx) }))
				if problems := torn(t, s, 0); len(problems) == 0 {
					t.Error("nothing was seen")
				}
			})
		})
	}
}

// A reader never waits for the writer.
func TestReadsPassAnOpenChange(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 1)))
		err := s.change(t.Context(), &entry{Change: ledger.Change{By: "ada", Action: "hold"}}, func(*gormDB) error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if _, err := s.Latest(ctx, release.StreamEdge); err != nil {
				t.Errorf("read during a change: %v", err)
			}
			return nil
		})
		must(t, err)
	})
}

func TestUnknownCommitIsToldByTheKey(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		w := next(0, 1)
		w.Change.Once = &ledger.Once{Key: "k", Status: 201, Response: []byte(`{"release":1}`)}
		must(t, s.Append(t.Context(), w)) // its answer is lost on the way
		want(t, s.Append(t.Context(), w), fault.Conflict, "idempotency_key_used")
		got, found, err := s.Once(t.Context(), w.Change.By, "k")
		must(t, err)
		if !found || string(got.Response) != `{"release":1}` {
			t.Errorf("answer = %+v, %v", got, found)
		}
	})
}
