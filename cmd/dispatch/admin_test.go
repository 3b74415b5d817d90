package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// With the database alone: the account is reset, and a break-glass account is armed.
func TestWhoeverHasTheDatabaseGetsBackIn(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "d.db")
	command(t, "migrate", "--db", db)
	exit, first, stderr := command(t, "admin", "init", "--db", db)
	if exit != 0 || !strings.Contains(first, "account admin password ") {
		t.Fatalf("admin init: %d %q %s", exit, first, stderr)
	}
	if !strings.Contains(stderr, "holds until its first use") {
		t.Errorf("nobody says how long the password holds: %s", stderr)
	}
	exit, second, _ := command(t, "admin", "init", "--db", db, "--reset")
	if exit != 0 || !strings.HasPrefix(second, "account admin password ") || strings.Contains(first, second) {
		t.Errorf("admin init --reset: %d %q", exit, second)
	}
	st, err := store.Open(t.Context(), db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := st.Account(t.Context(), "admin"); err != nil || !a.MustChange || !a.PasswordUntil.IsZero() {
		t.Errorf("the administrator's password must hold until its first use: %+v (%v)", a, err)
	}
	glass := ledger.Account{Login: "glass", Roles: []string{"on-call"}, BreakGlass: true, MustChange: true, PasswordUntil: time.Now().Add(-time.Hour)}
	if err := st.SaveAccount(t.Context(), glass, ledger.Change{By: "test", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	if exit, _, stderr := command(t, "admin", "arm", "admin", "--db", db, "--reason", "drill"); exit != 1 || !strings.Contains(stderr, "no break-glass account") {
		t.Errorf("admin arm of another account: %d %s", exit, stderr)
	}
	if exit, stdout, stderr := command(t, "admin", "arm", "glass", "--db", db, "--reason", "the provider is down"); exit != 0 || !strings.Contains(stdout, "glass may sign in until ") || !strings.Contains(stderr, "Its one-time password expired on ") {
		t.Errorf("admin arm: %d %s %s", exit, stdout, stderr)
	}
	if glass, err = st.Account(t.Context(), "glass"); err != nil || glass.Armed.IsZero() {
		t.Errorf("the account is %+v (%v)", glass, err)
	}
	rows, err := st.Audit(t.Context(), ledger.AuditFilter{Action: "account_arm"})
	if err != nil || len(rows) != 1 || rows[0].Reason != "the provider is down" {
		t.Errorf("the trail has %+v (%v)", rows, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestProviderFlagsAreCheckedTogether(t *testing.T) {
	exit, _, stderr := command(t, "serve", "--demo", "--oidc-issuer", "http://id.bank.example", "--oidc-roles", "ops=root,x")
	for _, want := range []string{`"ops=root" is not like ops=on-call`, `"x" is not like`} {
		if exit != 2 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, want 2 and %q in:\n%s", exit, want, stderr)
		}
	}
	exit, _, stderr = command(t, "serve", "--demo", "--oidc-issuer", "http://id.bank.example", "--oidc-roles", "ops=on-call")
	for _, want := range []string{"must be an https URL", "client id: is missing", "redirect URL"} {
		if exit != 2 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, want 2 and %q in:\n%s", exit, want, stderr)
		}
	}
	if exit, _, stderr = command(t, "serve", "--demo", "--oidc-client-id", "x"); exit != 2 || !strings.Contains(stderr, "--oidc-issuer: is missing") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}
