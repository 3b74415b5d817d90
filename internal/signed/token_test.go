package signed

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTokensSurviveTheirFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.token")
	want := []string{NewToken(), NewToken()}
	if err := WriteTokens(path, want...); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if got, err := ReadTokens(path); err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
}

// No default, known or short secret.
func TestSEC28ReadTokensRefuses(t *testing.T) {
	t.Parallel()
	short := make([]byte, 31)
	for i := range short {
		short[i] = byte(i*37 + 129)
	}
	for _, c := range []struct{ name, file, want string }{
		{"nothing", "", "0 tokens"},
		{"changeme", "changeme", "changeme"},
		{"changeme, long enough", strings.Repeat("ChangeMe", 8), "changeme"},
		{"a sentence", "this is my token", "4 tokens"},
		{"short", base64.RawURLEncoding.EncodeToString(short), "31 bytes"},
		{"a pattern", strings.Repeat("A", 43), "pattern"},
		{"text", base64.RawURLEncoding.EncodeToString([]byte("correct horse battery staple and more")), "text"},
		{"no base64", strings.Repeat("ä", 43), "not base64"},
		{"three", NewToken() + "\n" + NewToken() + "\n" + NewToken(), "3 tokens"},
	} {
		path := filepath.Join(t.TempDir(), "fleet.token")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTokens(path); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an unusable key that says %q", c.name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "open.token")
	if err := os.WriteFile(path, []byte(NewToken()), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTokens(path); !errors.Is(err, ErrKey) {
		t.Errorf("a file that others can read: %v", err)
	}
}
