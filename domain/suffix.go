package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"dispatch.example/dispatch/internal/fault"
)

// Suffixes are the domains below which every host of a deployment must lie. The
// zero value allows nothing.
type Suffixes struct{ names []string } // normal form, sorted, each once

// NewSuffixes reads a list of suffixes; its error names every bad entry. A
// public suffix such as com.cn is refused, because strangers register names
// below it.
func NewSuffixes(entries []string) (Suffixes, error) {
	var problems fault.Problems
	var names []string
	for i, entry := range entries {
		path := fmt.Sprintf("[%d]", i)
		name, err := NormalHost(entry)
		if err != nil {
			addError(&problems, path, err)
			continue
		}
		if public, _ := publicsuffix.PublicSuffix(name); public == name {
			problems = append(problems, fault.Problem{Path: path, Detail: fmt.Sprintf("%s is a public suffix", name),
				Hint: "write your own domain below it, such as bank." + name})
			continue
		}
		names = append(names, name)
	}
	if err := problems.Err("bad_suffixes", "the list of allowed suffixes is wrong"); err != nil {
		return Suffixes{}, err
	}
	slices.Sort(names)
	return Suffixes{names: slices.Compact(names)}, nil
}

// Allows says whether host is one of the suffixes or lies below one, on the
// boundary of a label. A host that is not in normal form is not allowed.
func (s Suffixes) Allows(host string) bool {
	if normal, err := NormalHost(host); err != nil || normal != host {
		return false
	}
	return slices.ContainsFunc(s.names, func(name string) bool {
		return host == name || strings.HasSuffix(host, "."+name)
	})
}

// String is the suffixes, sorted, with commas between them.
func (s Suffixes) String() string { return strings.Join(s.names, ",") }

// addError adds what err says at path.
func addError(problems *fault.Problems, path string, err error) {
	problem := fault.Problem{Path: path, Detail: err.Error()}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		problem.Detail, problem.Hint = e.Detail, e.Hint
	}
	*problems = append(*problems, problem)
}
