package admin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"golang.org/x/text/language"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/ledger"
)

const (
	clientID     = "console"
	clientSecret = "a secret of the client"
	callbackURL  = "http://127.0.0.1:9/login/callback" // the test goes there by itself
)

// idp is a real identity provider, of zitadel/oidc, with people and groups of the test's choice.
type idp struct {
	*storage.Storage
	issuer string

	mu     sync.Mutex
	people map[string]*storage.User // by id
	groups map[string][]string      // by id
}

func (p *idp) GetUserByID(id string) *storage.User { return p.people[id] }

func (p *idp) GetUserByUsername(name string) *storage.User {
	for _, u := range p.people {
		if u.Username == name {
			return u
		}
	}
	return nil
}

func (p *idp) ExampleClientID() string { return "unused" }

// SetUserinfoFromToken adds groups to what the provider says of somebody.
func (p *idp) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	if err := p.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	info.AppendClaims("groups", p.groups[subject])
	return nil
}

func (p *idp) belongs(id string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[id] = groups
}

func startIDP(t *testing.T) (*idp, *httptest.Server) {
	t.Helper()
	person := func(id, name string) *storage.User {
		return &storage.User{ID: id, Username: name, Password: password, FirstName: "Li", LastName: "Wei", Email: "boss@bank.example", EmailVerified: true, PreferredLanguage: language.Chinese}
	}
	p := &idp{people: map[string]*storage.User{"sub-1": person("sub-1", "li.wei"), "sub-2": person("sub-2", "boss")}, groups: map[string][]string{}}
	storage.RegisterClients(storage.WebClient(clientID, clientSecret, callbackURL))
	p.Storage = storage.NewStorage(p)
	server := httptest.NewUnstartedServer(nil)
	p.issuer = "http://" + server.Listener.Addr().String()
	server.Config.Handler = exampleop.SetupServer(p.issuer, p, nil, false)
	server.Start()
	t.Cleanup(server.Close)
	return p, server
}

// with serves the same database with an identity provider.
func (c *control) with(issuer string) {
	c.t.Helper()
	provider, err := signin.NewProvider(signin.ProviderOptions{Issuer: issuer, ClientID: clientID, ClientSecret: clientSecret, RedirectURL: callbackURL, Now: c.clock.now,
		Roles: map[string][]string{"ops": {actions.OnCall}, "release": {actions.ReleaseEngineer, actions.OnCall}, "readers": {actions.Viewer}}})
	must(c.t, err)
	c.options.Provider = provider
	c.start(nil)
}

// begin starts at our sign-in page: where the browser is sent, and its cookie.
func (c *control) begin(next string) (*url.URL, string) {
	c.t.Helper()
	r := c.browse(http.MethodGet, "/login/sso?next="+url.QueryEscape(next), nil)
	if r.status != http.StatusSeeOther {
		c.t.Fatalf("the way to the provider: %d %s", r.status, r.body)
	}
	at, err := url.Parse(r.header.Get("Location"))
	must(c.t, err)
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	return at, cookie
}

