// Package browser drives Debian's Chromium over the console, as people use it.
//
//	Start ──► Chromium ── Tab ──► what people do
//	                       ├─ Axe     the accessibility rules on the page
//	                       └─ Shot    a picture of the page, whole
//
// One browser process serves all tabs; each tab has cookies of its own. Chromium
// owns the process, Stop ends it and removes its profile. It asks nobody but the
// addresses that a test opens: every other name is sent nowhere, and Strangers
// are what a page asked for in spite of that.
package browser

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"dispatch.example/dispatch/internal/testenv"
)

// stepTime bounds one step in a tab.
const stepTime = 30 * time.Second

// Chromium is one browser.
type Chromium struct {
	ctx  context.Context
	stop []context.CancelFunc
}

// Start starts the browser without a window.
func Start(ctx context.Context) (*Chromium, error) {
	path, err := testenv.Lookup("chromium")
	if err != nil {
		return nil, err
	}
	opts := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // root, in CI, may not have one
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	})
	c := &Chromium{}
	allocator, stopAllocator := chromedp.NewExecAllocator(ctx, opts...)
	running, stopBrowser := chromedp.NewContext(allocator)
	c.ctx, c.stop = running, []context.CancelFunc{stopBrowser, stopAllocator}
	if err := chromedp.Do(running); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start chromium: %w", err)
	}
	return c, nil
}

// Stop ends the browser and waits for it.
func (c *Chromium) Stop() {
	_ = chromedp.Cancel(c.ctx) // it waits; a browser that is gone already is fine
	for _, stop := range c.stop {
		stop()
	}
}

// Look is how a tab shows pages.
type Look struct {
	Width, Height int64  // of the window in CSS pixels; 0: 1280 × 900
	Language      string // en or zh, as the browser asks for it
	Dark          bool
	NoScript      bool // JavaScript is off
}

// Tab is one window with cookies of its own.
type Tab struct {
	Ctx   context.Context // for chromedp.Run
	Close context.CancelFunc

	own []string // origins that its pages may ask

	mu        sync.Mutex // guards what follows
	strangers []string
	dialogs   []string
	bytes     float64
}

// Open opens a window; Close ends it. own are the origins that its pages may ask.
func (c *Chromium) Open(look Look, own ...string) (*Tab, error) {
	ctx, stop := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext())
	t := &Tab{Ctx: ctx, Close: stop, own: own}
	err := chromedp.Do(ctx)
	if err == nil {
		err = chromedp.Listen(ctx, t.listen)
	}
	if err == nil {
		err = t.Wear(look)
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	return t, nil
}

// Wear changes how the tab shows what it opens next.
func (t *Tab) Wear(look Look) error { return look.apply(t.Ctx) }

func (l Look) apply(ctx context.Context) error {
	if l.Width == 0 {
		l.Width, l.Height = 1280, 900
	}
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	language := "en"
	if l.Language == "zh" {
		language = "zh-CN,zh;q=0.9"
	}
	return chromedp.Do(ctx, chromedp.EmulateViewport(l.Width, l.Height), func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
		if err == nil {
			_, err = cdp.Call(ctx, t, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": language}})
		}
		if err == nil {
			_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		}
		if err == nil {
			_, err = cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.NoScript})
		}
		return chromedp.Void{}, err
	})
}

// listen notes requests to strangers and errors of scripts.
func (t *Tab) listen(ev any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		if url := ev.Request.URL; !t.allowed(url) {
			t.strangers = append(t.strangers, url)
		}
	case *network.EventLoadingFinished:
		t.bytes += ev.EncodedDataLength
	case *page.EventJavascriptDialogOpening:
		t.dialogs = append(t.dialogs, "dialog: "+ev.Message)
		go t.dismiss() // this goroutine reads what the browser answers
	}
}

// dismiss closes the dialog that is open: the page waits for that.
func (t *Tab) dismiss() {
	_ = chromedp.Do(t.Ctx, func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: false})
		return chromedp.Void{}, err
	})
}

func (t *Tab) allowed(url string) bool {
	if strings.HasPrefix(url, "data:") || strings.HasPrefix(url, "about:") {
		return true
	}
	for _, origin := range t.own {
		if url == origin || strings.HasPrefix(url, origin+"/") {
			return true
		}
	}
	return false
}

// Strangers are the requests to elsewhere, and dialogs that a script opened.
func (t *Tab) Strangers() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(append([]string(nil), t.strangers...), t.dialogs...)
}

// Bytes is how much its pages have brought over the network, headers and all.
func (t *Tab) Bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.bytes)
}

// Take takes steps in the tab. The error has what the page shows when one cannot be taken.
func (t *Tab) Take(steps ...chromedp.Action[chromedp.Void]) error {
	return t.TakeWithin(stepTime, steps...)
}

// TakeWithin is Take for steps that wait for what takes long.
func (t *Tab) TakeWithin(limit time.Duration, steps ...chromedp.Action[chromedp.Void]) error {
	limited, stop := context.WithTimeout(t.Ctx, limit)
	defer stop()
	if err := chromedp.Do(limited, steps...); err != nil {
		return fmt.Errorf("%w\nthe page shows:\n%s", err, t.Text())
	}
	return nil
}

// Text is what the page shows.
func (t *Tab) Text() string {
	limited, stop := context.WithTimeout(t.Ctx, stepTime)
	defer stop()
	text, err := chromedp.Run(limited, chromedp.Evaluate[string](`location.href + "\n" + (document.body ? document.body.innerText : "")`))
	if err != nil {
		return "nothing: " + err.Error()
	}
	return text
}

// Shot writes a picture of the whole page.
func (t *Tab) Shot(path string) error {
	// What the page scrolled to, such as a field that has the focus, would have the bar above it.
	if err := t.Take(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)")); err != nil {
		return err
	}
	png, err := chromedp.Run(t.Ctx, chromedp.FullScreenshot(100))
	if err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return os.WriteFile(path, png, 0o600)
}
