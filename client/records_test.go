package client_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"

	"dispatch.example/dispatch/client"
)

// The rows of vectors/records.json. Each breaks or bends one thing.

const day = 24 * 3600

func acceptedRows() []row {
	c := claims()
	all := []string{"wapabst.a.com.cn", "wapcdst.b.com.cn", "wap.bank.example"}
	k1 := map[string]client.Mark{"k1": at(412, epoch)}
	ok := func(name string, answer any) row {
		return row{name: name, answer: answer, want: want{Domains: all, Marks: k1}}
	}
	second := ok("signed by the second pinned key", signedBy("k2", c))
	second.want.Marks = map[string]client.Mark{"k2": at(412, epoch)}

	fallback := ok("the app's fallback names no region",
		signedBy("k1", c.with("region", "").with("endpoint", "").with("domain", "wap.bank.example").with("alternates", []string{})))
	fallback.want.Domains = []string{"wap.bank.example"}

	bare := c.with("alternates", []string{})
	absent := ok("absent alternates equal none", signedBy("k1", bare).with("alternates", nil))
	absent.want.Domains = []string{"wapabst.a.com.cn", "wap.bank.example"}

	suffix := ok("the domain is a suffix itself", signedBy("k1", c.with("domain", "a.com.cn").with("alternates", []string{})))
	suffix.want.Domains = []string{"a.com.cn", "wap.bank.example"}

	ordered := ok("alternates keep their order (e67)",
		signedBy("k1", c.with("alternates", []string{"x3.b.com.cn", "x1.b.com.cn", "x2.a.com.cn"})))
	ordered.want.Domains = []string{"wapabst.a.com.cn", "x3.b.com.cn", "x1.b.com.cn", "x2.a.com.cn", "wap.bank.example"}

	repeated := ok("a domain named twice is tried once (e67)",
		signedBy("k1", c.with("alternates", []string{"wapcdst.b.com.cn", "wapabst.a.com.cn", "wapcdst.b.com.cn"})))

	highest := ok("the highest release number", signedBy("k1", c.with("release", uint64(1<<53-1))))
	highest.want.Marks = map[string]client.Mark{"k1": at(1<<53-1, epoch)}

	grown := c.with("weather", "fine")
	return []row{
		ok("a plain answer", signedBy("k1", c)), second, fallback, absent, suffix, ordered, repeated, highest,
		ok("fields that the client does not know", signedBy("k1", grown).with("hint", object{"a": 1})),
		ok("header members that the client does not know",
			answer(c, compact(header("k1").with("cty", "json").with("x5u", "https://evil.example"), c, key("k1")))),
		ok("no time left for the session", signedBy("k1", c).with("ttl", 0)),
		ok("no session token", signedBy("k1", c).with("session", nil)),
	}
}

func headerRows() []row {
	c := claims()
	with := func(name string, head object) row {
		return refused(client.BadRecord, name, answer(c, compact(head, c, key("k1"))))
	}
	h := header("k1")
	thief := key("thief")
	hs := encode(text(h.with("alg", "HS256"))) + "." + encode(text(c))
	mac := hmac.New(sha256.New, publicKey("k1"))
	mac.Write([]byte(hs))
	none := encode(text(h.with("alg", "none"))) + "." + encode(text(c)) + "."
	return []row{
		refused(client.BadRecord, "alg none without signature", answer(c, none)),
		with("alg none with a valid signature", h.with("alg", "none")),
		refused(client.BadRecord, "alg HS256 with the public key as secret", answer(c, hs+"."+encode(mac.Sum(nil)))),
		with("alg in lower case", h.with("alg", "eddsa")),
		with("alg Ed25519", h.with("alg", "Ed25519")),
		with("alg ES256", h.with("alg", "ES256")),
		with("alg missing", h.with("alg", nil)),
		with("typ of a manifest", h.with("typ", "dispatch-manifest")),
		with("typ JWT", h.with("typ", "JWT")),
		with("typ missing", h.with("typ", nil)),
		with("kid that is not pinned", h.with("kid", "k9")),
		with("kid missing", h.with("kid", nil)),
		with("kid of the other key", h.with("kid", "k2")),
		with("critical header", h.with("crit", []string{"exp"}).with("exp", 1)),
		with("unencoded payload", h.with("crit", []string{"b64"}).with("b64", false)),
		refused(client.BadRecord, "a key brought along", answer(c, compact(h.with("kid", "thief").with("jwk",
			object{"kty": "OKP", "crv": "Ed25519", "x": encode(publicKey("thief"))}), c, thief))),
		refused(client.BadRecord, "a pinned kid and another key's signature", answer(c, compact(h, c, thief))),
		refused(client.BadRecord, "header is no object", answer(c, compact("[]", c, key("k1")))),
	}
}