// visit signs somebody in at the real provider and gives what it sends us.
func (p *idp) visit(t *testing.T, at *url.URL, name string) (answer url.Values) {
	t.Helper()
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	step := func(method, target string, form url.Values) *url.URL {
		target = must2(must2(url.Parse(p.issuer))(t).Parse(target))(t).String()
		req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
		must(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := browser.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		next, err := resp.Location()
		if err != nil {
			t.Fatalf("%s %s: %d, %v", method, target, resp.StatusCode, err)
		}
		return next
	}
	form := step(http.MethodGet, at.String(), nil)
	back := step(http.MethodPost, "/login/username", url.Values{"username": {name}, "password": {password}, "id": {form.Query().Get("authRequestID")}})
	return step(http.MethodGet, back.String(), nil).Query()
}

func (c *control) callback(answer url.Values, cookie string) *reply {
	c.t.Helper()
	return c.browse(http.MethodGet, "/login/callback?"+answer.Encode(), nil, "Cookie", cookie)
}

// sso is the whole way of one person.
func (c *control) sso(p *idp, name string) *reply {
	c.t.Helper()
	at, cookie := c.begin("/account")
	return c.callback(p.visit(c.t, at, name), cookie)
}

func TestSEC15AProviderSignsPeopleIn(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		p, _ := startIDP(t)
		c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.Administrator}}) // whose name the provider's person also has
		c.with(p.issuer)
		p.belongs("sub-1", "ops", "unknown")

		at, cookie := c.begin("/emergency")
		query := at.Query()
		if query.Get("code_challenge_method") != "S256" || query.Get("state") == "" || query.Get("nonce") == "" || query.Get("response_type") != "code" {
			t.Errorf("the question is %s", at)
		}
		answer := p.visit(t, at, "li.wei")
		r := c.callback(answer, cookie)
		if r.status != http.StatusSeeOther || r.header.Get("Location") != "/emergency" {
			t.Fatalf("the way back: %d %s %s", r.status, r.header.Get("Location"), r.body)
		}
		first := r.cookie()
		account := must2(c.store.AccountOf(t.Context(), p.issuer, "sub-1"))(t)
		if account.Login != "li.wei@127.0.0.1" || !slices.Equal(account.Roles, []string{actions.OnCall}) || account.Password != "" {
			t.Errorf("the account is %+v", account)
		}
		if name, _ := c.me(first); name != "li.wei@127.0.0.1" {
			t.Errorf("the session is %q", name)
		}

		// The same answer again, in the same browser and in another.
		if r := c.callback(answer, cookie); r.status != http.StatusForbidden || len(r.header.Values("Set-Cookie")) != 1 {
			t.Errorf("a replayed code: %d %s", r.status, r.body)
		}
		_, other := c.begin("/")
		if r := c.callback(answer, other); r.status != http.StatusForbidden {
			t.Errorf("another browser's answer: %d %s", r.status, r.body)
		}
		// A stolen code with a state of one's own fails at the provider, for want of the verifier.
		at, _ = c.begin("/")
		stolen := p.visit(t, at, "li.wei")
		mine, thief := c.begin("/")
		stolen.Set("state", mine.Query().Get("state"))
		if r := c.callback(stolen, thief); r.status != http.StatusForbidden {
			t.Errorf("a stolen code: %d %s", r.status, r.body)
		}

		// Roles are those of today, and what they were ends.
		p.belongs("sub-1", "release")
		second := c.sso(p, "li.wei").cookie()
		c.dead("with the roles of yesterday", first)
		account = must2(c.store.AccountOf(t.Context(), p.issuer, "sub-1"))(t)
		if !slices.Equal(account.Roles, []string{actions.OnCall, actions.ReleaseEngineer}) {
			t.Errorf("the roles are %v", account.Roles)
		}
		p.belongs("sub-1", "unknown")
		if r := c.sso(p, "li.wei"); r.status != http.StatusForbidden || !strings.Contains(string(r.body), "no_role") {
			t.Errorf("without a group: %d %s", r.status, r.body)
		}
		p.belongs("sub-1", "release")
		must2(c.do.EditAccount(t.Context(), actions.Write{Actor: actions.Actor{Name: "boss", Roles: []string{actions.UserAdmin}}, Reason: "left"}, account.Login, actions.AccountEdit{Disabled: new(true)}))(t)
		c.dead("of a disabled account", second)
		if r := c.sso(p, "li.wei"); r.status != http.StatusForbidden || !strings.Contains(string(r.body), "disabled") {
			t.Errorf("disabled: %d %s", r.status, r.body)
		}
		// Whoever has the e-mail address of another is somebody else all the same.
		p.belongs("sub-2", "readers")
		c.sso(p, "boss").cookie()
		if boss := must2(c.store.AccountOf(t.Context(), p.issuer, "sub-2"))(t); boss.Login != "boss@127.0.0.1" || !slices.Equal(boss.Roles, []string{actions.Viewer}) {
			t.Errorf("the other is %+v", boss)
		}
		if rows := c.auditRows("action=sign_in&limit=10"); len(rows) < 3 || !strings.Contains(string(rows[0].Details), p.issuer) {
			t.Errorf("the trail has %+v", rows)
		}
	})
}

