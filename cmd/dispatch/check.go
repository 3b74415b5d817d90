package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
)

type checkCmd struct {
	Files           []string `arg:"" name:"file" help:"Configuration documents, YAML or JSON."`
	AllowedSuffixes []string `placeholder:"NAME" help:"As for serve. Without it any suffix is allowed."`
}

// Run checks every file and fails if any has a mistake.
func (c *checkCmd) Run(out streams) error {
	bad := 0
	for _, file := range c.Files {
		warnings, err := c.check(file)
		for _, w := range warnings {
			w.File = file
			fmt.Fprintln(out.out, "warning:", w)
		}
		if err != nil {
			bad++
			fmt.Fprintf(out.out, "%s: %v\n", file, err)
			continue
		}
		fmt.Fprintf(out.out, "%s: ok\n", file)
	}
	if bad > 0 {
		return fault.New(fault.Invalid, "bad_document", "%d of %d files have mistakes", bad, len(c.Files))
	}
	return nil
}

func (c *checkCmd) check(file string) ([]fault.Problem, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	doc, source, err := release.ParseSource(file, data)
	if err != nil {
		return nil, err
	}
	suffixes, err := c.suffixes(doc)
	if err != nil {
		return nil, err
	}
	tables, problems := readTables(file, doc)
	warnings, err := release.Check(doc, release.CheckContext{Source: source, Suffixes: suffixes, Now: time.Now(), Tables: tables})
	if e, ok := errors.AsType[*fault.Error](err); ok {
		problems = append(problems, e.Problems...)
	} else if err != nil {
		return warnings, err
	}
	return warnings, problems.Err("bad_document", "the document has mistakes")
}

// readTables reads the tables beside the document. A table that cannot be read
// is a problem with its own file and lines.
func readTables(file string, doc *release.Document) (map[string]*policy.Prefixes, fault.Problems) {
	tables := map[string]*policy.Prefixes{}
	var problems fault.Problems
	for _, t := range doc.Tables {
		if t.File == "" {
			continue
		}
		path := filepath.Join(filepath.Dir(file), t.File)
		prefixes, err := readTable(path)
		if e, ok := errors.AsType[*fault.Error](err); ok {
			for _, p := range e.Problems {
				p.File = path
				problems = append(problems, p)
			}
		} else if err != nil {
			problems = append(problems, fault.Problem{File: path, Detail: err.Error()})
		} else {
			tables[t.Key] = prefixes
		}
	}
	return tables, problems
}

func readTable(path string) (*policy.Prefixes, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	return policy.ParsePrefixes(bytes.NewReader(data))
}

// suffixes are those given, or the document's own hosts: then only their form is checked.
func (c *checkCmd) suffixes(doc *release.Document) (domain.Suffixes, error) {
	if len(c.AllowedSuffixes) > 0 {
		return domain.NewSuffixes(c.AllowedSuffixes)
	}
	hosts := slices.Sorted(maps.Keys(doc.Domains()))
	return domain.NewSuffixes(slices.DeleteFunc(hosts, func(host string) bool {
		normal, err := domain.NormalHost(host)
		return err != nil || normal != host
	}))
}
