package browser

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/pquerna/otp/totp"
)

// What a team does in a day, each by the pages alone.
func TestTeam(t *testing.T) {
	t.Parallel()
	g := newTeam(t)
	t.Run("a second person", g.twoPeople)
	t.Run("a list", g.list)
	t.Run("a schedule", g.schedule)
	t.Run("explain", g.explain)
	t.Run("language and theme", g.looks)
	t.Run("audit", g.audit)
	t.Run("second factor", g.factor)
	t.Run("break-glass", g.glass)
}

// form is the selector of a form on a page of one thing.
func form(end string) string { return fmt.Sprintf(`form[method=post][action$=%q] `, end) }

// send fills a form's reason and sends it.
func send(w *Tab, form string) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(Type(form+"[name=reason]", "agreed on the phone"), w.Go(form+"button"))
}

// A host and a change to it need two people; whoever wrote it cannot sign it.
func (g *team) twoPeople(t *testing.T) {
	author, second := g.as(t, "release-engineer", Look{}), g.as(t, "approver", Look{})
	author.Do(t, chromedp.Navigate(g.Console+"/domains"), Type(form("/domains")+"[name=host]", "wapabst3.a.com.cn"), send(author, form("/domains")))
	author.Do(t, chromedp.Navigate(g.Console+"/domains/wapabst3.a.com.cn"))
	if strings.Contains(author.HTML(), "/domains/wapabst3.a.com.cn/approve") {
		t.Error("the proposer is offered to approve")
	}
	second.Do(t, chromedp.Navigate(g.Console+"/domains/wapabst3.a.com.cn"), send(second, form("/approve")))

	change(t, author, g.Server, "A third endpoint", "wapabst2.a.com.cn", "wapabst3.a.com.cn")
	at, err := chromedp.Run(author.Ctx, chromedp.Location())
	must(t, err)
	author.Do(t, send(author, form("/submit")), Reads("h1", "A third endpoint"))
	if disabled, err := chromedp.Run(author.Ctx, chromedp.Evaluate[bool](`document.querySelector('form[action$="/publish"] button').disabled`)); err != nil || !disabled {
		t.Errorf("the author can publish alone: %v", err)
	}
	second.Do(t, chromedp.Navigate(at), send(second, form("/approve")))
	author.Do(t, chromedp.Navigate(at), send(author, form("/publish")), chromedp.Navigate(g.Console+"/rules"), Reads("main", "wapabst3.a.com.cn"))
}

