package admin_test

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

// fillPattern replaces the {parameters} of a page by something that exists nowhere.
func fillPattern(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	path = strings.ReplaceAll(path, "{$}", "")
	return method, regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "9")
}

// status opens a page and reads no more than its head: streams of events do not end,
// and one that has nothing to tell does not even begin. What is refused is so at once.
func (c *control) status(method, path string, headers ...string) (status int, location string) {
	c.t.Helper()
	patience := time.Minute
	if strings.HasPrefix(path, "/events/") {
		patience = time.Second
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/api/v1")+path, nil)
	must(c.t, err)
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if patience == time.Second && errors.Is(err, context.DeadlineExceeded) {
		return http.StatusOK, ""
	}
	must(c.t, err)
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// SEC13: every page, every role and nobody, and other spellings of its path.
func TestSEC13EveryPageAdmitsExactlyItsRoles(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	cookies := map[string]string{}
	for _, role := range roles {
		cookies[role] = c.person("page-"+role, role)
	}
	for _, row := range c.pages.Rows() {
		allowed := actions.Roles(row.Operation)
		if row.Operation == "" {
			if !strings.HasPrefix(row.Pattern[strings.Index(row.Pattern, " "):], " /log") {
				t.Errorf("%s is open to everybody", row.Pattern)
			}
			continue
		}
		if allowed == nil {
			t.Errorf("%s names %s, which nobody may do", row.Pattern, row.Operation)
		}
		method, path := fillPattern(row.Pattern)
		for _, role := range roles {
			status, _ := c.status(method, path, "Cookie", cookies[role])
			switch ok := slices.Contains(allowed, role); {
			case ok && (status == http.StatusForbidden && method == http.MethodGet || status == http.StatusUnauthorized || status >= 500 && status != http.StatusServiceUnavailable):
				t.Errorf("%s as %s: %d, want it admitted", row.Pattern, role, status)
			case !ok && status != http.StatusForbidden:
				t.Errorf("%s as %s: %d, want 403", row.Pattern, role, status)
			}
		}
		for _, headers := range [][]string{{}, {"Cookie", "__Host-dispatch=" + strings.Repeat("A", 43)}, {"Cookie", "__Host-dispatch="}, {"Cookie", "dispatch=" + strings.TrimPrefix(cookies[actions.Administrator], "__Host-dispatch=")},
			{"Authorization", "Bearer " + c.tokens[actions.Administrator]}, {"X-Forwarded-User", "administrator"}} {
			status, location := c.status(method, path, headers...)
			if status != http.StatusUnauthorized && (status != http.StatusSeeOther || !strings.HasPrefix(location, "/login?next=")) {
				t.Errorf("%s with %q: %d to %q, want the sign-in page", row.Pattern, headers, status, location)
			}
		}
		for _, variant := range []string{"/" + path, path + "/", "/x/.." + path, "/." + path, "/%2e" + path, "/%2f" + path[1:], strings.ToUpper(path), path + "%00", path + ";a", path + "%20", "/api/.." + path, "/static/.." + path, "/login/.." + path} {
			status, location := c.status(method, variant)
			open := status == http.StatusOK && variant != "/" // a stream or a page
			if open || status >= 500 || location != "" && !strings.HasPrefix(location, "/") {
				t.Errorf("%s spelt %s: %d to %q", row.Pattern, variant, status, location)
			}
		}
	}
}

// An operation of pages and of the API is in the table, and each role may something.
func TestRolesOfTheManualAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	for name, allowed := range who {
		if allowed == everybody {
			continue
		}
		if len(strings.Fields(allowed)) == 0 || !strings.Contains(allowed, actions.Administrator) {
			t.Errorf("%s is for %q", name, allowed)
		}
	}
	for operation, none := range map[string]string{"publish": actions.UserAdmin, "create-token": actions.ReleaseEngineer, "edit-account": actions.Approver, "approve": actions.UserAdmin, "emergency": actions.UserAdmin} {
		if slices.Contains(actions.Roles(operation), none) {
			t.Errorf("%s may %s", none, operation)
		}
	}
}

type madeAccount struct {
	Account  ledger.Account
	Password string
}

func (c *control) make(role, body string) *reply {
	c.t.Helper()
	return c.post(role, "/accounts", body)
}

func TestUserAdminsMakeNobodyMightierThanTheyMay(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		var made madeAccount
		c.make(actions.UserAdmin, `{"login":"Li.Wei","name":"Li Wei","roles":["approver","on-call"],"reason":"joined"}`).ok().into(&made)
		if made.Account.Login != "li.wei" || !slices.Equal(made.Account.Roles, []string{actions.OnCall, actions.Approver}) || !made.Account.MustChange || len(made.Password) != 23 {
			t.Errorf("made %+v", made)
		}
		row := c.auditRows("action=account_create")[0]
		if row.Actor != actions.UserAdmin || row.Target != "li.wei" || row.Reason != "joined" || strings.Contains(string(row.Details), made.Password) {
			t.Errorf("the row is %+v %s", row, row.Details)
		}
		patch := func(role, login, body string) *reply {
			return c.call(request{role: role, method: http.MethodPatch, path: "/accounts/" + login, body: body})
		}
		c.account(ledger.Account{Login: "root", Roles: []string{actions.Administrator}})
		c.account(ledger.Account{Login: "people", Roles: []string{actions.UserAdmin}})
		people := c.login("people", password, "").ok().cookie()
		own := func(method, path, body string) *reply {
			return c.call(request{method: method, path: path, body: body, headers: []string{"Cookie", people, "Sec-Fetch-Site", "same-origin"}})
		}
		c.untouched(func() {
			own(http.MethodPatch, "/accounts/people", `{"roles":["user-admin","release-engineer"],"reason":"mine"}`).refused(http.StatusForbidden, "own_roles")
			own(http.MethodPatch, "/accounts/PEOPLE", `{"roles":["release-engineer"],"reason":"mine"}`).refused(http.StatusForbidden, "own_roles")
			own(http.MethodPatch, "/accounts/li.wei", `{"roles":["administrator"],"reason":"friend"}`).refused(http.StatusForbidden, "administrators_only")
			own(http.MethodPost, "/accounts", `{"login":"friend","roles":["administrator"],"reason":"friend"}`).refused(http.StatusForbidden, "administrators_only")
			own(http.MethodPost, "/accounts/root/reset", `{"reason":"take over"}`).refused(http.StatusForbidden, "administrators_only")
			own(http.MethodPatch, "/accounts/root", `{"disabled":true,"reason":"take over"}`).refused(http.StatusForbidden, "administrators_only")
			own(http.MethodPost, "/tokens", `{"name":"root","role":"administrator","reason":"take over"}`).refused(http.StatusForbidden, "administrators_only")
			own(http.MethodPost, "/releases?reason=attack", kept).refused(http.StatusForbidden, "role")
			own(http.MethodPost, "/emergency", swapOut).refused(http.StatusForbidden, "role")
			patch(actions.Administrator, "root", `{"roles":["viewer"],"reason":"the last one"}`).refused(http.StatusConflict, "last_administrator")
			patch(actions.Administrator, "root", `{"disabled":true,"reason":"the last one"}`).refused(http.StatusConflict, "last_administrator")
			patch(actions.UserAdmin, "nobody", `{"disabled":true,"reason":"test"}`).refused(http.StatusNotFound, "unknown_account")
			c.make(actions.UserAdmin, `{"login":"li.WEI","roles":["viewer"],"reason":"twice"}`).refused(http.StatusConflict, "account_exists")
			for _, login := range []string{"a", "dispatch", "bootstrap", "li wei", "li@wei", "-li", "李伟", "../x", "<script>"} {
				if r := c.make(actions.UserAdmin, jsonOf(t, map[string]any{"login": login, "roles": []string{"viewer"}, "reason": "test"})); r.status != http.StatusUnprocessableEntity {
					t.Errorf("login %q: %d %s", login, r.status, r.body)
				}
			}
			c.make(actions.UserAdmin, `{"login":"who","roles":["root"],"reason":"test"}`).refused(http.StatusUnprocessableEntity, "bad_account")
		})
		own(http.MethodPatch, "/accounts/people", `{"name":"People team","reason":"a name"}`).ok() // a name is no role

		// A request that comes twice makes one account and shows its password once.
		body := `{"login":"once","roles":["viewer"],"reason":"joined"}`
		c.post(actions.UserAdmin, "/accounts", body, "Idempotency-Key", "k-1").ok().into(&made)
		c.post(actions.UserAdmin, "/accounts", body, "Idempotency-Key", "k-1").refused(http.StatusConflict, "password_made")
		var list struct{ Accounts []ledger.Account }
		r := c.get(actions.UserAdmin, "/accounts").ok()
		if r.into(&list); len(list.Accounts) != 4 || strings.Contains(string(r.body), "cheap") {
			t.Errorf("the accounts are %s", r.body)
		}
	})
}

