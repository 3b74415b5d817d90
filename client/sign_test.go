package client_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"dispatch.example/dispatch/client"
)

// object is a JSON object that a test builds, changes and breaks.
type object map[string]any

// with returns a copy with one member changed; nil removes it.
func (o object) with(name string, value any) object {
	c := maps.Clone(o)
	if c[name] = value; value == nil {
		delete(c, name)
	}
	return c
}

// key derives a signing key that is the same in every run.
func key(kid string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("dispatch client vectors, key " + kid))
	return ed25519.NewKeyFromSeed(seed[:])
}

func publicKey(kid string) ed25519.PublicKey { return key(kid).Public().(ed25519.PublicKey) }

// epoch is when the bank of these tests signs: 2026-09-01T00:00:00Z.
const epoch = 1_788_220_800

// validity is how long a record lives, in seconds: 7 days.
const validity = 7 * 24 * 3600

// header is what a record's header says when all is well.
func header(kid string) object {
	return object{"alg": "EdDSA", "kid": kid, "typ": "dispatch-record"}
}

// claims are those of the endpoint that most tests are sent to.
func claims() object {
	return object{"iss": "bank", "aud": "mobile", "region": "sh", "endpoint": "sh-main",
		"domain": "wapabst.a.com.cn", "alternates": []string{"wapcdst.b.com.cn"},
		"fallback": "wap.bank.example", "release": 412, "iat": epoch, "exp": epoch + validity}
}

// compact signs whatever header and payload it is given, also what no signer would.
func compact(head, payload any, with ed25519.PrivateKey) string {
	input := encode(text(head)) + "." + encode(text(payload))
	return input + "." + encode(ed25519.Sign(with, []byte(input)))
}

// answer is the body a replica serves for these claims.
func answer(c object, record string) object {
	return object{"app": c["aud"], "region": c["region"], "domain": c["domain"], "alternates": c["alternates"],
		"fallback": c["fallback"], "release": c["release"], "record": record, "ttl": 1200, "session": "c2Vzc2lvbg"}
}

// signedBy is the answer with its record under kid.
func signedBy(kid string, c object) object { return answer(c, compact(header(kid), c, key(kid))) }

// signedAt is the answer with a record that was signed just before now.
func signedAt(now time.Time, c object) object {
	return signedBy("k1", c.with("iat", now.Unix()).with("exp", now.Unix()+validity))
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func text(v any) []byte {
	if raw, ok := v.(string); ok {
		return []byte(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func keySet(kids ...string) string {
	var keys []string
	for _, kid := range kids {
		keys = append(keys, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":%q,"x":%q}`, kid, encode(publicKey(kid))))
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
}

// options are those of a bank's mobile app, without a network.
func options() client.Options {
	return client.Options{
		App: "mobile", Deployment: "bank",
		Bootstrap: []string{"https://wap1.bank.example", "https://wap2.bank.example"},
		Keys:      map[string]ed25519.PublicKey{"k1": publicKey("k1"), "k2": publicKey("k2")},
		Suffixes:  []string{"bank.example", "a.com.cn", "b.com.cn"},
		BuiltIn:   "wap.bank.example",
		DeviceID:  "d-1001",
	}
}
