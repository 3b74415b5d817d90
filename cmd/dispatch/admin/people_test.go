package admin_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite" // to change the database behind the store's back
	_ "github.com/go-sql-driver/mysql"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

type explanation struct {
	Release      uint64
	Domain, Text string
	Absent       []string
	IDCase       string `json:"id_case"`
	Trace        json.RawMessage
}

func (c *control) auditRows(query string) []ledger.AuditEntry {
	c.t.Helper()
	var page struct{ Rows []ledger.AuditEntry }
	c.get(actions.Viewer, "/audit?"+query).ok().into(&page)
	return page.Rows
}

// e57: a host is kept in normal form only, and what was made of it is shown.
func TestAHostIsProposedByOneAndApprovedByAnother(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		propose := func(host string) *reply {
			return c.post(actions.ReleaseEngineer, "/hosts", `{"host":"`+host+`","reason":"third cluster"}`)
		}
		rows := c.rows()
		var host ledger.Host
		propose("WAPABST3.A.com.cn.").ok().into(&host)
		if host.Host != "wapabst3.a.com.cn" || host.Proposer != actions.ReleaseEngineer || host.Approver != "" || host.Reason != "third cluster" {
			t.Errorf("the proposal is %+v", host)
		}
		if c.rows() != rows+1 {
			t.Errorf("%d rows", c.rows()-rows)
		}
		c.untouched(func() {
			propose("wapabst3.a.com.cn").refused(http.StatusConflict, "duplicate")
			for _, raw := range []string{"evila.com.cn", "a.com.cn.evil.example", "bank.example.evil.com"} {
				if p := propose(raw).refused(http.StatusUnprocessableEntity, "outside_suffixes"); !strings.Contains(p.Hint, "bank.example") {
					t.Errorf("%s: the hint is %q", raw, p.Hint)
				}
			}
			for _, raw := range []string{"https://wapabst4.a.com.cn/", "u:p@a.com.cn", "a..com.cn", "127.0.0.1", "", "-a.com.cn", "x.a.com.cn:443"} {
				if r := propose(raw); r.status != http.StatusUnprocessableEntity {
					t.Errorf("%q: %d %s", raw, r.status, r.body)
				}
			}
			c.post(actions.Approver, "/approvals/never.a.com.cn", `{"reason":"test"}`).refused(http.StatusNotFound, "unknown_host")
		})

		// SEC14, e59: nobody approves their own host, with whatever token of theirs.
		for _, name := range []string{actions.ReleaseEngineer, "Release-Engineer"} {
			_, secret, err := c.store.CreateToken(t.Context(), ledger.NewToken{Type: "api", Name: name, Role: actions.Approver}, ledger.Change{By: "test", Reason: "test"})
			must(t, err)
			c.tokens["second token"] = secret
			c.untouched(func() {
				p := c.post("second token", "/approvals/wapabst3.a.com.cn", `{"reason":"mine"}`).refused(http.StatusForbidden, "self_approval")
				if p.Hint == "" {
					t.Error("self_approval says no next step")
				}
			})
		}
		c.post(actions.Approver, "/approvals/WAPABST3.a.com.cn", `{"reason":"checked the certificate"}`).ok().into(&host)
		if host.Approver != actions.Approver || host.Approved.IsZero() || host.FourEyesOff {
			t.Errorf("the approval is %+v", host)
		}
		c.post(actions.Approver, "/approvals/wapabst3.a.com.cn", `{"reason":"again"}`).refused(http.StatusConflict, "already_approved")
		var all struct{ Hosts []ledger.Host }
		c.get(actions.Viewer, "/hosts").ok().into(&all)
		if len(all.Hosts) != 8 {
			t.Errorf("%d hosts, want 8", len(all.Hosts))
		}
	})
}

