package signed

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

func mustKeys(tb testing.TB, p Purpose) Keys {
	tb.Helper()
	keys, err := NewKeys(p)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

func mustSign(tb testing.TB, k Key, typ, payload string) string {
	tb.Helper()
	jws, err := k.Sign(typ, []byte(payload))
	if err != nil {
		tb.Fatal(err)
	}
	return jws
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// jwsOf signs with any header, as an attacker who owns key would.
func jwsOf(header, payload string, key ed25519.PrivateKey) string {
	head := b64(header) + "." + b64(payload)
	return head + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(head)))
}

func header(tb testing.TB, fields map[string]any) string {
	tb.Helper()
	h, err := json.Marshal(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return string(h)
}

func TestVerifyReturnsWhatWasSigned(t *testing.T) {
	t.Parallel()
	publisher, record := mustKeys(t, Publisher), mustKeys(t, Record)
	trust := TrustOf(publisher, record, mustKeys(t, Session))

	payload, kid, err := trust.Verify(TypRecord, mustSign(t, record.Current(), TypRecord, `{"domain":"a"}`))
	if err != nil || string(payload) != `{"domain":"a"}` || kid != record.Current().ID() {
		t.Errorf("compact: %q, %q, %v", payload, kid, err)
	}
	for _, manifest := range []string{`{"number":1}`, "", "\x00\xff not JSON\n"} {
		sig, err := publisher.Current().SignDetached(TypManifest, []byte(manifest))
		if err != nil {
			t.Fatal(err)
		}
		if kid, err := trust.VerifyDetached(TypManifest, sig, []byte(manifest)); err != nil || kid != publisher.Current().ID() {
			t.Errorf("detached over %q: %q, %v", manifest, kid, err)
		}
	}
}

func TestRotatedKeysBothVerify(t *testing.T) {
	t.Parallel()
	old := mustKeys(t, Record)
	rotated, err := old.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	again, err := rotated.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	jws := mustSign(t, old.Current(), TypRecord, "x")
	if _, _, err := TrustOf(rotated).Verify(TypRecord, jws); err != nil {
		t.Errorf("signature of the previous key: %v", err)
	}
	if _, _, err := TrustOf(again).Verify(TypRecord, jws); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("signature of the key before the previous one: got %v, want %v", err, ErrUnknownKey)
	}
	if rotated.Current().ID() == old.Current().ID() || rotated.IDs()[1] != old.Current().ID() {
		t.Errorf("rotated to %v from %v", rotated.IDs(), old.IDs())
	}
}

