package signed

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Trust is the set of public keys whose signatures are believed. It is immutable;
// the zero value believes nobody.
type Trust struct{ keys map[string]trusted }

type trusted struct {
	purpose Purpose
	public  ed25519.PublicKey
}

// TrustOf believes the public halves of signing keys; symmetric ones are left out.
func TrustOf(sets ...Keys) *Trust {
	t := &Trust{keys: map[string]trusted{}}
	for _, set := range sets {
		for _, k := range set.all {
			if k.private != nil {
				t.keys[k.id] = trusted{purpose: k.purpose, public: k.private.Public().(ed25519.PublicKey)}
			}
		}
	}
	return t
}

// ReadTrust reads a file that Public wrote. A JWKS fetched over a network is no source of trust.
func ReadTrust(path string) (*Trust, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trusted keys: %w", err)
	}
	defer f.Close()
	data, err := readAtMost(f, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read trusted keys: %w", err)
	}
	t, err := ParseTrust(data)
	if err != nil {
		return nil, fmt.Errorf("read trusted keys %s: %w", path, err)
	}
	return t, nil
}

// ParseTrust reads a JWKS of public Ed25519 keys. It refuses private and
// symmetric ones: such a file was not meant to be passed around.
func ParseTrust(data []byte) (*Trust, error) {
	set, err := parseSet(data)
	if err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%w: no keys", ErrKey)
	}
	t := &Trust{keys: map[string]trusted{}}
	for i, jwk := range set {
		public, ok := jwk.Key.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("key %d: %w: only public Ed25519 keys belong here", i, ErrKey)
		}
		purpose, _, _ := strings.Cut(jwk.KeyID, "-")
		id, err := keyID(Purpose(purpose), public)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		if !Purpose(purpose).signs() || id != jwk.KeyID {
			return nil, fmt.Errorf("key %d: %w: it is named %q, which is not its purpose and thumbprint", i, ErrKey, jwk.KeyID)
		}
		t.keys[id] = trusted{purpose: Purpose(purpose), public: public}
	}
	return t, nil
}

// Public is the JWKS of the public halves, for trust files, clients and the
// well-known address. Symmetric keys are left out.
func Public(sets ...Keys) ([]byte, error) {
	out := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, set := range sets {
		for _, k := range set.all {
			if k.private != nil {
				jwk := k.jwk()
				out.Keys = append(out.Keys, jwk.Public())
			}
		}
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("export public keys: %w", err)
	}
	return append(data, '\n'), nil
}

// JWKS is the set of the trusted keys of one purpose, in the form of Public.
func (t *Trust) JWKS(p Purpose) ([]byte, error) {
	out := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, id := range slices.Sorted(maps.Keys(t.keys)) {
		if key := t.keys[id]; key.purpose == p {
			out.Keys = append(out.Keys, jose.JSONWebKey{Key: key.public, KeyID: id, Use: "sig", Algorithm: string(jose.EdDSA)})
		}
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("export trusted keys: %w", err)
	}
	return append(data, '\n'), nil
}

// Verify checks a compact JWS and returns what it holds and who signed it.
func (t *Trust) Verify(typ, compact string) (payload []byte, kid string, err error) {
	jws, err := parse(compact, nil)
	if err != nil {
		return nil, "", fmt.Errorf("verify %s: %w", typ, err)
	}
	payload = jws.UnsafePayloadWithoutVerification()
	if kid, err = t.check(typ, jws, payload); err != nil {
		return nil, "", fmt.Errorf("verify %s: %w", typ, err)
	}
	return payload, kid, nil
}

// VerifyDetached checks a detached JWS over payload and returns who signed it.
func (t *Trust) VerifyDetached(typ, signature string, payload []byte) (kid string, err error) {
	if payload == nil {
		payload = []byte{} // nil would mean that the payload is inside
	}
	jws, err := parse(signature, payload)
	if err == nil {
		kid, err = t.check(typ, jws, payload)
	}
	if err != nil {
		return "", fmt.Errorf("verify %s: %w", typ, err)
	}
	return kid, nil
}

// parse is strict about the form: three segments of unpadded base64url without
// slack bits, so that one signature has one spelling. A detached one has an
// empty middle.
func parse(compact string, detached []byte) (*jose.JSONWebSignature, error) {
	segments := strings.SplitN(compact, ".", 4)
	if len(segments) != 3 || (detached != nil) != (segments[1] == "") {
		return nil, ErrMalformed
	}
	for _, s := range segments {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(s); err != nil || strings.ContainsAny(s, "\r\n") {
			return nil, ErrMalformed
		}
	}
	algs := []jose.SignatureAlgorithm{jose.EdDSA}
	var jws *jose.JSONWebSignature
	var err error
	if detached != nil {
		jws, err = jose.ParseDetached(compact, detached, algs)
	} else {
		jws, err = jose.ParseSignedCompact(compact, algs)
	}
	if _, other := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); other {
		return nil, ErrAlgorithm
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return jws, nil
}

func (t *Trust) check(typ string, jws *jose.JSONWebSignature, payload []byte) (kid string, err error) {
	h := jws.Signatures[0].Protected
	if h.Algorithm != string(jose.EdDSA) {
		return "", ErrAlgorithm
	}
	// Only alg, kid and typ: an embedded key, crit or b64 has no meaning here.
	if got := h.ExtraHeaders[jose.HeaderType]; got != typ {
		return "", fmt.Errorf("%w: %v", ErrType, got)
	}
	if h.JSONWebKey != nil || h.Nonce != "" || len(h.ExtraHeaders) != 1 {
		return "", fmt.Errorf("%w: unknown header field", ErrMalformed)
	}
	if t == nil {
		return "", fmt.Errorf("%w: %q", ErrUnknownKey, h.KeyID)
	}
	key, ok := t.keys[h.KeyID]
	if !ok {
		return "", fmt.Errorf("%w: %q", ErrUnknownKey, h.KeyID)
	}
	if signer, _ := signerOf(typ); key.purpose != signer {
		return "", fmt.Errorf("%w: %q signs no %s", ErrUnknownKey, h.KeyID, typ)
	}
	if err := jws.DetachedVerify(payload, key.public); err != nil {
		return "", ErrBadSignature
	}
	return h.KeyID, nil
}