func TestTokens(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		create := func(body string) *reply { return c.post(actions.Administrator, "/tokens", body) }
		var made struct {
			Token  ledger.Token
			Secret string
		}
		rows := c.rows()
		create(`{"name":"pipeline","role":"viewer","days":7,"reason":"nightly report"}`).ok().into(&made)
		if c.rows() != rows+1 || !strings.HasPrefix(made.Secret, "dsp_api_") || made.Token.Role != "viewer" {
			t.Errorf("made %+v", made)
		}
		if life := time.Until(made.Token.Expires); life < 167*time.Hour || life > 168*time.Hour {
			t.Errorf("it lives %s, want 7 days", life)
		}
		var me actions.Actor
		c.tokens["new"] = made.Secret
		c.get("new", "/me").ok().into(&me)
		if me.Name != "pipeline" || !me.Is("viewer") {
			t.Errorf("it is %+v", me)
		}
		c.get("new", "/tokens").refused(http.StatusForbidden, "role")

		list := c.get(actions.Administrator, "/tokens").ok()
		if bytes.Contains(list.body, []byte("dsp_")) || bytes.Contains(list.body, []byte(made.Secret)) {
			t.Error("the list of tokens shows a secret")
		}
		if c.contentsHave(made.Secret) || strings.Contains(c.log.String(), made.Secret) {
			t.Error("the secret is in the database or the log")
		}
		c.untouched(func() {
			for _, body := range []string{
				`{"name":"a","role":"root","reason":"test"}`,
				`{"name":"a","role":"viewer","days":91,"reason":"test"}`,
				`{"name":"a","role":"viewer","days":-1,"reason":"test"}`,
				`{"name":"","role":"viewer","reason":"test"}`,
				`{"name":" a","role":"viewer","reason":"test"}`,
				`{"name":"a\u0000","role":"viewer","reason":"test"}`,
				`{"name":"a","role":"viewer"}`,
			} {
				if r := create(body); r.status != http.StatusUnprocessableEntity {
					t.Errorf("%s: %d %s", body, r.status, r.body)
				}
			}
		})

		create(`{"name":"long","role":"viewer","reason":"test"}`).ok().into(&made)
		c.tokens["long"] = made.Secret
		if days := time.Until(made.Token.Expires).Hours() / 24; days < 89.9 || days > 90 {
			t.Errorf("without days it lives %.1f days, want 90", days)
		}
		c.clock.ahead.Store(int64(8 * 24 * time.Hour))
		c.get("new", "/me").refused(http.StatusUnauthorized, "bad_token") // expired
		c.get("long", "/me").ok()
		revoke := func(id string) *reply {
			return c.call(request{role: actions.Administrator, method: http.MethodDelete, path: "/tokens/" + id + "?reason=left"})
		}
		if r := revoke(json.Number(jsonOf(t, made.Token.ID)).String()).ok(); r.status != http.StatusNoContent {
			t.Errorf("revoke answers %d", r.status)
		}
		c.get("long", "/me").refused(http.StatusUnauthorized, "bad_token")
		revoke("99999").refused(http.StatusNotFound, "unknown_token")
		revoke("x").refused(http.StatusNotFound, "unknown_token")
	})
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return string(data)
}

// contentsHave looks for a text in everything that lies in the SQLite file, the
// copy on disk and the log. With MySQL it reads every column of every table.
func (c *control) contentsHave(text string) bool {
	c.t.Helper()
	if strings.Contains(c.log.String(), text) {
		return true
	}
	found := false
	must(c.t, filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	}))
	if c.kind == "mysql" {
		db := c.raw()
		for _, table := range []string{"audit", "audit_head", "blobs", "hosts", "idempotency", "record_sets", "release_hosts", "releases", "tokens"} {
			rows, err := db.QueryContext(c.t.Context(), "SELECT * FROM "+table)
			must(c.t, err)
			columns := must2(rows.Columns())(c.t)
			values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			for rows.Next() {
				must(c.t, rows.Scan(into...))
				for _, v := range values {
					found = found || bytes.Contains(v, []byte(text))
				}
			}
			must(c.t, rows.Err())
			must(c.t, rows.Close())
		}
	}
	return found
}

// raw is a way around the store.
func (c *control) raw() *sql.DB {
	c.t.Helper()
	kind, dsn, _ := strings.Cut(c.dsn, ":")
	db, err := sql.Open(kind, dsn)
	must(c.t, err)
	c.t.Cleanup(func() { _ = db.Close() })
	return db
}