func signatureRows() []row {
	c := claims()
	record := compact(header("k1"), c, key("k1"))
	bad := func(name, record string) row { return refused(client.BadRecord, name, answer(c, record)) }
	head, rest, _ := strings.Cut(record, ".")
	payload, sig, _ := strings.Cut(rest, ".")
	raw := strings.TrimRight(sig, "=")
	return []row{
		bad("no record", ""),
		bad("header changed", flip(record, 0)),
		bad("payload changed", flip(record, 1)),
		bad("signature changed", flip(record, 2)),
		bad("signature missing", head+"."+payload+"."),
		bad("signature cut", head+"."+payload+"."+raw[:len(raw)-4]),
		bad("signature padded", record+"=="),
		bad("two parts", head+"."+payload),
		bad("four parts", record+"."+sig),
		bad("space around", " "+record),
		bad("line feed in the signature", head+"."+payload+"."+sig[:40]+"\n"+sig[40:]),
		bad("JSON serialisation", string(text(object{"protected": head, "payload": payload, "signature": sig}))),
	}
}

func claimRows() []row {
	c := claims()
	bad := func(name string, c object) row {
		a := signedBy("k1", c)
		a["app"], a["release"] = "mobile", 412 // the answer around it looks right
		return refused(client.BadRecord, name, a)
	}
	return []row{
		bad("another deployment", c.with("iss", "bank-test")),
		bad("no deployment", c.with("iss", nil)),
		bad("another app", c.with("aud", "corporate")),
		bad("several apps", c.with("aud", []string{"mobile", "corporate"})),
		bad("release 0", c.with("release", 0)),
		bad("release above 2^53-1", c.with("release", uint64(1<<53))),
		bad("negative release", c.with("release", -1)),
		bad("release as text", c.with("release", "412")),
		bad("release with a fraction", c.with("release", 412.5)),
		bad("no exp", c.with("exp", nil)),
		bad("no iat", c.with("iat", nil)),
		bad("over before it begins", c.with("exp", epoch-1)),
		refused(client.BadRecord, "payload is no JSON", answer(c, compact(header("k1"), "not json", key("k1")))),
	}
}

func domainRows() []row {
	c := claims()
	var rows []row
	for name, domain := range pairs(
		"no domain", "",
		"look-alike of a suffix", "evilbank.example",
		"suffix in the middle", "bank.example.evil.com",
		"foreign domain", "evil.com",
		"trailing dot", "wapabst.a.com.cn.",
		"upper case", "WAPABST.a.com.cn",
		"port", "wapabst.a.com.cn:8443",
		"user", "x@wapabst.a.com.cn",
		"path", "evil.com/.a.com.cn",
		"address of a URL", "https://wapabst.a.com.cn",
		"IP address", "192.0.2.1",
		"IPv6 address", "[::1]",
		"empty label", "wapabst..a.com.cn",
		"leading dot", ".a.com.cn",
		"leading hyphen", "-x.a.com.cn",
		"Cyrillic letter", "wаpabst.a.com.cn",
		"full-width dot", "wapabst。a.com.cn",
		"space", "wapabst.a.com.cn ",
		"underscore", "wap_abst.a.com.cn",
		"label of 64 bytes", strings.Repeat("a", 64)+".a.com.cn",
		"254 bytes", strings.Repeat("a.", 123)+"a.com.cn",
	) {
		rows = append(rows, refused(client.BadDomain, "domain: "+name, signedBy("k1", c.with("domain", domain))))
	}
	return append(rows,
		refused(client.BadDomain, "alternate outside the suffixes",
			signedBy("k1", c.with("alternates", []string{"wapcdst.b.com.cn", "evil.com"}))),
		refused(client.BadDomain, "empty alternate", signedBy("k1", c.with("alternates", []string{""}))),
		refused(client.BadDomain, "fallback outside the suffixes", signedBy("k1", c.with("fallback", "evil.com"))),
	)
}

// pairs yields its arguments two by two, in order.
func pairs(all ...string) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for i := 0; i < len(all); i += 2 {
			if !yield(all[i], all[i+1]) {
				return
			}
		}
	}
}

