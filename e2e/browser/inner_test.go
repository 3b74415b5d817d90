package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// On the map somebody reads a rule while the page is kept up to date, throws the kill
// switch, and takes it back without a script.
func TestMapAndItsKillSwitch(t *testing.T) {
	t.Parallel()
	s := serve(t, "--demo")
	w := tab(t, s, Look{Width: 390, Height: 844})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	const rule = `document.querySelector("details[id^='rule-order-core']")`
	w.Do(t, Again(s.Console+"/map", rule),
		chromedp.Evaluate[chromedp.Void](rule+`.open = true; document.querySelector("#map").dataset.old = "yes"`))
	must(t, w.TakeWithin(time.Minute, Until(`!document.querySelector("#map").dataset.old`))) // it asks again every 15 s
	w.Do(t, Until(rule+`.open`), Reads("details[open] pre", "service: order-core"))

	const confirm = Environment + "/cn-hangzhou"
	throw := func(w *Tab, button string) {
		t.Helper()
		w.Do(t, chromedp.Navigate(s.Console+"/map"), chromedp.Click(chromedp.CSS("#switch summary")),
			chromedp.WaitVisible(chromedp.CSS("#switch [name=reason]")), Type("#switch [name=reason]", "the rules are wrong"), Type("#switch [name=confirm]", confirm),
			Reads("#switch button", button), w.Go("#switch button"))
	}
	throw(w, "Throw the kill switch")
	w.Do(t, Reads("#said", "The kill switch is thrown"))
	for _, path := range []string{"/map", "/services", "/queues"} {
		w.Do(t, chromedp.Navigate(s.Console+path), Reads(".notice.bad", "rules do not count"))
	}
	plain := tab(t, s, Look{NoScript: true})
	must(t, plain.SignIn(s, "admin", Chosen))
	throw(plain, "Let the rules count again")
	plain.Do(t, Reads("#said", "Rules count again"), Until(`!document.querySelector("#map .notice.bad [role=alert], #map div.notice.bad")`))
}
