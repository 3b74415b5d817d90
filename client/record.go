package client

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// recordType is the typ of a record's header. Manifests are signed with other types, so
// that none can pass for a record.
const recordType = "dispatch-record"

// record is the signed part of an answer.
type record struct {
	Deployment string   `json:"iss"`
	App        string   `json:"aud"`
	Region     string   `json:"region"`
	Domain     string   `json:"domain"`
	Alternates []string `json:"alternates"`
	Fallback   string   `json:"fallback"`
	Release    uint64   `json:"release"`
	Issued     int64    `json:"iat"` // seconds since 1970
	Expires    int64    `json:"exp"`
}

// open verifies a record's signature, origin and destination. The header chooses among
// pinned keys and nothing else: neither the algorithm nor a key that it brings along.
func (t *trust) open(compact string) (record, string, error) {
	var r record
	protected, rest, _ := strings.Cut(compact, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(signature, ".") {
		return r, "", refuse(BadRecord, "record has not three parts")
	}
	var header struct {
		Alg  string          `json:"alg"`
		Typ  string          `json:"typ"`
		Kid  string          `json:"kid"`
		Crit json.RawMessage `json:"crit"`
	}
	if err := decode(protected, &header); err != nil {
		return r, "", refuse(BadRecord, "read record header: %w", err)
	}
	key, pinned := t.keys[header.Kid]
	switch {
	case header.Alg != "EdDSA":
		return r, "", refuse(BadRecord, "record algorithm %q is not EdDSA", header.Alg)
	case header.Typ != recordType:
		return r, "", refuse(BadRecord, "record type %q is not %s", header.Typ, recordType)
	case header.Crit != nil: // RFC 7515, 4.1.11: what must be understood and is not, refuses
		return r, "", refuse(BadRecord, "record has critical headers")
	case !pinned:
		return r, "", refuse(BadRecord, "record key %q is not pinned", header.Kid)
	}
	sig, err := unbase64(signature)
	if err != nil {
		return r, "", refuse(BadRecord, "read record signature: %w", err)
	}
	if !ed25519.Verify(key, []byte(protected+"."+payload), sig) {
		return r, "", refuse(BadRecord, "record signature does not fit key %q", header.Kid)
	}
	if err := decode(payload, &r); err != nil {
		return r, "", refuse(BadRecord, "read record: %w", err)
	}
	switch {
	case r.Deployment != t.deployment:
		return r, "", refuse(BadRecord, "record is of deployment %q", r.Deployment)
	case r.App != t.app:
		return r, "", refuse(BadRecord, "record is for app %q", r.App)
	case r.Release == 0 || r.Release > maxNumber:
		return r, "", refuse(BadRecord, "record has release number %d", r.Release)
	case r.Issued <= 0 || r.Expires <= r.Issued || r.Expires > maxNumber:
		return r, "", refuse(BadRecord, "record is valid from %d to %d", r.Issued, r.Expires)
	}
	return r, header.Kid, nil
}

func decode(part string, into any) error {
	text, err := unbase64(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// unbase64 reads base64url without padding. Go's decoder skips line ends, other languages'
// do not.
func unbase64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, base64.CorruptInputError(strings.IndexAny(s, "\r\n"))
	}
	return base64.RawURLEncoding.Strict().DecodeString(s)
}
