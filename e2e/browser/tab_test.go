package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// Tab opens a window, which ends with the test. own are the origins that its pages may ask.
func (c *Chromium) Tab(tb testing.TB, look Look, own ...string) *Tab {
	tb.Helper()
	t, err := c.Open(look, own...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	return t
}

// Do takes steps, and fails the test when one cannot be taken.
func (t *Tab) Do(tb testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	if err := t.Take(steps...); err != nil {
		tb.Fatal(err)
	}
}

// On a phone the pages stand behind one button, whole, with and without JavaScript.
func TestPagesOpenOnAPhone(t *testing.T) {
	t.Parallel()
	s := serve(t, "--demo", "--demo-traffic", "off", "--region", "sh")
	for i, phone := range []Look{{Width: 390, Height: 844}, {Width: 390, Height: 844, NoScript: true}} {
		w := tab(t, s, phone)
		if i == 0 {
			must(t, w.FirstSignIn(s, "admin", s.Password))
		} else {
			must(t, w.SignIn(s, "admin", Chosen))
		}
		w.Do(t, chromedp.Navigate(s.Console+"/"), Until(`!document.querySelector("#pages").checkVisibility()`), chromedp.Click(chromedp.CSS(".bar .pages")),
			Until(`[...document.querySelectorAll("#pages a")].every(a => { const r = a.getBoundingClientRect(); return r.height > 0 && r.left >= 0 && r.right <= 390 && a.scrollWidth <= a.clientWidth; })`),
			w.Go(`#pages a[href="/settings"]`), Reads("h1", "Settings"))
	}
}
