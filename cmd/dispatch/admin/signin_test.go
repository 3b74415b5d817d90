package admin_test

import (
	"encoding/base32"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

// guess is one attempt past the API, from an address of the test's choice.
func (c *control) guess(login, password, from string) error {
	_, err := c.do.SignIn(c.t.Context(), actions.Credentials{Login: login, Password: password, From: netip.MustParseAddr(from)})
	return err
}

// account makes a local account without signing in.
func (c *control) account(a ledger.Account) {
	c.t.Helper()
	a.Password = "cheap:" + password
	must(c.t, c.store.SaveAccount(c.t.Context(), a, ledger.Change{By: "test", Reason: "test"}))
}

// me is who a session belongs to, or the code of the refusal.
func (c *control) me(cookie string) (name, code string) {
	c.t.Helper()
	r := c.call(request{method: http.MethodGet, path: "/me", headers: []string{"Cookie", cookie}})
	var got struct{ Name, Code string }
	r.into(&got)
	return got.Name, got.Code
}

// dead fails if a session still opens something.
func (c *control) dead(what, cookie string) {
	c.t.Helper()
	if name, code := c.me(cookie); name != "" || code != "session_ended" && code != "no_token" {
		c.t.Errorf("%s: the session is %q, %q", what, name, code)
	}
}

// ahead moves the clock of the store, the actions and the sessions.
func (c *control) ahead(d time.Duration) { c.clock.ahead.Add(int64(d)) }

func TestSEC08GuessesAreThrottled(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}})
	const guesses = 10_000
	for i := range guesses { // one a second, each from elsewhere
		c.ahead(time.Second)
		if err := c.guess("li.wei", fmt.Sprint("guess ", i), fmt.Sprintf("10.0.%d.%d", i/200, i%200)); err == nil {
			t.Fatal("a guess was right")
		}
	}
	// At least a minute lies between two, after a handful.
	if n := c.passwords.compared.Load(); n < 100 || n > guesses/60+20 {
		t.Errorf("%d of %d guesses were compared with the password", n, guesses)
	}
	early := c.guess("li.wei", password, "198.51.100.7")
	if fault.CodeOf(early) != "too_many_tries" || !strings.Contains(early.Error(), "wait ") {
		t.Errorf("too early even the right password is %v", early)
	}
	c.ahead(time.Minute)
	if err := c.guess("li.wei", password, "198.51.100.7"); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	if err := c.guess("li.wei", "mistyped", "198.51.100.7"); fault.CodeOf(err) != "bad_credentials" {
		t.Errorf("whoever has signed in starts anew, got %v", err)
	}

	c.passwords.compared.Store(0)
	for i := range guesses { // one address, every login; one IPv6 customer is one address
		c.ahead(time.Second)
		_ = c.guess(fmt.Sprint("login-", i), "password", fmt.Sprintf("2001:db8::%x", i))
	}
	if n := c.passwords.compared.Load(); n < 20 || n > 60 {
		t.Errorf("%d of %d guesses from one network were compared", n, guesses)
	}
}

// Many at once all count before any of them has failed.
func TestSEC08GuessesAtOnceAreCounted(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}})
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() { _ = c.guess("li.wei", "guess", fmt.Sprintf("203.0.113.%d", i)) })
	}
	all.Wait()
	if n := c.passwords.compared.Load(); n == 0 || n > 10 {
		t.Errorf("%d of 200 guesses at once were compared", n)
	}
}

