// Command install finds what the tests start, or installs it on Debian as root.
//
//	go run ./internal/testenv/install            all that the tests need
//	go run ./internal/testenv/install bench      and what make bench compares with
//	go run ./internal/testenv/install shots      and what make shots draws with
//	go run ./internal/testenv/install mariadb    one program
//
// It is quiet when nothing is missing. Elsewhere, or without root, it says what
// to install and exits 1.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"dispatch.example/dispatch/internal/testenv"
)

func main() {
	if err := install(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func install(names []string) error {
	wanted, err := choose(testenv.Programs(), names)
	if err != nil {
		return err
	}
	for _, p := range wanted {
		if p.Suite != "" && p.Find() == "" {
			if err := unpack(p); err != nil {
				return err
			}
		}
	}
	missing := packages(wanted)
	if len(missing) == 0 {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("missing: %s\ntry: install these packages of Debian as root, or what your system calls them",
			strings.Join(missing, " "))
	}
	args := append([]string{"install", "--yes", "--quiet", "--no-install-recommends"}, missing...)
	if runApt(apt, args...) == nil {
		return stillMissing(wanted)
	}
	// The usual cause is a package list that was never fetched or has aged.
	if err := runApt(apt, "update", "--quiet"); err != nil {
		return err
	}
	if err := runApt(apt, args...); err != nil {
		return err
	}
	return stillMissing(wanted)
}

// choose picks by name; no name means what tests need, bench and shots add what they need.
func choose(all []testenv.Program, names []string) ([]testenv.Program, error) {
	var wanted []testenv.Program
	for _, p := range all {
		forTests := p.For == "" && (len(names) == 0 || slices.ContainsFunc(names, isWord))
		if forTests || p.For != "" && slices.Contains(names, p.For) || slices.Contains(names, p.Name) {
			wanted = append(wanted, p)
		}
	}
	for _, name := range names {
		known := isWord(name) || slices.ContainsFunc(all, func(p testenv.Program) bool { return p.Name == name })
		if !known {
			return nil, fmt.Errorf("unknown program %q", name)
		}
	}
	return wanted, nil
}

// isWord says whether the name stands for all that a word of make needs.
func isWord(name string) bool { return name == "bench" || name == "shots" }

// packages are those of the programs that cannot be found, each once.
func packages(programs []testenv.Program) []string {
	var names []string
	for _, p := range programs {
		if p.Find() == "" && !slices.Contains(names, p.Package) {
			names = append(names, p.Package)
		}
	}
	return names
}

func stillMissing(programs []testenv.Program) error {
	if missing := packages(programs); len(missing) > 0 {
		return errors.New("installed, but not found: " + strings.Join(missing, " "))
	}
	return nil
}

func runApt(apt string, args ...string) error { return runIn("", apt, args...) }
