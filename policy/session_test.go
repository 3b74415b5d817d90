package policy

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/whitelist"
)

var life = SessionLife{TTL: 30 * time.Minute, Max: 12 * time.Hour}

// visit is one request of an app: open the token, decide, seal the next one.
func visit(t *Table, req Request, token string) (Decision, string, time.Duration, Notes) {
	if req.Now.IsZero() {
		req.Now = noon
	}
	var notes Notes
	req.Session, notes = t.OpenSession(token, &req)
	d := t.Decide(&req)
	next, left := t.AppendSession(nil, d, &req, life)
	return d, string(next), left, notes | d.Notes
}

func sessionRules() Rules {
	r := rules(gray(5000))
	r.Otherwise = split("sh", 5000, "hf", 5000)
	return r
}

func sessionTable(tb testing.TB, change func(*Rules)) *Table {
	r := sessionRules()
	if change != nil {
		change(&r)
	}
	return compile(tb, r, Env{Sessions: sessionKeys(tb, "s1")})
}

// e61: an edit of the rules moves no session; new ones follow the edit.
func TestSessionStaysThroughEdits(t *testing.T) {
	t.Parallel()
	before := sessionTable(t, func(r *Rules) { r.Otherwise = toRegion("sh"); r.Policies = nil })
	after := sessionTable(t, func(r *Rules) { r.Otherwise = toRegion("hf"); r.Policies = nil })
	_, token, _, _ := visit(before, Request{Device: "d"}, "")
	for i := range 100 {
		d, next, _, notes := visit(after, Request{Device: "d", Now: noon.Add(time.Duration(i) * time.Minute)}, token)
		if after.regionOf(d) != "sh" || d.Reason != Sticky || notes != 0 {
			t.Fatalf("request %d: %s to %s, %v", i, d.Reason, after.regionOf(d), notes.Strings())
		}
		token = next
	}
	if d, _, _, _ := visit(after, Request{Device: "d"}, ""); after.regionOf(d) != "hf" {
		t.Error("a new session does not follow the edit")
	}
}

// e62: a share set to 0 leaves sessions alone, a raised epoch of the policy ends
// its own and no others.
func TestPolicyEpochVoidsItsTokensAlone(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, nil)
	in, out := deviceIn(t, "mobile/gray", 10), deviceIn(t, "mobile/gray", 9000)
	_, grayToken, _, _ := visit(table, Request{Device: in}, "")
	_, otherToken, _, _ := visit(table, Request{Device: out}, "")
	off := sessionTable(t, func(r *Rules) { r.Policies[0] = gray(0) })
	if d, next, _, _ := visit(off, Request{Device: in}, grayToken); d.Reason != Sticky || off.regionOf(d) != "hf" {
		t.Errorf("a share of 0 moves a session: %s", d.Reason)
	} else {
		grayToken = next
	}
	hard := sessionTable(t, func(r *Rules) { r.Policies[0] = gray(0); r.Epochs = map[string]uint32{"gray": 1} })
	if d, _, _, notes := visit(hard, Request{Device: in}, grayToken); d.Reason != Default || notes != StaleSession {
		t.Errorf("a raised epoch: %s, %v", d.Reason, notes.Strings())
	}
	if d, _, _, _ := visit(hard, Request{Device: out}, otherToken); d.Reason != Sticky {
		t.Errorf("it moved a session of another step: %s", d.Reason)
	}
	gone := sessionTable(t, func(r *Rules) { r.Policies = nil; r.Epochs = map[string]uint32{"gray": 1} })
	if d, _, _, notes := visit(gone, Request{Device: in}, grayToken); d.Reason == Sticky || notes != StaleSession {
		t.Errorf("the epoch of a policy that left the rules: %s, %v", d.Reason, notes.Strings())
	}
	removed := sessionTable(t, func(r *Rules) { r.Policies = nil })
	if d, _, _, _ := visit(removed, Request{Device: in}, grayToken); d.Reason != Sticky {
		t.Errorf("a policy that leaves without an epoch moves a session: %s", d.Reason)
	}
}

