package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Switch is one change of the source that must turn a test red.
type Switch struct {
	Test    string // the whole name of a test function
	Package string // its folder
	File    string // the product's file that is changed
	Old     string // occurs there exactly once
	New     string
}

// broken is the file's text with the change made.
func (s Switch) broken(text string) (string, error) {
	if n := strings.Count(text, s.Old); n != 1 {
		return "", fmt.Errorf("%s has the old text %d times, want once: %s", s.File, n, s.Old)
	}
	return strings.Replace(text, s.Old, s.New, 1), nil
}

// runner keeps its files in dir.
type runner struct {
	dir     string
	timeout time.Duration
}

// turnsRed compiles the test with the change, runs it alone and says whether it failed.
func (r runner) turnsRed(ctx context.Context, s Switch) (bool, error) {
	overlay, err := r.overlay(s)
	if err != nil {
		return false, err
	}
	// In the environment the overlay also reaches a go build that the test starts.
	env := append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	binary := filepath.Join(r.dir, "switched.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./"+s.Package)
	build.Env = env
	if out, err := build.CombinedOutput(); err != nil {
		return false, fmt.Errorf("the change does not compile: %w\n%s", err, out)
	}
	test := exec.CommandContext(ctx, binary, "-test.run", "^"+s.Test+"$", "-test.timeout", r.timeout.String())
	test.Dir, test.Env = s.Package, env
	var out bytes.Buffer
	test.Stdout, test.Stderr = &out, &out
	// A test that must end early ends its servers first.
	test.Cancel = func() error { return test.Process.Signal(syscall.SIGTERM) }
	test.WaitDelay = 30 * time.Second
	err = test.Run()
	switch {
	case err == nil && strings.Contains(out.String(), "no tests to run"):
		return false, fmt.Errorf("%s has no test %s", s.Package, s.Test)
	case err == nil:
		return false, nil
	case !strings.Contains(out.String(), "--- FAIL: "+s.Test):
		return false, fmt.Errorf("it ended without a verdict: %w\n%s", err, tail(out.String()))
	}
	return true, nil
}

// overlay writes the changed file and the JSON that puts it in the place of the
// original.
func (r runner) overlay(s Switch) (string, error) {
	text, err := os.ReadFile(s.File)
	if err != nil {
		return "", err
	}
	changed, err := s.broken(string(text))
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(s.File)
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(r.dir, "switched.go")
	if err := os.WriteFile(replacement, []byte(changed), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// tail is the end of a long output.
func tail(text string) string {
	const most = 2000
	return text[max(0, len(text)-most):]
}
