package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

// A one-time password that nobody used for a day opens nothing; a reset makes another.
func TestAOneTimePasswordExpires(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		var made struct {
			madeAccount
			Expires time.Time
		}
		holds := func() {
			t.Helper()
			if life := made.Expires.Sub(c.clock.now()); life < actions.OneTimeFor-time.Minute || life > actions.OneTimeFor || !made.Expires.Equal(made.Account.PasswordUntil) {
				t.Errorf("it holds for %v, of the account until %v", life, made.Account.PasswordUntil)
			}
		}
		c.make(actions.UserAdmin, `{"login":"li.wei","roles":["on-call"],"reason":"joined"}`).ok().into(&made)
		holds()
		c.ahead(actions.OneTimeFor - time.Minute)
		c.login("li.wei", made.Password, "").ok() // late, and in time
		c.ahead(time.Minute)
		rows := c.rows()
		c.login("li.wei", "wrong", "").refused(http.StatusUnauthorized, "bad_credentials") // who guesses learns nothing
		if p := c.login("li.wei", made.Password, "").refused(http.StatusForbidden, "password_expired"); !strings.Contains(p.Hint, "reset") {
			t.Errorf("the refusal is %+v", p)
		}
		refused := c.auditRows("action=sign_in_refused&target=li.wei")
		if len(refused) != 1 || c.rows() != rows+1 || !strings.Contains(string(refused[0].Details), `"code":"password_expired"`) || strings.Contains(string(refused[0].Details), made.Password) {
			t.Errorf("the trail has %+v", refused)
		}
		for lang, text := range map[string]string{"en": "ask a user admin to reset the account", "zh": "请联系用户管理员重置该账号"} {
			r := c.browse(http.MethodPost, "/login", url.Values{"login": {"li.wei"}, "password": {made.Password}}, "Cookie", "dispatch_lang="+lang)
			if r.status != http.StatusForbidden || !strings.Contains(string(r.body), text) {
				t.Errorf("in %s: %d %s", lang, r.status, r.body)
			}
		}
		c.page(actions.UserAdmin, http.MethodGet, "/access", nil).words("one-time password, expired")

		c.post(actions.UserAdmin, "/accounts/li.wei/reset", `{"reason":"was late"}`).ok().into(&made)
		holds()
		cookie := c.login("li.wei", made.Password, "").ok().cookie()
		c.ahead(20 * time.Minute)
		if r := c.browse(http.MethodPost, "/account/password", url.Values{"password": {made.Password}, "new": {password}}, "Cookie", cookie); r.status != http.StatusSeeOther {
			t.Fatalf("change: %d %s", r.status, r.body)
		}
		c.ahead(2 * actions.OneTimeFor)
		c.login("li.wei", password, "").ok() // an own one has no end
		if a := must2(c.store.Account(t.Context(), "li.wei"))(t); !a.PasswordUntil.IsZero() {
			t.Errorf("its own password ends at %v", a.PasswordUntil)
		}
	})
}

// A break-glass account whose password nobody changed in time is no way in: the page
// says so in calm, and so does who arms it too late.
func TestABreakGlassPasswordExpiresToo(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	var made madeAccount
	c.make(actions.UserAdmin, `{"login":"glass","roles":["on-call"],"break_glass":true,"reason":"for the night"}`).ok().into(&made)
	c.page(actions.Administrator, http.MethodGet, "/access", nil).words("break glass, not armed")
	c.ahead(actions.OneTimeFor)
	c.page(actions.UserAdmin, http.MethodGet, "/access", nil).words("one-time password, expired")
	c.post(actions.UserAdmin, "/accounts/glass/arm", `{"reason":"the provider is down"}`).ok()
	c.login("glass", made.Password, "").refused(http.StatusForbidden, "password_expired")
}

// The first administrator's holds until its first use: nobody could make another.
func TestTheFirstAdministratorsPasswordHolds(t *testing.T) {
	t.Parallel()
	c := empty(t, "sqlite", nil)
	c.account(ledger.Account{Login: "admin", Roles: []string{actions.Administrator}, MustChange: true})
	c.ahead(365 * 24 * time.Hour)
	c.login("admin", password, "").ok()
}

// The page says how long a password holds where it hands one out.
func TestThePageSaysHowLongAPasswordHolds(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	cookie := c.signedIn(actions.UserAdmin)
	for lang, text := range map[string]string{"en": "It opens the account for 24\u202fh, until ", "zh": "24\u202fh 内有效，"} {
		form := url.Values{"login": {"new-" + lang}, "roles": {actions.Viewer}, "reason": {"joined"}, "key": {lang}}
		for _, path := range []string{"/access/accounts", "/access/accounts/new-" + lang + "/reset"} {
			form.Set("key", lang+path)
			r := c.browse(http.MethodPost, path, form, "Cookie", cookie+"; dispatch_lang="+lang).ok()
			if !strings.Contains(string(r.body), text) {
				t.Errorf("%s in %s has no %q:\n%s", path, lang, text, r.body)
			}
		}
	}
}
