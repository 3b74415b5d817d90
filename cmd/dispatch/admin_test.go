package main

import (
	"path/filepath"
	"strings"
	"testing"

	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/store"
)

// When the last administrator's token is gone, whoever has the database gets
// back in; while one works, its holder is asked.
func TestALostAdministratorIsReplaced(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "d.db")
	command(t, "migrate", "--db", db)
	if exit, _, stderr := command(t, "admin", "init", "--db", db); exit != 0 {
		t.Fatal(stderr)
	}
	st, err := store.Open(t.Context(), db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.CreateToken(t.Context(), ledger.NewToken{Type: "api", Name: "report", Role: "viewer"}, ledger.Change{By: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := st.RevokeToken(t.Context(), 1, ledger.Change{By: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if exit, stdout, stderr := command(t, "admin", "init", "--db", db); exit != 0 || !strings.HasPrefix(stdout, "dsp_adm_") {
		t.Errorf("admin init after the last one was revoked: %d %q %s", exit, stdout, stderr)
	}
	if exit, _, _ := command(t, "admin", "init", "--db", db); exit != 1 {
		t.Errorf("admin init while one works: %d", exit)
	}
}
