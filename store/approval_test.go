package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/migrations"
	"dispatch.example/dispatch/release"
)

func signature(id, author string) ledger.Approval {
	return ledger.Approval{Kind: ledger.OfDraft, ID: id, Digest: digest(id), Author: author}
}

func TestNobodyApprovesTheirOwn(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			a := signature("d-1", "Ada")
			for _, self := range []string{"Ada", "ada", "ADA"} {
				a.Approver = "bob" // who signs is who makes the change
				want(t, s.Approve(t.Context(), a, by(self)), fault.Denied, "self_approval")
			}
			must(t, s.Approve(t.Context(), a, by("bob")))
			for _, again := range []string{"bob", "BOB"} {
				want(t, s.Approve(t.Context(), a, by(again)), fault.Conflict, "already_approved")
			}
			clock.advance(time.Second)
			must(t, s.Approve(t.Context(), a, by("cid")))
			changed := a
			changed.Digest = digest("edited")
			clock.advance(time.Second)
			must(t, s.Approve(t.Context(), changed, by("bob"))) // another difference needs another signature
			clock.advance(time.Second)
			must(t, s.Approve(t.Context(), signature("d-2", "bob"), by("ada")))

			all, err := s.Approvals(t.Context(), ledger.OfDraft)
			must(t, err)
			got := ""
			for _, a := range all {
				got += fmt.Sprintf("%s %s→%s %v; ", a.ID, a.Author, a.Approver, a.Digest == digest(a.ID))
			}
			if got != "d-2 bob→ada true; d-1 Ada→bob false; d-1 Ada→cid true; d-1 Ada→bob true; " {
				t.Errorf("approvals = %s", got)
			}
			if a := all[3]; a.Reason != "because" || !a.At.Equal(clock.now().Add(-3*time.Second)) || a.FourEyesOff {
				t.Errorf("approval = %+v", a)
			}
			for ids, want := range map[string]int{"d-1": 3, "d-2": 1, "d-3": 0} {
				if list, err := s.Approvals(t.Context(), ledger.OfDraft, ids, "x"); err != nil || len(list) != want {
					t.Errorf("approvals of %s = %v, %v, want %d", ids, list, err, want)
				}
			}
			if list, err := s.Approvals(t.Context(), ledger.OfGray); err != nil || len(list) != 0 {
				t.Errorf("approvals of grays = %v, %v", list, err)
			}
			want(t, s.Approve(t.Context(), ledger.Approval{Kind: "draft", ID: "x"}, by("bob")), fault.Invalid, "bad_approval")
			entries, err := s.Audit(t.Context(), ledger.AuditFilter{Action: "draft_approve"})
			must(t, err)
			if len(entries) != 4 || entries[0].Target != "d-2" || entries[0].Actor != "ada" || verify(t, s).Head.Seq != 4 {
				t.Errorf("audit = %+v", entries)
			}
		})
	}
}

func TestOwnApprovalWithFourEyesOffIsMarked(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{FourEyesOff: true})
	must(t, s.Approve(t.Context(), signature("d-1", "ada"), by("Ada")))
	must(t, s.Approve(t.Context(), signature("d-1", "ada"), by("bob")))
	list, err := s.Approvals(t.Context(), ledger.OfDraft)
	must(t, err)
	for _, a := range list {
		if a.FourEyesOff != (a.Approver == "Ada") {
			t.Errorf("approval = %+v, want the mark on the author's own only", a)
		}
	}
}

// The database itself refuses: see TestTheDatabaseAloneRefuses.
func TestTheDatabaseAloneKeepsSignatures(t *testing.T) {
	const insert = "INSERT INTO approvals (kind, id, digest, author, approver, at, reason, four_eyes_off) VALUES ('draft', %ID%, x'%DIGEST%', %NAMES%, 1, '', %OFF%)"
	row := func(id, names, off string) string {
		return fillIn(insert, "%ID%", "'"+id+"'", "%DIGEST%", digest(id).String(), "%NAMES%", names, "%OFF%", off)
	}
	replaced := "append_only"
	tests := []struct {
		name, query, code, guard string
		dialect                  migrations.Dialect // empty: both
	}{
		{"self-approval", row("d-2", "'ada', 'ada'", "0"), "self_approval", "", ""},
		{"self-approval in capitals", row("d-2", "'ada', 'ADA'", "0"), "self_approval", "", ""},
		{"four eyes off on MySQL", row("d-2", "'ada', 'ada'", "1"), "self_approval", "", migrations.MySQL},
		{"another approver", "UPDATE approvals SET approver = 'eve'", "append_only", "approvals_update", ""},
		{"another digest", "UPDATE approvals SET digest = x'" + digest("evil").String() + "'", "append_only", "approvals_update", ""},
		{"a signature deleted", "DELETE FROM approvals", "append_only", "approvals_delete", ""},
		{"a signature replaced", "REPLACE" + row("d-1", "'eve', 'bob'", "0")[len("INSERT"):], replaced, "", ""},
	}
	each(t, func(t *testing.T, s *Store) {
		must(t, s.Approve(t.Context(), signature("d-1", "ada"), by("bob")))
		for _, test := range tests {
			if test.dialect != "" && test.dialect != s.dialect {
				continue
			}
			if err := rawSQL(s, test.query); fault.CodeOf(err) != test.code {
				t.Errorf("%s: error = %v, want code %s", test.name, err, test.code)
			}
		}
		list, err := s.Approvals(t.Context(), ledger.OfDraft)
		must(t, err)
		if len(list) != 1 || list[0].Approver != "bob" || list[0].Author != "ada" {
			t.Errorf("approvals = %+v", list)
		}
		must(t, rawSQL(s, row("d-3", "'ada', 'bob'", "0"))) // two names pass
		for _, test := range tests {
			if test.guard != "" {
				passesWithout(t, s, test.guard, test.query)
			}
		}
	})
}

