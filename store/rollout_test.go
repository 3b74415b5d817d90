package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
)

// canary is release n on base that replica r1 shall serve first.
func canary(base, n uint64) ledger.Write {
	w := next(base, n)
	w.Canary = "r1"
	return w
}

func rollout(t *testing.T, s *Store) ledger.Rollout {
	t.Helper()
	r, err := s.Rollout(t.Context(), release.StreamEdge)
	must(t, err)
	return r
}

func TestRolloutFollowsTheCanary(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			start := clock.now()
			promote := func(n uint64) error { return s.Promote(t.Context(), release.StreamEdge, n, by("bob")) }
			steps := []struct {
				name string
				do   func() error
				want ledger.Rollout
			}{
				{"nothing yet", func() error { return nil }, ledger.Rollout{}},
				{"first release as a canary", func() error { return s.Append(t.Context(), canary(0, 1)) },
					ledger.Rollout{Head: 1, All: 0, Canary: "r1", Started: start.Add(time.Second)}},
				{"promoted", func() error { return promote(1) }, ledger.Rollout{Head: 1, All: 1}},
				{"another canary", func() error { return s.Append(t.Context(), canary(1, 2)) },
					ledger.Rollout{Head: 2, All: 1, Canary: "r1", Started: start.Add(3 * time.Second)}},
				{"superseded by another canary", func() error { return s.Append(t.Context(), canary(2, 3)) },
					ledger.Rollout{Head: 3, All: 1, Canary: "r1", Started: start.Add(4 * time.Second)}},
				{"superseded by an emergency", func() error { return s.Append(t.Context(), next(3, 5)) }, ledger.Rollout{Head: 5, All: 5}},
				{"a canary on top", func() error { return s.Append(t.Context(), canary(5, 6)) },
					ledger.Rollout{Head: 6, All: 5, Canary: "r1", Started: start.Add(6 * time.Second)}},
			}
			for _, step := range steps {
				must(t, step.do())
				if got := rollout(t, s); got != step.want {
					t.Errorf("%s: rollout = %+v, want %+v", step.name, got, step.want)
				}
				clock.advance(time.Second)
			}
			other, err := s.Rollout(t.Context(), "rules/sh")
			if err != nil || other != (ledger.Rollout{}) {
				t.Errorf("another stream: %+v, %v", other, err)
			}
			verify(t, s)
		})
	}
}

func TestOnlyTheRunningCanaryIsPromoted(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		promote := func(n uint64) error { return s.Promote(t.Context(), release.StreamEdge, n, by("bob")) }
		want(t, promote(1), fault.Conflict, "canary_over") // no release at all
		must(t, s.Append(t.Context(), next(0, 1)))
		must(t, s.Append(t.Context(), canary(1, 2)))
		want(t, promote(1), fault.Conflict, "canary_over")
		want(t, promote(3), fault.Conflict, "canary_over")
		must(t, promote(2))
		want(t, promote(2), fault.Conflict, "canary_over") // another control node was faster
		must(t, s.Append(t.Context(), canary(2, 3)))
		must(t, s.Append(t.Context(), next(3, 4)))
		want(t, promote(3), fault.Conflict, "canary_over")
		entries, err := s.Audit(t.Context(), ledger.AuditFilter{Action: "promote"})
		must(t, err)
		if len(entries) != 1 || entries[0].Release != 2 || entries[0].Actor != "bob" {
			t.Errorf("audit = %+v, want one promotion of release 2 by bob", entries)
		}
		verify(t, s)
	})
}

// Two control nodes watch one canary: one promotes it while the other stops it by
// a newer release. Whichever is first, the other is told.
func TestPromotionAndItsEndRace(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			nodes := []*Store{openTest(t, dsn, testOptions()), openTest(t, dsn, testOptions())}
			for round := range uint64(10) {
				head := 2 * round
				must(t, nodes[0].Append(t.Context(), canary(head, head+1)))
				stopped := make(chan error, 1)
				go func() { stopped <- nodes[1].Append(t.Context(), next(head+1, head+2)) }()
				promoted := nodes[0].Promote(t.Context(), release.StreamEdge, head+1, by("dispatch"))
				must(t, <-stopped)
				if promoted != nil {
					want(t, promoted, fault.Conflict, "canary_over")
				}
				var state string
				must(t, nodes[0].reader.Raw("SELECT state FROM rollouts WHERE number = ?", head+1).Scan(&state).Error)
				if (promoted == nil) != (state == everywhere) {
					t.Errorf("round %d: promotion says %v, the row %q", round, promoted, state)
				}
			}
			verify(t, nodes[0])
		})
	}
}

