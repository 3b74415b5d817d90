package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Go clicks what leads to another page, and waits for that.
func (t *Tab) Go(selector string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.WaitEvent(page.LoadEventFired, nil, chromedp.Click(chromedp.CSS(selector)))(ctx, target)
		if err != nil {
			err = fmt.Errorf("click %s: %w", selector, err)
		}
		return chromedp.Void{}, err
	}
}

// look is how often a page is asked whether something is so.
const look = 20 * time.Millisecond

// Until waits until a JavaScript expression holds, over changes of the page.
func Until(expression string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		tick := time.NewTicker(look)
		defer tick.Stop()
		var last error
		for {
			holds, err := chromedp.Evaluate[bool]("Boolean("+expression+")")(ctx, target)
			if holds {
				return chromedp.Void{}, nil
			}
			if err != nil && ctx.Err() == nil {
				last = err // the page may be on its way
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return chromedp.Void{}, errors.Join(fmt.Errorf("wait for %s: %w", expression, ctx.Err()), last)
			}
		}
	}
}

// Reads waits until an element shows the text.
func Reads(selector, text string) chromedp.Action[chromedp.Void] {
	return Until(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))", selector, text))
}

// Type replaces what a field holds, as fast as pasting does.
func Type(selector, text string) chromedp.Action[chromedp.Void] {
	// A textarea may hold 30 kB, which keys would take minutes for.
	value, err := json.Marshal([]string{selector, text})
	if err != nil {
		return func(context.Context, *chromedp.Target) (chromedp.Void, error) { return chromedp.Void{}, err }
	}
	set := `(([to, text]) => { const e = document.querySelector(to); e.focus(); e.value = text; e.dispatchEvent(new Event("input", {bubbles: true})); })(` + string(value) + `)`
	return chromedp.Steps(chromedp.WaitReady(chromedp.CSS(selector)), chromedp.Evaluate[chromedp.Void](set))
}

// Again opens a page until an expression holds on it.
func Again(url, expression string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		tick := time.NewTicker(10 * look)
		defer tick.Stop()
		for ; ; <-tick.C {
			if _, err := chromedp.Navigate(url)(ctx, target); err != nil {
				return chromedp.Void{}, fmt.Errorf("open %s until %s: %w", url, expression, err)
			}
			if holds, err := chromedp.Evaluate[bool]("Boolean("+expression+")")(ctx, target); holds || err != nil {
				return chromedp.Void{}, err
			}
		}
	}
}
