package whitelist

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"

	"github.com/dchest/siphash"
)

// Hash stands for an id where the id itself must not be: SipHash-2-4-128(list
// key, of ++ 0x00 ++ id), in the byte order of the reference implementation.
// Hashes sort as bytes; their top bits are those of the first byte.
type Hash [16]byte

// String is lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// KeySize is the size of a list key's secret in bytes.
const KeySize = 16

// Key is a list key. Without its secret nobody can test from a hash whether an
// id is in a list, and nobody can make ids that collide.
type Key struct {
	ID     string
	k0, k1 uint64
}

// NewKey returns the key with this id and secret.
func NewKey(id string, secret []byte) (Key, error) {
	if id == "" {
		return Key{}, errors.New("list key: no id")
	}
	if len(secret) != KeySize {
		return Key{}, fmt.Errorf("list key %s: the secret has %d bytes, not %d", id, len(secret), KeySize)
	}
	key := Key{ID: id, k0: binary.LittleEndian.Uint64(secret), k1: binary.LittleEndian.Uint64(secret[8:])}
	if key.k0 == 0 && key.k1 == 0 {
		return Key{}, fmt.Errorf("list key %s: the secret is all zeros", id)
	}
	return key, nil
}

// String is the id alone, so that no log or error carries the secret.
func (k Key) String() string { return k.ID }

// GoString is the id alone.
func (k Key) GoString() string { return "whitelist.Key(" + k.ID + ")" }

// Hash is the hash of an id in normal form. It does not allocate.
func (k Key) Hash(of Of, id string) Hash {
	hi, lo := k.sum(of, id)
	var h Hash
	binary.BigEndian.PutUint64(h[:], hi)
	binary.BigEndian.PutUint64(h[8:], lo)
	return h
}

// sum is the hash as two numbers that sort as its bytes do.
func (k Key) sum(of Of, id string) (hi, lo uint64) {
	var room [16 + MaxID]byte
	text := append(append(append(room[:0], of...), 0), id...)
	r0, r1 := siphash.Hash128(k.k0, k.k1, text)
	return bits.ReverseBytes64(r0), bits.ReverseBytes64(r1)
}
