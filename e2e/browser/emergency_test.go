package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// walkTime is how long machine work of an emergency may take in CI; the promise is 3 s.
const walkTime = 10 * time.Second

// pageBytes is the most that the page of an emergency may bring over the network,
// script, style and icon with it: a phone on a bad line waits for them.
const pageBytes = 50_000

// From the overview, three clicks swap a region's domain and apps get the other one;
// the page says how far it has come, and takes it back.
func TestEmergencyInThreeClicks(t *testing.T) {
	s := serve(t, "--demo", "--demo-traffic", "off", "--region", "sh")
	for i, look := range []Look{{}, {NoScript: true}, {Width: 390, Height: 844}, {Width: 390, Height: 844, NoScript: true}} {
		name := fmt.Sprintf("%d wide", max(look.Width, 1280*(1-min(1, look.Width))))
		if look.NoScript {
			name += ", no script"
		}
		t.Run(name, func(t *testing.T) {
			w := tab(t, s, look)
			if i == 0 {
				must(t, w.FirstSignIn(s, "admin", s.Password))
			} else {
				must(t, w.SignIn(s, "admin", Chosen))
			}
			swapAndBack(t, s, w, name)
		})
	}
}

// overrides goes past the rules that hold who changes a region every few seconds.
const overrides = `document.querySelectorAll("form.panel [name=override]").forEach(e => e.click())`

func swapAndBack(t *testing.T, s *Server, w *Tab, name string) {
	const region = `section[aria-label="mobile sh"] `
	serves := func(want string) {
		t.Helper()
		if got, err := s.Domain(t.Context(), "app=mobile"); err != nil || got != want {
			t.Fatalf("/route answers %q, %v; want %q\n%s", got, err, want, w.Text())
		}
	}
	serves("wapabst.a.com.cn")
	w.Do(t, chromedp.Navigate(s.Console+"/"))
	before, begin := w.Bytes(), time.Now()
	w.Do(t, w.Go(`.bar a[href="/emergency"]`))
	bytes := w.Bytes() - before
	w.Do(t, chromedp.Click(chromedp.CSS(region+".do > form button.danger")), // asks, changes nothing
		chromedp.WaitVisible(chromedp.CSS(region+"form.panel [name=confirm]")),
		chromedp.Evaluate[chromedp.Void](overrides),
		chromedp.SendKeys(chromedp.CSS(region+"form.panel [name=confirm]"), Environment+"/sh"))
	serves("wapabst.a.com.cn")
	w.Do(t, chromedp.Click(chromedp.CSS(region+"form.panel button.danger")), Reads("#progress", "1/1"))
	took := time.Since(begin)
	serves("wapabst2.a.com.cn")
	figure("WALK", "emergency, %s: 3 clicks, %s of machine time (3 s are promised), %d bytes for the page", name, took.Round(10*time.Millisecond), bytes)
	if took > walkTime {
		t.Errorf("machine work took %s, more than %s", took, walkTime)
	}
	if bytes > pageBytes {
		t.Errorf("the page brought %d bytes, more than %d", bytes, pageBytes)
	}
	// Back, from where it was done.
	w.Do(t, chromedp.Navigate(s.Console+"/emergency"), chromedp.Click(chromedp.CSS(".notice form[method=get] button")),
		chromedp.WaitVisible(chromedp.CSS(region+"form.panel [name=confirm]")),
		chromedp.Evaluate[chromedp.Void](overrides),
		chromedp.SendKeys(chromedp.CSS(region+"form.panel [name=confirm]"), Environment+"/sh"),
		chromedp.Click(chromedp.CSS(region+"form.panel button.danger")), Until(`document.querySelector("[role=status], [role=alert]")`), Reads("#progress", "1/1"))
	serves("wapabst.a.com.cn")
	if got := w.Strangers(); len(got) > 0 {
		t.Errorf("the page asked elsewhere: %q", got)
	}
}

