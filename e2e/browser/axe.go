package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"
)

// Axe is the source of the accessibility rules, from npm. What is missing is
// brought there; the lock file holds its hash.
func Axe(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(file); err != nil {
		cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("bring the accessibility rules: %w\n%s", err, out)
		}
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the accessibility rules: %w", err)
	}
	return string(source), nil
}

// Violation is one rule that a page breaks.
type Violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML   string   `json:"html"`
		Target []string `json:"target"`
	} `json:"nodes"`
}

// String names the rule and every element.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", v.ID, v.Help)
	for _, n := range v.Nodes {
		fmt.Fprintf(&b, "\n    %s", n.HTML)
	}
	return b.String()
}

// Audit runs the rules of WCAG 2.2 A and AA and the best practices on the page.
// The rules come in by the browser's protocol, so the page's content security policy stays as it is.
func (t *Tab) Audit(axe string) (violations []Violation, err error) {
	ctx, stop := context.WithTimeout(t.Ctx, stepTime)
	defer stop()
	const run = `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](axe)); err != nil {
		return nil, fmt.Errorf("load the accessibility rules: %w", err)
	}
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](run, chromedp.EvalAwaitPromise))
	if err != nil {
		return nil, fmt.Errorf("run the accessibility rules: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &violations); err != nil {
		return nil, fmt.Errorf("read violations: %w", err)
	}
	return violations, nil
}
