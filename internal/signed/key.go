package signed

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"

	"github.com/go-jose/go-jose/v4"
)

// thumbSize is how many characters of a thumbprint a kid carries: 16 of
// base64url are 96 bits, and a record repeats its kid in every answer.
const thumbSize = 16

// SecretSize is the length of a secret in bytes: 16 for SipHash, 32 for all
// others (Ed25519 seeds, AES-256, the authentication of sessions).
func (p Purpose) SecretSize() int {
	if p == List {
		return 16
	}
	return 32
}

// Key is one key of one purpose. The zero value is no key.
type Key struct {
	id      string
	purpose Purpose
	private ed25519.PrivateKey // publisher and record
	secret  []byte             // the others
}

// NewKey makes a random key.
func NewKey(p Purpose) (Key, error) {
	if !p.known() {
		return Key{}, fmt.Errorf("make key: %w: no such purpose %q", ErrKey, p)
	}
	for {
		secret := make([]byte, p.SecretSize())
		_, _ = rand.Read(secret) // never fails, see crypto/rand
		if checkSecret(secret) == nil {
			return keyOf(p, secret)
		}
	}
}

// keyOf checks a secret and builds the key around it. An Ed25519 seed is a secret too.
func keyOf(p Purpose, secret []byte) (Key, error) {
	if len(secret) != p.SecretSize() {
		return Key{}, fmt.Errorf("%w: the secret has %d bytes, it must be %d random ones", ErrKey, len(secret), p.SecretSize())
	}
	if err := checkSecret(secret); err != nil {
		return Key{}, err
	}
	k := Key{purpose: p}
	if p.signs() {
		k.private = ed25519.NewKeyFromSeed(secret)
	} else {
		k.secret = secret
	}
	var err error
	k.id, err = keyID(p, k.jwk().Key)
	return k, err
}

// ID is the kid: PURPOSE-THUMBPRINT. It is public.
func (k Key) ID() string { return k.id }

// Purpose is what the key is for.
func (k Key) Purpose() Purpose { return k.purpose }

// Secret is the secret of a symmetric key, nil for a signing key. The caller must not change it.
func (k Key) Secret() []byte { return k.secret }

// String is the kid, so that a key in a log or an error shows no secret.
func (k Key) String() string { return k.id }

// GoString keeps secrets out of %#v.
func (k Key) GoString() string { return k.id }

// LogValue keeps secrets out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.id) }

// MarshalJSON keeps secrets out of JSON; only WriteKeys writes them.
func (k Key) MarshalJSON() ([]byte, error) { return []byte(`"` + k.id + `"`), nil }

func (k Key) jwk() jose.JSONWebKey {
	if k.purpose.signs() {
		return jose.JSONWebKey{Key: k.private, KeyID: k.id, Use: "sig", Algorithm: string(jose.EdDSA)}
	}
	return jose.JSONWebKey{Key: k.secret, KeyID: k.id}
}

// Keys is the content of a key file: the current key first, then the previous one.
type Keys struct{ all []Key }

// NewKeys makes a current key.
func NewKeys(p Purpose) (Keys, error) {
	k, err := NewKey(p)
	if err != nil {
		return Keys{}, err
	}
	return Keys{all: []Key{k}}, nil
}

// Rotate makes a new current key; the one that was current becomes the previous
// one, and the one before that is gone.
func (k Keys) Rotate() (Keys, error) {
	next, err := NewKey(k.Current().purpose)
	if err != nil {
		return Keys{}, fmt.Errorf("rotate keys: %w", err)
	}
	return Keys{all: []Key{next, k.Current()}}, nil
}

// Current is the key to use for what is made now; the zero Key when there is none.
func (k Keys) Current() Key {
	if len(k.all) == 0 {
		return Key{}
	}
	return k.all[0]
}

// All are the keys to accept, current first.
func (k Keys) All() []Key { return append([]Key(nil), k.all...) }

// IDs are the kids, current first.
func (k Keys) IDs() []string {
	ids := make([]string, len(k.all))
	for i, key := range k.all {
		ids[i] = key.id
	}
	return ids
}

// keyID is the first characters of the RFC 7638 thumbprint behind the purpose.
func keyID(p Purpose, key any) (string, error) {
	var sum []byte
	if secret, ok := key.([]byte); ok {
		// go-jose has no thumbprint of symmetric keys; this is RFC 7638, section 3.2.
		h := sha256.Sum256([]byte(`{"k":"` + base64.RawURLEncoding.EncodeToString(secret) + `","kty":"oct"}`))
		sum = h[:]
	} else {
		var err error
		if sum, err = (&jose.JSONWebKey{Key: key}).Thumbprint(crypto.SHA256); err != nil {
			return "", fmt.Errorf("%w: %w", ErrKey, err)
		}
	}
	return string(p) + "-" + base64.RawURLEncoding.EncodeToString(sum)[:thumbSize], nil
}

// checkSecret refuses what does not look like random bytes. Of random secrets it
// refuses fewer than one in a million (16 bytes) or 1e13 (32 bytes).
func checkSecret(secret []byte) error {
	printable := true
	distinct := map[byte]bool{}
	for _, b := range secret {
		distinct[b] = true
		printable = printable && b >= ' ' && b <= '~'
	}
	if printable {
		return fmt.Errorf("%w: the secret is text, not random bytes", ErrKey)
	}
	if len(distinct) < len(secret)/2 {
		return fmt.Errorf("%w: the secret is a pattern, not random bytes", ErrKey)
	}
	if publishedSecret(secret) {
		return fmt.Errorf("%w: the secret is a published example", ErrKey)
	}
	return nil
}

// publishedSecret knows the example secrets of the standards that people copy.
func publishedSecret(secret []byte) bool {
	switch base64.RawURLEncoding.EncodeToString(secret) {
	case "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", // RFC 8037 appendix A.1, RFC 8032 test 1
		"TM0Imyj_ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U-4pvs", // RFC 8032 section 7.1 test 2
		"xaqN9D-fg3vtt0QvMdy3sWbThTUHbwlLhc46LgtEWPc", // RFC 8032 section 7.1 test 3
		"hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg": // RFC 7520 section 3.5
		return true
	}
	return ascending(secret)
}

// ascending finds 00 01 02 …, the most common test key of all.
func ascending(secret []byte) bool {
	for i := 1; i < len(secret); i++ {
		if secret[i] != secret[i-1]+1 {
			return false
		}
	}
	return true
}
