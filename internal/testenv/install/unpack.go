package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"dispatch.example/dispatch/internal/testenv"
)

// sources are where Debian keeps the list of its mirrors, in its old and its new form.
const sources = "/etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list"

// mirrorLine is a line of either form that names a mirror of Debian itself.
var mirrorLine = regexp.MustCompile(`(?m)^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(https?://\S*/debian)/*(?:\s|$)`)

// unpack brings programs whose package an older release of Debian has and this
// one lacks. Nothing is installed and the machine's own package lists are not
// touched: apt works in a folder of its own, checks Debian's signature, and the
// program is copied out of the package.
func unpack(p testenv.Program) (err error) {
	mirror, err := mirrorOf(sources)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", p.Package, err)
	}
	dir, err := os.MkdirTemp("", "dispatch-unpack-")
	if err != nil {
		return fmt.Errorf("unpack %s: %w", p.Package, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, sub := range []string{"parts", "lists/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return fmt.Errorf("unpack %s: %w", p.Package, err)
		}
	}
	list := filepath.Join(dir, "sources.list")
	line := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + mirror + " " + p.Suite + " main\n"
	if err := os.WriteFile(list, []byte(line), 0o600); err != nil {
		return fmt.Errorf("unpack %s: %w", p.Package, err)
	}
	apt := []string{"-qq", "-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=" + filepath.Join(dir, "parts"),
		"-o", "Dir::State::Lists=" + filepath.Join(dir, "lists"), "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
		"-o", "APT::Sandbox::User="} // whoever runs this; the default user may not enter the folder
	for _, args := range [][]string{append(apt, "update"), append(apt, "download", p.Package)} {
		if err := runIn(dir, "apt-get", args...); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, p.Package+"_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("unpack %s: apt-get left %d packages: %w", p.Package, len(packages), errors.Join(err, os.ErrNotExist))
	}
	root := filepath.Join(dir, "root")
	if err := runIn(dir, "dpkg-deb", "--extract", packages[0], root); err != nil {
		return err
	}
	return take(p.Bins[0], root)
}

// mirrorOf is the first mirror of Debian in the files that match the patterns.
func mirrorOf(patterns string) (string, error) {
	for pattern := range strings.FieldsSeq(patterns) {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("find a mirror: %w", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", fmt.Errorf("find a mirror: %w", err)
			}
			if found := mirrorLine.FindSubmatch(text); found != nil {
				return string(found[1]), nil
			}
		}
	}
	return "", fmt.Errorf("find a mirror: no file of %s names one\ntry: put the program into %s yourself", patterns, testenv.Tools)
}

// take copies a program out of an unpacked package into Tools.
func take(bin, root string) error {
	from, err := os.Open(filepath.Join(root, "usr/bin", bin))
	if err != nil {
		return fmt.Errorf("take %s: %w", bin, err)
	}
	defer func() { _ = from.Close() }()
	if err := os.MkdirAll(testenv.Tools, 0o755); err != nil {
		return fmt.Errorf("take %s: %w", bin, err)
	}
	target := filepath.Join(testenv.Tools, bin)
	to, err := os.OpenFile(target+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("take %s: %w", bin, err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("take %s: %w", bin, err)
	}
	return os.Rename(target+".new", target)
}

func runIn(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
