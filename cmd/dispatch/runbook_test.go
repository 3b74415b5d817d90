package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// What the runbook tells people to do on a replica is a command; dispatchctl's are
// tested where it is.
func TestTheCommandsOfTheRunbookParse(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	yours := strings.NewReplacer("DATA", t.TempDir(), "APP/REGION/FROM/STANDBY", "mobile/sh/sh-main/sh-spare", `"…"`, "burns")
	found := regexp.MustCompile("`dispatch ([^`\n]+)`").FindAllStringSubmatch(string(text), -1)
	if len(found) < 2 {
		t.Fatalf("the runbook has %d commands", len(found))
	}
	for _, m := range found {
		parser, err := kong.New(new(commands), kong.Exit(func(int) {}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(strings.Fields(yours.Replace(m[1]))); err != nil {
			t.Errorf("dispatch %s: %v", m[1], err)
		}
	}
}
