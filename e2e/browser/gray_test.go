package browser

import (
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
	author.Do(t, chromedp.Navigate(page+"?edit=1"), Type(plan+"[name=steps]", "20, 50, 100"), Type(plan+"[name=bake]", "1"), Type(plan+"[name=sample]", "0"),
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
}
