package pages

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"dispatch.example/dispatch/admin/actions"
	"dispatch.example/dispatch/admin/signin"
	"dispatch.example/dispatch/internal/fault"
)

func TestPagesSpeakTheBrowsersLanguage(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	for _, row := range []struct {
		name, accept, cookie, lang, title string
	}{
		{"nothing asked for", "", "", "en", "Overview"},
		{"Chinese asked for", "zh-CN,zh;q=0.9,en;q=0.8", "", "zh-Hans", "总览"},
		{"an unknown language", "fr-FR", "", "en", "Overview"},
		{"nonsense", ";;;,", "", "en", "Overview"},
		{"chosen before", "zh-CN", "dispatch_lang=en", "en", "Overview"},
		{"a cookie that names none", "zh-CN", "dispatch_lang=xx", "zh-Hans", "总览"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := c.get("/", "Accept-Language", row.accept, "Cookie", row.cookie)
			a.has(t, `<html lang="`+row.lang+`"`, "<h1>"+row.title+"</h1>")
		})
	}
}

func TestLanguageAndThemeAreKeptByALink(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	a := c.get("/emergency?lang=zh&theme=dark&done=1")
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/emergency?done=1" {
		t.Errorf("%d to %s", a.StatusCode, a.Header.Get("Location"))
	}
	kept := map[string]string{}
	for _, cookie := range a.Cookies() {
		kept[cookie.Name] = cookie.Value
	}
	if kept[langCookie] != "zh" || kept[themeCookie] != "dark" {
		t.Errorf("kept %v", kept)
	}
	c.get("/", "Cookie", "dispatch_theme=dark").has(t, `data-theme="dark"`)
	if strings.Contains(c.get("/", "Cookie", "dispatch_theme=x\"y").text, "data-theme") {
		t.Error("a theme that is none was taken")
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	signedOut := fault.New(fault.Unauthenticated, "signed_out", "nobody is signed in")
	for _, row := range []struct {
		name, method, path string
		who                signin.Visitor
		err                error
		fragment           bool
		status             int
		to, text           string
	}{
		{name: "signed out", method: "GET", path: "/fleet?x=1", err: signedOut, status: 303, to: "/login?next=%2Ffleet%3Fx%3D1"},
		{name: "signed out, with a form", method: "POST", path: "/emergency", err: signedOut, status: 303, to: "/login?next=%2F"},
		{name: "signed out, in the script", method: "GET", path: "/fleet", err: signedOut, fragment: true, status: 401},
		{name: "must change the password", method: "GET", path: "/", status: 303, to: "/account",
			who: signin.Visitor{Actor: actions.Actor{Name: "x", Roles: []string{actions.Administrator}}, MustChange: true}},
		{name: "may not", method: "GET", path: "/explain", status: 403, text: "ask someone with one of these roles",
			who: signin.Visitor{Actor: actions.Actor{Name: "x", Roles: []string{actions.Viewer}}}},
		{name: "no role at all", method: "GET", path: "/", status: 403, who: signin.Visitor{Actor: actions.Actor{Name: "x"}}},
		{name: "unknown path", method: "GET", path: "/nothing", status: 404, text: "unknown_path",
			who: signin.Visitor{Actor: actions.Actor{Name: "x", Roles: []string{actions.Viewer}}}},
		{name: "wrong method", method: "PUT", path: "/emergency", status: 405, text: "unknown_method",
			who: signin.Visitor{Actor: actions.Actor{Name: "x", Roles: []string{actions.Viewer}}}},
		{name: "sessions cannot be read", method: "GET", path: "/", status: 503, text: "database_slow",
			err: fault.New(fault.Unavailable, "database_slow", "the database is slow").WithHint("try again")},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := open(t, bank)
			c.who.who, c.who.err = row.who, row.err
			var headers []string
			if row.fragment {
				headers = []string{"X-Fragment", "replicas"}
			}
			a := c.ask(row.method, row.path, "", headers...)
			if a.StatusCode != row.status || a.Header.Get("Location") != row.to {
				t.Errorf("%d to %q, want %d to %q", a.StatusCode, a.Header.Get("Location"), row.status, row.to)
			}
			a.has(t, row.text)
		})
	}
}