// emergencies are releases 1 to n, by eve when her number is even.
func emergencies(t *testing.T, s *Store, n uint64) {
	t.Helper()
	for i := range n {
		w := withAction(next(i, i+1), []string{"publish", "swap", "region_state"}[i%3])
		if i%2 == 1 {
			w.Change.By = "eve"
		}
		must(t, s.Append(t.Context(), w))
	}
}

func TestUnreviewedEndsWithASignatureOfTheManifest(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			emergencies(t, s, 6) // of which 2, 3, 5, 6
			clock.advance(time.Hour)
			must(t, s.Append(t.Context(), withAction(next(6, 7), "swap")))
			unreviewed := func(since time.Time) string {
				list, err := s.Unreviewed(t.Context(), release.StreamEdge, since, []string{"swap", "region_state"})
				must(t, err)
				numbers := []uint64{}
				for _, r := range list {
					if numbers = append(numbers, r.Number); r.Digest != digest(string(next(0, r.Number).Signed.Manifest)) {
						t.Errorf("summary = %+v", r)
					}
				}
				return fmt.Sprint(numbers)
			}
			if got := unreviewed(time.Time{}); got != "[7 6 5 3 2]" {
				t.Errorf("unreviewed = %s", got)
			}
			if got := unreviewed(clock.now()); got != "[7]" {
				t.Errorf("unreviewed since the last hour = %s", got)
			}
			if list, err := s.Unreviewed(t.Context(), "other", time.Time{}, []string{"swap"}); err != nil || len(list) != 0 {
				t.Errorf("of another stream: %v, %v", list, err)
			}
			of := func(n uint64) ledger.Approval {
				return ledger.Approval{Kind: ledger.OfRelease, ID: fmt.Sprint(n), Digest: digest(string(next(0, n).Signed.Manifest)), Author: "somebody"}
			}
			want(t, s.Approve(t.Context(), of(6), by("eve")), fault.Denied, "self_approval") // the author is the release's
			wrong := of(6)
			wrong.Digest = of(5).Digest
			want(t, s.Approve(t.Context(), wrong, by("bob")), fault.NotFound, "unknown_release")
			want(t, s.Approve(t.Context(), of(8), by("bob")), fault.NotFound, "unknown_release")
			must(t, s.Approve(t.Context(), of(6), by("bob")))
			must(t, s.Approve(t.Context(), of(3), by("bob")))
			if got := unreviewed(time.Time{}); got != "[7 5 2]" {
				t.Errorf("unreviewed after two signatures = %s", got)
			}
			list, err := s.Approvals(t.Context(), ledger.OfRelease, "6")
			must(t, err)
			entries, err := s.Audit(t.Context(), ledger.AuditFilter{Stream: "edge", Release: 6})
			must(t, err)
			if len(list) != 1 || list[0].Author != "eve" || len(entries) != 2 || entries[0].Action != "release_approve" {
				t.Errorf("approvals of 6 = %+v, its audit = %+v", list, entries)
			}
			// A signature of another kind with the same id and digest is none of a release.
			other := of(2)
			other.Kind = ledger.OfDraft
			must(t, s.Approve(t.Context(), other, by("bob")))
			if got := unreviewed(time.Time{}); got != "[7 5 2]" {
				t.Errorf("unreviewed after a signature of a draft = %s", got)
			}
		})
	}
}

// plan is how the database answers the query that a reading makes first.
func plan(t *testing.T, s *Store, query string, args ...any) string {
	t.Helper()
	var lines []string
	if s.dialect == migrations.SQLite {
		rows, err := s.reader.Raw("EXPLAIN QUERY PLAN "+query, args...).Rows()
		must(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id, parent, unused int
			var detail string
			must(t, rows.Scan(&id, &parent, &unused, &detail))
			lines = append(lines, detail)
		}
		must(t, rows.Err())
		return fmt.Sprint(lines)
	}
	var all []map[string]any
	must(t, s.reader.Raw("EXPLAIN "+query, args...).Scan(&all).Error)
	for _, row := range all {
		keys := make([]string, 0, len(row))
		for k := range row {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			lines = append(lines, fmt.Sprintf("%s=%s", k, row[k]))
		}
	}
	return fmt.Sprint(lines)
}
