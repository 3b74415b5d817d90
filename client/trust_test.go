package client_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/client"
	"dispatch.example/dispatch/internal/signed"
)

// These walk the whole client; vectors/records.json judges single answers.

// route sets what both hosts say and asks.
func route(c *client.Client, b *bank, body any) client.Route {
	b.set(says(body), wap1, wap2)
	return c.Refresh(background())
}

func TestARecordOfTheServerIsBelieved(t *testing.T) {
	t.Parallel()
	publisher, err := signed.NewKeys(signed.Publisher)
	if err != nil {
		t.Fatal(err)
	}
	records, err := signed.NewKeys(signed.Record)
	if err != nil {
		t.Fatal(err)
	}
	exported, err := signed.Public(publisher, records)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := client.ParseKeys(exported)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "keys", len(keys), 1) // the publisher's signs no records

	now := time.Now().Unix()
	c := claims().with("iat", now).with("exp", now+validity)
	record, err := records.Current().Sign(signed.TypRecord, text(c))
	if err != nil {
		t.Fatal(err)
	}
	b := both(says(answer(c, record)))
	opt := b.options()
	opt.Keys = keys
	got := newClient(t, opt).Route(background())
	equal(t, "source", got.Source, client.Fresh)
	equal(t, "named keys", b.last().Header.Get("X-Record-Keys"), records.Current().ID())
}

func TestPinnedKeysBelieveOnlyTheRecord(t *testing.T) {
	t.Parallel()
	good := signedAt(time.Now(), claims())
	b := both(says(good))
	c := newClient(t, b.options())
	c.Route(background())
	for field, forged := range map[string]any{"domain": "wapcdst.b.com.cn", "region": "hf", "app": "corporate",
		"alternates": []string{"x.a.com.cn"}, "fallback": "x.bank.example", "release": 500} {
		got := route(c, b, good.with(field, forged))
		equal(t, field, got.Domain, "wapabst.a.com.cn")
		equal(t, field, got.Reason, client.Mismatch)
	}
}

func TestLowerReleasesAreRefusedAndEqualOnesAreFine(t *testing.T) {
	t.Parallel()
	release := func(n int) object { return signedAt(time.Now(), claims().with("release", n)) }
	b := both(nil)
	c := newClient(t, b.options())
	equal(t, "412", route(c, b, release(412)).Source, client.Fresh)
	equal(t, "412 again", route(c, b, release(412)).Source, client.Fresh)
	got := route(c, b, release(411)) // a replica that lags behind is ignored
	equal(t, "411", got.Reason, client.Rollback)
	equal(t, "release", got.Release, uint64(412))
	equal(t, "413", route(c, b, release(413)).Source, client.Fresh)
	equal(t, "412 after 413", route(c, b, release(412)).Reason, client.Rollback)
}

// As in CVE-2025-2888: what is refused for any reason must leave the ratchet where it was.
func TestTheRatchetMovesOnlyAfterEveryCheck(t *testing.T) {
	t.Parallel()
	now := time.Now()
	high := claims().with("release", 900).with("domain", "new.a.com.cn")
	valid := signedAt(now, high)
	old := high.with("iat", now.Unix()-validity-1).with("exp", now.Unix()-1)
	for name, bad := range map[string]any{
		"differs from its record": valid.with("region", "hf"),
		"foreign domain":          signedAt(now, high.with("domain", "evil.com")),
		"foreign alternate":       signedAt(now, high.with("alternates", []string{"evil.com"})),
		"foreign fallback":        signedAt(now, high.with("fallback", "evil.com")),
		"expired":                 signedBy("k1", old),
		"no ttl":                  valid.with("ttl", nil),
		"session not sendable":    valid.with("session", "a b"),
		"other app":               signedAt(now, high.with("aud", "corporate")),
		"other deployment":        signedAt(now, high.with("iss", "bank-test")),
		"forged":                  valid.with("record", flip(valid["record"].(string), 2)),
		"cut":                     string(text(valid))[:len(text(valid))-1],
	} {
		t.Run(name, func(t *testing.T) {
			store := &disk{}
			b := both(nil)
			opt := b.options()
			opt.Store = store
			c := newClient(t, opt)
			if got := route(c, b, bad); got.Source != client.BuiltIn {
				t.Fatalf("the bad answer gave %+v", got)
			}
			equal(t, "a lower release afterwards", route(c, b, signedAt(now, claims())).Source, client.Fresh)
			c.Close()
			if strings.Contains(string(store.state), `"release":900`) {
				t.Errorf("release 900 is in the store: %s", store.state)
			}
		})
	}
}

func TestEachKeyHasItsOwnRatchet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	by := func(kid string, release uint64) object {
		return signedBy(kid, claims().with("release", release).with("iat", now.Unix()).with("exp", now.Unix()+validity))
	}
	store := &disk{}
	b := both(nil)
	opt := b.options()
	opt.Store = store
	c := newClient(t, opt)
	// k1 leaked, and its thief signs the highest number there is.
	equal(t, "k1", route(c, b, by("k1", 1<<53-1)).Source, client.Fresh)
	equal(t, "k1 afterwards", route(c, b, by("k1", 413)).Reason, client.Rollback)
	equal(t, "k2", route(c, b, by("k2", 413)).Source, client.Fresh)
	c.Close()

	// The next version of the app pins k2 alone. Nothing of k1 is left, also if k1 comes back.
	delete(opt.Keys, "k1")
	c = newClient(t, opt)
	equal(t, "k2 after the update", route(c, b, by("k2", 414)).Source, client.Fresh)
	equal(t, "k1 after the update", route(c, b, by("k1", 1<<53-1)).Reason, client.BadRecord)
	c.Close()
	if strings.Contains(string(store.state), `"k1"`) {
		t.Errorf("the mark of k1 is still stored: %s", store.state)
	}
}

