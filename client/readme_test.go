package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"dispatch.example/dispatch/client"
)

func file(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The program in README.md is the one that the example runs.
func TestTheProgramOfTheReadmeRuns(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(file(t, "README.md"), -1)
	equal(t, "programs in README.md", len(blocks), 1)
	rest := file(t, "example_test.go")
	for line := range strings.Lines(blocks[0][1]) {
		line = strings.TrimSpace(line)
		_, after, ok := strings.Cut(rest, line)
		if !ok {
			t.Fatalf("example_test.go has no line %q at this place: change both together", line)
		}
		rest = after
	}
}

// docs/client.md explains every reason, and every file of vectors/ is described.
func TestTheDocumentsAreComplete(t *testing.T) {
	t.Parallel()
	manual := file(t, "../docs/client.md")
	for _, why := range append(client.Reasons(), client.Canceled, client.Closed) {
		if !strings.Contains(manual, "`"+string(why)+"`") {
			t.Errorf("docs/client.md does not explain the reason %s", why)
		}
	}
	entries, err := os.ReadDir("vectors")
	if err != nil {
		t.Fatal(err)
	}
	index := file(t, "vectors/README.md")
	for _, e := range entries {
		if e.Name() != "README.md" && !strings.Contains(index, "("+e.Name()+")") {
			t.Errorf("vectors/README.md does not describe %s", e.Name())
		}
	}
}
