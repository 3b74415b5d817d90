package store

import (
	"errors"
	"fmt"
	"testing"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/migrations"
	"dispatch.example/dispatch/whitelist"
)

func TestHostNeedsTwoPeople(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		must(t, s.ProposeHost(t.Context(), "a.example", ledger.Change{By: "Ada", Reason: "new city"}))
		want(t, s.ProposeHost(t.Context(), "a.example", by("bob")), fault.Conflict, "duplicate")
		want(t, s.ApproveHost(t.Context(), "b.example", by("bob")), fault.NotFound, "unknown_host")
		for _, self := range []string{"Ada", "ada", "ADA"} {
			want(t, s.ApproveHost(t.Context(), "a.example", by(self)), fault.Denied, "self_approval")
		}
		if approved, err := s.ApprovedHosts(t.Context()); err != nil || len(approved) != 0 {
			t.Errorf("approved = %v, %v, want none", approved, err)
		}
		must(t, s.ApproveHost(t.Context(), "a.example", by("bob")))
		want(t, s.ApproveHost(t.Context(), "a.example", by("cid")), fault.Conflict, "already_approved")
		hosts, err := s.Hosts(t.Context())
		must(t, err)
		if len(hosts) != 1 || hosts[0].Proposer != "Ada" || hosts[0].Approver != "bob" || hosts[0].Reason != "new city" ||
			hosts[0].Proposed.IsZero() || hosts[0].Approved.IsZero() || hosts[0].FourEyesOff {
			t.Errorf("hosts = %+v", hosts)
		}
		if approved, err := s.ApprovedHosts(t.Context()); err != nil || !approved["a.example"] {
			t.Errorf("approved = %v, %v", approved, err)
		}
		must(t, s.RevokeHost(t.Context(), "a.example", by("cid")))
		want(t, s.Append(t.Context(), next(0, 1, "a.example")), fault.Denied, "unapproved_host")
		if head := verify(t, s).Head.Seq; head != 3 {
			t.Errorf("%d audit rows, want one for each of propose, approve, revoke", head)
		}
	})
}

func TestHostMustBeOneName(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for _, host := range []string{"", " a.example", "a.example ", "A.example", "a\n.example"} {
			want(t, s.ProposeHost(t.Context(), host, by("ada")), fault.Invalid, "bad_host")
		}
	})
}

func TestUnapprovedHostsAreAllNamed(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		err := s.Append(t.Context(), next(0, 1, "b.example", "a.example", "b.example"))
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || len(e.Problems) != 2 || e.Problems[0].Path != "a.example" || e.Problems[1].Path != "b.example" {
			t.Errorf("error = %v", err)
		}
	})
}

func TestFourEyesOffIsMarked(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{FourEyesOff: true})
	must(t, s.ProposeHost(t.Context(), "a.example", by("ada")))
	must(t, s.ApproveHost(t.Context(), "a.example", by("ada")))
	must(t, s.ProposeHost(t.Context(), "b.example", by("ada")))
	must(t, s.ApproveHost(t.Context(), "b.example", by("bob")))
	hosts, err := s.Hosts(t.Context())
	must(t, err)
	if len(hosts) != 2 || !hosts[0].FourEyesOff || hosts[1].FourEyesOff {
		t.Errorf("hosts = %+v, want the mark on the first only", hosts)
	}
	must(t, s.Append(t.Context(), next(0, 1, "a.example", "b.example")))
}

// rawRelease is how somebody with the database's password would add a release.
const rawRelease = `INSERT INTO releases (stream, number, parent, created, action, actor, reason, digest, manifest, signature)
	VALUES ('edge', %NUMBER%, %PARENT%, 0, 'x', 'x', '', x'00000000000000000000000000000000000000000000000000000000000000ff', x'7b7d', '')`

const rawAudit = `INSERT INTO audit (seq, at, actor, action, target, reason, details, prev, hash) VALUES
	(%SEQ%, 0, 'x', 'x', '', '', '{}', x'00000000000000000000000000000000000000000000000000000000000000ff', x'00000000000000000000000000000000000000000000000000000000000000ff')`