// A node of the version before writes no rows. Its release is everywhere, and it
// ends a canary that it knows nothing of.
func TestReleaseOfAnOlderNodeIsEverywhere(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 1)))
		must(t, s.Append(t.Context(), canary(1, 2)))
		must(t, rawSQL(s, `INSERT INTO releases (stream, number, parent, created, action, actor, reason, digest, manifest, signature)
			SELECT stream, 3, 2, created, action, actor, reason, digest, manifest, signature FROM releases WHERE number = 2`))
		if got := rollout(t, s); got != (ledger.Rollout{Head: 3, All: 3}) {
			t.Errorf("rollout = %+v, want release 3 everywhere", got)
		}
		must(t, s.Append(t.Context(), canary(3, 4)))
		if got := rollout(t, s); got.Head != 4 || got.All != 3 {
			t.Errorf("rollout = %+v, want 3 everywhere under canary 4", got)
		}
	})
}

// What SQL does around the store, the database refuses: all but the two steps of
// the canary that runs.
func TestRolloutsTakeTheNamedStepsOnly(t *testing.T) {
	// Releases: 1 everywhere, 2 superseded, 3 promoted, 4 canary and head; in stream
	// other 1, made by an older node, has no row.
	const insert = "INSERT INTO rollouts (stream, number, state, canary, started, ended) VALUES "
	tests := []struct{ query, code, guard string }{
		{"UPDATE rollouts SET state = 'canary', canary = 'r1', ended = NULL WHERE stream = 'edge' AND number = 1", "rollout_step", ""}, // SQLite has an index against it as well
		{"UPDATE rollouts SET state = 'everywhere' WHERE stream = 'edge' AND number = 2", "rollout_step", "rollouts_update"},
		{"UPDATE rollouts SET state = 'superseded' WHERE stream = 'edge' AND number = 3", "rollout_step", "rollouts_update"},
		{"UPDATE rollouts SET state = 'superseded', ended = 1 WHERE stream = 'edge' AND number = 4", "rollout_step", "rollouts_update"}, // nothing is newer
		{"UPDATE rollouts SET canary = 'r2' WHERE stream = 'edge' AND number = 4", "rollout_step", "rollouts_update"},
		{"UPDATE rollouts SET number = 5 WHERE stream = 'edge' AND number = 4", "rollout_step", ""},
		{"UPDATE rollouts SET state = 'everywhere', started = 1, ended = 1 WHERE stream = 'edge' AND number = 4", "rollout_step", "rollouts_update"},
		{"UPDATE rollouts SET state = 'everywhere' WHERE stream = 'edge' AND number = 4", "constraint", ""}, // without its end
		{"DELETE FROM rollouts WHERE stream = 'edge' AND number = 4", "append_only", "rollouts_delete"},
		{"DELETE FROM rollouts WHERE stream = 'edge' AND number = 1", "append_only", "rollouts_delete"},
		{insert + "('other', 1, 'superseded', 'r1', 1, 1)", "rollout_step", "rollouts_insert"},
		{insert + "('other', 1, 'everywhere', 'r1', 1, 1)", "rollout_step", "rollouts_insert"},
		{insert + "('other', 1, 'canary', '', 1, NULL)", "constraint", ""},
		{insert + "('other', 1, 'paused', 'r1', 1, 1)", "constraint", ""},
		{insert + "('edge', 9, 'canary', 'r1', 1, NULL)", "rollout_step", ""},
	}
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), next(0, 1)))
		must(t, s.Append(t.Context(), canary(1, 2)))
		must(t, s.Append(t.Context(), canary(2, 3)))
		must(t, s.Promote(t.Context(), release.StreamEdge, 3, by("bob")))
		must(t, s.Append(t.Context(), canary(3, 4)))
		must(t, rawSQL(s, `INSERT INTO releases (stream, number, parent, created, action, actor, reason, digest, manifest, signature)
			SELECT 'other', number, parent, created, action, actor, reason, digest, manifest, signature FROM releases WHERE number = 1`))
		rows := func() string {
			var all []rolloutRow
			must(t, s.reader.Order("stream, number").Find(&all).Error)
			text := ""
			for _, r := range all {
				text += fmt.Sprintf("%s/%d %s %s %d; ", r.Stream, r.Number, r.State, r.Canary, r.Started)
			}
			return text
		}
		before := rows()
		for _, test := range tests {
			t.Run(test.query, func(t *testing.T) {
				want(t, rawSQL(s, test.query), kindOf(test.code), test.code)
			})
		}
		if err := rawSQL(s, insert+"('edge', 1, 'canary', 'r1', 1, NULL)"); err == nil {
			t.Error("a second row for a release was taken")
		}
		if after := rows(); after != before {
			t.Errorf("rows = %s\nwant   %s", after, before)
		}
		for _, test := range tests {
			if test.guard != "" {
				passesWithout(t, s, test.guard, test.query)
			}
		}
	})
}

