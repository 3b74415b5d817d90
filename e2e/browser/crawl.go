package browser

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/chromedp/chromedp"
)

//go:embed crawl.js
var crawl string

// Pages are the paths of every page that links and forms lead to from the overview,
// one of each kind, for who is signed in.
func (t *Tab) Pages(s *Server) (paths []string, err error) {
	if err := t.Take(chromedp.Navigate(s.Console + "/")); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(t.Ctx, 2*stepTime)
	defer stop()
	if paths, err = chromedp.Run(ctx, chromedp.Evaluate[[]string](crawl, chromedp.EvalAwaitPromise)); err != nil {
		return nil, fmt.Errorf("follow links: %w", err)
	}
	return paths, nil
}