// The database alone refuses these, whatever the code above it does. guard is
// the trigger that does; without it the same statement passes, which shows that
// nothing else was in the way. Rows without one are held by a constraint, or by
// more than one guard.
func TestTheDatabaseAloneRefuses(t *testing.T) {
	blob := "x'" + digest("blob").String() + "'"
	tests := []struct {
		name, query, code, guard string
		dialect                  migrations.Dialect // empty: both
	}{
		{"a release on a stale base", fillIn(rawRelease, "%NUMBER%", "9", "%PARENT%", "1"), "stale_base", "", ""},
		{"a release on a base that never was", fillIn(rawRelease, "%NUMBER%", "9", "%PARENT%", "7"), "stale_base", "releases_insert", ""},
		{"a release below its parent", fillIn(rawRelease, "%NUMBER%", "1", "%PARENT%", "2"), "release_number", "", ""},
		{"a number that jumps", fillIn(rawRelease, "%NUMBER%", "100003", "%PARENT%", "2"), "number_jump", "", ""},
		{"an unapproved host", "INSERT INTO release_hosts VALUES ('edge', 1, 'evil.example')", "unapproved_host", "release_hosts_insert", ""},
		{"a proposed host", "INSERT INTO release_hosts VALUES ('edge', 1, 'proposed.example')", "unapproved_host", "release_hosts_insert", ""},
		{"self-approval", "UPDATE hosts SET approver = 'ada', approved = 1 WHERE host = 'proposed.example'", "self_approval", "", ""},
		{"self-approval in capitals", "UPDATE hosts SET approver = 'ADA', approved = 1 WHERE host = 'proposed.example'", "self_approval", "", ""},
		{"another proposer first", "UPDATE hosts SET proposer = 'zoe' WHERE host = 'proposed.example'", "host_approval", "hosts_update", ""},
		{"a host approved from the start", "INSERT INTO hosts (host, proposer, proposed, reason, approver, approved) VALUES ('evil.example', 'a', 1, '', 'b', 1)", "host_approval", "hosts_insert", ""},
		{"one approver over another", "UPDATE hosts SET approver = 'eve' WHERE host = 'good.example'", "host_approval", "hosts_update", ""},
		{"adopted with a release that is not here", "INSERT INTO hosts (host, proposer, proposed, reason, adopted_stream, adopted_number) VALUES ('evil.example', 'a', 1, '', 'edge', 77)", "host_adoption", "hosts_insert", ""},
		{"half an adoption", "INSERT INTO hosts (host, proposer, proposed, reason, adopted_number) VALUES ('evil.example', 'a', 1, '', 1)", "host_adoption", "hosts_insert", ""},
		{"adopted afterwards", "UPDATE hosts SET adopted_stream = 'edge', adopted_number = 1 WHERE host = 'proposed.example'", "host_approval", "hosts_update", ""},
		{"four eyes off on MySQL", "UPDATE hosts SET approver = 'ada', approved = 1, four_eyes_off = 1 WHERE host = 'proposed.example'", "self_approval", "", migrations.MySQL},
		{"a manifest edited", "UPDATE releases SET manifest = x'7b7d' WHERE number = 1", "append_only", "releases_update", ""},
		{"a release deleted", "DELETE FROM releases WHERE number = 2", "append_only", "", ""}, // its foreign keys hold it too
		{"a release replaced", "REPLACE INTO" + fillIn(rawRelease, "%NUMBER%", "2", "%PARENT%", "1")[len("INSERT INTO"):], "stale_base", "", ""},
		{"a release's host edited", "UPDATE release_hosts SET host = 'evil.example'", "append_only", "release_hosts_update", ""},
		{"a release's host deleted", "DELETE FROM release_hosts", "append_only", "release_hosts_delete", ""},
		{"records edited", "UPDATE record_sets SET bytes = x'7b7d'", "append_only", "record_sets_update", ""},
		{"the newest records deleted", "DELETE FROM record_sets", "append_only", "record_sets_delete", ""},
		{"records of a lower seq", "INSERT INTO record_sets VALUES ('edge', 1, 0, 0, x'7b7d', '')", "stale_seq", "record_sets_insert", ""},
		{"a blob edited", "UPDATE blobs SET bytes = x'6576' WHERE digest = " + blob, "append_only", "blobs_update", ""},
		{"a blob deleted", "DELETE FROM blobs", "append_only", "blobs_delete", ""},
		{"a blob replaced", "REPLACE INTO blobs (digest, part, created, bytes) VALUES (" + blob + ", 0, 0, x'6576')", "append_only", "", ""},
		{"audit edited", "UPDATE audit SET actor = 'eve' WHERE seq = 1", "append_only", "audit_update", ""},
		{"audit deleted", "DELETE FROM audit WHERE seq = 1", "append_only", "audit_delete", ""},
		{"audit with a gap", fillIn(rawAudit, "%SEQ%", "99"), "audit_chain", "audit_insert", ""},
		{"audit replaced", "REPLACE INTO" + fillIn(rawAudit, "%SEQ%", "1")[len("INSERT INTO"):], "audit_chain", "", ""},
	}
	each(t, func(t *testing.T, s *Store) {
		approve(t, s, "good.example")
		must(t, s.ProposeHost(t.Context(), "proposed.example", by("ada")))
		w := next(0, 1, "good.example")
		w.Blobs = blobs(whitelist.Blob{Digest: digest("blob"), Bytes: []byte("blob")})
		must(t, s.Append(t.Context(), w))
		must(t, s.Append(t.Context(), next(1, 2)))
		before := verify(t, s).Head
		for _, test := range tests {
			if test.dialect != "" && test.dialect != s.dialect {
				continue
			}
			err := rawSQL(s, test.query)
			if err == nil || fault.CodeOf(err) != test.code {
				t.Errorf("%s: error = %v, want code %s", test.name, err, test.code)
			}
		}
		if after := verify(t, s).Head; after != before {
			t.Errorf("the audit chain moved from %d to %d", before.Seq, after.Seq)
		}
		for _, test := range tests {
			if test.guard != "" {
				passesWithout(t, s, test.guard, test.query)
			}
		}
		must(t, rawSQL(s, "UPDATE releases SET manifest = x'7b7d' WHERE number = 1"))
		if _, err := s.Release(t.Context(), "edge", 1); err == nil {
			t.Error("an edited manifest is read as if it were whole")
		}
	})
}

