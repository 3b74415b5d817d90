// Command shots draws every page of the console, in light and dark, in English and
// Chinese, and what matters on a phone also at its width. It runs a demo with
// traffic, does what people do in a day, and writes PNG files into ./shots.
//
//	go run ./e2e/browser/shots            all pages
//	go run ./e2e/browser/shots gray       pages whose path has this in it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"dispatch.example/dispatch/e2e/browser"
	"dispatch.example/dispatch/e2e/topology"
)

const (
	folder = "shots"
	// traffic is how long apps ask before the pages are drawn, so that charts have a line.
	traffic = 90 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Join(os.Args[1:], "")); err != nil {
		fmt.Fprintln(os.Stderr, "shots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, part string) (err error) {
	dir, err := os.MkdirTemp("", "dispatch-shots-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := topology.Build(ctx, dir)
	if err != nil {
		return err
	}
	s, err := browser.Serve(ctx, program, dir, "--demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	begin := time.Now()
	if err := s.Furnish(ctx); err != nil {
		return err
	}
	c, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer c.Stop()
	tab, err := c.Open(browser.Look{}, s.Console)
	if err != nil {
		return err
	}
	defer tab.Close()
	if err := empty(); err != nil {
		return err
	}
	if err := tab.Take(chromedp.Navigate(s.Console + "/login")); err != nil {
		return err
	}
	if err := draw(tab, s, "/login", looks("/login")); err != nil {
		return err
	}
	if err := tab.FirstSignIn(s, "admin", s.Password); err != nil {
		return err
	}
	paths, err := tab.Pages(s)
	if err != nil {
		return err
	}
	paths = append(paths, "/calls?id="+browser.PickedCall, "/services/"+browser.GrownService)
	select {
	case <-time.After(traffic - time.Since(begin)):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, path := range paths {
		if strings.Contains(path, part) {
			if err := draw(tab, s, path, looks(path)); err != nil {
				return err
			}
		}
	}
	return nil
}

// empty leaves the folder without pictures: of pages that are gone, none stays.
func empty() error {
	old, err := filepath.Glob(filepath.Join(folder, "*.png"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return os.MkdirAll(folder, 0o755)
}

// looks are how a page is drawn.
func looks(path string) map[string]browser.Look {
	all := map[string]browser.Look{"light-en": {}, "light-zh": {Language: "zh"}, "dark-en": {Dark: true}, "dark-zh": {Dark: true, Language: "zh"}}
	night := []string{"/emergency", "/gray", "/map", "/services", "/queues"}
	if path == "/" || slices.ContainsFunc(night, func(begin string) bool { return strings.HasPrefix(path, begin) }) {
		all["phone-en"], all["phone-zh"] = browser.Look{Width: 390, Height: 844}, browser.Look{Width: 390, Height: 844, Language: "zh"}
	}
	return all
}

var odd = regexp.MustCompile(`[^a-z0-9.-]+`)

func draw(tab *browser.Tab, s *browser.Server, path string, looks map[string]browser.Look) error {
	name := strings.Trim(odd.ReplaceAllString(path, "_"), "_")
	if name == "" {
		name = "overview"
	}
	name = name[:min(len(name), 60)]
	for look, wear := range looks {
		if err := tab.Wear(wear); err != nil {
			return err
		}
		if err := tab.Take(chromedp.Navigate(s.Console + path)); err != nil {
			return err
		}
		file := filepath.Join(folder, name+"."+look+".png")
		if err := tab.Shot(file); err != nil {
			return err
		}
		fmt.Println(file)
	}
	return nil
}