func TestUnknownPathIsAProblemForWhoReadsNoPages(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	for path, accept := range map[string]string{"/nothing": "application/json", "/api/v1/nothing": "text/html"} {
		a := c.ask(http.MethodGet, path, "", "Accept", accept)
		var body fault.Body
		if err := json.Unmarshal([]byte(a.text), &body); err != nil || body.Code != "unknown_path" || a.StatusCode != 404 {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.text)
		}
	}
}

// Every answer, also a refusal, says that nobody may frame it and that nothing runs
// but the script of the console.
func TestSEC12NobodyFramesThePages(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Administrator)
	param := regexp.MustCompile(`\{[a-z]+\}`)
	for _, row := range table() {
		method, path, _ := strings.Cut(row.pattern, " ")
		path = param.ReplaceAllString(strings.ReplaceAll(path, "{$}", ""), "1")
		if strings.HasPrefix(path, "/events/") || method != http.MethodGet {
			continue
		}
		a := c.get(path)
		for name, want := range map[string]string{"Content-Security-Policy": csp, "X-Frame-Options": "DENY",
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin"} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s %d: %s is %q", path, a.StatusCode, name, got)
			}
		}
	}
	for _, path := range []string{"/nothing", "/login"} {
		if got := c.get(path).Header.Get("Content-Security-Policy"); !strings.Contains(got, "frame-ancestors 'none'") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestPanicEndsOneRequest(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	c.pages.mux.Handle("GET /breaks", c.pages.answer(page{"show-app", "GET /breaks", func(*visit) error { panic("secret") }}))
	a := c.get("/breaks").has(t, "internal error")
	if a.StatusCode != 500 || strings.Contains(a.text, "secret") {
		t.Errorf("%d %s", a.StatusCode, a.text)
	}
}

func TestPagesLiveWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	c.book.fails = errors.New("disk I/O error")
	for path, want := range map[string]string{"/emergency": "Health, traffic and recent changes are unknown", "/": "What is not in memory is missing here"} {
		a := c.get(path).has(t, want, "database does not answer", "wapabst.a.com.cn")
		if a.StatusCode != 200 {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}

func TestFragmentIsTheBlockAlone(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	a := c.get("/emergency", "X-Fragment", "board").has(t, `id="board"`, `id="said"`)
	if strings.Contains(a.text, "<html") || a.Header.Get("X-Fragment") != "board" {
		t.Errorf("not a fragment: %s", a.text)
	}
	for _, name := range []string{"layout", "main", "nothing", "../layout"} {
		if a := c.get("/emergency", "X-Fragment", name); !strings.Contains(a.text, "<html") {
			t.Errorf("%s is a fragment", name)
		}
	}
}

func TestMessageIsShownOnce(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Administrator)
	c.pages.mux.Handle("POST /change", c.pages.answer(page{"adopt", "POST /change",
		func(v *visit) error { return v.done("/fleet", "fleet.adopted", "Release", "<b>7</b>") }}))
	a := c.post("/change", url.Values{})
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/fleet" {
		t.Fatalf("%d to %s", a.StatusCode, a.Header.Get("Location"))
	}
	said := a.Cookies()[0]
	shown := c.get("/fleet", "Cookie", said.Name+"="+said.Value).has(t, "v&lt;b&gt;7&lt;/b&gt; is in the database again.", `role="status"`)
	if cookie := shown.Cookies()[0]; cookie.Name != saidCookie || cookie.MaxAge >= 0 {
		t.Errorf("the message stays: %v", cookie)
	}
	for _, forged := range []string{"x", "e30", "eyJtIjoiZXZpbCJ9"} {
		if a := c.get("/fleet", "Cookie", saidCookie+"="+forged); strings.Contains(a.text, `role="status"`) || a.StatusCode != 200 {
			t.Errorf("%s: %d %s", forged, a.StatusCode, a.text)
		}
	}
	if a := c.post("/change", url.Values{}, "X-Fragment", "replicas"); a.StatusCode != http.StatusNoContent || a.Header.Get("X-Location") != "/fleet" {
		t.Errorf("in the script: %d %v", a.StatusCode, a.Header)
	}
}

