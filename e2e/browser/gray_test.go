package browser

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestGray is beside TestTeam, since signals are asked every 30 s.
func TestGray(t *testing.T) {
	t.Parallel()
	newTeam(t).gray(t)
}

// A gray starts when a second person has signed its plan, pauses by itself when a
// probe fails, and goes on when somebody resumes it.
func (g *team) gray(t *testing.T) {
	const host = "wapcdst.b.com.cn"
	g.up(t, host)
	author, second := g.as(t, "release-engineer", Look{}), g.as(t, "approver", Look{})
	page := g.Console + "/gray/mobile/gray-10-2"
	plan, do := form("/plan"), func(action string) string { return `form:has([name=action][value=` + action + `]) ` }
	author.Do(t, chromedp.Navigate(page+"?edit=1"), Type(plan+"[name=steps]", "20, 50, 100"), Type(plan+"[name=bake]", "1"), Type(plan+"[name=sample]", "25"),
		chromedp.Evaluate[chromedp.Void](`document.querySelector('[name=probe]').checked = true; document.querySelector('[name=errors]').checked = false`), send(author, plan))
	if approve, err := chromedp.Run(author.Ctx, chromedp.Evaluate[bool](`Boolean(document.querySelector('form[action$="/approve"]'))`)); err != nil || approve {
		t.Errorf("the author is offered to sign: %v", err)
	}
	second.Do(t, chromedp.Navigate(page), send(second, form("/approve")))
	author.Do(t, chromedp.Navigate(page), send(author, do("start")), Reads("#graycard .badge", "●"), Reads("#graycard .big", "20"))

	g.hosts.fail(host, true)
	const resumes = `document.querySelector("form [name=action][value=resume]")`
	must(t, author.TakeWithin(3*time.Minute, Again(page, resumes))) // two readings in a row, 30 s apart
	g.hosts.fail(host, false)
	g.up(t, host)
	author.Do(t, chromedp.Navigate(page), send(author, do("resume")), Until(`document.querySelector("form [name=action][value=pause]")`))
	if !*full { // each step bakes for a minute, and two windows of 30 s must pass
		return
	}
	for _, share := range []string{"50", "100"} {
		begin := time.Now()
		stands := `document.querySelector("#graycard .big")?.innerText.includes("` + share + `")`
		must(t, author.TakeWithin(6*time.Minute, g.advance(author, page, "next", stands)))
		t.Logf("the gray took its step to %s %% after %s", share, time.Since(begin).Round(time.Second))
	}
	must(t, author.TakeWithin(3*time.Minute, g.advance(author, page, "finish", `Boolean(document.querySelector(".notice.ok"))`)))
}

// advance asks for an action until the page shows that it was taken, while apps go on
// asking: a step must have served its sample. What has to wait is refused, and the page
// says for what.
func (g *team) advance(w *Tab, page, action, taken string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		button := `form [name=action][value=` + action + `]`
		for device := 0; ; <-tick.C {
			for range 100 {
				device++
				query := "app=mobile&platform=ios&app_version=10.2.0&device_id=" + action + "-" + strconv.Itoa(device)
				if _, err := g.Domain(ctx, query); err != nil {
					return chromedp.Void{}, err
				}
			}
			if _, err := chromedp.Navigate(page)(ctx, target); err != nil {
				return chromedp.Void{}, fmt.Errorf("open %s until its action %s is taken: %w", page, action, err)
			}
			ready, err := chromedp.Evaluate[bool](`Boolean(document.querySelector("`+button+`"))`)(ctx, target)
			if err != nil {
				return chromedp.Void{}, err
			}
			if ready {
				if _, err := send(w, `form:has([name=action][value=`+action+`]) `)(ctx, target); err != nil {
					return chromedp.Void{}, err
				}
			}
			there, err := chromedp.Evaluate[bool](taken)(ctx, target)
			if there || err != nil {
				return chromedp.Void{}, err
			}
		}
	}
}
