package policy

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"

	"dispatch.example/dispatch/whitelist"
)

// A token is base64url, without padding, of these bytes; numbers are big-endian.
//
//	 0  version
//	 1  the first 4 bytes of the SHA-256 of the key's id
//	 5  which id it is bound to
//	 6  names of app, region, endpoint, policy and that id: keyed hashes of 8 bytes, 0 for none
//	46  epochs of region and policy, 4 bytes each
//	54  start and expiry in Unix seconds, 8 bytes each
//	70  MAC over all before, 16 bytes
const (
	tokenVersion = 1
	bodyLen      = 1 + 4 + 1 + 5*8 + 2*4 + 2*8
	macLen       = 16
	rawLen       = bodyLen + macLen
)

// TokenLen is the length of every session token in bytes.
const TokenLen = (rawLen*8 + 5) / 6

// payload is what a token says, names still hashed.
type payload struct {
	bound                             binding
	app, region, endpoint, policy, id uint64
	regionEpoch, policyEpoch          uint32
	start, expires                    int64
}

// binding is which id a token is bound to.
type binding byte

const (
	boundToNothing binding = iota
	boundToDevice
	boundToUser
)

func bindingTo(of whitelist.Of) binding {
	switch of {
	case whitelist.Device:
		return boundToDevice
	case whitelist.User:
		return boundToUser
	}
	return boundToNothing
}

func (b binding) of() whitelist.Of {
	switch b {
	case boundToDevice:
		return whitelist.Device
	case boundToUser:
		return whitelist.User
	}
	return ""
}

// appendToken appends the sealed token.
func (k *sessionKey) appendToken(dst []byte, p *payload) []byte {
	var room [rawLen]byte
	raw := append(room[:0], tokenVersion)
	raw = append(raw, k.tag[:]...)
	raw = append(raw, byte(p.bound))
	for _, name := range [...]uint64{p.app, p.region, p.endpoint, p.policy, p.id} {
		raw = binary.BigEndian.AppendUint64(raw, name)
	}
	raw = binary.BigEndian.AppendUint32(raw, p.regionEpoch)
	raw = binary.BigEndian.AppendUint32(raw, p.policyEpoch)
	raw = binary.BigEndian.AppendUint64(raw, uint64(p.start))
	raw = binary.BigEndian.AppendUint64(raw, uint64(p.expires))
	mac := k.mac(raw)
	raw = append(raw, mac[:]...)
	return base64.RawURLEncoding.AppendEncode(dst, raw)
}

// unseal reads a token that one of the table's keys sealed.
func (t *Table) unseal(token string, p *payload) (*sealing, bool) {
	if len(token) != TokenLen {
		return nil, false
	}
	var text [TokenLen]byte
	var raw [rawLen]byte
	copy(text[:], token)
	if _, err := base64.RawURLEncoding.Strict().Decode(raw[:], text[:]); err != nil || raw[0] != tokenVersion {
		return nil, false
	}
	seal := t.sealed([4]byte(raw[1:5]))
	if seal == nil {
		return nil, false
	}
	body := raw[:bodyLen]
	if want := seal.key.mac(body); subtle.ConstantTimeCompare(want[:], raw[bodyLen:]) != 1 {
		return nil, false
	}
	p.bound = binding(body[5])
	body = body[6:]
	for _, name := range [...]*uint64{&p.app, &p.region, &p.endpoint, &p.policy, &p.id} {
		*name, body = binary.BigEndian.Uint64(body), body[8:]
	}
	p.regionEpoch, p.policyEpoch = binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
	p.start, p.expires = int64(binary.BigEndian.Uint64(body[8:])), int64(binary.BigEndian.Uint64(body[16:]))
	return seal, true
}

// sealed is the table's names under the key with this tag.
func (t *Table) sealed(tag [4]byte) *sealing {
	for i := range t.sessions {
		if t.sessions[i].key.tag == tag {
			return &t.sessions[i]
		}
	}
	return nil
}
