package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Program is a program that tests or benchmarks start, and how Debian calls it.
type Program struct {
	Name    string   // what people say to install
	Bins    []string // any of these will do, first one first; a file by its path
	Package string   // of Debian
	Suite   string   // the release of Debian that still has the package; it is unpacked into Tools
	For     string   // the word of make that alone needs it: bench, shots; empty: tests
}

// Tools is the folder of a checkout for programs that Debian does not install.
const Tools = ".tools"

// Programs returns all of them. The server packages without a service are used
// where there are such, so that installing starts nothing.
func Programs() []Program {
	return []Program{
		{Name: "mariadb", Bins: []string{"mariadbd", "mysqld"}, Package: "mariadb-server-core"},
		{Name: "mariadb-install", Bins: []string{"mariadb-install-db", "mysql_install_db"}, Package: "mariadb-server-core"},
		{Name: "consul", Bins: []string{"consul"}, Package: "consul", Suite: "bullseye"},
		{Name: "promtool", Bins: []string{"promtool"}, Package: "prometheus", Suite: "bookworm"},
		{Name: "redis", Bins: []string{"redis-server"}, Package: "redis-server"},
		{Name: "nginx", Bins: []string{"nginx"}, Package: "nginx-light"},
		{Name: "openssl", Bins: []string{"openssl"}, Package: "openssl"},
		{Name: "haproxy", Bins: []string{"haproxy"}, Package: "haproxy"},
		{Name: "chromium", Bins: []string{"chromium", "chromium-browser", "google-chrome"}, Package: "chromium"},
		{Name: "npm", Bins: []string{"npm"}, Package: "npm"},
		{Name: "cjk-font", Bins: []string{"/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"}, Package: "fonts-noto-cjk", For: "shots"},
	}
}

// Find is the path of the program, or empty. It also looks in Tools and where
// Debian keeps servers, which are on the path of root only.
func (p Program) Find() string {
	for _, bin := range p.Bins {
		if filepath.IsAbs(bin) {
			if _, err := os.Stat(bin); err == nil {
				return bin
			}
			continue
		}
		if path, err := exec.LookPath(bin); err == nil {
			return path
		}
		for _, dir := range []string{toolsDir(), "/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/opt/homebrew/bin"} {
			path := filepath.Join(dir, bin)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// toolsDir is Tools of the checkout that the working directory is in.
func toolsDir() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return filepath.Join(dir, Tools)
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	return Tools
}

// Lookup finds a program by its name in Programs.
func Lookup(name string) (string, error) {
	all := Programs()
	i := slices.IndexFunc(all, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return "", fmt.Errorf("find %s: testenv knows no such program", name)
	}
	if path := all[i].Find(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("find %s: none of %s is installed\ntry: go run ./internal/testenv/install %s",
		name, strings.Join(all[i].Bins, ", "), name)
}

// Tool is the path of a program by its name in Programs. A missing one fails the
// test: what was not tested must not look as if it were.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	path, err := Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}
