// Package signed makes and checks the signatures of dispatch and keeps its keys.
//
// A Key serves one Purpose. Keys is the content of a key file: the current key
// and, after a rotation, the previous one. Trust is a set of public keys;
// nothing is believed that it does not verify. A Ratchet remembers the highest
// number believed, and moves only after every other check has passed.
//
// All signatures are compact JWS with Ed25519 (alg EdDSA) and exactly three
// header fields: alg, kid and typ. The typ says what was signed and so which
// purpose of key may have signed it: a record key cannot sign a manifest. The
// kid is PURPOSE-THUMBPRINT, computed from the key, so neither a name nor a
// purpose in a file can lie.
//
// The package starts no goroutine and holds no global state. Every failure is
// one of the Err values, wrapped with the detail; callers decide what a failure
// means. Secrets never appear in errors, logs or %v.
package signed

import (
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// The types of what is signed, the typ of a JWS.
const (
	TypManifest = "dispatch-manifest" // detached, by a publisher key
	TypRecords  = "dispatch-records"  // detached, by a record key
	TypRecord   = "dispatch-record"   // compact, by a record key; what clients verify
	TypOverride = "dispatch-override" // compact, by a publisher key; break glass for the fleet
)

// Purpose is what a key is for. A key never serves two.
type Purpose string

// The purposes, one key file each.
const (
	Publisher Purpose = "publisher" // signs manifests and overrides
	Record    Purpose = "record"    // signs domain records
	Session   Purpose = "session"   // authenticates session tokens
	List      Purpose = "list"      // hashes ids of lists
	ListSeal  Purpose = "list-seal" // encrypts raw ids in the store
)

// Purposes are all purposes, in the order in which they are listed to people.
func Purposes() []Purpose { return []Purpose{Publisher, Record, Session, List, ListSeal} }

// signs says whether the purpose has an Ed25519 key; the others are symmetric.
func (p Purpose) signs() bool { return p == Publisher || p == Record }

func (p Purpose) known() bool {
	return p.signs() || p == Session || p == List || p == ListSeal
}

// signerOf is the purpose of key that may sign a typ.
func signerOf(typ string) (Purpose, bool) {
	switch typ {
	case TypManifest, TypOverride:
		return Publisher, true
	case TypRecords, TypRecord:
		return Record, true
	}
	return "", false
}

// What a signature or a key file can fail of.
var (
	ErrMalformed    = errors.New("not a signature of this form")
	ErrAlgorithm    = errors.New("not signed with EdDSA")
	ErrType         = errors.New("signed as something else")
	ErrUnknownKey   = errors.New("signed by a key that is not trusted")
	ErrBadSignature = errors.New("signature does not match")
	ErrKey          = errors.New("unusable key")
)

// Sign returns a compact JWS over payload, which it contains.
func (k Key) Sign(typ string, payload []byte) (string, error) {
	jws, err := k.sign(typ, payload)
	if err != nil {
		return "", err
	}
	return jws.CompactSerialize()
}

// SignDetached returns a compact JWS over payload without it.
func (k Key) SignDetached(typ string, payload []byte) (string, error) {
	jws, err := k.sign(typ, payload)
	if err != nil {
		return "", err
	}
	return jws.DetachedCompactSerialize()
}

func (k Key) sign(typ string, payload []byte) (*jose.JSONWebSignature, error) {
	purpose, ok := signerOf(typ)
	if !ok || purpose != k.purpose || k.private == nil {
		return nil, fmt.Errorf("sign %s with %s: %w: this needs a %s key", typ, k.id, ErrKey, purpose)
	}
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}}
	signer, err := jose.NewSigner(key, new(jose.SignerOptions).WithType(jose.ContentType(typ)))
	if err != nil {
		return nil, fmt.Errorf("sign %s with %s: %w", typ, k.id, err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return nil, fmt.Errorf("sign %s with %s: %w", typ, k.id, err)
	}
	return jws, nil
}
