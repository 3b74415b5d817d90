package admin_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
)

// shown is the body as a person reads it: the narrow space between a number and its unit is a space.
func (r *reply) shown() string {
	return strings.ReplaceAll(string(r.body), "\u202f", " ")
}

// says fails unless the page shows every text.
func (r *reply) says(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.shown(), text) {
			r.t.Errorf("%s does not say %q: %.3000s", r.what, text, r.body[bytes.Index(r.body, []byte("<h1")):])
		}
	}
}

func TestDomainsAreProposedAndApprovedOnThePage(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.do.FourEyes = true
	form := url.Values{"host": {"WAPABST3.A.com.cn."}, "reason": {"third cluster"}, "key": {"k1"}}
	for _, role := range []string{actions.Viewer, actions.ReleaseEngineer, actions.Approver} {
		c.signedIn(role)
	}
	c.untouched(func() {
		c.page(actions.Viewer, http.MethodPost, "/domains", form).forbidden()
		bad := url.Values{"host": {"evil.example"}, "reason": {"third cluster"}}
		r := c.page(actions.ReleaseEngineer, http.MethodPost, "/domains", bad)
		if r.status != http.StatusUnprocessableEntity {
			t.Errorf("a host outside: %d", r.status)
		}
		r.says("outside_suffixes", `value="evil.example"`, `value="third cluster"`)
	})
	r := c.page(actions.ReleaseEngineer, http.MethodPost, "/domains", form)
	if r.status != http.StatusSeeOther || r.header.Get("Location") != "/domains/wapabst3.a.com.cn" {
		t.Fatalf("proposing answers %d to %q: %s", r.status, r.header.Get("Location"), r.body)
	}
	c.page(actions.Viewer, http.MethodGet, "/domains", nil).ok().says("wapabst3.a.com.cn", "proposed by release-engineer, not approved", "mobile/sh/sh-main", "wait for a second person: 1")
	own := c.page(actions.ReleaseEngineer, http.MethodGet, "/domains/wapabst3.a.com.cn", nil).ok()
	if strings.Contains(string(own.body), "/approve") {
		t.Error("the proposer is offered to approve")
	}
	c.page(actions.Approver, http.MethodGet, "/domains/wapabst3.a.com.cn", nil).ok().says(`action="/domains/wapabst3.a.com.cn/approve"`)
	c.page(actions.ReleaseEngineer, http.MethodPost, "/domains/wapabst3.a.com.cn/approve", url.Values{"reason": {"mine"}}).forbidden()
	if r := c.page(actions.Approver, http.MethodPost, "/domains/wapabst3.a.com.cn/approve", url.Values{"reason": {"the certificate is ours"}}); r.status != http.StatusSeeOther {
		t.Errorf("approving answers %d", r.status)
	}
	c.page(actions.Viewer, http.MethodGet, "/domains/wapabst3.a.com.cn", nil).ok().says("approved by approver")
	if r := c.page(actions.Viewer, http.MethodGet, "/domains/nobody.a.com.cn", nil); r.status != http.StatusNotFound {
		t.Errorf("an unknown host is %d", r.status)
	}
}

// forbidden fails unless the page is refused.
func (r *reply) forbidden() {
	r.t.Helper()
	if r.status != http.StatusForbidden {
		r.t.Errorf("%s: %d, want 403", r.what, r.status)
	}
}

// Health is said in words and marks, in both languages, and never by colour alone.
func TestDomainsShowTheirHealth(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.page(actions.Viewer, http.MethodGet, "/domains", nil).ok().says("Probes are off")
	dangling := seen("control-1", "corp.bank.example", "down", "000", 0)
	dangling.Problem = "dangling_cname: corp.bank.example is an alias of x.cdn.example, which does not exist"
	c.probed(append(allUp("control-1"), seen("control-1", spareHost, "down", "11000", 0), dangling)...)
	r := c.page(actions.Viewer, http.MethodGet, "/domains", nil).ok()
	r.says("2 of the last 5 answered", "○○○●●", "connect: refused", "alias of nothing", "41 d left")
	if rows := string(r.body); strings.Index(rows, "corp.bank.example") > strings.Index(rows, "wapabst.a.com.cn") {
		t.Error("what somebody must look at does not come first")
	}
	c.page(actions.Viewer, http.MethodGet, "/domains/"+spareHost, nil).ok().says("control-1", "connect: refused", "stands by")
	c.browse(http.MethodGet, "/domains/corp.bank.example", nil, "Cookie", c.signedIn(actions.Viewer)+"; dispatch_lang=zh").ok().says("谁注册了那个名字", "探测记录")
}