// passesWithout drops a guard and shows that nothing else refuses the statement.
func passesWithout(t *testing.T, s *Store, guard, query string) {
	t.Helper()
	must(t, rawSQL(s, "DROP TRIGGER IF EXISTS "+guard))
	db, err := s.writer.DB()
	must(t, err)
	tx, err := db.Begin()
	must(t, err)
	defer func() { must(t, tx.Rollback()) }()
	if _, err := tx.Exec(query); err != nil {
		t.Errorf("%s: refused without %s too: %v", query, guard, err)
	}
}

// SEC01, the part of the database: a host of a thief gets into no release as an
// administrator, as one approver, or by SQL on what two people approved.
func TestSEC01TheDatabaseRefusesAForeignHost(t *testing.T) {
	const evil = "bank.example.evil.com"
	each(t, func(t *testing.T, s *Store) {
		approve(t, s, "bank.example")
		must(t, s.Append(t.Context(), next(0, 1, "bank.example")))
		stays := func(who string) {
			t.Helper()
			if head, err := s.Head(t.Context(), "edge"); err != nil || head != 1 {
				t.Errorf("%s: head = %d, %v, want 1", who, head, err)
			}
			if approved, err := s.ApprovedHosts(t.Context()); err != nil || approved[evil] {
				t.Errorf("%s: approved = %v, %v", who, approved, err)
			}
		}
		want(t, s.Append(t.Context(), next(1, 2, "bank.example", evil)), fault.Denied, "unapproved_host")
		stays("administrator")

		must(t, s.ProposeHost(t.Context(), evil, by("eve")))
		for _, self := range []string{"eve", "EVE"} {
			want(t, s.ApproveHost(t.Context(), evil, by(self)), fault.Denied, "self_approval")
		}
		want(t, s.Append(t.Context(), next(1, 2, evil)), fault.Denied, "unapproved_host")
		stays("one approver")

		set, bytes := "host = '"+evil+"'", fmt.Sprintf("x'%x'", `{"domain":"`+evil+`"}`)
		for query, code := range map[string]string{
			"UPDATE hosts SET " + set + " WHERE host = 'bank.example'":                  "host_approval",
			"UPDATE hosts SET approver = 'eve', approved = 1 WHERE " + set:              "self_approval",
			"UPDATE hosts SET proposer = 'bob' WHERE " + set:                            "host_approval",
			"UPDATE hosts SET adopted_stream = 'edge', adopted_number = 1 WHERE " + set: "host_approval",
			"UPDATE release_hosts SET " + set:                                           "append_only",
			"INSERT INTO release_hosts VALUES ('edge', 1, '" + evil + "')":              "unapproved_host",
			"UPDATE releases SET manifest = " + bytes:                                   "append_only",
			"UPDATE record_sets SET bytes = " + bytes:                                   "append_only",
		} {
			want(t, rawSQL(s, query), fault.Denied, code)
			stays(query)
		}

		// Two invented people are names like others to the database. What follows is
		// the part of the edge: nobody here can sign this release, and its host is
		// outside the suffixes that the edge was started with.
		must(t, rawSQL(s, "UPDATE hosts SET approver = 'mallory', approved = 1 WHERE "+set))
		must(t, s.Append(t.Context(), next(1, 2, evil)))
		got, err := s.Latest(t.Context(), "edge")
		if err != nil || got.Signature != "sig-2" {
			t.Errorf("latest = %+v, %v", got, err)
		}
	})
}
