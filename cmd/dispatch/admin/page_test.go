package admin_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/ledger"
)

// cheap is Passwords for tests that are not about hashing; it counts the work.
type cheap struct{ made, compared atomic.Int64 }

func (c *cheap) Hash(_ context.Context, password string) (string, error) {
	c.made.Add(1)
	return "cheap:" + password, nil
}

func (c *cheap) Matches(_ context.Context, password, hash string) (bool, error) {
	c.compared.Add(1)
	return "cheap:"+password == hash, nil
}

// cookies are those of people who have signed in, by role.
type cookies struct {
	mu sync.Mutex
	of map[string]string
}

func newCookies() *cookies { return &cookies{of: map[string]string{}} }

// password is that of every account that tests make.
const password = "correct horse battery"

// person makes a local account, which needs no new password, and signs in.
func (c *control) person(login string, roles ...string) (cookie string) {
	c.t.Helper()
	must(c.t, c.store.SaveAccount(c.t.Context(), ledger.Account{Login: login, Roles: roles, Password: "cheap:" + password}, ledger.Change{By: "test", Reason: "test"}))
	return c.login(login, password, "").ok().cookie()
}

// login signs in by the API.
func (c *control) login(login, password, code string) *reply {
	c.t.Helper()
	return c.post("", "/login", jsonOf(c.t, map[string]string{"login": login, "password": password, "code": code}))
}

// cookie is the session that an answer begins, as a browser sends it.
func (r *reply) cookie() string {
	r.t.Helper()
	for _, line := range r.header.Values("Set-Cookie") {
		if pair, _, _ := strings.Cut(line, ";"); strings.HasPrefix(pair, "__Host-dispatch=") {
			return pair
		}
	}
	r.t.Fatalf("%s: no session in %q", r.what, r.header.Values("Set-Cookie"))
	return ""
}

// signedIn is the session of a person with the one role, whose login is the role.
func (c *control) signedIn(role string) string {
	c.t.Helper()
	c.cookies.mu.Lock()
	defer c.cookies.mu.Unlock()
	if c.cookies.of[role] == "" {
		c.cookies.of[role] = c.person(role, role)
	}
	return c.cookies.of[role]
}

// page opens a page as somebody with the role; role "" has not signed in. A form
// makes the body of a POST. Redirects are answers and are not followed.
func (c *control) page(role, method, path string, form url.Values) *reply {
	c.t.Helper()
	var headers []string
	if role != "" {
		headers = []string{"Cookie", c.signedIn(role)}
	}
	return c.browse(method, path, form, headers...)
}

// browse sends what a browser sends from a page of ours. headers go over what it says.
func (c *control) browse(method, path string, form url.Values, headers ...string) *reply {
	c.t.Helper()
	root := strings.TrimSuffix(c.url, "/api/v1")
	req, err := http.NewRequestWithContext(c.t.Context(), method, root+path, strings.NewReader(form.Encode()))
	must(c.t, err)
	req.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Origin", root)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	must(c.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(c.t, err)
	return &reply{t: c.t, what: method + " " + path, status: resp.StatusCode, header: resp.Header, body: body}
}

func TestASessionOpensTheAPI(t *testing.T) {
	each(t, func(t *testing.T, c *control) {
		cookie := c.signedIn("on-call")
		var me struct {
			Name  string
			Roles []string
		}
		c.call(request{method: http.MethodGet, path: "/me", headers: []string{"Cookie", cookie}}).ok().into(&me)
		if me.Name != "on-call" || len(me.Roles) != 1 || me.Roles[0] != "on-call" {
			t.Errorf("the session is %+v", me)
		}
		if r := c.page("on-call", http.MethodGet, "/login", nil); r.status >= 500 {
			t.Errorf("/login answers %d %s", r.status, r.body)
		}
	})
}

// Pages that stand below others lead back to them.
func TestPagesLeadBack(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	n := strconv.FormatUint(c.current(), 10)
	for path, to := range map[string]string{"/releases/" + n: "/changes?tab=history", "/releases/0/diff/" + n: "/changes?tab=history",
		"/lists/staff": "/lists", "/lists/staff/import": "/lists/staff", "/calls": "/services"} {
		c.page(actions.Administrator, http.MethodGet, path, nil).contains(200, `<p><a href="`+to+`">← `)
	}
}
