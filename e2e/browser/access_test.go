package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// opened is everything that a page keeps folded.
const opened = `document.querySelectorAll("details").forEach(d => { d.open = true; })`

// Every page, in both themes and both languages, breaks no rule of WCAG 2.2 A and AA,
// with everything unfolded that can be.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	axe, err := Axe(t.Context(), ".")
	must(t, err)
	s := serve(t, "--demo")
	must(t, s.Furnish(t.Context()))
	w := tab(t, s, Look{})
	audit := func(path, name string) {
		w.Do(t, chromedp.Navigate(s.Console+path), chromedp.Evaluate[chromedp.Void](opened))
		violations, err := w.Audit(axe)
		must(t, err)
		for _, v := range violations {
			t.Errorf("%s, %s: %s", path, name, v)
		}
	}
	audit("/login", "light")
	must(t, w.FirstSignIn(s, "admin", s.Password))
	paths, err := w.Pages(s)
	must(t, err)
	for _, must := range []string{"/", "/emergency", "/domains", "/rules", "/gray", "/lists", "/explain", "/changes", "/audit", "/fleet", "/access", "/settings", "/account", "/map", "/services", "/queues", "/calls"} {
		if !strings.Contains(" "+strings.Join(paths, " ")+" ", " "+must+" ") {
			t.Errorf("no link leads to %s; links lead to %q", must, paths)
		}
	}
	paths = append(paths, "/services/"+GrownService, "/calls?id="+PickedCall, "/calls?id=nobody", "/map?problem=1")
	for i, path := range paths {
		for j, look := range []Look{{}, {Dark: true}, {Language: "zh", Width: 390, Height: 844}, {Dark: true, Language: "zh"}} {
			if !*full && i%4 != j { // each page in one look, each look on every fourth page
				continue
			}
			must(t, w.Wear(look))
			audit(path, fmt.Sprintf("dark %t, language %q", look.Dark, look.Language))
		}
	}
	if got := w.Strangers(); len(got) > 0 {
		t.Errorf("pages asked elsewhere: %q", got)
	}
	figure("WALK", "%d pages break no accessibility rule", len(paths))
}

// The keyboard alone reaches the applied swap.
func TestKeyboardSwaps(t *testing.T) {
	s := serve(t, "--demo", "--demo-traffic", "off")
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	w.Do(t, chromedp.Navigate(s.Console+"/"))
	w.press(t, "a.button.danger[href='/emergency']")
	w.Do(t, Until(`location.pathname === "/emergency" && document.readyState === "complete"`))
	w.press(t, `section[aria-label="mobile sh"] .do > form button.danger`)
	w.Do(t, Until(`document.activeElement.name === "confirm"`), chromedp.KeyEvent(Environment+"/sh")) // the page puts the cursor where one types
	w.press(t, "form.panel button.danger")
	w.Do(t, Reads("#progress", "1/1"))
}

// press moves by the tabulator until the element has the focus, and presses Enter.
func (t *Tab) press(tb testing.TB, selector string) {
	tb.Helper()
	const most = 80 // stops on the way
	for range most {
		t.Do(tb, chromedp.KeyEvent("\t"))
		there, err := chromedp.Run(t.Ctx, chromedp.Evaluate[bool](fmt.Sprintf("document.activeElement.matches(%q)", selector)))
		must(tb, err)
		if there {
			t.Do(tb, chromedp.KeyEvent("\r"))
			return
		}
	}
	tb.Fatalf("%d tabs do not reach %s\n%s", most, selector, t.Text())
}
