package pages

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// themes are the custom properties of app.css by theme.
func themes(t *testing.T) map[string]map[string]string {
	t.Helper()
	text := string(must(fs.ReadFile(files, "static/app.css")))
	property := regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`)
	read := func(after string) map[string]string {
		_, rest, ok := strings.Cut(text, after)
		block, _, _ := strings.Cut(rest, "}")
		if !ok {
			t.Fatalf("app.css has no %s", after)
		}
		colours := map[string]string{}
		for _, m := range property.FindAllStringSubmatch(block, -1) {
			colours[m[1]] = m[2]
		}
		return colours
	}
	light := read(":root {")
	system, dark := read(`:root:not([data-theme="light"]) {`), read(`:root[data-theme="dark"] {`)
	if !maps.Equal(system, dark) {
		t.Error("the dark theme that is chosen differs from the system's")
	}
	if len(light) != len(dark) {
		t.Errorf("the themes have %d and %d colours", len(light), len(dark))
	}
	return map[string]map[string]string{"light": light, "dark": dark}
}

// luminance of #rrggbb, as WCAG 2.2 defines it.
func luminance(colour string) float64 {
	part := func(at int) float64 {
		v := float64(must(strconv.ParseUint(colour[at:at+2], 16, 8))) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*part(1) + 0.7152*part(3) + 0.0722*part(5)
}

func contrast(x, y string) float64 {
	a, b := luminance(x), luminance(y)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

// WCAG 2.2 AA: 4.5 for text, 3 for what is not text.
func TestColoursHaveContrast(t *testing.T) {
	t.Parallel()
	text := `text/ground text/paper text/sunk muted/ground muted/paper muted/sunk text/ok-soft text/warn-soft text/bad-soft
		muted/ok-soft muted/warn-soft muted/bad-soft text/accent-soft accent/ground accent/paper accent/sunk accent/accent-soft accent/ok-soft
		accent/warn-soft accent/bad-soft accent-on/accent ok/paper ok/ok-soft ok/ground warn/paper warn/warn-soft warn/ground
		bad/paper bad/bad-soft bad/ground danger-on/danger env-on/env`
	shapes := "danger/paper danger/ground edge/paper edge/ground accent/paper c1/paper c2/paper c3/paper c4/paper c5/paper c6/paper"
	for name, colours := range themes(t) {
		check := func(pairs string, least float64) {
			for pair := range strings.FieldsSeq(pairs) {
				fore, back, _ := strings.Cut(pair, "/")
				if colours[fore] == "" || colours[back] == "" {
					t.Errorf("%s has no %s", name, pair)
					continue
				}
				if got := contrast(colours[fore], colours[back]); got < least {
					t.Errorf("%s: %s has contrast %.2f, want %.1f", name, pair, got, least)
				}
			}
		}
		check(text, 4.5)
		check(shapes, 3)
	}
}

func TestContrastIsComputedAsTheStandardSays(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprintf("%.2f %.2f", contrast("#ffffff", "#000000"), contrast("#777777", "#ffffff")); got != "21.00 4.48" {
		t.Errorf("got %s, want 21.00 4.48", got)
	}
}

func TestScriptIsSmallAndTouchesNoText(t *testing.T) {
	t.Parallel()
	script := string(must(fs.ReadFile(files, "static/app.js")))
	if len(script) >= 12<<10 {
		t.Errorf("app.js has %d bytes, want fewer than 12288", len(script))
	}
	for _, word := range []string{"eval(", "new Function", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "setTimeout(\"", "localStorage"} {
		if strings.Contains(script, word) {
			t.Errorf("app.js uses %s", word)
		}
	}
}
