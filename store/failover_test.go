package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/testenv"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// newPair is a pair of servers with the newest schema, and its address.
func newPair(t *testing.T) (*testenv.Pair, string) {
	t.Helper()
	pair := testenv.MariaDBPair(t)
	dsn := "mysql:" + pair.DSN()
	_, err := Migrate(t.Context(), dsn)
	must(t, err)
	return pair, dsn
}

// P07, the part of the database: a replica that lags says an old head. What is
// made on it is refused by the primary, and by the replica itself. A whole
// database that is old, because it was restored from a backup, cannot know: there
// the control node compares it with what is served (see package actions), and
// edges refuse the number.
func TestP07AnOldRowFromALaggingReplicaChangesNothing(t *testing.T) {
	pair, dsn := newPair(t)
	primary := openTest(t, dsn, testOptions())
	must(t, primary.Append(t.Context(), next(0, 1)))
	must(t, primary.Append(t.Context(), next(1, 2)))
	pair.Lag()
	must(t, primary.Append(t.Context(), next(2, 3)))

	lagging := openTest(t, "mysql:"+pair.ReplicaDSN(), testOptions())
	old, err := lagging.Latest(t.Context(), release.StreamEdge)
	must(t, err)
	if old.Number != 2 {
		t.Fatalf("the replica does not lag: it is at release %d", old.Number)
	}
	for _, w := range []ledger.Write{next(old.Number, old.Number+1), next(old.Number, old.Number+2)} {
		want(t, primary.Append(t.Context(), w), fault.Conflict, "stale_base")
		want(t, lagging.Append(t.Context(), w), fault.Unavailable, "store_unavailable")
	}
	w := next(old.Number, old.Number+1)
	if err := rawSQL(primary, fillIn(rawRelease, "%NUMBER%", fmt.Sprint(w.Signed.Number+1), "%PARENT%", fmt.Sprint(w.Base))); fault.CodeOf(err) != "stale_base" {
		t.Errorf("by SQL: %v, want stale_base", err)
	}
	if head, err := primary.Head(t.Context(), release.StreamEdge); err != nil || head != 3 {
		t.Errorf("head of the primary = %d, %v, want 3", head, err)
	}

	pair.Demote()
	pair.Promote() // it applies what it had received before it takes changes
	if head, err := lagging.Head(t.Context(), release.StreamEdge); err != nil || head != 3 {
		t.Errorf("head of the promoted replica = %d, %v, want 3", head, err)
	}
	want(t, lagging.Append(t.Context(), w), fault.Conflict, "stale_base")
	must(t, lagging.Append(t.Context(), next(3, 4)))
	verify(t, lagging)
}

// P25: after a failover nothing is lost that was acknowledged, and changes can be
// made again within 30 s, at the same address and without a restart.
func TestP25FailoverLosesNothingAcknowledged(t *testing.T) {
	tests := []struct {
		name string
		fail func(t *testing.T, pair *testenv.Pair, w *writers)
	}{
		{"primary killed in the middle of changes", func(_ *testing.T, pair *testenv.Pair, _ *writers) { pair.Kill() }},
		{"primary cut off from its replica, then killed", func(t *testing.T, pair *testenv.Pair, w *writers) {
			pair.Cut()
			w.stay(t, time.Second) // what only it has, it does not acknowledge
			pair.Kill()
		}},
		{"planned switch", func(_ *testing.T, pair *testenv.Pair, _ *writers) { pair.Demote() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pair, dsn := newPair(t)
			s := openTest(t, dsn, Options{})
			w := startWriters(t, s)
			w.wait(t, 20)
			test.fail(t, pair, w)
			start := time.Now()
			pair.Promote()
			w.wait(t, w.count()+1)
			took := time.Since(start)
			if t.Logf("changes again after %v", took.Round(time.Millisecond)); took > 30*time.Second {
				t.Errorf("changes again after %v, want at most 30 s", took)
			}
			w.wait(t, w.count()+5)
			w.stop()
			if len(w.acknowledged) == 0 {
				t.Error("nothing was acknowledged")
			}
			for _, want := range w.acknowledged {
				got, err := s.Release(t.Context(), release.StreamEdge, want.Number)
				if err != nil || got.Signature != want.Signature {
					t.Errorf("acknowledged release %d: %q, %v, want %q", want.Number, got.Signature, err, want.Signature)
				}
			}
			verify(t, s)
			var releases, rows uint64
			must(t, s.reader.Raw("SELECT COUNT(*) FROM releases").Scan(&releases).Error)
			must(t, s.reader.Raw("SELECT COUNT(DISTINCT number) FROM audit WHERE action = 'publish'").Scan(&rows).Error)
			if releases != rows {
				t.Errorf("%d releases, %d audit rows", releases, rows)
			}
		})
	}
}

// writers append releases until they are stopped, whatever happens.
type writers struct {
	stop func()

	mu           sync.Mutex
	acknowledged []release.Signed // a number twice if the first was lost
}

func startWriters(t *testing.T, s *Store) *writers {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	w := &writers{stop: func() { cancel(); group.Wait() }}
	t.Cleanup(w.stop)
	for i := range 4 {
		group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for try := 0; ctx.Err() == nil; try++ {
				head, err := s.Head(ctx, release.StreamEdge)
				if err == nil {
					write := next(head, head+1)
					write.Signed.Signature = fmt.Sprintf("writer %d, try %d", i, try)
					if err = s.Append(ctx, write); err == nil {
						w.mu.Lock()
						w.acknowledged = append(w.acknowledged, write.Signed)
						w.mu.Unlock()
					}
				}
				<-tick.C
			}
		})
	}
	return w
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

// wait returns when n changes are acknowledged.
func (w *writers) wait(t *testing.T, n int) {
	t.Helper()
	end := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for w.count() < n {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%d changes within a minute, want %d", w.count(), n)
		}
	}
}

// stay lets some time pass.
func (w *writers) stay(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
