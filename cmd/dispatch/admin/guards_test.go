package admin_test

import (
	"net/http"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/release"
)

// P09, the database's turn (release has the other two): with every trigger of
// the schema gone, what they refuse is still refused by the action or, when a row
// is edited behind everybody's back, by whoever reads it.
func TestP09TheDatabaseGuardIsNotTheOnlyOne(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	db := c.raw()
	rows := must2(db.Query("SELECT name FROM sqlite_master WHERE type = 'trigger'"))(t)
	var triggers []string
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		triggers = append(triggers, name)
	}
	must(t, rows.Err())
	must(t, rows.Close())
	if len(triggers) < 10 {
		t.Fatalf("%d triggers; the schema guards itself in another way now", len(triggers))
	}
	for _, name := range triggers {
		if name == "audit_insert_head" { // it keeps the chain, it refuses nothing
			continue
		}
		must2(db.Exec("DROP TRIGGER " + name))(t)
	}

	c.untouched(func() {
		// A stale base.
		c.publish(7, kept, "").refused(http.StatusConflict, "stale_base")
		c.publish(0, kept, "").refused(http.StatusConflict, "stale_base")
		// A host that nobody approved.
		c.publish(1, edit(t, "wapabst2.a.com.cn", "wapabst3.a.com.cn"), "").refused(http.StatusUnprocessableEntity, "host_not_approved")
		c.publish(1, edit(t, "wapabst2.a.com.cn", "bank.example.evil.com"), "").refused(http.StatusUnprocessableEntity, "bad_document")
	})
	// One's own approval.
	c.post(actions.ReleaseEngineer, "/hosts", `{"host":"wapabst3.a.com.cn","reason":"test"}`).ok()
	c.tokens["own"] = c.tokens[actions.ReleaseEngineer]
	if r := c.post("own", "/approvals/wapabst3.a.com.cn", `{"reason":"mine"}`); r.status != http.StatusForbidden {
		t.Errorf("approving one's own host: %d %s", r.status, r.body)
	}
	// History that is edited: the signature does not hold, and nothing is served of it.
	was := c.keeper.Current()
	must2(db.Exec("UPDATE releases SET manifest = CAST(replace(CAST(manifest AS TEXT), 'wapabst.a.com.cn', 'wapabst9.a.com.cn') AS BLOB), digest = zeroblob(32)"))(t)
	if _, err := c.store.Latest(t.Context(), release.StreamEdge); err == nil {
		t.Error("an edited release was read as if it were whole")
	}
	if c.emergency(swapOut).status < 400 || c.keeper.Current() != was {
		t.Error("a change was made on top of an edited release")
	}
}