func kindOf(code string) fault.Kind {
	if code == "constraint" {
		return fault.Invalid
	}
	return fault.Denied
}

func TestCanaryNeedsAName(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		w := canary(0, 1)
		w.Canary = " r1"
		want(t, s.Append(t.Context(), w), fault.Invalid, "bad_release")
	})
}

// A database that was restored from a backup takes what the fleet serves.
func TestAdoptedReleaseBringsItsHosts(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		approve(t, s, "a.example")
		must(t, s.ProposeHost(t.Context(), "b.example", by("carol")))
		must(t, s.Append(t.Context(), next(0, 1)))
		must(t, s.Append(t.Context(), canary(1, 2)))

		w := next(2, 40_000, "a.example", "b.example", "c.example")
		w.Signed.Records.Seq = 9
		w.Change = ledger.Change{By: "carol", Reason: "backup of yesterday"}
		want(t, s.Append(t.Context(), withAction(w, "publish")), fault.Denied, "unapproved_host")
		must(t, s.Adopt(t.Context(), w))

		if got := rollout(t, s); got != (ledger.Rollout{Head: 40_000, All: 40_000}) {
			t.Errorf("rollout = %+v, want release 40000 everywhere", got)
		}
		got, err := s.Latest(t.Context(), release.StreamEdge)
		must(t, err)
		if got.Records.Seq != 9 || string(got.Manifest) != string(w.Signed.Manifest) {
			t.Errorf("latest = %+v", got)
		}
		hosts, err := s.Hosts(t.Context())
		must(t, err)
		for i, want := range []ledger.Host{
			{Host: "a.example", Proposer: "ada", Approver: "bob"},
			{Host: "b.example", Proposer: "release edge/40000", Approver: "carol", Adopted: "edge/40000"},
			{Host: "c.example", Proposer: "release edge/40000", Approver: "carol", Adopted: "edge/40000"},
		} {
			h := hosts[i]
			if h.Host != want.Host || h.Proposer != want.Proposer || h.Approver != want.Approver || h.Adopted != want.Adopted {
				t.Errorf("host = %+v, want %+v", h, want)
			}
		}
		entries, err := s.Audit(t.Context(), ledger.AuditFilter{Action: "adopt"})
		must(t, err)
		if len(entries) != 1 || entries[0].Release != 40_000 || string(entries[0].Details) != `{"adopted_hosts":["b.example","c.example"]}` {
			t.Errorf("audit = %+v", entries)
		}
		must(t, s.Append(t.Context(), next(40_000, 40_001, "c.example")))
		verify(t, s)
	})
}

func withAction(w ledger.Write, action string) ledger.Write {
	w.Change.Action = action
	return w
}

func TestAdoptRefusesWithoutATrace(t *testing.T) {
	tests := []struct {
		name string
		edit func(*ledger.Write)
		kind fault.Kind
		code string
	}{
		{"jump over 100,000", func(w *ledger.Write) { *w = next(1, 100_002, "c.example") }, fault.Invalid, "number_jump"},
		{"number that is here", func(w *ledger.Write) { *w = next(1, 1, "c.example") }, fault.Invalid, "bad_release"},
		{"stale base", func(w *ledger.Write) { *w = next(0, 2, "c.example") }, fault.Conflict, "stale_base"},
		{"canary", func(w *ledger.Write) { w.Canary = "r1" }, fault.Invalid, "bad_release"},
		{"nobody's change", func(w *ledger.Write) { w.Change.By = "" }, fault.Invalid, "bad_change"},
	}
	each(t, func(t *testing.T, s *Store) {
		must(t, s.ProposeHost(t.Context(), "c.example", by("ada")))
		must(t, s.Append(t.Context(), next(0, 1)))
		before := verify(t, s).Head
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				w := next(1, 2, "c.example")
				test.edit(&w)
				want(t, s.Adopt(t.Context(), w), test.kind, test.code)
				hosts, err := s.Hosts(t.Context())
				must(t, err)
				if len(hosts) != 1 || hosts[0].Approver != "" || hosts[0].Proposer != "ada" {
					t.Errorf("hosts = %+v, want the proposal as it was", hosts)
				}
				if after := verify(t, s).Head; after != before {
					t.Errorf("audit head moved from %d to %d", before.Seq, after.Seq)
				}
			})
		}
	})
}

func TestPromoteUnderAKeyIsAnsweredOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Append(t.Context(), canary(0, 1)))
		c := ledger.Change{By: "bob", Once: &ledger.Once{Key: "k", Status: 200}}
		must(t, s.Promote(t.Context(), release.StreamEdge, 1, c))
		err := s.Promote(t.Context(), release.StreamEdge, 1, c)
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != "idempotency_key_used" {
			t.Errorf("error = %v, want idempotency_key_used", err)
		}
	})
}
