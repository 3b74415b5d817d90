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