func TestRegionDecidesOverItsSessions(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, func(r *Rules) { r.Policies = nil; r.Otherwise = toRegion("sh") })
	_, token, _, _ := visit(table, Request{Device: "d"}, "")
	spare := domain.Endpoint{Key: "spare", Domain: "spare.bank.example"}
	for _, row := range []struct {
		name     string
		change   func(*domain.Region)
		sticky   bool
		endpoint string
		notes    Notes
	}{
		{"nothing changed", func(*domain.Region) {}, true, "sh-main", 0},
		{"draining keeps it", func(r *domain.Region) { r.State = domain.Draining }, true, "sh-main", 0},
		{"off voids it", func(r *domain.Region) { r.State = domain.Off }, false, "", StaleSession},
		{"a raised epoch voids it", func(r *domain.Region) { r.Epoch = 1 }, false, "", StaleSession},
		{"a swapped endpoint", func(r *domain.Region) {
			r.Endpoints[0].State = domain.Standby
			r.Endpoints = append(r.Endpoints, spare)
		}, true, "spare", 0},
		{"an endpoint that is gone", func(r *domain.Region) { r.Endpoints = []domain.Endpoint{spare} }, true, "spare", 0},
		{"draining with nothing that serves", func(r *domain.Region) {
			r.State = domain.Draining
			r.Endpoints[0].State = domain.Closed
		}, false, "", StaleSession},
		{"another key", func(r *domain.Region) { r.Key = "bj" }, false, "", StaleSession},
	} {
		next := sessionTable(t, func(r *Rules) {
			r.Policies, r.Otherwise = nil, toRegion("gz")
			r.Regions[1].Failover = nil
			row.change(&r.Regions[0])
		})
		d, _, _, notes := visit(next, Request{Device: "d"}, token)
		if (d.Reason == Sticky) != row.sticky || notes != row.notes {
			t.Errorf("%s: %s, %v", row.name, d.Reason, notes.Strings())
		}
		if row.sticky && next.Regions()[d.Region].Endpoints[d.Endpoint].Key != row.endpoint {
			t.Errorf("%s: endpoint %d", row.name, d.Endpoint)
		}
	}
}

// e22: a login moves nobody, and a token of one person is no use to another.
func TestTokenMatchesEitherID(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, nil)
	for _, row := range []struct {
		name         string
		first, later Request
		sticky       bool
	}{
		{"the same device", Request{Device: "d"}, Request{Device: "d"}, true},
		{"a login on it", Request{Device: "d"}, Request{Device: "d", User: "u"}, true},
		{"another user on it", Request{Device: "d", User: "u"}, Request{Device: "d", User: "v"}, true},
		{"another device", Request{Device: "d"}, Request{Device: "e", User: "d"}, false},
		{"no device any more", Request{Device: "d", User: "u"}, Request{User: "u"}, false},
		{"the same user", Request{User: "u"}, Request{User: "u", Device: "d"}, true},
		{"another user", Request{User: "u"}, Request{User: "v"}, false},
		{"nobody, who then says who", Request{Addr: addr("10.0.0.1")}, Request{Device: "d"}, true},
	} {
		_, token, _, _ := visit(table, row.first, "")
		d, next, _, notes := visit(table, row.later, token)
		if (d.Reason == Sticky) != row.sticky || (notes&BadSession != 0) == row.sticky {
			t.Errorf("%s: %s, %v", row.name, d.Reason, notes.Strings())
		}
		if row.sticky {
			if d, _, _, _ := visit(table, row.later, next); d.Reason != Sticky {
				t.Errorf("%s: the next token does not hold: %s", row.name, d.Reason)
			}
		}
	}
	// The id that the session is bound to stays the same through a login.
	_, token, _, _ := visit(table, Request{User: "u"}, "")
	_, token, _, _ = visit(table, Request{User: "u", Device: "d"}, token)
	if d, _, _, _ := visit(table, Request{User: "u"}, token); d.Reason != Sticky {
		t.Error("a session of a user is lost when the device is shown once")
	}
}

// e64: the life of a session is renewed by use, up to its maximum.
func TestSessionLife(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, nil)
	_, token, left, _ := visit(table, Request{Device: "d"}, "")
	if left != life.TTL {
		t.Errorf("left = %s, want %s", left, life.TTL)
	}
	for now := noon; ; now = now.Add(20 * time.Minute) {
		d, next, left, notes := visit(table, Request{Device: "d", Now: now}, token)
		if now.Sub(noon) > life.Max+clockSkew {
			if d.Reason == Sticky || notes&BadSession == 0 {
				t.Errorf("after %s: %s", now.Sub(noon), d.Reason)
			}
			break
		}
		if want := min(life.TTL, noon.Add(life.Max).Sub(now)); d.Reason != Sticky || left != want {
			t.Fatalf("after %s: %s, left %s, want %s", now.Sub(noon), d.Reason, left, want)
		}
		token = next
	}
}

func TestClockSkewOfAMinuteIsAllowed(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, nil)
	_, token, _, _ := visit(table, Request{Device: "d"}, "")
	for _, row := range []struct {
		at     time.Duration
		sticky bool
	}{
		{-clockSkew, true}, {-clockSkew - time.Second, false},
		{life.TTL + clockSkew, true}, {life.TTL + clockSkew + time.Second, false},
	} {
		d, _, left, _ := visit(table, Request{Device: "d", Now: noon.Add(row.at)}, token)
		if (d.Reason == Sticky) != row.sticky || left < 0 {
			t.Errorf("%s: %s, left %s", row.at, d.Reason, left)
		}
	}
}

