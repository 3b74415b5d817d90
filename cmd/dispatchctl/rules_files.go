package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"dispatch.example/dispatch/internal/fault"
)

// ruleFile is a file of rules as it travels.
type ruleFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// ruleFiles are files of rules, named relative to their folder.
type ruleFiles struct {
	dir   string // that the names are relative to
	files []ruleFile
	whole bool // all of the folder: what is absent is gone
}

// readRules reads a folder with all its YAML files, or some files.
func readRules(paths []string) (ruleFiles, error) {
	info, err := os.Stat(paths[0])
	if err != nil {
		return ruleFiles{}, usageError{fmt.Errorf("read rules: %w", err)}
	}
	if len(paths) == 1 && info.IsDir() {
		return readRulesDir(paths[0])
	}
	f := ruleFiles{dir: filepath.Dir(paths[0])}
	for _, path := range paths[1:] {
		for !within(path, f.dir) {
			f.dir = filepath.Dir(f.dir)
		}
	}
	for _, path := range paths {
		if err := f.add(path); err != nil {
			return ruleFiles{}, err
		}
	}
	return f, nil
}

// within says whether a file lies in a folder or below it; both are absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func readRulesDir(dir string) (ruleFiles, error) {
	f := ruleFiles{dir: dir, whole: true}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return usageError{fmt.Errorf("read rules: %w", err)}
		case path != dir && strings.HasPrefix(d.Name(), "."): // .git, and what editors leave
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml":
			return nil
		}
		return f.add(path)
	})
	if err != nil {
		return ruleFiles{}, err
	}
	if len(f.files) == 0 {
		return ruleFiles{}, usageError{fault.New(fault.Invalid, "no_rules", "there is no file .yaml in %s", dir).
			WithHint("name the folder that holds the rules of the region")}
	}
	return f, nil
}

func (f *ruleFiles) add(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usageError{fmt.Errorf("read rules: %w", err)}
	}
	name, err := filepath.Rel(f.dir, path)
	if err != nil {
		return usageError{fmt.Errorf("read rules: %w", err)}
	}
	f.files = append(f.files, ruleFile{filepath.ToSlash(name), string(text)})
	return nil
}

// here is a problem with the path that its file has on this machine, which editors
// and pipelines find.
func (f ruleFiles) here(p fault.Problem) fault.Problem {
	if p.File == "" {
		return p
	}
	path := filepath.Join(f.dir, filepath.FromSlash(p.File))
	if wd, err := os.Getwd(); err == nil && within(path, wd) {
		if rel, err := filepath.Rel(wd, path); err == nil {
			path = rel
		}
	}
	p.File = path
	return p
}

// jsonText is a value as -o json prints it.
func jsonText(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write answer: %w", err)
	}
	return text, nil
}
