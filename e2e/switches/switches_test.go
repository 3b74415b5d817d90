package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// promise finds the tests that accept a promise or a threat of the safety plan.
var promise = regexp.MustCompile(`(?m)^func (Test(?:P|SEC)\d\d\w*)\(`)

// A test of a promise that nothing turns red proves nothing.
func TestEveryPromiseHasASwitch(t *testing.T) {
	t.Chdir("../..")
	rows := Table()
	found := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".":
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range promise.FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.ContainsFunc(rows, func(s Switch) bool { return s.Test == match[1] && s.Package == filepath.Dir(path) }) {
				t.Errorf("%s: %s has no switch; add the change of the product that turns it red to e2e/switches/switches.go", path, match[1])
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d tests of promises found, %v", found, err)
	}
}

// A row whose text has moved would break nothing and be reported late.
func TestEveryRowFits(t *testing.T) {
	t.Chdir("../..")
	for _, s := range Table() {
		text, err := os.ReadFile(s.File)
		if err != nil {
			t.Errorf("%s: %v", s.Test, err)
			continue
		}
		if _, err := s.broken(string(text)); err != nil {
			t.Errorf("%s: %v", s.Test, err)
		}
		if s.Old == s.New || strings.HasSuffix(s.File, "_test.go") {
			t.Errorf("%s: the row changes nothing of the product", s.Test)
		}
		if !declared(t, s.Package, s.Test) {
			t.Errorf("%s has no test %s", s.Package, s.Test)
		}
	}
}

func declared(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+test+"(")
	})
}

// The text of fault.go that carries every problem, and a change that loses them.
const (
	oldErr = "Detail: detail, Problems: p}"
	newErr = "Detail: detail, Problems: p[:0]}"
)

// What the runner calls red, and what it must not.
func TestVerdicts(t *testing.T) {
	t.Chdir("../..")
	const file = "internal/fault/fault.go"
	r := runner{dir: t.TempDir(), timeout: time.Minute}
	row := Switch{Test: "TestAProblemListsEverything", Package: "internal/fault", File: file}
	for name, c := range map[string]struct {
		change func(*Switch)
		red    bool
		says   string
	}{
		"a broken product": {func(s *Switch) { s.Old, s.New = oldErr, newErr }, true, ""},
		"a change that does nothing": {func(s *Switch) {
			s.Old, s.New = oldErr, oldErr+" // as before"
		}, false, ""},
		"a change that does not compile": {func(s *Switch) { s.Old, s.New = oldErr, "Detail: p}" }, false, "does not compile"},
		"a test that is not there": {func(s *Switch) {
			s.Old, s.New, s.Test = oldErr, newErr, "TestNobody"
		}, false, "no test"},
		"an old text that is gone": {func(s *Switch) { s.Old = "no such text" }, false, "0 times"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := row
			c.change(&s)
			red, err := r.turnsRed(context.WithoutCancel(t.Context()), s)
			if red != c.red || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("red %v, error %v; want %v and %q", red, err, c.red, c.says)
			}
		})
	}
}

func TestTheSampleComesRound(t *testing.T) {
	rows := Table()
	seen := map[string]bool{}
	for seed := range uint64(len(rows)) {
		sample := spread(rows, 2, seed)
		if len(sample) != 2 {
			t.Fatalf("%d rows, want 2", len(sample))
		}
		for _, s := range sample {
			seen[s.Test+s.File] = true
		}
	}
	for _, s := range rows {
		if !seen[s.Test+s.File] {
			t.Errorf("%s has no turn", s.Test)
		}
	}
}