func TestSEC08KnownAndUnknownAreAlike(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}})
	c.account(ledger.Account{Login: "gone", Roles: []string{actions.OnCall}, Disabled: true})
	c.account(ledger.Account{Login: "glass", Roles: []string{actions.OnCall}, BreakGlass: true})
	c.account(ledger.Account{Login: "factor", Roles: []string{actions.OnCall}, Secret: []byte("12345678901234567890")})
	c.login("nobody", "wrong", "") // makes the hash of nobody
	var first *reply
	for _, login := range []string{"li.wei", "nobody", "gone", "glass", "factor", "LI.WEI ", "not a login\x00"} {
		before := c.passwords.compared.Load()
		r := c.login(login, "wrong", "")
		r.refused(http.StatusUnauthorized, "bad_credentials")
		if n := c.passwords.compared.Load() - before; n != 1 {
			t.Errorf("%s costs %d comparisons, want 1", login, n)
		}
		if first == nil {
			first = r
		}
		if string(r.body) != string(first.body) || len(r.header) != len(first.header) {
			t.Errorf("%s answers %s %v, another %s %v", login, r.body, r.header, first.body, first.header)
		}
	}
	c.login("factor", password, "").refused(http.StatusUnauthorized, "bad_credentials") // says not that the password was right
	if c.passwords.made.Load() != 1 {
		t.Errorf("%d hashes were made", c.passwords.made.Load())
	}

	// The same with the real hash, by the clock: of the fastest of as many as it takes
	// other tests to leave both a quiet moment.
	c.do.Passwords = actions.Argon2id()
	hash, err := c.do.Passwords.Hash(t.Context(), password)
	must(t, err)
	must(t, c.store.SaveAccount(t.Context(), ledger.Account{Login: "real", Roles: []string{actions.Viewer}, Password: hash}, ledger.Change{By: "test"}))
	other := empty(t, "sqlite", nil) // whose hash of nobody is real, too
	other.do.Passwords = c.do.Passwords
	fastest := map[string]time.Duration{"real": time.Hour, "unreal": time.Hour}
	must(t, other.store.SaveAccount(t.Context(), ledger.Account{Login: "real", Roles: []string{actions.Viewer}, Password: hash}, ledger.Change{By: "test"}))
	_ = other.guess("warm-up", "wrong", "192.0.2.9")
	alike := func() bool {
		return max(fastest["real"], fastest["unreal"]) <= 2*min(fastest["real"], fastest["unreal"])
	}
	for i := 0; i < 3 || !alike() && i < 20; i++ {
		for login := range fastest {
			start := time.Now()
			_ = other.guess(login, "wrong", fmt.Sprintf("192.0.2.%d", 10+i))
			fastest[login] = min(fastest[login], time.Since(start))
		}
	}
	if !alike() {
		t.Errorf("a known login takes %s, an unknown one %s", fastest["real"], fastest["unreal"])
	}
}

func TestSEC08BreakGlassIsNotKeptShutByOutsiders(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	c.account(ledger.Account{Login: "glass", Roles: []string{actions.BreakGlass}, BreakGlass: true, Armed: time.Now().Add(time.Hour)})
	for i := range 2000 {
		_ = c.guess("glass", "guess", fmt.Sprintf("203.0.%d.%d", i/200, i%200))
	}
	if err := c.guess("glass", password, "198.51.100.7"); err != nil {
		t.Errorf("its owner hears %v", err)
	}
}

// Failures are counted in one row, without what was typed.
func TestSEC08FailuresAreWrittenDownOnce(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}})
		rows := c.rows()
		for i := range 5 {
			_ = c.guess("li.wei", "typed-secret-1", fmt.Sprintf("203.0.113.%d", i))
			_ = c.guess(fmt.Sprint("typed-secret-2", i), "x", fmt.Sprintf("203.0.113.%d", 100+i))
		}
		must(t, c.do.RecordFailures(t.Context()))
		must(t, c.do.RecordFailures(t.Context())) // nothing since
		if c.rows() != rows+1 {
			t.Fatalf("%d rows", c.rows()-rows)
		}
		row := c.auditRows("action=sign_in_failed")[0]
		if row.Target != "li.wei" || string(row.Details) != `{"accounts":{"li.wei":5},"unknown_logins":5}` {
			t.Errorf("the row is %+v %s", row, row.Details)
		}
		if c.contentsHave("typed-secret") {
			t.Error("what was typed is kept")
		}
		c.login("li.wei", password, "").ok()
		if in := c.auditRows("action=sign_in"); len(in) == 0 || in[0].Actor != "li.wei" || !strings.Contains(string(in[0].Details), `"from":"127.0.0.1"`) {
			t.Errorf("the sign-in is %+v", in)
		}
	})
}