func TestDrainingDoesNotExtend(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, func(r *Rules) { r.Policies, r.Otherwise = nil, toRegion("sh") })
	draining := sessionTable(t, func(r *Rules) {
		r.Policies, r.Otherwise, r.Regions[0].State = nil, toRegion("sh"), domain.Draining
	})
	_, token, _, _ := visit(table, Request{Device: "d"}, "")
	d, token, left, _ := visit(draining, Request{Device: "d", Now: noon.Add(10 * time.Minute)}, token)
	if d.Reason != Sticky || left != 20*time.Minute {
		t.Errorf("%s, left %s, want 20m", d.Reason, left)
	}
	d, _, _, notes := visit(draining, Request{Device: "d", Now: noon.Add(40 * time.Minute)}, token)
	if d.Reason != Failover || draining.regionOf(d) != "hf" || notes&BadSession == 0 {
		t.Errorf("after it ended: %s to %s", d.Reason, draining.regionOf(d))
	}
}

func TestFallbackGetsNoToken(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, func(r *Rules) {
		for i := range r.Regions {
			r.Regions[i].State = domain.Off
		}
	})
	d, token, left, _ := visit(table, Request{Device: "d"}, "")
	if d.Reason != Fallback || token != "" || left != life.TTL {
		t.Errorf("%s, token %q, left %s", d.Reason, token, left)
	}
	keyless := compile(t, sessionRules(), Env{})
	if _, token, left, _ := visit(keyless, Request{Device: "d"}, ""); token != "" || left != life.TTL {
		t.Errorf("without keys: token %q, left %s", token, left)
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	at := func(keys *SessionKeys) *Table { return compile(t, sessionRules(), Env{Sessions: keys}) }
	old, both, next := at(sessionKeys(t, "s1")), at(sessionKeys(t, "s2", "s1")), at(sessionKeys(t, "s2"))
	first, token, _, _ := visit(old, Request{Device: "d"}, "")
	if d, _, _, notes := visit(next, Request{Device: "d"}, token); d.Reason == Sticky || notes&BadSession == 0 {
		t.Error("a token of a key that is gone is honoured")
	}
	d, token, _, _ := visit(both, Request{Device: "d"}, token)
	if d.Reason != Sticky || d.Region != first.Region {
		t.Fatalf("a token of the previous key: %s", d.Reason)
	}
	if d, _, _, _ := visit(next, Request{Device: "d"}, token); d.Reason != Sticky || d.Region != first.Region {
		t.Errorf("it was not sealed again under the current key: %s", d.Reason)
	}
}

// Names are hashes: regions, endpoints and policies may change places.
func TestTokenNamesNoPositions(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, func(r *Rules) { r.Policies, r.Otherwise = nil, toRegion("hf") })
	_, token, _, _ := visit(table, Request{Device: "d"}, "")
	moved := sessionTable(t, func(r *Rules) {
		r.Regions = []domain.Region{r.Regions[2], r.Regions[0], r.Regions[1]}
		r.Regions[2].Endpoints = append([]domain.Endpoint{{Key: "new", Domain: "new.bank.example"}}, r.Regions[2].Endpoints...)
	})
	d, _, _, _ := visit(moved, Request{Device: "d"}, token)
	if moved.regionOf(d) != "hf" || d.Endpoint != 1 {
		t.Errorf("%s, endpoint %d", moved.regionOf(d), d.Endpoint)
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mobile", "hf-main", "default"} {
		if bytes.Contains(raw, []byte(name)) {
			t.Errorf("the token shows %s", name)
		}
	}
}