func TestAnExpiredRecordIsUsedOnlyForAKnownDomain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	expired := func(domain string) object {
		return signedBy("k1", claims().with("domain", domain).with("iat", now.Unix()-validity-60).with("exp", now.Unix()-60))
	}
	b := both(nil)
	c := newClient(t, b.options())
	equal(t, "unknown domain", route(c, b, expired("wapabst.a.com.cn")).Reason, client.Expired)
	got := route(c, b, expired("wap.bank.example"))
	equal(t, "built-in domain", got.Source, client.Fresh)
	equal(t, "its alternates", got.Domains(), []string{"wap.bank.example"})

	equal(t, "valid", route(c, b, signedAt(now, claims())).Source, client.Fresh)
	got = route(c, b, expired("wapabst.a.com.cn"))
	equal(t, "last good domain", got.Source, client.Fresh)
	equal(t, "its alternates", got.Domains(), []string{"wapabst.a.com.cn", "wap.bank.example"})
	equal(t, "another domain", route(c, b, expired("wapcdst.b.com.cn")).Reason, client.Expired)
}

func TestAClockThatLagsBehindIsCorrectedByIssueTimes(t *testing.T) {
	t.Parallel()
	b := both(nil)
	c := newClient(t, b.options())
	c.SetWall(func() time.Time { return time.Unix(0, 0) }) // a device that lost its clock
	equal(t, "issued in the future", route(c, b, signedBy("k1", claims())).Source, client.Fresh)
	stale := claims().with("domain", "stale.a.com.cn").with("iat", epoch-2*validity).with("exp", epoch-validity)
	equal(t, "expired before the highest iat", route(c, b, signedBy("k1", stale)).Reason, client.Expired)
}

func TestWithoutKeysTheSuffixesStillHold(t *testing.T) {
	t.Parallel()
	b := both(nil)
	opt := b.options()
	opt.Keys, opt.AllowUnsigned = nil, true
	c := newClient(t, opt)
	plain := answer(claims(), "")
	equal(t, "plain", route(c, b, plain).Source, client.Fresh)
	equal(t, "foreign", route(c, b, plain.with("domain", "evil.com")).Reason, client.BadDomain)
	equal(t, "other app", route(c, b, plain.with("app", "corporate")).Reason, client.BadAnswer)
}

// The hosts that the server signs are those that the client takes, in their normal form only.
func TestHostVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("vectors/hosts.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Suffixes []string
		Hosts    []struct {
			Host, Normal, Error string
			Allowed             bool
		}
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Hosts) < 60 {
		t.Fatalf("%d hosts, want at least 60", len(v.Hosts))
	}
	opt := options()
	opt.Suffixes = v.Suffixes
	c := newClient(t, opt)
	taken := func(host string) bool {
		body := text(signedBy("k1", claims().with("domain", host)))
		return c.Judge(body, time.Unix(epoch, 0), map[string]client.Mark{}, "").Why == ""
	}
	for _, h := range v.Hosts {
		if h.Error == "host_punycode" || h.Error == "host_hyphen" {
			continue // needs the tables of IDNA; only the server reads A-labels
		}
		if got, want := taken(h.Host), h.Allowed && h.Normal == h.Host; got != want {
			t.Errorf("host %q taken = %v, want %v", h.Host, got, want)
		}
		if h.Normal != "" && taken(h.Normal) != h.Allowed {
			t.Errorf("normal form %q taken = %v, want %v", h.Normal, !h.Allowed, h.Allowed)
		}
	}
}

func TestTheRequestSaysWhoAsks(t *testing.T) {
	t.Parallel()
	b := both(says(signedAt(time.Now(), claims())))
	opt := b.options()
	opt.DeviceID, opt.UserID = " d-1001 ", "用户-张三"
	opt.AppVersion, opt.Platform, opt.Channel, opt.Carrier, opt.Locale = "10.2.0", "ios", "store", "46000", "zh-CN"
	opt.Attrs = map[string]string{"tier": "a b&c"}
	newClient(t, opt).Route(background())
	req := b.last()
	equal(t, "address", req.URL.String(), "https://wap1.bank.example/v1/route?attr.tier=a+b%26c")
	equal(t, "method", req.Method, http.MethodGet)
	for name, want := range map[string]string{"X-App": "mobile", "X-Device-Id": "d-1001", "X-User-Id": "用户-张三",
		"X-App-Version": "10.2.0", "X-Platform": "ios", "X-Channel": "store", "X-Carrier": "46000", "X-Locale": "zh-CN",
		"X-Record-Keys": "k1,k2", "Accept": "application/json", "X-Session-Token": "", "X-Fallback-Reason": ""} {
		equal(t, name, req.Header.Get(name), want)
	}
}

// The server counts such ids as absent; a request that cannot be built would help nobody.
func TestIdsThatCannotBeSentAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "  ", "a\nX-App: corporate", "a\x00b", "a\x7f", strings.Repeat("x", 257)} {
		b := both(says(signedAt(time.Now(), claims())))
		opt := b.options()
		opt.DeviceID = id
		equal(t, "source", newClient(t, opt).Route(background()).Source, client.Fresh)
		_, sent := b.last().Header["X-Device-Id"]
		equal(t, "sent", sent, false)
	}
}
