package store

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// person is an account with everything that must not get out.
func person(login string) ledger.Account {
	return ledger.Account{Login: login, Name: "Ada 王", Roles: []string{"on-call", "approver"},
		Password: "$argon2id$v=19$m=65536,t=1,p=2$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo", Secret: []byte("\x00totp-secret-20-byte"), Step: 7}
}

func account(t *testing.T, s *Store, login string) ledger.Account {
	t.Helper()
	a, err := s.Account(t.Context(), login)
	must(t, err)
	return a
}

func TestAccountComesBackWhole(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now, Seal: testOptions().Seal})
			a := person("Ada")
			a.Disabled, a.MustChange, a.BreakGlass, a.Armed = true, true, true, clock.now().Add(time.Hour)
			a.PasswordUntil = clock.now().Add(24 * time.Hour)
			a.Issuer, a.Subject = "https://idp.example", "sub-1"
			must(t, s.SaveAccount(t.Context(), a, by("root")))
			a.Rev, a.Epoch, a.Created = 1, 1, clock.now()
			for _, login := range []string{"Ada", "ada", "ADA"} {
				if got := account(t, s, login); !reflect.DeepEqual(got, a) {
					t.Errorf("account %s = %+v\nwant %+v", login, got, a)
				}
			}
			got, err := s.AccountOf(t.Context(), "https://idp.example", "sub-1")
			must(t, err)
			if !reflect.DeepEqual(got, a) {
				t.Errorf("account of the subject = %+v", got)
			}
			a.PasswordUntil = time.Time{} // an own password
			must(t, s.SaveAccount(t.Context(), a, by("root")))
			a.Rev++
			if got := account(t, s, "ada"); !reflect.DeepEqual(got, a) {
				t.Errorf("with its own password it is %+v\nwant %+v", got, a)
			}
			clock.advance(time.Minute)
			must(t, s.SaveAccount(t.Context(), ledger.Account{Login: "bob"}, by("root"))) // local, with nothing
			must(t, s.SaveAccount(t.Context(), ledger.Account{Login: "cid"}, by("root"))) // so two have no subject
			all, err := s.Accounts(t.Context())
			must(t, err)
			if len(all) != 3 || !reflect.DeepEqual(all[0], a) || all[1].Login != "bob" || all[1].Secret != nil || len(all[1].Roles) != 0 {
				t.Errorf("accounts = %+v", all)
			}
			_, err = s.Account(t.Context(), "eve")
			want(t, err, fault.NotFound, "unknown_account")
			_, err = s.AccountOf(t.Context(), "https://idp.example", "SUB-1")
			want(t, err, fault.NotFound, "unknown_account")
			want(t, s.SignedIn(t.Context(), "eve", 0, clock.now()), fault.NotFound, "unknown_account")
		})
	}
}

func TestAccountIsChangedByWhoSawIt(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		save := func(a ledger.Account) error { return s.SaveAccount(t.Context(), a, by("root")) }
		must(t, save(person("Ada")))
		want(t, save(person("ada")), fault.Conflict, "account_exists")
		a := account(t, s, "ada")
		a.Name = "Ada L"
		must(t, save(a))
		want(t, save(a), fault.Conflict, "stale_account")
		ghost := person("eve")
		ghost.Rev = 1
		want(t, save(ghost), fault.NotFound, "unknown_account")

		outside := ledger.Account{Login: "bob", Issuer: "https://idp.example", Subject: "1"}
		must(t, save(outside))
		outside.Login = "carol"
		want(t, save(outside), fault.Conflict, "subject_taken")
		if head := verify(t, s).Head.Seq; head != 3 {
			t.Errorf("%d audit rows, want one for each of the 3 changes", head)
		}
	})
}

func TestAccountIsCheckedWhole(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), testOptions())
	err := s.SaveAccount(t.Context(), ledger.Account{Login: " a", Name: "b\n", Roles: []string{""}, Subject: "x", Password: "p "}, by("root"))
	want(t, err, fault.Invalid, "bad_account")
	for _, path := range []string{"login", "name", "roles[0]", "issuer", "password"} {
		if !strings.Contains(err.Error(), "\n  "+path+": ") {
			t.Errorf("%s is not among the problems: %v", path, err)
		}
	}
}