// SEC31, SEC23 in small: who looked up whom is written down; the ids themselves
// are nowhere, wherever they came in.
func TestIdsAreWrittenDownOnlyAsKeyedHashes(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		const device, user, listed, patched, given = "13800138000", "user-7f3a9c", "imported-51ab77", "patched-90cc12", "given-77ddaa01"
		var answer explanation
		rows := c.rows()
		c.post(actions.OnCall, "/explain", `{"app":"mobile","device_id":" `+device+` ","user_id":"`+user+`"}`).ok().into(&answer)
		if answer.Domain == "" || answer.Text == "" || len(answer.Trace) < 10 || answer.IDCase != "exact" || answer.Release != 1 || c.rows() != rows+1 {
			t.Errorf("the explanation is %+v in %d rows", answer, c.rows()-rows)
		}
		entry := c.auditRows("action=explain")[0]
		if entry.Actor != actions.OnCall || entry.Target != "mobile" || !strings.Contains(string(entry.Details), `"device":"`) || !strings.Contains(string(entry.Details), `"user":"`) {
			t.Errorf("the row is %+v", entry)
		}
		c.contains("staff", listed)
		if entry := c.auditRows("action=contains"); len(entry) != 1 || entry[0].Target != "staff" {
			t.Errorf("looking into a list left %+v", entry)
		}
		c.bring(listed+"\n", "").ok()
		c.patch(`{"add":["`+patched+`"],"reason":"test"}`, "Idempotency-Key", "k-1").ok()
		c.publish(3, edit(t, "expires: 2099-12-31}", "expires: 2099-12-31, ids: ["+given+"]}"), "", "Idempotency-Key", "k-2").ok()
		c.publish(4, edit(t, "expires: 2099-12-31}", `expires: 2099-12-31, ids: [`+given+`, "null"]}`), "").refused(http.StatusUnprocessableEntity, "bad_document")
		if !c.contentsHave("release-team") {
			t.Error("the search finds nothing that is there")
		}
		for _, id := range []string{device, user, listed, patched, given} {
			if c.contentsHave(id) {
				t.Errorf("the raw id %s is in the database, on disk or in the log", id)
			}
		}
		c.get(actions.Viewer, "/lists/staff/contains?id=x").refused(http.StatusForbidden, "role")
		c.post(actions.OnCall, "/explain", `{"app":"nothing"}`).refused(http.StatusNotFound, "unknown_app")
		c.post(actions.OnCall, "/explain", `{"address":"10.0.0"}`).refused(http.StatusUnprocessableEntity, "bad_address")
	})
}

// The walk that is explained is the walk that decides, and ids count as absent
// there for the same reasons.
func TestExplainReadsIdsAsRequestsDo(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var answer explanation
	c.post(actions.OnCall, "/explain", `{"device_id":" d-1001\n","user_id":"NULL"}`).ok().into(&answer)
	if answer.Domain != "wapcdst.b.com.cn" || len(answer.Absent) != 1 || answer.Absent[0] != "user_id: placeholder" {
		t.Errorf("a staff device gets %+v", answer)
	}
	c.post(actions.OnCall, "/explain", `{"device_id":"d-1001","session":"forged"}`).ok().into(&answer)
	if len(answer.Absent) != 2 || !strings.HasPrefix(answer.Absent[1], "session: ") {
		t.Errorf("a forged session leaves %v", answer.Absent)
	}
}

// SEC19: whoever goes around the API is found.
func TestATamperedRowIsNamed(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.emergency(swapOut).ok()
		var whole struct {
			Rows uint64
			Head string
		}
		c.get(actions.Viewer, "/audit/verify").ok().into(&whole)
		if whole.Rows != c.rows() || len(whole.Head) != 64 {
			t.Errorf("verify says %+v", whole)
		}
		c.publish(2, edit(t, "capacity: 60", "capacity: 61"), "").ok()
		kept := "/audit/verify?rows=" + jsonOf(t, whole.Rows) + "&head="
		c.get(actions.Viewer, kept+whole.Head).ok()
		c.get(actions.Viewer, kept+strings.Repeat("0", 64)).refused(http.StatusConflict, "audit_broken")
		c.get(actions.Viewer, kept+"xyz").refused(http.StatusUnprocessableEntity, "bad_head")
		c.get(actions.Viewer, "/audit/verify?rows=5").refused(http.StatusUnprocessableEntity, "bad_head")

		page := c.auditRows("limit=2")
		if len(page) != 2 || page[0].Seq != c.rows() || page[0].Action != "publish" || page[1].Action != "swap" || page[1].Reason != "sh-main burns" ||
			page[1].Actor != actions.OnCall || page[1].Target != "mobile/sh" || page[1].Release != 2 || !strings.Contains(string(page[1].Details), `"to":"sh-spare"`) {
			t.Errorf("the newest rows are %+v", page)
		}
		if older := c.auditRows("limit=1&before=" + jsonOf(t, page[1].Seq)); len(older) != 1 || older[0].Seq != page[1].Seq-1 {
			t.Errorf("the next page is %+v", older)
		}
		c.get(actions.Viewer, "/audit?limit=5000").refused(http.StatusUnprocessableEntity, "bad_request")

		db := c.raw()
		must2(db.ExecContext(t.Context(), "DROP TRIGGER audit_update"))(t)
		must2(db.ExecContext(t.Context(), "UPDATE audit SET reason = 'nothing happened' WHERE seq = ?", page[1].Seq))(t)
		p := c.get(actions.Viewer, "/audit/verify").refused(http.StatusConflict, "audit_broken")
		if !strings.Contains(p.Detail, "row "+jsonOf(t, page[1].Seq)) || p.Hint == "" {
			t.Errorf("the refusal is %+v", p)
		}
	})
}
