package signed

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-jose/go-jose/v4"
)

// maxKeyFile bounds a key file or a trust file: a hundred keys and room to spare.
const maxKeyFile = 64 << 10

// ReadKeys reads a key file of the given purpose. It refuses a file that others
// than its owner and group can read or that its group can write (0640 at most),
// and any key that is short, empty, patterned, published, of another type or
// purpose, or named twice.
func ReadKeys(path string, p Purpose) (Keys, error) {
	data, err := readSecretFile(path)
	if err != nil {
		return Keys{}, fmt.Errorf("read %s keys: %w", p, err)
	}
	keys, err := parseKeys(data, p)
	if err != nil {
		return Keys{}, fmt.Errorf("read %s keys %s: %w", p, path, err)
	}
	return keys, nil
}

// WriteKeys writes a key file with mode 0600. The file is the old one or the new
// one at any moment; readers never see half of it.
func WriteKeys(path string, k Keys) error {
	set := jose.JSONWebKeySet{}
	for _, key := range k.all {
		set.Keys = append(set.Keys, key.jwk())
	}
	data, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return fmt.Errorf("write keys %s: %w", path, err)
	}
	if err := replaceFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("write keys %s: %w", path, err)
	}
	return nil
}

func parseKeys(data []byte, p Purpose) (Keys, error) {
	set, err := parseSet(data)
	if err != nil {
		return Keys{}, err
	}
	if len(set) == 0 || len(set) > 2 {
		return Keys{}, fmt.Errorf("%w: %d keys, there must be a current one and at most one previous", ErrKey, len(set))
	}
	var keys Keys
	for i, jwk := range set {
		var secret []byte
		switch key := jwk.Key.(type) {
		case ed25519.PrivateKey:
			if p.signs() {
				secret = key.Seed()
			}
		case []byte:
			if !p.signs() {
				secret = key
			}
		}
		if secret == nil && jwk.Key != nil && !isEmpty(jwk.Key) {
			return Keys{}, fmt.Errorf("key %d: %w: a %s key must be %s", i, ErrKey, p, formOf(p))
		}
		key, err := keyOf(p, secret)
		if err != nil {
			return Keys{}, fmt.Errorf("key %d: %w", i, err)
		}
		if jwk.KeyID != key.id {
			return Keys{}, fmt.Errorf("key %d: %w: it is named %q but is %q; is it for another purpose?", i, ErrKey, jwk.KeyID, key.id)
		}
		keys.all = append(keys.all, key)
	}
	return keys, nil
}

func isEmpty(key any) bool {
	secret, ok := key.([]byte)
	return ok && len(secret) == 0
}

func formOf(p Purpose) string {
	if p.signs() {
		return `a private one with "kty":"OKP","crv":"Ed25519"`
	}
	return `one with "kty":"oct"`
}

// parseSet reads a JWKS and refuses what it does not understand: unknown fields
// of the set, unsupported keys, kids that are absent or stand twice.
func parseSet(data []byte) ([]jose.JSONWebKey, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("%w: not a JWKS: %w", ErrKey, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: not a JWKS: text behind the end", ErrKey)
	}
	seen := map[string]bool{}
	set := make([]jose.JSONWebKey, len(raw.Keys))
	for i, r := range raw.Keys {
		if err := set[i].UnmarshalJSON(r); err != nil {
			return nil, fmt.Errorf("key %d: %w: %w", i, ErrKey, err)
		}
		switch id := set[i].KeyID; {
		case id == "":
			return nil, fmt.Errorf("key %d: %w: it has no kid", i, ErrKey)
		case seen[id]:
			return nil, fmt.Errorf("key %d: %w: kid %q stands twice", i, ErrKey, id)
		default:
			seen[id] = true
		}
	}
	return set, nil
}

// readSecretFile reads a file that only its owner and group may see. Kubernetes
// mounts secrets with 0644 unless told otherwise, hence the hint.
func readSecretFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if open := info.Mode().Perm() & 0o027; open != 0 {
		return nil, fmt.Errorf("%s: %w: mode %04o lets others at it; chmod 0600 (in Kubernetes defaultMode: 0440)",
			path, ErrKey, info.Mode().Perm())
	}
	return readAtMost(f, maxKeyFile)
}

func readAtMost(f *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", f.Name(), ErrKey, limit)
	}
	return data, nil
}

// replaceFile writes a temporary file (0600 by os.CreateTemp) and renames it over path.
func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".key-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if gone := os.Remove(f.Name()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			return errors.Join(err, gone)
		}
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