// Every session ends with what gives its owner rights, also when the author forgets it.
func TestEpochRisesWithWhatEndsSessions(t *testing.T) {
	tests := map[string]struct {
		edit  func(*ledger.Account)
		raise uint64
	}{
		"name":           {func(a *ledger.Account) { a.Name = "x" }, 0},
		"armed":          {func(a *ledger.Account) { a.Armed = time.Unix(5, 0).UTC() }, 0},
		"roles":          {func(a *ledger.Account) { a.Roles = nil }, 1},
		"password":       {func(a *ledger.Account) { a.Password = "x" }, 1},
		"second factor":  {func(a *ledger.Account) { a.Secret = nil }, 1},
		"disabled":       {func(a *ledger.Account) { a.Disabled = true }, 1},
		"by the author":  {func(a *ledger.Account) { a.Disabled = true; a.Epoch += 5 }, 5},
		"back to before": {func(a *ledger.Account) { a.Epoch = 0 }, 0},
	}
	each(t, func(t *testing.T, s *Store) {
		for name, test := range tests {
			login := strings.ReplaceAll(name, " ", "-")
			must(t, s.SaveAccount(t.Context(), person(login), by("root")))
			before := account(t, s, login)
			after := before
			test.edit(&after)
			must(t, s.SaveAccount(t.Context(), after, by("root")))
			if got := account(t, s, login); got.Epoch != before.Epoch+test.raise || got.Rev != before.Rev+1 {
				t.Errorf("%s: epoch %d → %d, want %d more", name, before.Epoch, got.Epoch, test.raise)
			}
		}
	})
}

// A code is good once, whoever is first, and an edit of somebody who read the
// account before does not make it good again.
func TestCodeIsUsedOnce(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			nodes := []*Store{openTest(t, dsn, testOptions()), openTest(t, dsn, testOptions())}
			s := nodes[0]
			must(t, s.SaveAccount(t.Context(), person("ada"), by("root")))
			read := account(t, s, "ada")
			before := verify(t, s).Head
			now := time.Date(2026, 9, 1, 8, 0, 0, 0, time.UTC)
			var group sync.WaitGroup
			results := make([]error, 20)
			for i := range results {
				group.Go(func() { results[i] = nodes[i%2].SignedIn(t.Context(), "ADA", 100, now) })
			}
			group.Wait()
			won := 0
			for _, err := range results {
				if err == nil {
					won++
					continue
				}
				want(t, err, fault.Conflict, "code_used")
			}
			if won != 1 {
				t.Errorf("the code was good %d times", won)
			}
			want(t, s.SignedIn(t.Context(), "ada", 99, now), fault.Conflict, "code_used")
			must(t, s.SignedIn(t.Context(), "ada", 0, now.Add(time.Second))) // without a second factor
			if after := verify(t, s).Head; after != before {
				t.Error("a sign-in wrote an audit row")
			}
			read.Name = "x"
			must(t, s.SaveAccount(t.Context(), read, by("root")))
			got := account(t, s, "ada")
			if got.Step != 100 || !got.LastSignIn.Equal(now.Add(time.Second)) {
				t.Errorf("step %d, last sign-in %v after an edit from before", got.Step, got.LastSignIn)
			}
			want(t, s.SignedIn(t.Context(), "ada", 100, now), fault.Conflict, "code_used")
		})
	}
}

// The author's own details do not reach the row, whatever they hold.
func TestAuditOfAnAccountShowsNoSecret(t *testing.T) {
	dsn := newDSN(t, "sqlite")
	s, err := Open(t.Context(), dsn, testOptions())
	must(t, err)
	a := person("ada")
	c := by("root")
	c.Details = fmt.Appendf(nil, `{"leak":%q}`, a.Password+string(a.Secret))
	must(t, s.SaveAccount(t.Context(), a, c))
	read := account(t, s, "ada")
	read.Password, read.Secret, read.Roles = "$argon2id$new", nil, []string{"viewer"}
	must(t, s.SaveAccount(t.Context(), read, c))
	entries, err := s.Audit(t.Context(), ledger.AuditFilter{Target: "ada"})
	must(t, err)
	if len(entries) != 2 {
		t.Fatalf("audit = %+v", entries)
	}
	for i, wants := range [][]string{
		{`"before":{"login":"ada"`, `"roles":["viewer"]`, `"password":"changed"`, `"second_factor":"removed"`},
		{`{"after":{`, `"roles":["on-call","approver"]`, `"password":"set"`, `"second_factor":"set"`},
	} {
		details := string(entries[i].Details)
		for _, text := range wants {
			if !strings.Contains(details, text) {
				t.Errorf("details = %s, want %s in it", details, text)
			}
		}
		for _, text := range []string{"argon2id", "totp-secret", "leak"} {
			if strings.Contains(details, text) {
				t.Errorf("details = %s with %s", details, text)
			}
		}
	}
	must(t, s.Close())
	file, err := os.ReadFile(strings.TrimPrefix(dsn, "sqlite:"))
	must(t, err)
	if !bytes.Contains(file, []byte("$argon2id$new")) || bytes.Contains(file, []byte("totp-secret")) {
		t.Error("the file must have the password's hash, and the second factor sealed only")
	}
}