func TestSEC09SessionsAreNobodyElses(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}})
		r := c.login("li.wei", password, "").ok()
		line := r.header.Get("Set-Cookie")
		for _, part := range []string{"__Host-dispatch=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"} {
			if !strings.Contains(line, part) {
				t.Errorf("%q is missing from %s", part, line)
			}
		}
		if strings.Contains(line, "Domain") || strings.Contains(line, "Max-Age") || strings.Contains(line, "Expires") {
			t.Errorf("the cookie is %s", line)
		}
		cookie := r.cookie()
		id := strings.TrimPrefix(cookie, "__Host-dispatch=")
		if len(id) < 43 { // 256 bits in base 64
			t.Errorf("the id is %q", id)
		}
		if c.contentsHave(id) {
			t.Error("the id is in the database or in the log")
		}

		// Fixation: an id that somebody chose, or had before, is not the one of the session.
		chosen := "__Host-dispatch=" + strings.Repeat("A", 43)
		body := jsonOf(t, map[string]string{"login": "li.wei", "password": password})
		again := func(before string) string {
			return c.call(request{method: http.MethodPost, path: "/login", body: body, headers: []string{"Cookie", before, "Sec-Fetch-Site", "same-origin"}}).ok().cookie()
		}
		fresh := again(chosen)
		if fresh == chosen {
			t.Error("the chosen id is kept")
		}
		c.dead("chosen", chosen)
		next := again(fresh)
		c.dead("before signing in again", fresh)
		if name, _ := c.me(next); name != "li.wei" {
			t.Errorf("the new session is %q", name)
		}
		if name, _ := c.me(cookie); name != "li.wei" {
			t.Error("a session elsewhere ended with it")
		}

		c.call(request{method: http.MethodPost, path: "/logout", headers: []string{"Cookie", next, "Sec-Fetch-Site", "same-origin"}}).ok()
		c.dead("after signing out", next)
		if out := c.auditRows("action=sign_out"); len(out) != 1 || out[0].Actor != "li.wei" {
			t.Errorf("the sign-out is %+v", out)
		}
	})
}

// What an account may no longer do, its sessions may not either, at once.
func TestSEC09SessionsEndWithWhatTheyStandFor(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		edit := func(login, body string) {
			c.call(request{role: actions.Administrator, method: http.MethodPatch, path: "/accounts/" + login, body: body}).ok()
		}
		for i, test := range []struct{ name, body string }{
			{"role", `{"roles":["viewer"],"reason":"moved"}`},
			{"disable", `{"disabled":true,"reason":"left"}`},
			{"everywhere", `{"sign_out":true,"reason":"lost a laptop"}`},
		} {
			login := fmt.Sprint("person-", i)
			one := c.person(login, actions.OnCall)
			two := c.login(login, password, "").ok().cookie()
			edit(login, test.body)
			c.dead(test.name, one)
			c.dead(test.name, two)
		}
		edit("person-1", `{"disabled":false,"reason":"back"}`)
		c.login("person-1", password, "").ok()

		// A new password ends the others and gives this one a new id.
		one := c.person("changer", actions.OnCall)
		two := c.login("changer", password, "").ok().cookie()
		r := c.browse(http.MethodPost, "/account/password", url.Values{"password": {password}, "new": {"another horse battery"}}, "Cookie", one)
		if r.status != http.StatusSeeOther {
			t.Fatalf("the new password: %d %s", r.status, r.body)
		}
		c.dead("other", two)
		c.dead("before", one)
		if name, _ := c.me(r.cookie()); name != "changer" {
			t.Errorf("the session after it is %q", name)
		}
		c.post(actions.Administrator, "/accounts/changer/reset", `{"reason":"lost it"}`).ok()
		c.dead("after a reset", r.cookie())
	})
}