func TestForgedAndForeignTokensAreAbsent(t *testing.T) {
	t.Parallel()
	table := sessionTable(t, nil)
	_, token, _, _ := visit(table, Request{Device: "d"}, "")
	foreign := compile(t, with(sessionRules(), func(r *Rules) { r.App = "corporate" }), Env{Sessions: sessionKeys(t, "s1")})
	sameID, err := NewSessionKeys(SessionKey{ID: "s1", Secret: []byte("another secret of thirty-two byte")})
	if err != nil {
		t.Fatal(err)
	}
	if d, _, _, notes := visit(foreign, Request{Device: "d"}, token); d.Reason == Sticky || notes&BadSession == 0 {
		t.Error("a token of another app is honoured")
	}
	other := compile(t, sessionRules(), Env{Sessions: sameID})
	if d, _, _, notes := visit(other, Request{Device: "d"}, token); d.Reason == Sticky || notes&BadSession == 0 {
		t.Error("a token of another secret is honoured")
	}
	if len(token) != TokenLen {
		t.Errorf("a token has %d bytes, want %d", len(token), TokenLen)
	}
	for i := range token { // every character but the one it has
		for _, c := range "Aa0_" {
			if rune(token[i]) == c {
				continue
			}
			if s, notes := table.OpenSession(token[:i]+string(c)+token[i+1:], &Request{Now: noon, Device: "d"}); s != (Session{}) || notes != BadSession {
				t.Fatalf("character %d as %c: %+v, %v", i, c, s, notes.Strings())
			}
		}
	}
	for _, text := range []string{"x", token[1:], token + "A", strings.Repeat("A", TokenLen), strings.Repeat("\x00", TokenLen), token[:TokenLen-1] + "="} {
		if s, notes := table.OpenSession(text, &Request{Now: noon, Device: "d"}); s != (Session{}) || notes != BadSession {
			t.Errorf("%q: %+v, %v", text, s, notes.Strings())
		}
	}
	if s, notes := table.OpenSession("", &Request{Now: noon}); s != (Session{}) || notes != 0 {
		t.Errorf("no token: %+v, %v", s, notes.Strings())
	}
}

// The MAC is HMAC-SHA-256 as the standard library computes it, cut to 16 bytes.
func TestMACIsHMAC(t *testing.T) {
	t.Parallel()
	secret := testKey("s1").Secret
	key := &sessionKeys(t, "s1").keys[0]
	derived, err := hkdf.Key(sha256.New, secret, nil, "dispatch session mac", 64)
	if err != nil {
		t.Fatal(err)
	}
	for n := range bodyLen + 1 {
		body := bytes.Repeat([]byte{byte(n)}, n)
		want := hmac.New(sha256.New, derived)
		want.Write(body)
		if got := key.mac(body); !bytes.Equal(got[:], want.Sum(nil)[:16]) {
			t.Fatalf("%d bytes: %x", n, got)
		}
	}
}

func TestSessionKeysAreChecked(t *testing.T) {
	t.Parallel()
	good := testKey("s1")
	for name, keys := range map[string][]SessionKey{
		"no id":             {{Secret: good.Secret}},
		"short":             {{ID: "s1", Secret: good.Secret[:31]}},
		"none":              {{ID: "s1"}},
		"one byte repeated": {{ID: "s1", Secret: make([]byte, 32)}},
		"the same id twice": {good, {ID: "s1", Secret: testKey("s2").Secret}},
		"a short old one":   {good, {ID: "s0", Secret: []byte("old")}},
	} {
		if _, err := NewSessionKeys(keys[0], keys[1:]...); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(fmt.Sprint(err), string(good.Secret)) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
}

func TestSessionsDoNotAllocate(t *testing.T) {
	table := sessionTable(t, nil)
	req := Request{Now: noon, Device: "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"}
	_, token, _, _ := visit(table, req, "")
	dst := make([]byte, 0, TokenLen)
	if n := testing.AllocsPerRun(100, func() {
		req.Session, _ = table.OpenSession(token, &req)
		d := table.Decide(&req)
		table.AppendSession(dst, d, &req, life)
	}); n != 0 {
		t.Errorf("%.0f allocations, want 0", n)
	}
	if req.Session.Region == "" || req.Session.Bound != whitelist.Device {
		t.Errorf("session %+v", req.Session)
	}
}

func FuzzOpenSession(f *testing.F) {
	table := sessionTable(f, nil)
	_, token, _, _ := visit(table, Request{Device: "d"}, "")
	f.Add(token, "d", "")
	f.Add(token, "", "u")
	f.Add(strings.Repeat("A", TokenLen), "d", "")
	f.Add("AQ", "", "")
	f.Fuzz(func(t *testing.T, text, device, user string) {
		req := Request{Now: noon, Device: device, User: user}
		s, notes := table.OpenSession(text, &req)
		if (s.Region != "") && (text != token || device != "d") {
			t.Errorf("%q opens for %q", text, device)
		}
		if text != "" && (s.Region == "") != (notes != 0) {
			t.Errorf("%q: %+v, %v", text, s, notes.Strings())
		}
		req.Session = s
		table.Decide(&req)
	})
}

func BenchmarkSession(b *testing.B) {
	table := sessionTable(b, nil)
	req := Request{Now: noon, Device: "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"}
	d, token, _, _ := visit(table, req, "")
	dst := make([]byte, 0, TokenLen)
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s, _ := table.OpenSession(token, &req); s.Region == "" {
				b.Fatal("no session")
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			table.AppendSession(dst, d, &req, life)
		}
	})
}
