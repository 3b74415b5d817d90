package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/release"
)

// SealKeys are AES-256 keys of 32 random bytes. Current seals, both open.
type SealKeys struct {
	Current, Previous []byte
}

// A sealed value is: 1 byte format, 8 bytes key id, 12 bytes nonce, ciphertext
// with its tag of 16. The digest of what it belongs to, a blob or an account, is
// bound to it as additional data: moved to another row, it does not open.
const (
	sealFormat  = 1
	keyIDSize   = 8
	sealHeader  = 1 + keyIDSize
	sealKeySize = 32
)

// keyID is the start of the key's SHA-256.
type keyID [keyIDSize]byte

// sealer is nil when there are no keys.
type sealer struct {
	current keyID
	ciphers map[keyID]cipher.AEAD
}

func newSealer(keys SealKeys) (*sealer, error) {
	if keys.Current == nil && keys.Previous == nil {
		return nil, nil
	}
	s := &sealer{ciphers: map[keyID]cipher.AEAD{}}
	for _, key := range [][]byte{keys.Previous, keys.Current} {
		if key == nil {
			continue
		}
		if len(key) != sealKeySize {
			return nil, fault.New(fault.Invalid, "bad_seal_key", "a list seal key has %d bytes, not %d", len(key), sealKeySize).
				WithHint("dispatch keys new")
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("list seal key: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("list seal key: %w", err)
		}
		sum := sha256.Sum256(key)
		s.current = keyID(sum[:keyIDSize])
		s.ciphers[s.current] = aead
	}
	return s, nil
}

func (s *sealer) seal(d release.Digest, raw []byte) ([]byte, error) {
	if s == nil {
		return nil, fault.New(fault.Unavailable, "missing_seal_key", "no key to seal raw ids and second factors with").
			WithHint("--list-seal-key-file FILE; dispatch keys new makes one")
	}
	aead := s.ciphers[s.current]
	out := make([]byte, sealHeader+aead.NonceSize(), sealHeader+aead.NonceSize()+len(raw)+aead.Overhead())
	out[0] = sealFormat
	copy(out[1:], s.current[:])
	nonce := out[sealHeader:]
	rand.Read(nonce) // never fails: it ends the program instead
	return aead.Seal(out, nonce, raw, d[:]), nil
}

func (s *sealer) open(d release.Digest, sealed []byte) ([]byte, error) {
	if len(sealed) < sealHeader || sealed[0] != sealFormat {
		return nil, errors.New("sealed value: unknown format")
	}
	var aead cipher.AEAD
	if s != nil {
		aead = s.ciphers[keyID(sealed[1:sealHeader])]
	}
	if aead == nil {
		return nil, fault.New(fault.Unavailable, "missing_seal_key", "a value is sealed with key %x, which is not here", sealed[1:sealHeader]).
			WithHint("put that key into --list-seal-key-file as the previous one")
	}
	if len(sealed) < sealHeader+aead.NonceSize() {
		return nil, errors.New("sealed value: cut short")
	}
	nonce, text := sealed[sealHeader:sealHeader+aead.NonceSize()], sealed[sealHeader+aead.NonceSize():]
	raw, err := aead.Open(nil, nonce, text, d[:])
	if err != nil {
		return nil, fmt.Errorf("sealed value: %w", err)
	}
	return raw, nil
}
