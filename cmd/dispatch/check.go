package main

import (
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
	tables := map[string]*policy.Prefixes{}
	for _, t := range doc.Tables {
		if t.File == "" {
			continue
		}
		f, err := os.Open(filepath.Join(filepath.Dir(file), t.File))
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", t.Key, err)
		}
		prefixes, err := policy.ParsePrefixes(f)
		_ = f.Close() // read only
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", t.Key, err)
		}
		tables[t.Key] = prefixes
	}
	return release.Check(doc, release.CheckContext{Source: source, Suffixes: suffixes, Now: time.Now(), Tables: tables})
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
