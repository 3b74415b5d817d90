package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/policy"
)

// grown is a node whose gray took all and is finished, in this document.
func grown(t *testing.T, c *control, document string) *graying {
	t.Helper()
	g := grays(t, c)
	g.do.FourEyes = false // whom the document moves is not what is tested
	g.publish(g.current(), document, "approve_big_move=true").ok()
	g.do.FourEyes = true
	g.planned(`,"steps":[10000]`)
	g.turn(actions.ReleaseEngineer, "start").ok()
	g.look()
	g.turn(actions.ReleaseEngineer, "finish").ok()
	return g
}

// defaults asks for the draft under an idempotency key.
func (g *graying) defaults(role, key string) *reply {
	g.t.Helper()
	return g.call(request{role: role, method: http.MethodPost, path: "/grays/mobile/gray", body: `{"reason":"it took all","action":"default"}`, headers: []string{"Idempotency-Key", key}})
}

// A gray that took all becomes the default by a draft: the policy goes, its region is
// what the app does otherwise, and nobody moves.
func TestAGrayBecomesTheDefaultByADraft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *control) {
		g := grays(t, c)
		g.planned(`,"steps":[10000]`)
		g.turn(actions.ReleaseEngineer, "start").ok()
		g.look()
		g.defaults(actions.ReleaseEngineer, "early").refused(http.StatusConflict, "gray_state")
		g.turn(actions.ReleaseEngineer, "finish").ok()
		if d := g.gray().Default; d == nil || !d.Ready {
			t.Fatalf("the gray says of its default: %+v", d)
		}
		g.defaults(actions.OnCall, "night").refused(http.StatusForbidden, "role")
		var first, again actions.GrayOutcome
		g.defaults(actions.ReleaseEngineer, "k-1").ok().into(&first)
		g.defaults(actions.ReleaseEngineer, "k-1").ok().into(&again)
		if first.Draft == "" || first.Draft != again.Draft || first.State != actions.GrayFinished {
			t.Fatalf("asked twice: %+v, then %+v", first, again)
		}
		if n := len(must2(g.do.Drafts(t.Context()))(t)); n != 1 {
			t.Errorf("%d drafts, want 1", n)
		}
		d := must2(g.do.Draft(t.Context(), first.Draft))(t)
		if len(d.Problems) > 0 || d.Preview == nil || d.Preview.Moved["mobile"] > 0 || len(d.Preview.Needs) > 0 || !d.Ready {
			t.Errorf("the draft has the problems %v, is ready %v, and would do %+v", d.Problems, d.Ready, d.Preview)
		}
		g.post(actions.ReleaseEngineer, "/drafts/"+d.ID+"/publish", fmt.Sprintf(`{"reason":"it took all","digest":%q}`, d.Digest)).ok()
		doc := g.keeper.Current().Manifest.Document.Apps[0]
		if doc.Otherwise.Region != "hf" || slices.ContainsFunc(doc.Policies, func(p policy.Policy) bool { return p.Key == "gray" }) || len(doc.Policies) != 3 {
			t.Errorf("then the app is %+v", doc)
		}
	})
}

// What cannot be drafted says why, by the API and on the page, which leads to the rules.
func TestAGrayThatCannotBecomeTheDefaultSaysWhy(t *testing.T) {
	t.Parallel()
	g := grown(t, published(t, "sqlite"), strings.Replace(grayDocument(t), "{key: gray, match_all: true,", "{key: gray, when: {platform: ios},", 1))
	if d := g.gray().Default; d == nil || d.Ready || d.Why != actions.DefaultConditions {
		t.Errorf("the gray says of its default: %+v", d)
	}
	p := g.defaults(actions.ReleaseEngineer, "k-1").refused(http.StatusUnprocessableEntity, "no_default")
	if text := fmt.Sprint(p.Problems); !strings.Contains(text, "has conditions") || !strings.Contains(p.Hint, "then: {region: hf} into policy gray") {
		t.Errorf("refused with %s, and then %s", text, p.Hint)
	}
	if n := len(must2(g.do.Drafts(t.Context()))(t)); n > 0 {
		t.Errorf("%d drafts", n)
	}
	g.page(actions.ReleaseEngineer, http.MethodGet, "/gray/mobile/gray", nil).
		contains(200, "Make hf the default", "has conditions: whoever does not meet them", `href="/rules"`, "!Open the draft")
}

// A share that ends below all, or that somebody changed since, is a part.
func TestAPartOfAGrayIsNoDefault(t *testing.T) {
	t.Parallel()
	g := grown(t, published(t, "sqlite"), grayDocument(t))
	must2(g.do.AbortGray(t.Context(), actions.Write{Actor: actions.Actor{Name: "night", Roles: []string{actions.OnCall}}, Reason: "it burns", Confirm: "gray"},
		actions.GrayRef{App: "mobile", Policy: "gray"}, false))(t)
	if d := g.gray().Default; d == nil || d.Why != actions.DefaultPart {
		t.Errorf("the gray says of its default: %+v", d)
	}
}

// The page opens the draft by a button, and goes there.
func TestAGrayBecomesTheDefaultByTheConsole(t *testing.T) {
	t.Parallel()
	g := grown(t, published(t, "sqlite"), grayDocument(t))
	g.page(actions.ReleaseEngineer, http.MethodGet, "/gray/mobile/gray", nil).contains(200, "Make hf the default", "Open the draft", "Nobody moves by it")
	g.page(actions.Viewer, http.MethodGet, "/gray/mobile/gray", nil).contains(200, "!Open the draft")
	g.browse(http.MethodGet, "/gray/mobile/gray", nil, "Cookie", g.signedIn(actions.ReleaseEngineer)+"; dispatch_lang=zh").contains(200, "将 hf 设为默认区域", "生成草稿")
	r := g.page(actions.ReleaseEngineer, http.MethodPost, "/gray/mobile/gray", url.Values{"reason": {"it took all"}, "action": {"default"}, "key": {"k-1"}})
	to := r.location()
	if !strings.HasPrefix(to, "/changes/") {
		t.Fatalf("it leads to %s", to)
	}
	g.page(actions.ReleaseEngineer, http.MethodGet, to, nil).contains(200, "hf is the default of mobile, without gray", "otherwise")
}
