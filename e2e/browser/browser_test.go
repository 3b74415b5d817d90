package browser

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The rules and the guard against strangers find what is wrong on purpose; a page
// that passes says something only because of this test.
func TestSeededFaultsAreFound(t *testing.T) {
	axe, err := Axe(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><html><head><title>faults</title></head><body><img src="http://elsewhere.example/x.png"><input>
			<p style="color:#aaa;background:#fff">faint</p><script>alert(1)</script></body></html>`))
	}))
	defer site.Close()
	c, err := chromium()
	must(t, err)
	tab := c.Tab(t, Look{}, site.URL)
	tab.Do(t, chromedp.Navigate(site.URL))
	violations, err := tab.Audit(axe)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, v := range violations {
		ids = append(ids, v.ID)
	}
	for _, want := range []string{"html-has-lang", "image-alt", "label", "color-contrast"} {
		if !slices.Contains(ids, want) {
			t.Errorf("the rule %s is not among %q", want, ids)
		}
	}
	strangers := strings.Join(tab.Strangers(), " ")
	if !strings.Contains(strangers, "elsewhere.example") || !strings.Contains(strangers, "dialog: 1") {
		t.Errorf("strangers are %q", strangers)
	}
}