// A page that no entry of the navigation leads to by itself marks the one that it
// belongs to.
func TestPagesMarkTheirPlaceInTheNavigation(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Administrator)
	for path, to := range map[string]string{"/": "/", "/calls": "/services", "/releases/1": "/changes", "/releases/0/diff/1": "/changes", "/lists/staff": "/lists", "/lists/staff/import": "/lists"} {
		text := c.get(path).text
		if want := `<a href="` + to + `" aria-current="page">`; strings.Count(text, `aria-current="page"`) != 1 || !strings.Contains(text, want) {
			t.Errorf("%s has not %s alone", path, want)
		}
	}
}

func TestFormHasALimit(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Administrator)
	a := c.post("/explain", url.Values{"attr": {strings.Repeat("x", maxForm)}})
	if a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d", a.StatusCode)
	}
	a.has(t, "too_large")
	if a := c.post("/explain", nil, "X-Fragment", "answer"); a.StatusCode/100 == 5 {
		t.Errorf("an empty form: %d %s", a.StatusCode, a.text)
	}
}

func TestAssetsAreKeptForEver(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.Viewer)
	path := must(c.pages.assets.path("app.css"))
	plain, small := c.get(path), c.get(path, "Accept-Encoding", "gzip")
	unpacked := string(must(io.ReadAll(must(gzip.NewReader(bytes.NewReader([]byte(small.text)))))))
	if unpacked != plain.text || len(small.text) >= len(plain.text)/2 {
		t.Errorf("%d bytes of gzip for %d", len(small.text), len(plain.text))
	}
	if got := plain.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
		t.Errorf("Cache-Control: %s", got)
	}
	if got := plain.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/css") {
		t.Errorf("Content-Type: %s", got)
	}
	if a := c.get("/static/app.css"); a.StatusCode != http.StatusNotFound {
		t.Errorf("without its hash: %d", a.StatusCode)
	}
}

// The page of the emergency is small enough for a bad line: 50 KB with what it loads.
func TestEmergencyPageIsSmall(t *testing.T) {
	t.Parallel()
	c := open(t, bank, actions.OnCall)
	size := len(c.get("/emergency").text)
	for name, asset := range c.pages.assets {
		size += len(asset.small)
		t.Logf("%s: %d bytes, %d compressed", name, len(asset.plain), len(asset.small))
	}
	if size >= 50_000 {
		t.Errorf("%d bytes", size)
	}
}

func TestBarTellsTheStateOfTheFleet(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		b     bar
		level string
	}{
		{"all serve", bar{Live: 7, Served: 6, Of: 6}, "ok"},
		{"nothing is published", bar{Served: 1, Of: 1}, "warn"},
		{"one is behind", bar{Live: 7, Served: 5, Of: 6}, "warn"},
		{"one is silent", bar{Live: 7, Served: 5, Of: 5, Silent: 1}, "warn"},
		{"a canary runs", bar{Live: 7, Served: 6, Of: 6, Canary: "edge-1"}, "warn"},
		{"break glass", bar{Live: 7, Served: 6, Of: 6, Overrides: 1}, "bad"},
		{"the database is behind", bar{Live: 7, Served: 6, Of: 6, Lost: 2}, "bad"},
		{"the database is mute", bar{Live: 7, Served: 1, Of: 1, Mute: true}, "bad"},
		{"nobody answers", bar{Live: 7, Silent: 6}, "bad"},
	} {
		if got := row.b.Level(); got != row.level {
			t.Errorf("%s: %s, want %s", row.name, got, row.level)
		}
	}
	for env, want := range map[string]bool{"prod": true, "Production-2": true, "staging": false, "preprod": false, "": false} {
		if production(env) != want {
			t.Errorf("production(%q) is %v", env, !want)
		}
	}
}
