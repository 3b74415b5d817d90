package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	//go:embed testdata/payloads.txt
	payloads string
	//go:embed testdata/plant.js
	plant string
)

// SEC-11: what people type into any field of any form is text on every page that
// shows it. No script runs, no dialog opens, nothing is asked for elsewhere, and no
// element of it stands in a page: a policy that stops scripts is the second guard.
func TestSEC11NothingTypedRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, "--demo", "--demo-traffic", "off")
	must(t, s.Furnish(t.Context()))
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	all := strings.Split(strings.TrimSuffix(payloads, "\n"), "\n")
	s.seed(t, all)
	paths, err := w.Pages(s)
	must(t, err)
	paths = append(paths, s.planted(t)...)
	sent, kept := 0, 0
	for i, path := range paths {
		some := all
		if !*full { // of each page others
			some = nil
			for j := range 5 {
				some = append(some, all[(i*5+j)%len(all)])
			}
		}
		list, err := json.Marshal(some)
		must(t, err)
		w.Do(t, chromedp.Navigate(s.Console+path))
		n, err := chromedp.Run(w.Ctx, chromedp.Evaluate[[]int](plant+"("+string(list)+")", chromedp.EvalAwaitPromise))
		must(t, err)
		sent, kept = sent+n[0], kept+n[1]
	}
	again, err := w.Pages(s)
	must(t, err)
	again = append(again, s.planted(t)...)
	for _, path := range again {
		w.Do(t, chromedp.Navigate(s.Console+path), chromedp.Evaluate[chromedp.Void](opened))
		if found, err := chromedp.Run(w.Ctx, chromedp.Evaluate[string](`(document.querySelector("[data-planted], [onerror], [onload], [onfocus], [onmouseover], a[href^='javascript:' i], base") || {}).outerHTML || ""`)); err != nil || found != "" {
			t.Errorf("%s has an element of what was typed: %s %v", path, found, err)
		}
	}
	if got := w.Strangers(); len(got) > 0 {
		t.Errorf("something ran, or was asked for elsewhere: %q", got)
	}
	if kept == 0 || len(again) < len(paths) {
		t.Errorf("forms kept %d; %d pages before, %d after", kept, len(paths), len(again))
	}
	figure("SEC", "SEC-11: %d payloads, %d forms sent, %d of them kept, %d pages then: nothing ran", len(all), sent, kept, len(again))
}

// seed leaves every payload where people read: titles, reasons, names and ids.
func (s *Server) seed(t *testing.T, payloads []string) {
	t.Helper()
	var newest struct{ Current uint64 }
	must(t, s.Call(t.Context(), s.Token, "GET /releases?limit=1", nil, &newest))
	var head struct {
		Manifest struct{ Document json.RawMessage }
	}
	must(t, s.Call(t.Context(), s.Token, fmt.Sprintf("GET /releases/%d", newest.Current), nil, &head))
	for i, p := range payloads {
		named, err := json.Marshal(p)
		must(t, err)
		document := strings.Replace(string(head.Manifest.Document), `"Payroll files go to Hefei since its batch system moved there"`, string(named), 1)
		title := (p + "   ")[:max(3, len(p))]
		must(t, s.Call(t.Context(), s.Token, "POST /drafts", map[string]any{"title": title, "document": document, "base": newest.Current, "reason": p}, nil))
		must(t, s.Call(t.Context(), s.Token, "PATCH /lists/staff-devices", map[string]any{"add": []string{fmt.Sprintf("d-%d", i)}, "reason": p}, nil))
	}
}

// planted are the pages of drafts with payloads, which the crawl sees one of.
func (s *Server) planted(t *testing.T) (paths []string) {
	t.Helper()
	var all struct{ Drafts []struct{ ID string } }
	must(t, s.Call(t.Context(), s.Token, "GET /drafts", nil, &all))
	for i, d := range all.Drafts {
		if i < pick(8, 40) {
			paths = append(paths, "/changes/"+d.ID)
		}
	}
	return paths
}

// SEC-12: a page of another origin shows the console in no frame, so nobody is led to click what they do not see.
func TestSEC12APageInAFrameIsRefused(t *testing.T) {
	s := serve(t, "--demo", "--demo-traffic", "off")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>a prize</title><iframe src="%s/emergency"></iframe>`, s.Console)
	}))
	defer site.Close()
	c, err := chromium()
	must(t, err)
	w := c.Tab(t, Look{}, s.Console, site.URL)
	must(t, w.FirstSignIn(s, "admin", s.Password))
	w.Do(t, chromedp.Navigate(site.URL), Until(`document.readyState === "complete"`))
	got, err := chromedp.Call(w.Ctx, page.GetFrameTree, cdp.Empty{})
	must(t, err)
	if len(got.FrameTree.ChildFrames) != 1 {
		t.Fatalf("the page has %d frames", len(got.FrameTree.ChildFrames))
	}
	if frame := got.FrameTree.ChildFrames[0].Frame; !strings.HasPrefix(frame.URL, "chrome-error:") {
		t.Errorf("the frame shows %s", frame.URL)
	}
}