func TestSecondFactorIsSealedToItsAccount(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			dsn := newDSN(t, kind)
			old := openTest(t, dsn, Options{Seal: SealKeys{Current: key('1')}})
			for _, login := range []string{"ada", "bob", "cid"} {
				a := person(login)
				a.Secret = []byte("of " + login)
				must(t, old.SaveAccount(t.Context(), a, by("root")))
			}
			both := openTest(t, dsn, Options{Seal: SealKeys{Current: key('2'), Previous: key('1')}})
			for _, want := range []int{2, 1, 0} {
				if n, err := both.Reseal(t.Context(), 2); err != nil || n != want {
					t.Errorf("Reseal = %d, %v, want %d", n, err, want)
				}
			}
			if a := account(t, openTest(t, dsn, Options{Seal: SealKeys{Current: key('2')}}), "bob"); string(a.Secret) != "of bob" {
				t.Errorf("secret with the new key alone = %q", a.Secret)
			}
			// Without the key an account cannot be read, so nobody saves it without its second factor.
			_, err := old.Account(t.Context(), "bob")
			want(t, err, fault.Unavailable, "missing_seal_key")
			_, err = old.Accounts(t.Context())
			want(t, err, fault.Unavailable, "missing_seal_key")
			none := openTest(t, dsn, Options{})
			want(t, none.SaveAccount(t.Context(), person("dan"), by("root")), fault.Unavailable, "missing_seal_key")

			must(t, rawSQL(both, "UPDATE accounts SET secret = (SELECT s FROM (SELECT secret AS s FROM accounts WHERE folded = 'ada') x) WHERE folded = 'bob'"))
			if a, err := both.Account(t.Context(), "bob"); err == nil {
				t.Errorf("another account's second factor opens: %q", a.Secret)
			}
			// The way back of docs/operate.md when the key is lost.
			must(t, rawSQL(both, "UPDATE accounts SET secret = NULL, epoch = epoch + 1 WHERE secret IS NOT NULL"))
			if a := account(t, none, "bob"); a.Secret != nil || a.Password == "" || a.Epoch != 2 {
				t.Errorf("account without its second factor = %+v", a)
			}
		})
	}
}

func TestTheDatabaseAloneKeepsAccountsApart(t *testing.T) {
	const insert = `INSERT INTO accounts (folded, login, name, roles, issuer, subject, password, step, disabled, must_change, break_glass, rev, epoch, created)
		SELECT %FOLDED%, login, name, roles, %ISSUER%, %SUBJECT%, password, step, disabled, must_change, break_glass, rev, epoch, created FROM accounts WHERE folded = 'ada'`
	each(t, func(t *testing.T, s *Store) {
		a := person("ada")
		a.Issuer, a.Subject = "idp", "1"
		must(t, s.SaveAccount(t.Context(), a, by("root")))
		for _, test := range []struct{ query, code string }{
			{fillIn(insert, "%FOLDED%", "'ada'", "%ISSUER%", "NULL", "%SUBJECT%", "NULL"), "account_exists"},
			{fillIn(insert, "%FOLDED%", "'eve'", "%ISSUER%", "'idp'", "%SUBJECT%", "'1'"), "subject_taken"},
			{fillIn(insert, "%FOLDED%", "'eve'", "%ISSUER%", "'idp'", "%SUBJECT%", "NULL"), "constraint"},
			{"UPDATE accounts SET step = 6", "account_goes_back"},
			{"UPDATE accounts SET rev = 0", "account_goes_back"},
			{"UPDATE accounts SET epoch = 0", "account_goes_back"},
		} {
			if err := rawSQL(s, test.query); fault.CodeOf(err) != test.code {
				t.Errorf("%s: error = %v, want code %s", test.query, err, test.code)
			}
		}
		passesWithout(t, s, "accounts_update", "UPDATE accounts SET step = 6, rev = 0, epoch = 0")
	})
}

// Two names are one exactly when strings.EqualFold says so, or more strictly.
func TestFoldedNamesOfEveryLetter(t *testing.T) {
	for r := range unicode.MaxRune {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if folded(string(r)) != folded(string(f)) {
				t.Errorf("%q and %q are one letter, and are kept as two", r, f)
			}
		}
	}
}
