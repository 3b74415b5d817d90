package policy

import (
	"net/netip"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Whole is the number of buckets: shares are integers in 10,000ths.
const Whole = 10_000

// BucketAlgorithm is the version of Bucket. client/vectors/buckets.json states
// it, and any change of a vector needs a new one.
const BucketAlgorithm = 1

// Bucket is where an id falls under a salt, 0..9999: XXH64 with seed 0 over
// salt ++ 0x00 ++ id, as an unsigned number, modulo Whole. The id is in normal
// form and the salt is free of 0x00, so no two pairs hash the same bytes.
func Bucket(salt, id string) uint16 {
	s := newSalt(salt)
	return s.bucket(id)
}

// TTL is how long a client should rest when its answer is good for left: 60 to
// 80 % of it, by the id, so that clients which came together do not return
// together. Without an id pass what tells clients apart, such as the address.
// It is whole seconds and at least one.
func TTL(left time.Duration, id string) time.Duration {
	part := Whole*6/10 + time.Duration(Bucket("ttl", id))*2/10
	return max((left / Whole * part).Truncate(time.Second), time.Second)
}

// salt is a salt, and the bytes that come before an id.
type salt struct {
	text   string
	prefix []byte // text and its 0x00
}

func newSalt(text string) salt { return salt{text: text, prefix: append([]byte(text), 0)} }

func (s *salt) bucket(id string) uint16 { return bucketOf(s, id) }

func bucketOf[T string | []byte](s *salt, id T) uint16 {
	var room [128]byte
	if len(s.prefix)+len(id) <= len(room) { // usual lengths, at half the cost of a Digest
		n := copy(room[:], s.prefix)
		n += copy(room[n:], id)
		return uint16(xxhash.Sum64(room[:n]) % Whole)
	}
	var d xxhash.Digest
	d.Reset()
	d.Write(s.prefix)
	for len(id) > 0 {
		n := copy(room[:], id)
		d.Write(room[:n])
		id = id[n:]
	}
	return uint16(d.Sum64() % Whole)
}

// bucketOfPrefix stands in for bucket where there is no id: it hashes the text
// of the address's prefix. Without an address it hashes nothing, which puts all
// such requests into the one bucket of the empty id under this salt.
func (s *salt) bucketOfPrefix(addr netip.Addr) uint16 {
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	return bucketOf(s, appendClientPrefix(buf[:0], addr))
}

// appendClientPrefix appends the network that one subscriber usually holds: /24
// of IPv4 and /56 of IPv6 (RFC 6177). An invalid address appends nothing.
func appendClientPrefix(dst []byte, addr netip.Addr) []byte {
	bits := 56
	if addr.Is4() {
		bits = 24
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return dst
	}
	return prefix.AppendTo(dst)
}