// A first sign-in: the one-time password opens one page, which makes an own one.
func TestAOneTimePasswordIsChangedFirst(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		var made madeAccount
		c.make(actions.UserAdmin, `{"login":"li.wei","roles":["on-call"],"reason":"joined"}`).ok().into(&made)
		r := c.browse(http.MethodPost, "/login", url.Values{"login": {"li.wei"}, "password": {made.Password}, "next": {"/emergency"}})
		if r.status != http.StatusSeeOther {
			t.Fatalf("sign-in: %d %s", r.status, r.body)
		}
		cookie := r.cookie()
		if status, to := c.status(http.MethodGet, "/emergency", "Cookie", cookie); status != http.StatusSeeOther || to != "/account" {
			t.Errorf("another page: %d to %q", status, to)
		}
		c.call(request{method: http.MethodGet, path: "/apps", headers: []string{"Cookie", cookie}}).refused(http.StatusForbidden, "must_change")
		change := func(old, next string) *reply {
			return c.browse(http.MethodPost, "/account/password", url.Values{"password": {old}, "new": {next}}, "Cookie", cookie)
		}
		for _, test := range []struct {
			old, next string
			status    int
			code      string
		}{
			{"wrong", password, http.StatusForbidden, "bad_password"}, {made.Password, "short", http.StatusUnprocessableEntity, "weak_password"},
			{made.Password, made.Password, http.StatusUnprocessableEntity, "weak_password"}, {made.Password, "I am li.wei myself", http.StatusUnprocessableEntity, "weak_password"},
		} {
			if r := change(test.old, test.next); r.status != test.status || !strings.Contains(string(r.body), test.code) || !strings.Contains(string(r.body), `action="/account/password"`) {
				t.Errorf("%s: %d %s", test.code, r.status, r.body)
			}
		}
		r = change(made.Password, password)
		if r.status != http.StatusSeeOther {
			t.Fatalf("change: %d %s", r.status, r.body)
		}
		c.dead("before the change", cookie)
		cookie = r.cookie()
		if status, _ := c.status(http.MethodGet, "/emergency", "Cookie", cookie); status != http.StatusOK {
			t.Errorf("afterwards: %d", status)
		}
		c.login("li.wei", made.Password, "").refused(http.StatusUnauthorized, "bad_credentials")

		// Then a second factor, by the secret on the page.
		page := string(c.browse(http.MethodGet, "/account", nil, "Cookie", cookie).ok().body)
		secret := regexp.MustCompile(`name="secret" value="([A-Z2-7]{32})"`).FindStringSubmatch(page)
		if secret == nil || !strings.Contains(page, "otpauth://totp/dispatch") || strings.Count(page, "<rect ") < 100 || strings.Contains(page, "style=") {
			t.Fatalf("the page shows no secret: %s", page)
		}
		raw := must2(base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret[1]))(t)
		enrol := func(password, code string) *reply {
			return c.browse(http.MethodPost, "/account/factor", url.Values{"secret": {secret[1]}, "password": {password}, "code": {code}}, "Cookie", cookie)
		}
		if r := enrol(password, "000000"); r.status != http.StatusForbidden || !strings.Contains(string(r.body), secret[1]) {
			t.Errorf("a wrong code: %d, and the secret must stay", r.status)
		}
		if r := enrol("wrong", codeOf(t, c, raw)); r.status != http.StatusForbidden {
			t.Errorf("a wrong password: %d", r.status)
		}
		r = enrol(password, codeOf(t, c, raw))
		if r.status != http.StatusSeeOther {
			t.Fatalf("enrol: %d %s", r.status, r.body)
		}
		cookie = r.cookie()
		c.login("li.wei", password, "").refused(http.StatusUnauthorized, "bad_credentials")
		c.ahead(2 * time.Minute)
		c.login("li.wei", password, codeOf(t, c, raw)).ok()
		if c.contentsHave(secret[1]) || c.contentsHave(string(raw)) {
			t.Error("the secret lies open in the database")
		}
		c.ahead(2 * time.Minute)
		r = c.browse(http.MethodPost, "/account/factor/remove", url.Values{"password": {password}, "code": {codeOf(t, c, raw)}}, "Cookie", cookie)
		if r.status != http.StatusSeeOther {
			t.Errorf("remove: %d %s", r.status, r.body)
		}
		c.login("li.wei", password, "").ok()
	})
}

