package rules

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The manual shows rules that Parse takes, and explains every key and every code.
func TestTheManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(manual, -1)
	if len(blocks) < 3 {
		t.Fatalf("%d blocks of YAML", len(blocks))
	}
	for _, b := range blocks {
		name := "rule.yaml"
		if strings.HasPrefix(b[1], "groups:") {
			name = groupsFile
		}
		if _, err := Parse([]File{{name, b[1]}}); err != nil {
			t.Errorf("%v\nin\n%s", err, b[1])
		}
	}
	for _, word := range []string{"service", "updated", "selector", "selector.cluster", "selector.region", "selector.env", "strategy", "strategy.version", "strategy.weight",
		"fallback", "fallback.version", "fallback.weight", "fallback.condition", "groups", "groups[].prefix", "groups[].owners", "groups[].key"} {
		if !strings.Contains(manual, "\n| `"+word+"` |") {
			t.Errorf("no table explains the key %s", word)
		}
	}
	for _, code := range []string{"invalid_rules", "too_many_rules", "not_your_group", "bad_signature", "unknown_key", "other_deployment", "newer_format", "bad_manifest", "bad_rules", "manifest_too_large"} {
		if !strings.Contains(manual, "`"+code+"`") {
			t.Errorf("the code %s is not explained", code)
		}
	}
}

// The manual lists what Parse says about the folder of mistakes.
func TestTheManualListsMistakes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	mistakes, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	from := strings.Index(string(text), "## What is refused")
	manual := string(text)[from:]
	for line := range strings.Lines(string(mistakes)) {
		_, says, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if at, rest, ok := strings.Cut(says, ": "); ok && !strings.Contains(at, " ") {
			says = rest
		}
		says, _, _ = strings.Cut(says, " (")
		if !slices.ContainsFunc(phrases(manual), func(phrase string) bool { return strings.Contains(says, phrase) }) {
			t.Errorf("no row of the manual is about %q", says)
		}
	}
}

// phrases are the messages of the first table, as far as they are the same each time.
func phrases(manual string) (all []string) {
	table, _, _ := strings.Cut(manual, "**The meaning**")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for phrase := range strings.SplitSeq(cells[1], ";") {
			phrase = strings.TrimSpace(phrase)
			for _, placeholder := range []string{"2.10 ", " a number to YAML", " on line N already", " P already"} {
				phrase = strings.TrimSpace(strings.ReplaceAll(phrase, placeholder, ""))
			}
			if len(phrase) > 5 {
				all = append(all, phrase)
			}
		}
	}
	return all
}