// SEC1 of safety.md: only EdDSA by a known key of the right purpose counts.
func TestVerifyRefusesAttacks(t *testing.T) {
	t.Parallel()
	keys, publisher, stranger := mustKeys(t, Record), mustKeys(t, Publisher), mustKeys(t, Record)
	key := keys.Current()
	public := key.private.Public().(ed25519.PublicKey)
	trust := TrustOf(keys, publisher)
	const payload = `{"domain":"wapabst.a.com.cn"}`
	good := mustSign(t, key, TypRecord, payload)
	parts := strings.Split(good, ".")
	fields := func(change func(map[string]any)) string {
		h := map[string]any{"alg": "EdDSA", "kid": key.ID(), "typ": TypRecord}
		change(h)
		return jwsOf(header(t, h), payload, key.private)
	}
	hmac := func(secret []byte) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: key.ID()}},
			new(jose.SignerOptions).WithType(TypRecord))
		if err != nil {
			t.Fatal(err)
		}
		jws, err := signer.Sign([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		out, err := jws.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if _, _, err := trust.Verify(TypRecord, fields(func(map[string]any) {})); err != nil {
		t.Fatalf("the forger's own tool must make a good signature when nothing is changed: %v", err)
	}

	for _, c := range []struct {
		name, jws string
		want      error
	}{
		{"alg none, no signature", b64(header(t, map[string]any{"alg": "none", "kid": key.ID(), "typ": TypRecord})) + "." + parts[1] + ".", ErrAlgorithm},
		{"alg none, signed", fields(func(h map[string]any) { h["alg"] = "none" }), ErrAlgorithm},
		{"alg absent", fields(func(h map[string]any) { delete(h, "alg") }), ErrAlgorithm},
		{"alg in lower case", fields(func(h map[string]any) { h["alg"] = "eddsa" }), ErrAlgorithm},
		{"HS256 keyed with the public key", hmac(public), ErrAlgorithm},
		{"ES256 named", fields(func(h map[string]any) { h["alg"] = "ES256" }), ErrAlgorithm},
		{"typ of a manifest", fields(func(h map[string]any) { h["typ"] = TypManifest }), ErrType},
		{"typ of a record set", fields(func(h map[string]any) { h["typ"] = TypRecords }), ErrType},
		{"typ in upper case", fields(func(h map[string]any) { h["typ"] = strings.ToUpper(TypRecord) }), ErrType},
		{"typ absent", fields(func(h map[string]any) { delete(h, "typ") }), ErrType},
		{"typ a number", fields(func(h map[string]any) { h["typ"] = 1 }), ErrType},
		{"kid of a stranger", mustSign(t, stranger.Current(), TypRecord, payload), ErrUnknownKey},
		{"kid absent", fields(func(h map[string]any) { delete(h, "kid") }), ErrUnknownKey},
		{"kid a path", fields(func(h map[string]any) { h["kid"] = "../../etc/passwd" }), ErrUnknownKey},
		{"publisher key on a record", jwsOf(header(t, map[string]any{"alg": "EdDSA", "kid": publisher.Current().ID(), "typ": TypRecord}),
			payload, publisher.Current().private), ErrUnknownKey},
		{"stranger under a known kid", jwsOf(header(t, map[string]any{"alg": "EdDSA", "kid": key.ID(), "typ": TypRecord}),
			payload, stranger.Current().private), ErrBadSignature},
		{"key embedded in the header", fields(func(h map[string]any) {
			jwk := stranger.Current().jwk()
			h["jwk"] = jwk.Public()
		}), ErrMalformed},
		{"jku in the header", fields(func(h map[string]any) { h["jku"] = "https://evil.example/keys" }), ErrMalformed},
		{"crit", fields(func(h map[string]any) { h["crit"] = []string{"exp"}; h["exp"] = 1 }), ErrMalformed},
		{"unencoded payload", fields(func(h map[string]any) { h["b64"] = false; h["crit"] = []string{"b64"} }), ErrMalformed},
		{"payload of another", parts[0] + "." + b64(`{"domain":"evil.example"}`) + "." + parts[2], ErrBadSignature},
		{"signature cut", good[:len(good)-2], ErrBadSignature},
		{"signature cut inside a byte", good[:len(good)-4], ErrMalformed},
		{"signature empty", parts[0] + "." + parts[1] + ".", ErrBadSignature},
		{"signature of zeros", parts[0] + "." + parts[1] + "." + strings.Repeat("A", 86), ErrBadSignature},
		{"payload cut away", parts[0] + ".." + parts[2], ErrMalformed},
		{"two segments", parts[0] + "." + parts[1], ErrMalformed},
		{"four segments", good + ".AAAA", ErrMalformed},
		{"five segments", good + "..", ErrMalformed},
		{"empty", "", ErrMalformed},
		{"dots", "..", ErrMalformed},
		{"white space", " " + good, ErrMalformed},
		{"line break inside", parts[0] + "." + parts[1] + "\n." + parts[2], ErrMalformed},
		{"padding", parts[0] + "." + parts[1] + "." + parts[2] + "==", ErrMalformed},
		{"slack bits", good[:len(good)-1] + slack(good[len(good)-1]), ErrMalformed},
		{"JSON serialization", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			payload, kid, err := trust.Verify(TypRecord, c.jws)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if payload != nil || kid != "" {
				t.Errorf("gave %q by %q although it failed", payload, kid)
			}
		})
	}
}