func TestWhoShouldHaveASecondFactorIsTold(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	for _, role := range []string{actions.OnCall, actions.ReleaseEngineer, actions.Approver, actions.UserAdmin, actions.Administrator, actions.Viewer, actions.ListManager} {
		told := strings.Contains(string(c.page(role, http.MethodGet, "/account", nil).ok().body), "Your roles should have a second factor")
		if told != actions.NeedsSecondFactor([]string{role}) {
			t.Errorf("%s is told: %v", role, told)
		}
	}
	c.options.RequireTOTP = true
	c.start(nil)
	if status, to := c.status(http.MethodGet, "/emergency", "Cookie", c.signedIn(actions.OnCall)); status != http.StatusSeeOther || to != "/account" {
		t.Errorf("where it is required: %d to %q", status, to)
	}
	if status, _ := c.status(http.MethodGet, "/", "Cookie", c.signedIn(actions.Viewer)); status != http.StatusOK {
		t.Errorf("a viewer needs none: %d", status)
	}
}

// The page of accounts does what the API does.
func TestAccessIsManagedByThePage(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	form := func(path string, pairs ...string) *reply {
		values := url.Values{"reason": {"by the page"}, "key": {fmt.Sprint(c.rows())}}
		for i := 0; i < len(pairs); i += 2 {
			values.Add(pairs[i], pairs[i+1])
		}
		return c.page(actions.UserAdmin, http.MethodPost, path, values)
	}
	made := string(form("/access/accounts", "login", "li.wei", "name", "Li Wei <b>", "roles", actions.OnCall, "roles", actions.Viewer).ok().body)
	once := regexp.MustCompile(`[a-z2-7]{5}-[a-z2-7]{5}-[a-z2-7]{5}-[a-z2-7]{5}`).FindString(made)
	if once == "" || !strings.Contains(made, "Li Wei &lt;b&gt;") {
		t.Fatalf("no password on %s", made)
	}
	c.login("li.wei", once, "").ok()
	if again := string(c.page(actions.UserAdmin, http.MethodGet, "/access", nil).ok().body); strings.Contains(again, once) || !strings.Contains(again, "li.wei") {
		t.Error("the password is shown twice, or the account not at all")
	}
	if r := form("/access/accounts/li.wei", "do", "roles", "name", "Li Wei", "roles", actions.Approver); r.status != http.StatusSeeOther {
		t.Errorf("roles: %d %s", r.status, r.body)
	}
	if a := must2(c.store.Account(t.Context(), "li.wei"))(t); !slices.Equal(a.Roles, []string{actions.Approver}) || a.Name != "Li Wei" {
		t.Errorf("the account is %+v", a)
	}
	form("/access/accounts/li.wei", "do", "disable")
	if a := must2(c.store.Account(t.Context(), "li.wei"))(t); !a.Disabled || !slices.Equal(a.Roles, []string{actions.Approver}) {
		t.Errorf("the account is %+v", a)
	}
	form("/access/accounts/li.wei", "do", "enable")
	reset := string(form("/access/accounts/li.wei/reset").ok().body)
	if next := regexp.MustCompile(`[a-z2-7]{5}-[a-z2-7]{5}-[a-z2-7]{5}-[a-z2-7]{5}`).FindString(reset); next == "" || next == once {
		t.Errorf("no new password on %s", reset)
	}
	if r := form("/access/accounts/li.wei/arm"); r.status != http.StatusConflict || !strings.Contains(string(r.body), "not_break_glass") {
		t.Errorf("arm: %d", r.status)
	}

	token := string(form("/access/tokens", "name", "pipeline", "role", actions.Viewer, "days", "7").ok().body)
	secret := regexp.MustCompile(`dsp_api_\w{39}`).FindString(token)
	c.tokens["page"] = secret
	c.get("page", "/me").ok()
	for _, bad := range [][]string{{"name", "x", "role", "root", "days", "7"}, {"name", "x", "role", "viewer", "days", "91"}, {"name", "x", "role", "viewer", "days", "x"}} {
		if r := form("/access/tokens", bad...); r.status != http.StatusUnprocessableEntity {
			t.Errorf("%v: %d", bad, r.status)
		}
	}
	tokens := must2(c.store.Tokens(t.Context()))(t)
	if r := form(fmt.Sprintf("/access/tokens/%d/revoke", tokens[0].ID)); r.status != http.StatusSeeOther {
		t.Errorf("revoke: %d", r.status)
	}
	c.get("page", "/me").refused(http.StatusUnauthorized, "bad_token")
	if page := string(c.page(actions.UserAdmin, http.MethodGet, "/access", nil).ok().body); strings.Contains(page, secret) || !strings.Contains(page, "revoked") {
		t.Error("the page shows the secret, or not that it is revoked")
	}
	if r := c.page(actions.UserAdmin, http.MethodPost, "/access/accounts", url.Values{"login": {"x.y"}, "roles": {"viewer"}}); r.status/100 == 2 || r.status/100 == 3 {
		t.Errorf("without a reason: %d", r.status)
	}
}

