package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Whoever is woken copies commands from the runbook: each is one, with its flags.
// Words in capitals stand for what they know better.
func TestTheCommandsOfTheRunbookParse(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	yours := strings.NewReplacer("APP/REGION", "mobile/sh", "APP/POLICY", "mobile/gray", "RELEASE", "7", "N-1", "6", "DIR", dir, "REPLICA", "e1", "…", "why",
		"STANDBY", "sh-spare", "SERVICE", "order-core", "NAME", "li", "ID", "1", " N ", " 7 ")
	found := regexp.MustCompile("(?m)(?:`|^)dispatchctl ([^`\n]+)").FindAllStringSubmatch(string(text), -1)
	if len(found) < 40 {
		t.Fatalf("the runbook has %d commands", len(found))
	}
	for _, m := range found {
		parser, err := kong.New(new(commands), kong.Exit(func(int) {}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(wordsOf(yours.Replace(m[1] + " "))); err != nil {
			t.Errorf("dispatchctl %s: %v", m[1], err)
		}
	}
	manual, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(manual), " "+flag[1]) {
			t.Errorf("dispatch serve has no %s", flag[1])
		}
	}
}

// wordsOf splits a command line as a shell does that knows double quotes only.
func wordsOf(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}