// liar is a double of a provider that answers what an attacker would have it answer.
type liar struct {
	*httptest.Server
	key    *ecdsa.PrivateKey
	nonce  string
	forge  func(l *liar, claims map[string]any) string // the identity token
	info   map[string]any
	asked  int
	proven bool // the code came with a verifier
}

func startLiar(t *testing.T) *liar {
	t.Helper()
	l := &liar{key: must2(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		l.asked++
		answer(w, map[string]any{"issuer": l.URL, "authorization_endpoint": l.URL + "/auth", "token_endpoint": l.URL + "/token", "jwks_uri": l.URL + "/keys",
			"userinfo_endpoint": l.URL + "/info", "id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: l.key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		l.proven = r.FormValue("code_verifier") != ""
		now := time.Now()
		claims := map[string]any{"iss": l.URL, "aud": clientID, "sub": "sub-1", "nonce": l.nonce, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
			"preferred_username": "li.wei", "email": "li.wei@bank.example", "groups": []string{"ops"}}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": l.forge(l, claims)})
	})
	mux.HandleFunc("/info", func(w http.ResponseWriter, r *http.Request) { answer(w, l.info) })
	l.Server = httptest.NewServer(mux)
	t.Cleanup(l.Close)
	return l
}

func (l *liar) sign(alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		panic(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return compact
}

// but signs the claims with some others.
func but(pairs ...any) func(*liar, map[string]any) string {
	return func(l *liar, claims map[string]any) string {
		for i := 0; i < len(pairs); i += 2 {
			if name, _ := pairs[i].(string); pairs[i+1] == nil {
				delete(claims, name)
			} else {
				claims[name] = pairs[i+1]
			}
		}
		return l.sign(jose.ES256, l.key, claims)
	}
}

func TestSEC15ForgedAnswersSignNobodyIn(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	l := startLiar(t)
	c.account(ledger.Account{Login: "li.wei", Roles: []string{actions.Administrator}})
	c.with(l.URL)
	if l.asked != 0 {
		t.Error("the provider was asked before anybody signed in")
	}
	try := func() *reply {
		at, cookie := c.begin("/")
		l.nonce = at.Query().Get("nonce")
		return c.callback(url.Values{"code": {"code"}, "state": {at.Query().Get("state")}}, cookie)
	}
	none := func(l *liar, claims map[string]any) string {
		text, _ := json.Marshal(claims)
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
	}
	hmac := func(l *liar, claims map[string]any) string {
		sum := sha256.Sum256([]byte(clientSecret))
		return l.sign(jose.HS256, sum[:], claims)
	}
	stranger := must2(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c.untouched(func() {
		for name, forge := range map[string]func(*liar, map[string]any) string{
			"another audience":     but("aud", "other-app"),
			"another party":        but("aud", []string{clientID, "other-app"}, "azp", "other-app"),
			"another issuer":       but("iss", "https://evil.example"),
			"expired":              but("exp", time.Now().Add(-time.Hour).Unix()),
			"another nonce":        but("nonce", "guessed"),
			"no nonce":             but("nonce", nil),
			"nobody":               but("sub", ""),
			"alg none":             none,
			"alg HS256":            hmac,
			"a stranger's key":     func(l *liar, claims map[string]any) string { return l.sign(jose.ES256, stranger, claims) },
			"no token":             func(*liar, map[string]any) string { return "" },
			"text":                 func(*liar, map[string]any) string { return "a.b.c" },
			"two people":           but("groups", nil),
			"a group that is none": but("groups", []string{"administrator", "OPS"}),
		} {
			l.forge, l.info = forge, map[string]any{"sub": "somebody else", "groups": []string{"ops"}}
			r := try()
			if r.status != http.StatusForbidden || strings.Contains(strings.Join(r.header.Values("Set-Cookie"), " "), "__Host-dispatch=") {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
			if !l.proven {
				t.Errorf("%s: the code came without a verifier", name)
			}
		}
		for name, change := range map[string]func(answer url.Values) (cookie string){
			"another state": func(a url.Values) string { a.Set("state", "guessed"); return "" },
			"no state":      func(a url.Values) string { a.Del("state"); return "" },
			"no cookie":     func(url.Values) string { return "a=b" },
			"forged cookie": func(url.Values) string { return "__Host-dispatch-sso=e30" },
			"mixed up":      func(a url.Values) string { a.Set("iss", "https://evil.example"); return "" },
			"an error":      func(a url.Values) string { a.Set("error", "access_denied"); return "" },
		} {
			l.forge = but()
			at, cookie := c.begin("/")
			l.nonce = at.Query().Get("nonce")
			answer := url.Values{"code": {"code"}, "state": {at.Query().Get("state")}}
			if other := change(answer); other != "" {
				cookie = other
			}
			if r := c.callback(answer, cookie); r.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
		}
	})
	l.forge = but()
	if name, _ := c.me(try().cookie()); name != "li.wei@127.0.0.1" {
		t.Errorf("who is honest is %q", name)
	}
	if account := must2(c.store.Account(t.Context(), "li.wei"))(t); account.Issuer != "" || !account.LastSignIn.IsZero() {
		t.Errorf("the local account of the same name is %+v", account)
	}
}

// SEC16: with the provider gone, the break-glass account opens, and everybody sees it.
func TestSEC16BreakGlassWithoutTheProvider(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		p, server := startIDP(t)
		secret := []byte("12345678901234567890")
		c.account(ledger.Account{Login: "glass", Roles: []string{actions.OnCall, actions.BreakGlass}, BreakGlass: true, Secret: secret})
		c.account(ledger.Account{Login: "local", Roles: []string{actions.Viewer}})
		c.with(p.issuer)
		server.Close()

		r := c.browse(http.MethodGet, "/login/sso", nil)
		if r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "provider_down") || !strings.Contains(string(r.body), "local account") {
			t.Errorf("without the provider: %d %s", r.status, r.body)
		}
		c.login("local", password, "").ok()

		c.login("glass", password, codeOf(t, c, secret)).refused(http.StatusForbidden, "not_armed")
		c.post(actions.OnCall, "/accounts/glass/arm", `{"reason":"provider is down"}`).refused(http.StatusForbidden, "role")
		c.post(actions.UserAdmin, "/accounts/local/arm", `{"reason":"provider is down"}`).refused(http.StatusConflict, "not_break_glass")
		c.post(actions.UserAdmin, "/accounts/glass/arm", `{"reason":"provider is down"}`).ok()
		c.login("glass", password, "").refused(http.StatusUnauthorized, "bad_credentials") // the second factor stays
		c.ahead(2 * time.Minute)                                                           // the code of the refusal before is not used again
		cookie := c.login("glass", password, codeOf(t, c, secret)).ok().cookie()
		if name, _ := c.me(cookie); name != "glass" {
			t.Errorf("the session is %q", name)
		}
		if row := c.auditRows("action=sign_in")[0]; row.Actor != "glass" || !strings.Contains(string(row.Details), `"break_glass":true`) {
			t.Errorf("the row is %+v", row)
		}
		if !strings.Contains(c.log.String(), "break-glass account in use") {
			t.Error("the log does not say so")
		}
		c.ahead(actions.ArmedFor)
		c.dead("after four hours", cookie)
		c.login("glass", password, codeOf(t, c, secret)).refused(http.StatusForbidden, "not_armed")

		// Without a second factor it opens nothing but the page that adds one.
		c.account(ledger.Account{Login: "bare", Roles: []string{actions.OnCall}, BreakGlass: true, Armed: c.clock.now().Add(time.Hour)})
		bare := c.login("bare", password, "").ok().cookie()
		r = c.call(request{method: http.MethodGet, path: "/apps", headers: []string{"Cookie", bare}})
		r.refused(http.StatusForbidden, "must_change")
	})
}
