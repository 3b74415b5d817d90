package store

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/fleet"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

func member(id string, seen time.Time, number uint64) fleet.Member {
	return fleet.Member{First: seen, Seen: seen, Report: fleet.Report{
		Replica: fleet.Replica{ID: id, Boot: "b1", Role: "edge", Format: 2}, Number: number, Digest: digest(id),
		Refusal: &release.Refusal{Number: number + 1}, Sources: []fleet.SourceState{{Name: "redis", Problem: "nobody answers"}},
	}}
}

func TestReplicasComeBackAsTheyWereSeen(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			start := clock.now()
			b := member("b", start, 7)
			b.Release = &release.Signed{Number: 7, Manifest: []byte(`{}`)}
			must(t, s.SaveReplicas(t.Context(), []fleet.Member{b, member("a", start, 6)}))
			got, err := s.Replicas(t.Context())
			must(t, err)
			if want := []fleet.Member{member("a", start, 6), member("b", start, 7)}; !reflect.DeepEqual(got, want) {
				t.Errorf("replicas = %+v, want %+v", got, want)
			}
			if head, err := s.AuditHead(t.Context()); err != nil || head.Seq != 0 {
				t.Errorf("audit head = %d, %v, want none", head.Seq, err)
			}

			// Another control node saw a later, and comes with an old sight of b.
			must(t, s.SaveReplicas(t.Context(), []fleet.Member{member("a", start.Add(time.Hour), 8), member("b", start.Add(-time.Hour), 1)}))
			got, err = s.Replicas(t.Context())
			must(t, err)
			if len(got) != 2 || got[0].Number != 8 || !got[0].First.Equal(start) || !got[0].Seen.Equal(start.Add(time.Hour)) || got[1].Number != 7 {
				t.Errorf("replicas = %+v, want a at 8 first seen at the start, b as it was", got)
			}

			clock.advance(replicaKept + time.Minute)
			got, err = s.Replicas(t.Context())
			if err != nil || len(got) != 1 || got[0].ID != "a" {
				t.Errorf("replicas after a week = %+v, %v, want a", got, err)
			}
			must(t, s.SaveReplicas(t.Context(), nil))
			var rows int64
			must(t, s.reader.Model(&replicaRow{}).Count(&rows).Error)
			if rows != 1 {
				t.Errorf("%d rows after a week, want 1", rows)
			}
		})
	}
}

func TestReplicaNeedsAName(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{})
	err := s.SaveReplicas(t.Context(), []fleet.Member{member("a", time.Now(), 1), member("", time.Now(), 1), member(strings.Repeat("x", 201), time.Now(), 1)})
	want(t, err, fault.Invalid, "bad_replica")
	if got, err := s.Replicas(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("replicas = %+v, %v, want none", got, err)
	}
}

// Saving what was seen waits for no change that is under way.
func TestReplicasAreSavedBesideAChange(t *testing.T) {
	s := openTest(t, newDSN(t, "mysql"), testOptions())
	err := s.change(t.Context(), &entry{Change: withAction(next(0, 1), "hold").Change}, func(*gormDB) error {
		return s.SaveReplicas(t.Context(), []fleet.Member{member("a", time.Now(), 1)})
	})
	must(t, err)
}