func TestSEC09SessionsRunOut(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	secret := []byte("12345678901234567890")
	c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}, Secret: secret})
	in := func() string {
		c.ahead(time.Minute)
		return c.login("li.wei", password, codeOf(t, c, secret)).ok().cookie()
	}
	idle := in()
	c.ahead(29 * time.Minute)
	if name, code := c.me(idle); name == "" {
		t.Errorf("after 29 min: %s", code)
	}
	c.ahead(29 * time.Minute)
	if name, code := c.me(idle); name == "" {
		t.Errorf("a session in use ends: %s", code)
	}
	c.ahead(31 * time.Minute)
	c.dead("31 min idle", idle)

	busy := in()
	for range 71 { // 11 h 50 min
		c.ahead(10 * time.Minute)
		if name, code := c.me(busy); name == "" {
			t.Fatalf("a busy session ends: %s", code)
		}
	}
	c.ahead(11 * time.Minute)
	c.dead("12 h in all", busy)

	// A shift: armed once, then silent, then an emergency.
	plain := in()
	c.ahead(time.Minute)
	r := c.browse(http.MethodPost, "/account/arm", url.Values{"code": {codeOf(t, c, secret)}}, "Cookie", plain)
	if r.status != http.StatusSeeOther {
		t.Fatalf("arm: %d %s", r.status, r.body)
	}
	armed := r.cookie()
	c.dead("the id before it was armed", plain)
	c.ahead(7 * time.Hour)
	if name, code := c.me(armed); name == "" {
		t.Errorf("an armed session ends: %s", code)
	}
	c.ahead(90 * time.Minute)
	c.dead("8 h and 30 min", armed)
}

// codeOf is the present code of a second factor.
func codeOf(t *testing.T, c *control, secret []byte) string {
	t.Helper()
	return must2(totp.GenerateCode(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret), c.clock.now()))(t)
}