// slack sets an unused low bit of the last base64 character of 64 bytes.
func slack(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)|1])
}

func TestVerifyDetachedRefusesAttacks(t *testing.T) {
	t.Parallel()
	publisher, record := mustKeys(t, Publisher), mustKeys(t, Record)
	trust := TrustOf(publisher, record)
	payload := []byte(`{"number":412}`)
	sig, err := publisher.Current().SignDetached(TypManifest, payload)
	if err != nil {
		t.Fatal(err)
	}
	attached := mustSign(t, publisher.Current(), TypManifest, string(payload))
	for _, c := range []struct {
		name, typ, sig string
		payload        []byte
		want           error
	}{
		{"other bytes", TypManifest, sig, []byte(`{"number":413}`), ErrBadSignature},
		{"one byte more", TypManifest, sig, append([]byte(" "), payload...), ErrBadSignature},
		{"no bytes", TypManifest, sig, nil, ErrBadSignature},
		{"read as records", TypRecords, sig, payload, ErrType},
		{"payload attached", TypManifest, attached, payload, ErrMalformed},
		{"payload attached, none given", TypManifest, attached, nil, ErrMalformed},
		{"white space", TypManifest, sig + "\n", payload, ErrMalformed},
		{"record key on a manifest", TypManifest, jwsDetached(t, record.Current(), payload), payload, ErrUnknownKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if kid, err := trust.VerifyDetached(c.typ, c.sig, c.payload); !errors.Is(err, c.want) || kid != "" {
				t.Errorf("got %q, %v, want %v", kid, err, c.want)
			}
		})
	}
	if _, err := new(Trust).VerifyDetached(TypManifest, sig, payload); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("nobody trusted: %v", err)
	}
	if _, err := (*Trust)(nil).VerifyDetached(TypManifest, sig, payload); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("no trust: %v", err)
	}
}

func jwsDetached(tb testing.TB, k Key, payload []byte) string {
	tb.Helper()
	jws := jwsOf(header(tb, map[string]any{"alg": "EdDSA", "kid": k.id, "typ": TypManifest}), string(payload), k.private)
	parts := strings.Split(jws, ".")
	return parts[0] + ".." + parts[2]
}

func TestSignNeedsTheRightPurpose(t *testing.T) {
	t.Parallel()
	for _, p := range Purposes() {
		key := mustKeys(t, p).Current()
		for _, typ := range []string{TypManifest, TypRecords, TypRecord, TypOverride, "JWT", ""} {
			want, known := signerOf(typ)
			_, err := key.Sign(typ, []byte("x"))
			_, detached := key.SignDetached(typ, []byte("x"))
			if ok := known && want == p; (err == nil) != ok || (detached == nil) != ok {
				t.Errorf("%s key signing %q: %v, %v", p, typ, err, detached)
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	keys := mustKeys(f, Record)
	trust := TrustOf(keys)
	good := mustSign(f, keys.Current(), TypRecord, `{"domain":"a"}`)
	f.Add(good)
	f.Add(good + ".")
	f.Add("eyJhbGciOiJub25lIn0..")
	f.Add("..")
	f.Add(b64(`{"alg":"EdDSA","typ":"dispatch-record","kid":null,"jwk":{}}`) + ".e30.AAAA")
	f.Fuzz(func(t *testing.T, jws string) {
		payload, _, err := trust.Verify(TypRecord, jws)
		if err == nil && string(payload) != `{"domain":"a"}` {
			t.Errorf("%q: believed %q", jws, payload)
		}
		if err == nil && jws != good {
			t.Errorf("a second spelling of one signature: %q", jws)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	keys := mustKeys(b, Record)
	trust := TrustOf(keys)
	jws := mustSign(b, keys.Current(), TypRecord, strings.Repeat("x", 300))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := trust.Verify(TypRecord, jws); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	key := mustKeys(b, Record).Current()
	payload := []byte(strings.Repeat("x", 300))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := key.Sign(TypRecord, payload); err != nil {
			b.Fatal(err)
		}
	}
}
