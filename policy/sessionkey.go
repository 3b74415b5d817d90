package policy

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/dchest/siphash"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

// SessionKey is a key of session tokens as a key file holds it.
type SessionKey struct {
	ID     string
	Secret []byte // at least 32 bytes, random
}

// minSecret is the shortest secret of a session key in bytes, the strength of
// the hash behind its MAC.
const minSecret = 32

// SessionKeys are the current and previous keys that seal session tokens. They
// are immutable; rotation makes new ones and compiles the tables again.
type SessionKeys struct{ keys []sessionKey }

// sessionKey is what is derived from one secret.
type sessionKey struct {
	tag          [4]byte // of the key's id, in every token
	inner, outer [sha256.BlockSize]byte
	n0, n1       uint64 // SipHash key of names
}

// NewSessionKeys returns keys that seal with the first and also open tokens of
// the others.
func NewSessionKeys(current SessionKey, previous ...SessionKey) (*SessionKeys, error) {
	var problems fault.Problems
	keys := &SessionKeys{}
	for i, k := range append([]SessionKey{current}, previous...) {
		path := fmt.Sprintf("session key %q", k.ID)
		switch {
		case k.ID == "":
			problems.Addf(fmt.Sprintf("session key %d", i), "has no id")
		case len(k.Secret) < minSecret:
			problems.Addf(path, "has %d bytes; at least %d random ones are needed", len(k.Secret), minSecret)
		case bytes.Count(k.Secret, k.Secret[:1]) == len(k.Secret):
			problems.Addf(path, "repeats one byte; make it with dispatch keys new")
		}
		derived, err := deriveSessionKey(k)
		if err != nil {
			return nil, fmt.Errorf("derive session key %s: %w", k.ID, err)
		}
		for _, other := range keys.keys {
			if other.tag == derived.tag {
				problems.Addf(path, "is told from another one by its id, and theirs are the same or collide; rename it")
			}
		}
		keys.keys = append(keys.keys, derived)
	}
	if err := problems.Err("bad_session_key", "the session keys are unusable"); err != nil {
		return nil, err
	}
	return keys, nil
}

func deriveSessionKey(k SessionKey) (sessionKey, error) {
	mac, err := hkdf.Key(sha256.New, k.Secret, nil, "dispatch session mac", sha256.BlockSize)
	if err != nil {
		return sessionKey{}, err
	}
	names, err := hkdf.Key(sha256.New, k.Secret, nil, "dispatch session names", 16)
	if err != nil {
		return sessionKey{}, err
	}
	id := sha256.Sum256([]byte(k.ID))
	out := sessionKey{tag: [4]byte(id[:4]), n0: binary.LittleEndian.Uint64(names), n1: binary.LittleEndian.Uint64(names[8:])}
	for i, b := range mac { // RFC 2104: the key with ipad and opad
		out.inner[i], out.outer[i] = b^0x36, b^0x5c
	}
	return out, nil
}

// mac is HMAC-SHA-256 of a token's body, cut to 128 bits (RFC 2104, section 5).
// Over one short message it is two calls that allocate nothing, which crypto/hmac
// does not offer; a test holds it to crypto/hmac.
func (k *sessionKey) mac(body []byte) [macLen]byte {
	var inside [sha256.BlockSize + bodyLen]byte
	copy(inside[:], k.inner[:])
	n := copy(inside[sha256.BlockSize:], body)
	first := sha256.Sum256(inside[:sha256.BlockSize+n])
	var outside [sha256.BlockSize + sha256.Size]byte
	copy(outside[:], k.outer[:])
	copy(outside[sha256.BlockSize:], first[:])
	second := sha256.Sum256(outside[:])
	return [macLen]byte(second[:macLen])
}

// Kinds of names in tokens, beside those of ids.
const (
	nameOfApp      = "app"
	nameOfRegion   = "region"
	nameOfEndpoint = "endpoint"
	nameOfPolicy   = "policy"
)

// name is the keyed hash that stands for a name or id in a token.
func (k *sessionKey) name(kind, name string) uint64 {
	var room [16 + whitelist.MaxID]byte
	return siphash.Hash(k.n0, k.n1, append(append(append(room[:0], kind...), 0), name...))
}

// sealing is a key with the names of one table under it, both ways.
type sealing struct {
	key       *sessionKey
	app       uint64
	region    []uint64   // by region
	endpoint  [][]uint64 // by region and endpoint
	regions   map[uint64]int16
	endpoints map[uint64]endpointRef
	policies  map[uint64]string
}

// endpointRef is an endpoint by index.
type endpointRef struct{ region, endpoint int16 }

// names hashes everything in t that a token may name, under each key. A policy
// that has left the rules and still has an epoch keeps its name.
func (s *SessionKeys) names(t *Table) []sealing {
	if s == nil {
		return nil
	}
	var out []sealing
	for i := range s.keys {
		k := &s.keys[i]
		seal := sealing{key: k, app: k.name(nameOfApp, t.app), regions: map[uint64]int16{},
			endpoints: map[uint64]endpointRef{}, policies: map[uint64]string{}}
		for r := range t.regions {
			region := k.name(nameOfRegion, t.regions[r].Key)
			seal.region = append(seal.region, region)
			seal.regions[region] = int16(r)
			var endpoints []uint64
			for e := range t.regions[r].Endpoints {
				endpoint := k.name(nameOfEndpoint, t.regions[r].Key+"/"+t.regions[r].Endpoints[e].Key)
				endpoints = append(endpoints, endpoint)
				seal.endpoints[endpoint] = endpointRef{int16(r), int16(e)}
			}
			seal.endpoint = append(seal.endpoint, endpoints)
		}
		for r := range t.rules {
			seal.policies[k.name(nameOfPolicy, t.rules[r].key)] = t.rules[r].key
		}
		for policy := range t.epochs {
			seal.policies[k.name(nameOfPolicy, policy)] = policy
		}
		out = append(out, seal)
	}
	return out
}
