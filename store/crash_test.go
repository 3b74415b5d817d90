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

// publishUntilKilled makes change after change, tells each, and never returns.
func publishUntilKilled(dsn string) {
	err := publish(context.Background(), dsn, func(what string, n uint64) { fmt.Println(what, n) })
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// publish appends releases, every second one as a canary. Every second canary is
// promoted, the next release supersedes the others. It also proposes hosts.
func publish(ctx context.Context, dsn string, tell func(what string, n uint64)) error {
	s, err := Open(ctx, dsn, testOptions())
	if err != nil {
		return err
	}
	n, err := s.Head(ctx, release.StreamEdge)
	for ; err == nil; n++ {
		if err = s.Append(ctx, crashRelease(n)); err != nil {
			break
		}
		tell("append", n+1)
		if n%4 == 1 {
			if err = s.Promote(ctx, release.StreamEdge, n+1, by("dispatch")); err != nil {
				break
			}
			tell("promote", n+1)
		}
		if n%5 == 0 { // a random name: the change before a kill may have come through
			host := fmt.Sprintf("h%d.example", rand.Uint64())
			if err = s.ProposeHost(ctx, host, by("ada")); err != nil {
				break
			}
			tell("propose", 1)
		}
	}
	return err
}

// crashRelease follows n. Its sizes vary, so that a kill finds it anywhere.
func crashRelease(n uint64) ledger.Write {
	w := next(n, n+1, "a.example")
	if n%2 == 1 {
		w.Canary = "r1"
	}
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

// told is what a publisher was told is there.
type told struct {
	head, promoted, promotions, proposals uint64

	seen uint64 // releases that were found whole before
}

// P5, P24: kill -9 at any moment of a change leaves it whole or absent, with
// exactly one audit row: releases, rollouts, hosts.
func TestP05P24KillLeavesWholeReleases(t *testing.T) {
	kills := figure(25, 500) // on each database
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			s := openTest(t, dsn, testOptions())
			approve(t, s, "a.example")
			acknowledged := told{proposals: 1}
			for range kills {
				killPublisher(t, dsn, &acknowledged)
				for _, problem := range torn(t, s, acknowledged) {
					t.Error(problem)
				}
				acknowledged.seen = acknowledged.head
			}
			t.Logf("%d kills, %+v", kills, acknowledged)
			if acknowledged.promotions == 0 || acknowledged.proposals < 2 {
				t.Errorf("acknowledged = %+v: not every kind of change was made", acknowledged)
			}
		})
	}
}

// killPublisher starts a publisher, kills it some milliseconds after its first
// change, and adds what it was told.
func killPublisher(t *testing.T, dsn string, sum *told) {
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
		var what string
		var n uint64
		_, err := fmt.Sscan(lines.Text(), &what, &n)
		must(t, err)
		switch what {
		case "append":
			sum.head = n
		case "promote":
			sum.promoted, sum.promotions = n, sum.promotions+1
		case "propose":
			sum.proposals++
		}
		if kill == nil {
			kill = time.AfterFunc(rand.N(60*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || kill == nil {
		t.Fatalf("the publisher ended by itself: %v", err)
	}
}

// torn lists what is not whole or not there once.
func torn(t *testing.T, s *Store, acknowledged told) (problems []string) {
	t.Helper()
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	head, err := s.Head(t.Context(), release.StreamEdge)
	must(t, err)
	if head < acknowledged.head || head > acknowledged.head+1 {
		say("head = %d, last acknowledged %d", head, acknowledged.head)
	}
	check, err := s.VerifyAudit(t.Context())
	must(t, err)
	if check.Bad != 0 {
		say("audit chain: %s", check.Problem)
	}
	for n := acknowledged.seen + 1; n <= head; n++ {
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
	count := func(query string) (n uint64) {
		must(t, s.reader.Raw("SELECT COUNT(*) FROM "+query).Scan(&n).Error)
		return n
	}
	for name, query := range map[string]string{
		"audit rows":       "audit WHERE action = 'publish'",
		"audited releases": "(SELECT DISTINCT number FROM audit WHERE action = 'publish') a",
		"release hosts":    "release_hosts WHERE host = 'a.example'",
		"record sets":      "record_sets WHERE stream = 'edge' AND seq = 1",
		"releases":         "releases WHERE stream = 'edge' AND number = parent + 1",
		"rollouts":         "rollouts WHERE stream = 'edge'",
	} {
		if n := count(query); n != head {
			say("%d %s, want %d", n, name, head)
		}
	}
	promoted := count("rollouts WHERE state = 'everywhere' AND canary <> ''")
	audited := count("rollouts r JOIN audit a ON a.stream = r.stream AND a.number = r.number AND a.action = 'promote' AND r.state = 'everywhere'")
	if rows := count("audit WHERE action = 'promote'"); promoted != audited || promoted != rows {
		say("%d promoted canaries, %d with an audit row, %d such rows", promoted, audited, rows)
	}
	// A kill may hide that the last change of a publisher came through.
	if promoted < acknowledged.promotions {
		say("%d promoted canaries, %d acknowledged", promoted, acknowledged.promotions)
	}
	if p := acknowledged.promoted; p > 0 && count(fmt.Sprintf("rollouts WHERE number = %d AND state = 'everywhere'", p)) != 1 {
		say("the acknowledged promotion of %d is lost", p)
	}
	if n := count(fmt.Sprintf("rollouts WHERE state = 'canary' AND number <> %d", head)); n > 0 {
		say("%d canaries run under a newer release", n)
	}
	if hosts, rows := count("hosts"), count("audit WHERE action = 'host_propose'"); hosts != rows || hosts < acknowledged.proposals {
		say("%d hosts, %d audit rows of proposals, %d acknowledged", hosts, rows, acknowledged.proposals)
	}
	return problems
}

// What the kill test looks for must not pass unseen: each half of a publish,
// written without the other.
func TestTornSeesHalfAPublish(t *testing.T) {
	audit := func(s *Store, tx *gormDB, action string) error {
		head, err := lockAuditHead(tx)
		if err != nil {
			return err
		}
		c := ledger.Change{By: "ada", Action: action, Details: []byte("{}")}
		return appendAudit(tx, head, &entry{Change: c, stream: "edge", number: 2}, s.now())
	}
	halves := map[string]func(s *Store, tx *gormDB) error{
		"release without audit":   func(s *Store, tx *gormDB) error { return s.insert(tx, crashRelease(2)) },
		"audit without release":   func(s *Store, tx *gormDB) error { return audit(s, tx, "publish") },
		"audit without promotion": func(s *Store, tx *gormDB) error { return audit(s, tx, "promote") },
		"promotion without audit": func(_ *Store, tx *gormDB) error {
			return tx.Exec("UPDATE rollouts SET state = 'everywhere', ended = 1 WHERE number = 2").Error
		},
		"proposal without audit": func(_ *Store, tx *gormDB) error {
			return tx.Create(&hostRow{Host: "b.example", Proposer: "ada"}).Error
		},
	}
	for name, half := range halves {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *Store) {
				approve(t, s, "a.example")
				must(t, s.Append(t.Context(), crashRelease(0)))
				must(t, s.Append(t.Context(), crashRelease(1)))
				whole := told{head: 2, proposals: 1}
				if problems := torn(t, s, whole); len(problems) > 0 {
					t.Fatalf("before: %v", problems)
				}
				must(t, s.write(t.Context(), func(tx *gormDB) error { return half(s, tx) }))
				if problems := torn(t, s, whole); len(problems) == 0 {
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