// SEC18: a token is strong, kept as a hash, narrow, and over when it is over.
func TestSEC18Tokens(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		create := func(body string) (made struct {
			Token  ledger.Token
			Secret string
		}) {
			c.post(actions.UserAdmin, "/tokens", body).ok().into(&made)
			return made
		}
		seen := map[string]bool{}
		for range 20 {
			made := create(`{"name":"pipeline","role":"list-manager","days":1,"reason":"nightly"}`)
			// 33 letters of 62 are 196 bits; six more are the CRC that scanners look for.
			if !regexp.MustCompile(`^dsp_api_[0-9A-Za-z]{39}$`).MatchString(made.Secret) || seen[made.Secret[:16]] {
				t.Fatalf("the secret is %q", made.Secret)
			}
			seen[made.Secret[:16]] = true
		}
		made := create(`{"name":"pipeline","role":"list-manager","days":1,"reason":"nightly"}`)
		c.tokens["made"] = made.Secret
		c.get("made", "/me").ok()
		if c.contentsHave(made.Secret) || c.contentsHave(made.Secret[8:41]) {
			t.Error("the secret is in the database or in the log")
		}
		var list struct{ Tokens []ledger.Token }
		r := c.get(actions.UserAdmin, "/tokens").ok()
		if r.into(&list); list.Tokens[0].LastUsed.IsZero() || !list.Tokens[1].LastUsed.IsZero() || strings.Contains(string(r.body), "dsp_") {
			t.Errorf("the tokens are %s", r.body)
		}
		// Its one role is its scope.
		c.post("made", "/emergency", swapOut).refused(http.StatusForbidden, "role")
		c.post("made", "/releases?reason=attack", kept, "If-Match", "1").refused(http.StatusForbidden, "role")
		c.get("made", "/tokens").refused(http.StatusForbidden, "role")
		// Not in an address, where logs would keep it; not as a cookie; not mistyped.
		c.get("", "/me?token="+made.Secret).refused(http.StatusUnauthorized, "no_token")
		c.call(request{method: http.MethodGet, path: "/me", headers: []string{"Cookie", "__Host-dispatch=" + made.Secret}}).refused(http.StatusUnauthorized, "session_ended")
		flipped := []byte(made.Secret)
		flipped[20] ^= 1
		c.tokens["flipped"] = string(flipped)
		c.get("flipped", "/me").refused(http.StatusUnauthorized, "bad_token")
		c.post(actions.UserAdmin, "/tokens", `{"name":"long","role":"viewer","days":91,"reason":"test"}`).refused(http.StatusUnprocessableEntity, "bad_request")
		_, _, err := c.do.CreateToken(t.Context(), actions.Write{Actor: actions.Actor{Name: "test", Roles: []string{actions.UserAdmin}}, Reason: "test"}, actions.NewToken{Name: "long", Role: actions.Viewer, Life: 91 * 24 * time.Hour})
		if err == nil {
			t.Error("a token of 91 days")
		}
		c.ahead(25 * time.Hour)
		c.get("made", "/me").refused(http.StatusUnauthorized, "bad_token")
		other := create(`{"name":"other","role":"viewer","reason":"test"}`)
		c.tokens["other"] = other.Secret
		c.get("other", "/me").ok()
		c.call(request{role: actions.UserAdmin, method: http.MethodDelete, path: fmt.Sprintf("/tokens/%d?reason=leaked", other.Token.ID)}).ok()
		c.get("other", "/me").refused(http.StatusUnauthorized, "bad_token")
	})
}