func TestACodeWorksOnce(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		secret := []byte("12345678901234567890")
		c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}, Secret: secret})
		code := codeOf(t, c, secret)
		var all sync.WaitGroup
		var mu sync.Mutex
		entered := 0
		for range 5 { // the same code at once, through two browsers
			all.Go(func() {
				if c.login("li.wei", password, code).status == http.StatusOK {
					mu.Lock()
					entered++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if entered != 1 {
			t.Errorf("one code let %d in", entered)
		}
		c.login("li.wei", password, code).refused(http.StatusUnauthorized, "bad_credentials")
		c.ahead(2 * time.Minute)
		late := codeOf(t, c, secret)
		c.ahead(25 * time.Second)
		c.login("li.wei", password, late).ok() // of the step before, at most
		c.ahead(5 * time.Minute)
		c.login("li.wei", password, late).refused(http.StatusUnauthorized, "bad_credentials")
		for _, wrong := range []string{"", "000000", "12345", "1234567", "abcdef"} {
			if r := c.login("li.wei", password, wrong); r.status != http.StatusUnauthorized && r.status != http.StatusTooManyRequests {
				t.Errorf("code %q: %d", wrong, r.status)
			}
		}
	})
}

// SEC10: what another site can make a browser send changes nothing.
func TestSEC10OtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	cookie := c.signedIn(actions.OnCall)
	root := strings.TrimSuffix(c.url, "/api/v1")
	host := strings.TrimPrefix(root, "http://")
	form := url.Values{"action": {"freeze"}, "expect": {"open"}, "state": {"frozen"}, "reason": {"attack"}, "confirm": {"freeze"}}
	forged := map[string][]string{
		"cross site":         {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		"sibling":            {"Origin", "https://evil.bank.example", "Sec-Fetch-Site", "same-site"},
		"no fetch metadata":  {"Origin", "https://evil.example", "Sec-Fetch-Site", ""},
		"null origin":        {"Origin", "null", "Sec-Fetch-Site", ""},
		"sandboxed":          {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
		"nothing said":       {"Origin", "", "Sec-Fetch-Site", ""},
		"lookalike":          {"Origin", "http://" + host + ".evil.example", "Sec-Fetch-Site", ""},
		"another port":       {"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", ""},
		"override to GET":    {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "X-HTTP-Method-Override", "GET"},
		"override by method": {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "X-HTTP-Method", "GET"},
		"forwarded host":     {"Origin", "https://evil.example", "Sec-Fetch-Site", "", "X-Forwarded-Host", "evil.example"},
	}
	c.untouched(func() {
		for name, headers := range forged {
			headers = append([]string{"Cookie", cookie}, headers...)
			for _, path := range []string{"/emergency", "/account/password", "/logout", "/access/tokens", "/nothing"} {
				if r := c.browse(http.MethodPost, path, form, headers...); r.status != http.StatusForbidden || !strings.Contains(string(r.body), "cross_origin") {
					t.Errorf("%s: POST %s: %d %s", name, path, r.status, r.body)
				}
			}
			for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodPut} {
				r := c.call(request{method: method, path: "/emergency", body: swapOut, headers: headers})
				if r.status != http.StatusForbidden && name != "nothing said" || r.status == http.StatusOK {
					t.Errorf("%s: %s /api/v1/emergency: %d %s", name, method, r.status, r.body)
				}
			}
		}
		// A proxy that rewrites Host makes a browser without Sec-Fetch-Site a stranger.
		if r := c.browse(http.MethodPost, "/emergency", form, "Cookie", cookie, "Origin", "https://console.bank.example", "Sec-Fetch-Site", ""); r.status != http.StatusForbidden {
			t.Errorf("a rewritten Host: %d", r.status)
		}
		// GET never writes, whatever it says of itself.
		for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
			_ = c.browse(http.MethodGet, "/emergency?"+form.Encode()+"&_method=POST", nil, "Cookie", cookie, header, "POST")
		}
		// To sign somebody in as the attacker is no use either.
		if r := c.browse(http.MethodPost, "/login", url.Values{"login": {"on-call"}, "password": {password}}, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); r.status != http.StatusForbidden || r.header.Get("Set-Cookie") != "" {
			t.Errorf("a forged sign-in: %d", r.status)
		}
	})
	// The same, from a page of ours, behind a proxy too, is let in.
	for name, headers := range map[string][]string{
		"same origin":          {},
		"a rewritten Host":     {"Origin", "https://console.bank.example"},
		"without the metadata": {"Sec-Fetch-Site", ""},
		"typed":                {"Sec-Fetch-Site", "none"},
	} {
		if r := c.browse(http.MethodPost, "/emergency", form, append([]string{"Cookie", cookie}, headers...)...); r.status == http.StatusForbidden && strings.Contains(string(r.body), "cross_origin") {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	// A bearer token is nothing that a browser adds by itself.
	c.post(actions.OnCall, "/emergency", swapOut, "Cookie", cookie).ok()
}

// SEC17, by the page.
func TestSEC17SigningInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.OnCall}})
	for next, want := range map[string]string{
		"/account": "/account", "/emergency?app=mobile": "/emergency?app=mobile", "/nothing/here": "/",
		"//evil": "/", `/\evil`: "/", "/%09/evil": "/", "https:evil": "/", "https://evil": "/", "/\t/evil": "/", " /emergency": "/", "": "/",
	} {
		r := c.browse(http.MethodPost, "/login", url.Values{"login": {"li.wei"}, "password": {password}, "next": {next}})
		if got := r.header.Get("Location"); r.status != http.StatusSeeOther || got != want {
			t.Errorf("%q: %d to %q, want %q", next, r.status, got, want)
		}
		page := c.browse(http.MethodGet, "/login?next="+url.QueryEscape(next), nil).ok()
		if !strings.Contains(string(page.body), `name="next" value="`+strings.ReplaceAll(want, "=", "=")+`"`) {
			t.Errorf("%q: the form leads to %s", next, regexp.MustCompile(`name="next"[^>]*`).FindString(string(page.body)))
		}
	}
	// Who must sign in comes back to the page, and what was posted is not repeated.
	if r := c.page("", http.MethodGet, "/access?a=b", nil); r.header.Get("Location") != "/login?next=%2Faccess%3Fa%3Db" {
		t.Errorf("signed out leads to %q", r.header.Get("Location"))
	}
	if r := c.browse(http.MethodPost, "/access/tokens", nil); r.status != http.StatusSeeOther || r.header.Get("Location") != "/login?next=%2F" {
		t.Errorf("a form leads to %d %q", r.status, r.header.Get("Location"))
	}
}