// The panel does not wait for what its emergency does to load: the script brings that
// by itself, and without one it stands behind a link.
func TestPanelShowsItsEffectOnLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, "--demo", "--demo-traffic", "off", "--region", "sh")
	panel := s.Console + "/emergency?action=region_state&app=mobile&region=sh&state=off&expect=active"
	const moves = "by synthetic requests"
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	w.Do(t, chromedp.Navigate(panel), Reads("form.panel #effect", moves), Until(`!document.querySelector("#effect a")`))
	w = tab(t, s, Look{NoScript: true})
	must(t, w.SignIn(s, "admin", Chosen))
	w.Do(t, chromedp.Navigate(panel), w.Go("#effect a"), Reads("h1", "Turn off mobile/sh"), Reads("#effect", moves), w.Go(`main a[href^="/emergency?"]`), Reads("form.panel", "Turn off mobile/sh"))
}

// minuteLater makes the page believe that a minute went by.
const minuteLater = `(() => { const now = Date.now; Date.now = () => now() + 61000; })()`

// A panel in which somebody types for a minute shows the new state, and keeps what was
// typed, ticked and where the cursor is.
func TestPanelIsLookedAtAgainUnderTheHands(t *testing.T) {
	t.Parallel()
	s := serve(t, "--demo", "--demo-traffic", "off", "--region", "sh")
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	const confirm = `form.panel [name=confirm]`
	w.Do(t, chromedp.Navigate(s.Console+"/emergency?action=region_state&app=mobile&region=sh&state=off&expect=active"),
		Type("form.panel [name=reason]", "half a reason"), Type(confirm, "prod/"),
		chromedp.Evaluate[chromedp.Void](`document.querySelector("`+confirm+`").setSelectionRange(2, 2)`))
	same := `document.activeElement.matches("` + confirm + `") && document.activeElement.selectionStart === 2 && document.querySelector("` + confirm + `").value === "prod/" && document.querySelector("form.panel [name=reason]").value === "half a reason"`
	held := `[...document.querySelectorAll("#panel-shows .badge.bad")].length > 0`
	if already, err := chromedp.Run(w.Ctx, chromedp.Evaluate[bool](held)); err != nil || already {
		t.Fatalf("the panel is held already: %v %v", already, err)
	}
	turn := func(region, from, to string) {
		t.Helper()
		must(t, s.Call(t.Context(), s.Token, "POST /emergency", map[string]any{"reason": "somebody else", "action": "region_state", "confirm": Environment + "/" + region,
			"override": []string{"rate", "flap_wait"}, "targets": []map[string]string{{"app": "mobile", "region": region, "state": to, "expect": from}}}, nil))
	}
	turn("hf", "active", "off") // so that this one is the last
	w.Do(t, chromedp.Evaluate[chromedp.Void](minuteLater), Until(held), Until(same), Until(`document.querySelector("#aged > p").hidden`))
	turn("hf", "off", "active")
	turn("sh", "active", "draining") // so that the form would do something else
	w.Do(t, chromedp.Evaluate[chromedp.Void](minuteLater), Until(`!document.querySelector("#aged > p").hidden`), Reads("#aged", "s old"), Reads("#said", "expect_mismatch"), Until(same))
}

// A form whose page shows no part that could be fetched by itself says how old the page
// is once it would do something else, and looks again without losing what was typed.
func TestFormSaysItsAgeAndLooksAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, "--demo", "--demo-traffic", "off", "--region", "sh")
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	const reason = `form:has([value=abort]) [name=reason]`
	w.Do(t, chromedp.Navigate(s.Console+"/gray/mobile/gray-10-2"), Type(reason, "half a reason"))
	w.Do(t, chromedp.Evaluate[chromedp.Void](minuteLater), Until(`document.querySelector("#aged > p").hidden`))
	must(t, s.Call(t.Context(), s.Token, "PUT /grays/mobile/gray-10-2", map[string]any{"reason": "grow", "rev": 0, "region": "hf", "steps": []int{600, 1000}, "signals": []map[string]any{{"kind": "errors"}}}, nil))
	w.Do(t, chromedp.Evaluate[chromedp.Void](minuteLater), Until(`!document.querySelector("#aged > p").hidden`), Reads("#aged", "s old"),
		chromedp.Click(chromedp.CSS("#aged a")), Until(`document.querySelector("#aged > p").hidden`), Reads("main", "Send 6"),
		Until(`document.querySelector("`+reason+`").value === "half a reason"`))
}
