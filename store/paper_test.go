package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

func draft(id string) ledger.Paper {
	return ledger.Paper{Kind: ledger.Draft, ID: id, State: "open", Body: json.RawMessage(`{"b":1, "a":"\u00e9 é 你好"}`)}
}

func TestPaperIsChangedByWhoSawIt(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			want1 := draft("d-1")
			want1.Rev, want1.By, want1.Created, want1.Changed = 1, "ada", clock.now(), clock.now()
			p, err := s.SavePaper(t.Context(), draft("d-1"), by("ada"))
			must(t, err)
			read, err := s.Paper(t.Context(), ledger.Draft, "d-1")
			must(t, err)
			if !reflect.DeepEqual(p, want1) || !reflect.DeepEqual(read, want1) {
				t.Errorf("paper = %+v\nread   %+v\nwant   %+v", p, read, want1)
			}
			clock.advance(time.Hour)
			p.State, p.By, p.Created, p.Body = "review", "eve", time.Time{}, json.RawMessage(`[]`)
			p, err = s.SavePaper(t.Context(), p, ledger.Change{By: "bob", Action: "draft_submit", Details: json.RawMessage(`{"d":1}`)})
			must(t, err)
			want2 := ledger.Paper{Kind: ledger.Draft, ID: "d-1", Rev: 2, State: "review", By: "ada",
				Created: clock.now().Add(-time.Hour), Changed: clock.now(), Body: json.RawMessage(`[]`)}
			if read, err = s.Paper(t.Context(), ledger.Draft, "d-1"); err != nil || !reflect.DeepEqual(p, want2) || !reflect.DeepEqual(read, want2) {
				t.Errorf("changed paper = %+v\nread %+v\nwant %+v", p, read, want2)
			}
			stale := func(p ledger.Paper, code string) {
				t.Helper()
				_, err := s.SavePaper(t.Context(), p, by("bob"))
				want(t, err, fault.Conflict, code)
				if e, ok := errors.AsType[*fault.Error](err); !ok || !reflect.DeepEqual(e.Data, want2) {
					t.Errorf("error = %#v, want the paper as Data", err)
				}
			}
			stale(want1, "stale_paper")
			stale(draft("d-1"), "paper_exists")
			ghost := draft("d-9")
			ghost.Rev = 3
			_, err = s.SavePaper(t.Context(), ghost, by("bob"))
			want(t, err, fault.NotFound, "unknown_draft")
			_, err = s.Paper(t.Context(), ledger.Gray, "d-1")
			want(t, err, fault.NotFound, "unknown_gray")
			entries, err := s.Audit(t.Context(), ledger.AuditFilter{Target: "d-1"})
			must(t, err)
			if len(entries) != 2 || entries[0].Action != "draft_submit" || string(entries[0].Details) != `{"d":1}` ||
				entries[1].Action != "draft_save" || verify(t, s).Head.Seq != 2 {
				t.Errorf("audit = %+v", entries)
			}
		})
	}
}

func TestPapersAreFoundByStateNewestChangeFirst(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			for i, state := range []string{"open", "review", "done", "open"} {
				p := draft(fmt.Sprint("d-", i))
				p.State = state
				_, err := s.SavePaper(t.Context(), p, by("ada"))
				must(t, err)
				clock.advance(time.Second)
			}
			p, err := s.Paper(t.Context(), ledger.Draft, "d-0")
			must(t, err)
			_, err = s.SavePaper(t.Context(), p, by("ada"))
			must(t, err)
			other := draft("APP/gray")
			other.Kind = ledger.Gray
			_, err = s.SavePaper(t.Context(), other, by("ada"))
			must(t, err)
			for _, test := range []struct {
				filter ledger.PaperFilter
				want   string
			}{
				{ledger.PaperFilter{}, "[d-0 d-3 d-2 d-1]"},
				{ledger.PaperFilter{Limit: 2}, "[d-0 d-3]"},
				{ledger.PaperFilter{States: []string{"open"}}, "[d-0 d-3]"},
				{ledger.PaperFilter{States: []string{"review", "done"}}, "[d-2 d-1]"},
				{ledger.PaperFilter{States: []string{"OPEN"}}, "[]"},
			} {
				list, err := s.Papers(t.Context(), ledger.Draft, test.filter)
				must(t, err)
				ids := []string{}
				for _, p := range list {
					ids = append(ids, p.ID)
				}
				if fmt.Sprint(ids) != test.want {
					t.Errorf("%+v: papers = %v, want %s", test.filter, ids, test.want)
				}
			}
		})
	}
}

func TestConcurrentChangesOfAPaperHaveOneWinner(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			nodes := []*Store{openTest(t, dsn, testOptions()), openTest(t, dsn, testOptions())}
			for round := range uint64(3) {
				p := draft("d")
				p.Rev = round
				var group sync.WaitGroup
				results := make([]error, 10)
				for i := range results {
					group.Go(func() { _, results[i] = nodes[i%2].SavePaper(t.Context(), p, by("ada")) })
				}
				group.Wait()
				won := 0
				for _, err := range results {
					if err == nil {
						won++
					} else if code := fault.CodeOf(err); code != "stale_paper" && code != "paper_exists" {
						t.Error(err)
					}
				}
				if won != 1 {
					t.Errorf("round %d: %d winners, want 1", round, won)
				}
			}
			if head := verify(t, nodes[0]).Head.Seq; head != 3 {
				t.Errorf("%d audit rows, want 3", head)
			}
		})
	}
}

func TestPaperIsCheckedWhole(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), testOptions())
	for _, p := range []ledger.Paper{{}, {Kind: "draft", ID: "x ", State: "open", Body: json.RawMessage(`{}`)},
		{Kind: "draft", ID: "x", State: "open", Body: json.RawMessage(`{`)}, {Kind: "draft", ID: "x", State: "open"}} {
		_, err := s.SavePaper(t.Context(), p, by("ada"))
		want(t, err, fault.Invalid, "bad_paper")
	}
}