func timeRows() []row {
	c := claims()
	all := []string{"wapabst.a.com.cn", "wapcdst.b.com.cn", "wap.bank.example"}
	known := []string{"wapabst.a.com.cn", "wap.bank.example"} // an expired record's alternates are not tried
	marks := func(kid string, m client.Mark) map[string]client.Mark { return map[string]client.Mark{kid: m} }
	over := signedBy("k1", c)
	return []row{
		{name: "equal release", answer: over, marks: marks("k1", at(412, epoch)),
			want: want{Domains: all, Marks: marks("k1", at(412, epoch))}},
		{name: "higher release moves the mark", answer: over, marks: marks("k1", at(411, epoch-day)),
			want: want{Domains: all, Marks: marks("k1", at(412, epoch))}},
		{name: "lower release", answer: over, marks: marks("k1", at(413, epoch)), want: want{Refused: client.Rollback}},
		{name: "lower release of the last good domain", answer: over, marks: marks("k1", at(413, epoch)),
			lastGood: "wapabst.a.com.cn", want: want{Refused: client.Rollback}},
		{name: "one ratchet per key: the other key is far ahead", answer: over, marks: marks("k2", at(1<<53-1, epoch)),
			want: want{Domains: all, Marks: map[string]client.Mark{"k1": at(412, epoch), "k2": at(1<<53-1, epoch)}}},
		{name: "an older renewal of the same release", answer: over, marks: marks("k1", at(412, epoch+day)),
			want: want{Domains: all, Marks: marks("k1", at(412, epoch+day))}},
		{name: "issued in the future", answer: over, later: -30 * day,
			want: want{Domains: all, Marks: marks("k1", at(412, epoch))}},
		{name: "last second", answer: over, later: validity - 61,
			want: want{Domains: all, Marks: marks("k1", at(412, epoch))}},
		{name: "expired", answer: over, later: validity - 60, want: want{Refused: client.Expired}},
		{name: "expired by the highest iat of another key, with the clock behind", answer: over, later: -day,
			marks: marks("k2", at(500, epoch+validity)), want: want{Refused: client.Expired}},
		{name: "expired, but its domain is the last good one", answer: over, later: 30 * day, lastGood: "wapabst.a.com.cn",
			want: want{Domains: known}},
		{name: "expired, but its domain is the built-in one", later: 30 * day, lastGood: "wapcdst.b.com.cn",
			answer: signedBy("k1", c.with("domain", "wap.bank.example")), want: want{Domains: []string{"wap.bank.example"}}},
		{name: "expired, and only an alternate is the last good one", answer: over, later: 30 * day,
			lastGood: "wapcdst.b.com.cn", want: want{Refused: client.Expired}},
	}
}

func mismatchRows() []row {
	a := signedBy("k1", claims())
	differs := func(name string, a object) row { return refused(client.Mismatch, "answer differs: "+name, a) }
	return []row{
		differs("domain", a.with("domain", "wapcdst.b.com.cn")),
		differs("domain outside the suffixes", a.with("domain", "evil.com")),
		differs("no domain", a.with("domain", nil)),
		differs("region", a.with("region", "hf")),
		differs("no region", a.with("region", nil)),
		differs("one alternate more", a.with("alternates", []string{"wapcdst.b.com.cn", "x.a.com.cn"})),
		differs("no alternates", a.with("alternates", nil)),
		differs("fallback", a.with("fallback", "wap2.bank.example")),
		differs("release", a.with("release", 413)),
		differs("no release", a.with("release", nil)),
		differs("app", a.with("app", "corporate")),
	}
}

func bodyRows() []row {
	a := signedBy("k1", claims())
	whole := string(text(a))
	var rows []row
	for name, body := range pairs(
		"empty", "",
		"blank", " \n",
		"null", "null",
		"a list", "[]",
		"a text", `"wapabst.a.com.cn"`,
		"HTML", "<!doctype html><title>Sign in</title>",
		"cut in the middle", whole[:len(whole)/2],
		"two answers", whole+whole,
		"empty object", "{}",
	) {
		rows = append(rows, refused(client.BadAnswer, "body: "+name, body))
	}
	return append(rows,
		refused(client.BadAnswer, "no ttl", a.with("ttl", nil)),
		refused(client.BadAnswer, "negative ttl", a.with("ttl", -1)),
		refused(client.BadAnswer, "ttl as text", a.with("ttl", "1200")),
		refused(client.BadAnswer, "session token with a line feed", a.with("session", "abc\r\nX-User-Id: admin")),
		refused(client.BadAnswer, "session token of 1,000 bytes", a.with("session", strings.Repeat("a", 1000))),
	)
}
