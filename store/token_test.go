package store

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

func releaseRecords(n, seq uint64) release.RecordSet {
	return release.RecordSet{Release: n, Seq: seq, Bytes: []byte("{}"), Signature: "s"}
}

func TestTokenLife(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			made, secret, err := s.CreateToken(t.Context(), ledger.NewToken{Type: "adm", Name: "ci", Role: "release", Expires: clock.now().Add(time.Hour)}, by("ada"))
			must(t, err)
			if !regexp.MustCompile(`^dsp_adm_[0-9A-Za-z]{39}$`).MatchString(secret) {
				t.Errorf("secret %q has another form", secret)
			}
			got, err := s.Authenticate(t.Context(), secret)
			must(t, err)
			if got.ID != made.ID || got.Name != "ci" || got.Role != "release" || !got.LastUsed.Equal(clock.now()) {
				t.Errorf("token = %+v", got)
			}
			clock.advance(lastUsedEvery / 2)
			got, err = s.Authenticate(t.Context(), secret)
			must(t, err)
			if got.LastUsed.Equal(clock.now()) {
				t.Error("a use within the minute was written")
			}
			clock.advance(lastUsedEvery)
			_, err = s.Authenticate(t.Context(), secret)
			must(t, err)
			list, err := s.Tokens(t.Context())
			must(t, err)
			if len(list) != 1 || !list[0].LastUsed.Equal(clock.now()) {
				t.Errorf("tokens = %+v", list)
			}
			clock.advance(time.Hour)
			_, err = s.Authenticate(t.Context(), secret)
			want(t, err, fault.Unauthenticated, "bad_token")
		})
	}
}

func TestRevokedTokenIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		made, secret, err := s.CreateToken(t.Context(), ledger.NewToken{Type: "adm", Name: "ci", Role: "release"}, by("ada"))
		must(t, err)
		must(t, s.RevokeToken(t.Context(), made.ID, by("bob")))
		_, err = s.Authenticate(t.Context(), secret)
		want(t, err, fault.Unauthenticated, "bad_token")
		want(t, s.RevokeToken(t.Context(), 99, by("bob")), fault.NotFound, "unknown_token")
		entries, err := s.Audit(t.Context(), ledger.AuditFilter{Target: "ci"})
		must(t, err)
		if len(entries) != 2 || entries[0].Action != "token_revoke" || entries[1].Action != "token_create" {
			t.Errorf("audit = %+v", entries)
		}
	})
}

func TestSecretsThatAreNotOurs(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		_, secret, err := s.CreateToken(t.Context(), ledger.NewToken{Type: "adm", Name: "ci", Role: "release"}, by("ada"))
		must(t, err)
		other, err := newSecret("adm")
		must(t, err)
		for _, bad := range []string{"", "dsp_", secret[:len(secret)-1], secret + "0", strings.ToUpper(secret), "x" + secret, other} {
			_, err := s.Authenticate(t.Context(), bad)
			want(t, err, fault.Unauthenticated, "bad_token")
		}
	})
}

func TestTokenRequestIsChecked(t *testing.T) {
	s := openTest(t, newDSN(t, "sqlite"), Options{})
	for _, n := range []ledger.NewToken{{}, {Type: "A1", Name: "x", Role: "r"}, {Type: "adm", Name: "x ", Role: "r"},
		{Type: "adm", Name: "x", Role: "r", Expires: time.Unix(1, 0)}} {
		_, _, err := s.CreateToken(t.Context(), n, by("ada"))
		want(t, err, fault.Invalid, "bad_token_request")
	}
}

// SEC18: only a hash is stored.
func TestSecretIsNowhereInTheDatabase(t *testing.T) {
	dsn := newDSN(t, "sqlite")
	s, err := Open(t.Context(), dsn, testOptions())
	must(t, err)
	_, secret, err := s.CreateToken(t.Context(), ledger.NewToken{Type: "adm", Name: "ci", Role: "release"}, by("ada"))
	must(t, err)
	w := next(0, 1)
	w.Blobs = blobs(whitelist.Blob{Digest: digest("x"), Bytes: []byte("x"), Raw: []byte("seeded-device-id")})
	must(t, s.Append(t.Context(), w))
	must(t, s.Close())
	data, err := os.ReadFile(strings.TrimPrefix(dsn, "sqlite:"))
	must(t, err)
	if !strings.Contains(string(data), "publish") {
		t.Error("the file does not hold what was written; the search below would find nothing anyway")
	}
	for _, text := range []string{secret, secret[8:30], "seeded-device-id"} { // SEC23: nor is a raw id
		if strings.Contains(string(data), text) {
			t.Errorf("%q is in the file", text)
		}
	}
}