// A file with a bad line is reported and changes nothing until it is applied.
func (g *team) list(t *testing.T) {
	n := pick(1000, 1_000_000)
	file := filepath.Join(t.TempDir(), "staff.csv")
	var text strings.Builder
	text.WriteString("id\nd-1001\nd-1002\nd-\x01\n")
	for i := range n {
		fmt.Fprintf(&text, "d-%08d\n", i)
	}
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	w := g.as(t, "list-manager", Look{})
	w.Do(t, chromedp.Navigate(g.Console+"/lists/staff-devices/import"), Type("#import [name=reason]", "new phones"), Type("#import [name=max_bad]", "5"),
		chromedp.SetUploadFiles(chromedp.CSS("#import [name=file]"), []string{file}))
	begin, before := time.Now(), memory(t, g.PID())
	must(t, w.Take(chromedp.Click(chromedp.CSS("#import form button")), Until(`location.pathname === "/lists/staff-devices" || document.querySelector("[role=alert]")`)))
	took := time.Since(begin)
	w.Do(t, Reads("#said", "1 bad line"))
	w.Do(t, send(w, form("/apply")), Reads("dl.facts", "0"))
	for id, want := range map[string]string{"d-00000007": ".badge.ok", "d-nobody": ".badge.off"} {
		w.Do(t, Type("#search [name=id]", id), chromedp.Click(chromedp.CSS("#search button")), Until(`document.querySelector("#search [role=status] `+want+`")`))
	}
	figure("WALK", "%d ids brought in %s (10 s are promised for 1,000,000), memory %d to %d MiB", n, took.Round(10*time.Millisecond), before>>20, memory(t, g.PID())>>20)
	if *full && took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A change with a time stands in the list of scheduled ones, in its own zone.
func (g *team) schedule(t *testing.T) {
	author, second := g.as(t, "release-engineer", Look{}), g.as(t, "approver", Look{})
	change(t, author, g.Server, "In the small hours", "session_max: 12h", "session_max: 11h")
	at, err := chromedp.Run(author.Ctx, chromedp.Location())
	must(t, err)
	author.Do(t, send(author, form("/submit")))
	second.Do(t, chromedp.Navigate(at), send(second, form("/approve")))
	author.Do(t, chromedp.Navigate(at), Type("[name=at]", "2099-02-05T02:30 Asia/Shanghai"), send(author, form("/schedule")),
		chromedp.Navigate(g.Console+"/changes?tab=scheduled"), Reads("main table", "In the small hours"), Reads("main table", "02:30"))
}

// A device of the list is explained as staff.
func (g *team) explain(t *testing.T) {
	w := g.as(t, "on-call", Look{})
	w.Do(t, chromedp.Navigate(g.Console+"/explain?app=mobile"), Type("[name=device_id]", "d-1001"), chromedp.Click(chromedp.CSS("main form.card button")),
		Reads("#answer", "staff-devices"), Reads("#answer .big", "wapabst.a.com.cn"))
}

// Whoever chooses a language or a theme keeps it.
func (g *team) looks(t *testing.T) {
	w := g.as(t, "viewer", Look{})
	w.Do(t, chromedp.Navigate(g.Console+"/rules"), chromedp.Click(chromedp.CSS("details.menu summary")), w.Go(`a[href*="lang=zh"]`), Until(`document.documentElement.lang === "zh-Hans"`),
		chromedp.Navigate(g.Console+"/"), Reads("h1", "总览"),
		chromedp.Click(chromedp.CSS("details.menu summary")), w.Go(`a[href*="theme=dark"]`), Until(`document.documentElement.dataset.theme === "dark"`),
		chromedp.Navigate(g.Console+"/audit"), Until(`document.documentElement.dataset.theme === "dark" && getComputedStyle(document.body).colorScheme !== "light"`))
}

// The trail is verified on the page, and its file runs nothing in a spreadsheet.
func (g *team) audit(t *testing.T) {
	must(t, g.Call(t.Context(), g.Token, "PATCH /lists/staff-devices", map[string]any{"add": []string{"d-formula"}, "reason": `=HYPERLINK("http://elsewhere.example","x")`}, nil))
	w := g.as(t, "viewer", Look{})
	w.Do(t, chromedp.Navigate(g.Console+"/audit"), w.Go(form("/audit/verify")+"button"), Reads("[role=status] .badge.ok", "●"))
	text := w.download(t, g.Server, "/audit/export", "format=csv")
	if !strings.Contains(text, "HYPERLINK") || strings.Contains(text, "\n=") || strings.Contains(text, ",=") || strings.Contains(text, `,"=`) {
		t.Errorf("a cell of the file is a formula, or the row is missing:\n%.2000s", text)
	}
}

// factor adds a second factor, and signs in with it.
func (g *team) factor(t *testing.T) {
	w := g.as(t, "on-call", Look{})
	w.Do(t, chromedp.Navigate(g.Console+"/account"))
	secret, err := chromedp.Run(w.Ctx, chromedp.Value(chromedp.CSS("[name=secret]")))
	must(t, err)
	code := func(at time.Time) string {
		code, err := totp.GenerateCode(secret, at)
		must(t, err)
		return code
	}
	w.Do(t, Type(form("/account/factor")+"[name=password]", Chosen), Type(form("/account/factor")+"[name=code]", code(time.Now())), w.Go(form("/account/factor")+"button"),
		Until(`!document.querySelector("[name=secret]")`))
	other := tab(t, g.Server, Look{})
	other.Do(t, chromedp.Navigate(g.Console+"/login"), Type("[name=login]", "on-call"), Type("[name=password]", Chosen), other.Go("main form button"), Until(`document.querySelector("[role=alert]")`),
		// a code is good once; the next one comes within its tolerance
		Type("[name=login]", "on-call"), Type("[name=password]", Chosen), Type("[name=code]", code(time.Now().Add(30*time.Second))), other.Go("main form button"), Until(`location.pathname === "/"`))
}

// A break-glass account signs in only while it is armed, and every page says so.
func (g *team) glass(t *testing.T) {
	g.account(t, "glass", true, "on-call", "break-glass")
	w := tab(t, g.Server, Look{})
	must(t, w.SignIn(g.Server, "glass", g.passwords["glass"]))
	w.Do(t, Until(`document.querySelector("[role=alert]")`))
	admin := g.as(t, "user-admin", Look{})
	arm := form("/access/accounts/glass/arm")
	admin.Do(t, chromedp.Navigate(g.Console+"/access"), chromedp.Evaluate[chromedp.Void](opened), send(admin, arm))
	must(t, w.FirstSignIn(g.Server, "glass", g.passwords["glass"]))
	w.Do(t, chromedp.Navigate(g.Console+"/emergency"), Until(`document.querySelector(".strip.bad")`))
}

// download sends a form as the one who has signed in, and gives what comes.
func (t *Tab) download(tb testing.TB, s *Server, path, form string) string {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, s.Console+path, strings.NewReader(form))
	must(tb, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", s.Console)
	for _, c := range t.cookies(tb, s) {
		req.AddCookie(c)
	}
	resp, err := http.DefaultClient.Do(req)
	must(tb, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(tb, err)
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		tb.Errorf("%s: %s, %s", path, resp.Status, resp.Header.Get("Content-Disposition"))
	}
	return string(text)
}

// cookies are the tab's for the server.
func (t *Tab) cookies(tb testing.TB, s *Server) (all []*http.Cookie) {
	tb.Helper()
	got, err := chromedp.Call(t.Ctx, network.GetCookies, network.GetCookiesParams{URLs: []string{s.Console + "/"}})
	must(tb, err)
	for _, c := range got.Cookies {
		all = append(all, &http.Cookie{Name: c.Name, Value: c.Value})
	}
	return all
}

// HTML is the page as it stands.
func (t *Tab) HTML() string {
	text, err := chromedp.Run(t.Ctx, chromedp.Evaluate[string]("document.documentElement.outerHTML"))
	if err != nil {
		return err.Error()
	}
	return text
}

// memory is what the process holds now, in bytes.
func memory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(t, err)
	var all, resident int64
	_, err = fmt.Sscan(string(text), &all, &resident)
	must(t, err)
	return resident * int64(os.Getpagesize())
}
