package admin_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/store"
)

// slow is a store that takes its time for every call that a change makes.
type slow struct {
	*store.Store
	each *time.Duration
}

func (s slow) wait(ctx context.Context) error {
	timer := time.NewTimer(*s.each)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "store_timeout", "the database did not answer in time").Because(ctx.Err())
	}
}

func (s slow) Authenticate(ctx context.Context, secret string) (ledger.Token, error) {
	if err := s.wait(ctx); err != nil {
		return ledger.Token{}, err
	}
	return s.Store.Authenticate(ctx, secret)
}

func (s slow) Once(ctx context.Context, actor, key string) (ledger.Once, bool, error) {
	if err := s.wait(ctx); err != nil {
		return ledger.Once{}, false, err
	}
	return s.Store.Once(ctx, actor, key)
}

func (s slow) Rollout(ctx context.Context, stream string) (ledger.Rollout, error) {
	if err := s.wait(ctx); err != nil {
		return ledger.Rollout{}, err
	}
	return s.Store.Rollout(ctx, stream)
}

func (s slow) Release(ctx context.Context, stream string, n uint64) (release.Signed, error) {
	if err := s.wait(ctx); err != nil {
		return release.Signed{}, err
	}
	return s.Store.Release(ctx, stream, n)
}

func (s slow) ApprovedHosts(ctx context.Context) (map[string]bool, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.ApprovedHosts(ctx)
}

func (s slow) Append(ctx context.Context, w ledger.Write) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Store.Append(ctx, w)
}

// P13: a database that takes 10 s for an answer, or 0.7 s for each of many, ends a
// change within 3 s, whichever it is, and nothing has changed. A little slow is no
// failure.
func TestP13SlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var each time.Duration
		c := &control{t: t, kind: "sqlite", dir: t.TempDir(), log: new(printed), clock: new(clock), tokens: map[string]string{}}
		c.dsn = "sqlite:" + filepath.Join(c.dir, "dispatch.db")
		c.build(func(s *store.Store) actions.Ledger { return slow{s, &each} })
		c.approveAll()
		must2(c.release(0, bank))(t)
		_, secret, err := c.store.CreateToken(t.Context(), ledger.NewToken{Type: "api", Name: "night", Role: actions.OnCall}, ledger.Change{By: "test", Reason: "test"})
		must(t, err)
		ask := func(do func(context.Context, actions.Write) error) (time.Duration, error) {
			start, ctx := time.Now(), actions.Patient(t.Context())
			_, err := c.do.Authenticate(ctx, secret)
			if err == nil {
				err = do(ctx, actions.Write{Actor: actions.Actor{Name: "night"}, Reason: "test", Key: time.Now().String()})
			}
			return time.Since(start), err
		}
		swap := actions.Emergency{Action: actions.SwapEndpoints, Targets: []actions.Target{{App: "mobile", Region: "sh", Expect: "sh-main", From: "sh-main", To: "sh-spare"}}}
		changes := map[string]func(context.Context, actions.Write) error{
			"swap": func(ctx context.Context, w actions.Write) error {
				return errorOf(c.do.Emergency(ctx, confirmed(w, "sh"), swap))
			},
			"relive": func(ctx context.Context, w actions.Write) error {
				return errorOf(c.do.Relive(ctx, confirmed(w, "release 1"), 1))
			},
			"publish": func(ctx context.Context, w actions.Write) error {
				return errorOf(c.do.Publish(ctx, w, actions.Publication{Document: []byte(edit(t, "capacity: 60", "capacity: 61")), Base: 1}))
			},
			"patch": func(ctx context.Context, w actions.Write) error {
				return errorOf(c.do.PatchList(ctx, w, actions.ListPatch{List: "staff", Add: []string{"d-9"}}))
			},
		}
		for _, each = range []time.Duration{10 * time.Second, 700 * time.Millisecond} {
			for name, do := range changes {
				took, err := ask(do)
				if took > 3*time.Second || fault.CodeOf(err) != "store_timeout" {
					t.Errorf("%s with %s a call ends after %s with %v", name, each, took, err)
				}
			}
		}
		if c.current() != 1 || must2(c.store.Head(t.Context(), release.StreamEdge))(t) != 1 {
			t.Errorf("release %d is served", c.current())
		}
		each = 200 * time.Millisecond
		if took, err := ask(changes["swap"]); err != nil || took > 3*time.Second {
			t.Errorf("a swap with 0.2 s a call ends after %s with %v", took, err)
		}
	})
}
