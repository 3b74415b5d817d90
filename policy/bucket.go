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

// salt is a salt with the hash state after it and its 0x00, so that a request
// only hashes its id.
type salt struct {
	text  string
	state xxhash.Digest
}

func newSalt(text string) salt {
	s := salt{text: text}
	s.state.Reset()
	s.state.WriteString(text)
	s.state.Write([]byte{0})
	return s
}

func (s *salt) bucket(id string) uint16 {
	d := s.state
	d.WriteString(id)
	return uint16(d.Sum64() % Whole)
}

// bucketOfPrefix stands in for bucket where there is no id: it hashes the text
// of the address's prefix. Without an address it hashes nothing, which puts all
// such requests into the one bucket of the empty id under this salt.
func (s *salt) bucketOfPrefix(addr netip.Addr) uint16 {
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	d := s.state
	d.Write(appendClientPrefix(buf[:0], addr))
	return uint16(d.Sum64() % Whole)
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
