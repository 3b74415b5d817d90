package signed

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysSurviveTheirFile(t *testing.T) {
	t.Parallel()
	for _, p := range Purposes() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keys", string(p)+".jwks")
			keys, err := mustKeys(t, p).Rotate()
			if err != nil {
				t.Fatal(err)
			}
			if err := WriteKeys(path, keys); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, want 0600", info.Mode())
			}
			got, err := ReadKeys(path, p)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got.IDs()) != fmt.Sprint(keys.IDs()) || !bytes.Equal(got.Current().Secret(), keys.Current().Secret()) {
				t.Errorf("read %v, wrote %v", got.IDs(), keys.IDs())
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".key-*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			for _, other := range Purposes() {
				if _, err := ReadKeys(path, other); other != p && !errors.Is(err, ErrKey) {
					t.Errorf("read as %s: got %v, want a refusal", other, err)
				}
			}
		})
	}
}

// No default, known or short secret.
func TestSEC28ReadKeysRefuses(t *testing.T) {
	t.Parallel()
	valid := mustKeys(t, Session).Current()
	oct := func(kid string, secret []byte) string {
		return fmt.Sprintf(`{"kty":"oct","k":%q,"kid":%q}`, base64.RawURLEncoding.EncodeToString(secret), kid)
	}
	ok := oct(valid.id, valid.secret)
	ascending := make([]byte, Session.SecretSize())
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for _, c := range []struct{ name, file, want string }{
		{"nothing", ``, "not a JWKS"},
		{"not JSON", `changeme`, "not a JWKS"},
		{"empty set", `{"keys":[]}`, "0 keys"},
		{"no set", `{}`, "0 keys"},
		{"unknown field of the set", `{"keys":[` + ok + `],"secret":"x"}`, "unknown field"},
		{"text behind the end", `{"keys":[` + ok + `]}{}`, "behind the end"},
		{"three keys", `{"keys":[` + ok + `,` + oct("b", ascending) + `,` + oct("c", ascending) + `]}`, "3 keys"},
		{"kid twice", `{"keys":[` + ok + `,` + ok + `]}`, "stands twice"},
		{"no kid", `{"keys":[` + oct("", valid.secret) + `]}`, "no kid"},
		{"kid of another", `{"keys":[` + oct("session-AAAAAAAAAAAAAAAA", valid.secret) + `]}`, "is it for another purpose"},
		{"empty secret", `{"keys":[` + oct("session-x", nil) + `]}`, "0 bytes"},
		{"short secret", `{"keys":[` + oct("session-x", valid.secret[:31]) + `]}`, "31 bytes"},
		{"long secret", `{"keys":[` + oct("session-x", append([]byte{1}, valid.secret...)) + `]}`, "33 bytes"},
		{"text", `{"keys":[` + oct("session-x", []byte("changeme-changeme-changeme-12345")) + `]}`, "is text"},
		{"zeros", `{"keys":[` + oct("session-x", make([]byte, Session.SecretSize())) + `]}`, "is a pattern"},
		{"two bytes by turns", `{"keys":[` + oct("session-x", bytes.Repeat([]byte{0xfe, 0x01}, 16)) + `]}`, "is a pattern"},
		{"00 01 02", `{"keys":[` + oct("session-x", ascending) + `]}`, "published example"},
		{"of RFC 7520", `{"keys":[{"kty":"oct","kid":"018c0ae5-4d9b-471b-bfd6-eef314bc7037","k":"hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg"}]}`, "published example"},
		{"other type", `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"session-x","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}]}`, `"kty":"oct"`},
		{"unknown type", `{"keys":[{"kty":"FOO","kid":"session-x"}]}`, "key 0"},
		{"too large", `{"keys":[]}` + strings.Repeat(" ", maxKeyFile), "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadKeys(path, Session)
			if !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an unusable key that says %q", err, c.want)
			}
		})
	}
}

func TestReadKeysRefusesPublishedSigningKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	const rfc8037 = `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"x","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}]}`
	if err := os.WriteFile(path, []byte(rfc8037), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(path, Publisher); err == nil || !strings.Contains(err.Error(), "published example") {
		t.Errorf("got %v", err)
	}
}

func TestReadKeysRefusesOpenFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode fs.FileMode
		ok   bool
	}{{0o600, true}, {0o400, true}, {0o440, true}, {0o640, true}, {0o660, false}, {0o644, false}, {0o604, false}, {0o602, false}, {0o777, false}} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := WriteKeys(path, mustKeys(t, List)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeys(path, List); (err == nil) != c.ok {
			t.Errorf("mode %04o: %v", c.mode, err)
		}
	}
	if _, err := ReadKeys(filepath.Join(t.TempDir(), "absent"), List); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func TestTrustSurvivesItsFile(t *testing.T) {
	t.Parallel()
	publisher, record := mustKeys(t, Publisher), mustKeys(t, Record)
	jwks, err := Public(publisher, record, mustKeys(t, Session))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(jwks), `"d"`) || strings.Contains(string(jwks), `"oct"`) {
		t.Fatalf("secrets in the export: %s", jwks)
	}
	path := filepath.Join(t.TempDir(), "trust.jwks")
	if err := os.WriteFile(path, jwks, 0o644); err != nil {
		t.Fatal(err)
	}
	trust, err := ReadTrust(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(trust.keys) != 2 {
		t.Errorf("%d keys, want 2", len(trust.keys))
	}
	if _, _, err := trust.Verify(TypRecord, mustSign(t, record.Current(), TypRecord, "x")); err != nil {
		t.Error(err)
	}
}

func TestParseTrustRefuses(t *testing.T) {
	t.Parallel()
	key := mustKeys(t, Record).Current()
	private, err := json.Marshal(key.jwk())
	if err != nil {
		t.Fatal(err)
	}
	jwk := key.jwk()
	public := jwk.Public()
	public.KeyID = "publisher-" + strings.TrimPrefix(key.id, "record-")
	promoted, err := json.Marshal(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"empty":             `{"keys":[]}`,
		"symmetric":         `{"keys":[{"kty":"oct","k":"AAAA","kid":"session-x"}]}`,
		"private":           `{"keys":[` + string(private) + `]}`,
		"kid of nobody":     `{"keys":[` + strings.Replace(string(promoted), public.KeyID, "record-AAAAAAAAAAAAAAAA", 1) + `]}`,
		"purpose of no key": `{"keys":[` + strings.Replace(string(promoted), "publisher-", "session-", 1) + `]}`,
	} {
		if _, err := ParseTrust([]byte(file)); !errors.Is(err, ErrKey) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestSecretsStayOutOfText(t *testing.T) {
	t.Parallel()
	for _, p := range Purposes() {
		k := mustKeys(t, p).Current()
		secret := k.secret
		if p.signs() {
			secret = k.private.Seed()
		}
		asJSON, err := json.Marshal(map[string]any{"key": k})
		if err != nil {
			t.Fatal(err)
		}
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("key", "key", k)
		text := fmt.Sprintf("%v %+v %#v %s %q", k, k, k, k, k) + string(asJSON) + logged.String()
		for _, form := range []string{string(secret), fmt.Sprint(secret), fmt.Sprintf("%x", secret), fmt.Sprintf("%#v", secret),
			base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret)} {
			if strings.Contains(text, form) {
				t.Errorf("%s: the secret is in %s", p, text)
			}
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	for _, p := range Purposes() {
		key := mustKeys(f, p).Current()
		data, err := json.Marshal(map[string]any{"keys": []any{key.jwk()}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"keys":[{"kty":"oct","kid":"x"}]}`))
	f.Add([]byte(`{"keys":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range Purposes() {
			keys, err := parseKeys(data, p)
			if err == nil && (keys.Current().id == "" || keys.Current().purpose != p) {
				t.Errorf("%s: accepted %v", p, keys)
			}
		}
		if trust, err := ParseTrust(data); err == nil && len(trust.keys) == 0 {
			t.Error("accepted an empty trust")
		}
	})
}
