package admin_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

// The records of a release are signed anew after a day, without a new release,
// and a renewal that fails is tried again after 15 minutes.
func TestRecordsAreRenewedDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &control{t: t, kind: "sqlite", dir: t.TempDir(), log: new(printed), clock: new(clock)}
		c.dsn = "sqlite:" + filepath.Join(c.dir, "dispatch.db")
		fail := true
		c.build(func(s *store.Store) actions.Ledger { return failing{s, &fail} })
		c.approveAll()
		_, err := c.do.Publish(t.Context(), actions.Write{Actor: actions.Actor{Name: "test"}, Reason: "test"}, actions.Publication{Document: []byte(bank)})
		must(t, err)
		rows := c.rows()

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.do.KeepRecordsFresh(ctx, slog.New(slog.NewJSONHandler(c.log, nil))) }()
		seq := func(want uint64) {
			t.Helper()
			synctest.Wait()
			if s := c.keeper.Current(); s.Number != 1 || s.Seq != want {
				t.Errorf("release %d with records %d, want 1 with %d", s.Number, s.Seq, want)
			}
		}
		time.Sleep(23 * time.Hour)
		seq(1)
		time.Sleep(time.Hour + time.Minute)
		seq(1)
		if log := c.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "records were not renewed") {
			t.Errorf("the failure is logged as %q", log)
		}
		time.Sleep(15 * time.Minute)
		seq(2)
		time.Sleep(24*time.Hour + 15*time.Minute)
		seq(3)
		if c.rows() != rows+2 {
			t.Errorf("%d rows, want one for each renewal", c.rows()-rows)
		}
		newest, err := c.store.Latest(t.Context(), release.StreamEdge)
		if err != nil || newest.Records.Seq != 3 {
			t.Errorf("the store has records %d (%v), want 3", newest.Records.Seq, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("KeepRecordsFresh ended with %v", err)
		}
	})
}

// failing is a store that fails to keep records once.
type failing struct {
	*store.Store
	fail *bool
}

func (f failing) SaveRecords(ctx context.Context, stream string, r release.RecordSet, c ledger.Change) error {
	if *f.fail {
		*f.fail = false
		return fault.New(fault.Unavailable, "store_unavailable", "the database cannot be used now")
	}
	return f.Store.SaveRecords(ctx, stream, r, c)
}

// An action that hangs in the database holds up the next one for 30 seconds, not for ever.
func TestAHangingChangeLetsTheNextOneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &control{t: t, kind: "sqlite", dir: t.TempDir(), log: new(printed), clock: new(clock)}
		c.dsn = "sqlite:" + filepath.Join(c.dir, "dispatch.db")
		hang := true
		c.build(func(s *store.Store) actions.Ledger { return hanging{s, &hang} })
		c.approveAll()
		start, by := time.Now(), actions.Write{Actor: actions.Actor{Name: "test"}, Reason: "test"}
		publish := func() error {
			_, err := c.do.Publish(context.WithoutCancel(t.Context()), by, actions.Publication{Document: []byte(bank)})
			return err
		}
		first := make(chan error, 1)
		go func() { first <- publish() }()
		synctest.Wait()
		if err := publish(); err != nil || c.current() != 1 {
			t.Errorf("the second change: %v; release %d is served", err, c.current())
		}
		if err := <-first; err == nil || time.Since(start) != 30*time.Second {
			t.Errorf("the first change ended with %v after %s", err, time.Since(start))
		}
	})
}

// hanging is a store whose first Append ends only with its context.
type hanging struct {
	*store.Store
	hang *bool
}

func (h hanging) Append(ctx context.Context, w ledger.Write) error {
	if *h.hang {
		*h.hang = false
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Store.Append(ctx, w)
}
