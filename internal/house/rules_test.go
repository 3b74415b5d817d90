package house

import (
	"fmt"
	"strings"
	"testing"
)

// source is one small file that breaks, or keeps, a rule.
type source struct {
	rule, path, text string
	says             string // part of the finding; empty: there must be none
}

const doc = "// Package p holds one thing and says so at such a length that a reader knows its types, its goroutines and its failures well.\n"

var sources = []source{
	{"parse", "domain/a.go", "package domain\nfunc {", "does not parse"},
	{"parse", "domain/testdata/a.go", "package domain\nfunc {", ""},

	{"imports", "domain/a.go", `package domain; import "m/policy"`, "downward"},
	{"imports", "handler/a.go", `package handler; import "m/admin"`, "downward"},
	{"imports", "admin/a.go", `package admin; import "m/store"`, "downward"},
	{"imports", "e2e/a.go", `package e2e; import "m/store"`, "interface of your own"},
	{"imports", "release/a.go", `package release; import "m/store"`, "downward"},
	{"imports", "release/a.go", `package release; import "m/client"`, "downward"},
	{"imports", "release/a.go", `package release; import "m/ledger"`, "downward"},
	{"imports", "ledger/a.go", `package ledger; import "m/store"`, "only internal/fault"},
	{"imports", "discovery/consul/a.go", `package consul; import "m/domain"`, "only internal/fault"},
	{"imports", "client/a.go", `package client; import "m/internal/fault"`, "only client"},
	{"imports", "client/a_test.go", `package client; import "m/release"`, "only client"},
	{"imports", "cmd/dispatchctl/a.go", `package main; import "m/admin"`, "only client"},
	{"imports", "policy/a_test.go", `package policy; import "m/release"`, "only internal/fault"},
	{"imports", "surprise/a.go", `package surprise`, "in no tier"},
	{"imports", "domain/a.go", `package domain; import "m/surprise"`, "in no tier"},
	{"imports", "cmd/dispatch/a.go", `package main; import ("m/store"; "m/admin"; "m/handler"; "m/internal/fault")`, ""},
	{"imports", "admin/a.go", `package admin; import ("m/admin/actions"; "m/release"; "m/ledger")`, ""},
	{"imports", "store/a_test.go", `package store; import "m/internal/testenv"`, ""},

	{"libraries", "release/a.go", `package release; import "github.com/cespare/xxhash/v2"`, "one hash"},
	{"libraries", "admin/a.go", `package admin; import "gorm.io/gorm"`, "store only"},
	{"libraries", "policy/a.go", `package policy; import "github.com/labstack/echo/v4"`, "handler admin"},
	{"libraries", "client/a.go", `package client; import "github.com/x/y"`, "standard library only"},
	{"libraries", "domain/a.go", `package domain; import "golang.org/x/text/width"`, "may use only"},
	{"libraries", "store/a.go", `package store; import "log"`, "log/slog"},
	{"libraries", "store/a_test.go", `package store; import "github.com/stretchr/testify/require"`, "t.Errorf"},
	{"libraries", "store/a.go", `package store; import ("log/slog"; "gorm.io/gorm"; "math/rand/v2")`, ""},
	{"libraries", "domain/a.go", `package domain; import "golang.org/x/net/idna"`, ""},
	{"libraries", "bench/peers/a.go", `package peers; import "log"`, ""}, // a module of its own

	{"folders", "store/util/a.go", "package util", "drawer"},
	{"folders", "store/a.go", "package db", "one name"},
	{"folders", "cmd/dispatch/a.go", "package main", ""},
	{"folders", "store/a_test.go", "package store_test", ""},

	{"package comment", "p/a.go", "package p", "begin one"},
	{"package comment", "p/a.go", "// Package p is short.\npackage p", "tell its shape"},
	{"package comment", "p/a.go", doc + "package p", ""},
	{"package comment", "p/a_test.go", "package p", ""},

	{"doc comment", "p/a.go", "package p\nfunc F() {}", "exported F"},
	{"doc comment", "p/a.go", "package p\ntype T int\n", "exported T"},
	{"doc comment", "p/a.go", "package p\n// T is.\ntype T[K any] int\nfunc (t *T[K]) M() {}", "exported M"},
	{"doc comment", "p/a.go", "package p\nconst C = 1", "exported C"},
	{"doc comment", "p/a.go", "package p\n// The Cs.\nconst (\n\tC = 1\n\tD = 2\n)\ntype t int\nfunc (t) M() {}", ""},

	{"file size", "p/a.go", "package p\n" + strings.Repeat("\n", 400), "split it"},
	{"file size", "p/a_test.go", "package p\n" + strings.Repeat("\n", 400), ""},
	{"file size", "p/a.go", "package p" + strings.Repeat("\n", 400), ""},

	{"function size", "p/a.go", "package p\nfunc f() {" + strings.Repeat("\n", 60) + "}", "61 lines"},
	{"function size", "p/a.go", "package p\nfunc f() {" + strings.Repeat("\n", 59) + "}", ""},

	{"parameters", "p/a.go", "package p\nfunc f(a, b, c int, d, e string) {}", "5 positional"},
	{"parameters", "p/a.go", "package p\ntype i interface{ f(a, b, c, d, e int) }", "5 positional"},
	{"parameters", "p/a.go", "package p\nfunc f(ctx context.Context, a, b, c int, d string, rest ...any) {}", ""},

	{"interface size", "p/a.go", "package p\ntype i interface{ a(); b(); c(); d(); e(); f() }", "6 methods"},
	{"interface size", "p/a.go", "package p\ntype i interface{ a(); b(); c(); d(); e() }", ""},

	{"init", "p/a.go", "package p\nfunc init() {}", "no init"},
	{"init", "p/a.go", "package p\ntype t int\nfunc (t) init() {}", ""},

	{"package variables", "p/a.go", "package p\nvar x int", "no value"},
	{"package variables", "p/a.go", "package p\nvar x = make(map[string]int)", "made by make"},
	{"package variables", "p/a.go", "package p\nimport \"net/http\"\nvar x = http.NewServeMux()", "http.NewServeMux"},
	{"package variables", "p/a.go", "package p\nvar x = sync.Pool{}", "sync.Pool"},
	{"package variables", "p/a.go", "package p\nvar x = map[string]chan int{\"a\": make(chan int)}", "made by make"},
	{"package variables", "p/a.go", "package p\nvar x = 1\nfunc f() { x = 2 }", "x is assigned to"},
	{"package variables", "p/a.go", "package p\nvar x = 1\nfunc f() { x++ }", "x is assigned to"},
	{"package variables", "p/a.go", "package p\nvar x = []int{1}\nfunc f() { x[0] = 2 }", "x is assigned to"},
	{"package variables", "p/a.go", "package p\nvar x = struct{ y []int }{}\nfunc f() { (x.y[0]) += 2 }", "x is assigned to"},
	{"package variables", "p/a.go", "package p\nvar x = 1\nfunc f() { for x = range 3 {} }", "x is assigned to"},
	{"package variables", "p/a.go", "package p\nvar x = 1\nfunc f() *int { return &x }", "x is addressed"},
	{"package variables", "p/a.go", "package p\nvar x = []int{1}\nfunc f() []int { return append(x, 2) }", "changed by append"},
	{"package variables", "p/a.go", "package p\nvar x = map[int]int{}\nfunc f() { delete(x, 1) }", "changed by delete"},
	{"package variables", "p/a.go", "package p\nimport \"net/http\"\nfunc f() { http.DefaultClient = nil }", "package net/http"},
	{"package variables", "p/a.go", "package p\nimport \"m/echo/v4\"\nfunc f() { echo.X.Y = nil }", "package m/echo/v4"},
	{"package variables", "p/a_test.go", "package p_test\nimport \"m/p\"\nfunc f() { p.Now = nil }", "package m/p"},
	{"package variables", "p/a.go", "package p\nvar now = f\nfunc f() {}\nfunc g() { now = nil }", "now is assigned to"},
	{"package variables", "p/a_test.go", "package p\nvar sink int\nfunc f() { sink = 1 }", ""},
	{"package variables", "p/a.go", "package p\nvar x = 1\nfunc f() { x := x; x = 2; y := &x; _ = y }", ""},
	{"package variables", "p/a.go", `package p
import ("errors"; "regexp"; _ "embed")
var _ I = T{}
var ErrX = errors.New("x")
var r = regexp.MustCompile("x")
//go:embed a.txt
var text string
var table = map[string]int{"a": 1}
var set = build()
var lazy = sync.OnceValue(func() []int { return make([]int, 1) })
func build() map[int]bool { m := map[int]bool{}; m[1] = true; return m }
func f() int { return table["a"] }`, ""},

	{"goroutine in New", "p/a.go", "package p\nfunc NewT() { go f() }", "Run(ctx)"},
	{"goroutine in New", "p/a.go", "package p\nfunc NewT() { run := func() { go f() }; _ = run }\nfunc (t) Run() { go f() }", ""},

	{"unbuilt", "p/a.go", `package p; func f() { panic("unbuilt") }`, "stub"},
	{"unbuilt", "p/a.go", "package p\n// TO" + "DO: later\nfunc f() {}", "was left"},
	{"unbuilt", "p/a.go", `package p; func f() { db.AutoMigrate(x) }`, "migrations"},
	{"unbuilt", "p/a.go", `package p; func f() { panic("corrupt table") }`, ""},

	{"exit", "p/a.go", `package p; func f() { os.Exit(1) }`, "return the error"},
	{"exit", "p/a.go", `package main; func f() { os.Exit(1) }`, ""},

	{"sleep", "p/a.go", `package p; import "time"; func f() { time.Sleep(1) }`, "ctx.Done"},
	{"sleep", "p/a.go", `package p; import t "time"; var s = t.Sleep`, "ctx.Done"},
	{"sleep", "p/a.go", `package p; import ("time"; "testing/synctest"); func f() { time.Sleep(1) }`, "ctx.Done"},
	{"sleep", "p/a_test.go", `package p; import "time"; func f() { time.Sleep(1) }`, "synctest"},
	{"sleep", "p/a_test.go", `package p; import ("time"; "testing/synctest"); func f() { time.Sleep(1) }`, ""},

	{"skip", "p/a_test.go", `package p; func f(t *testing.T) { t.Skip("no server") }`, "testenv"},
	{"skip", "p/a_test.go", `package p; func f(b *testing.B) { b.SkipNow() }`, "testenv"},
	{"skip", "p/a_test.go", `package p; func f() bool { return testing.Short() }`, "fast"},
	{"skip", "p/a.go", `package p; func f(d decoder) { d.Skip() }`, ""},

	{"error text", "p/a.go", `package p; var err = errors.New("Not found")`, "capital"},
	{"error text", "p/a.go", `package p; func f() error { return fmt.Errorf("failed to open %s: %w", x, err) }`, "failed to"},
	{"error text", "p/a.go", `package p; func f() error { return fault.New(fault.Invalid, "x", "The key is bad") }`, "capital"},
	{"error text", "p/a.go", `package p; var err = errors.New("it ends.")`, "leave the end open"},
	{"error text", "p/a.go", `package p; var err = errors.New("JSON at Redis: %s is not open")`, ""},
	{"error text", "p/a.go", `package p; var a, b = errors.New("If-Match is required"), errors.New("MySQL refused")`, ""},

	{"error wrap", "p/a.go", `package p; func f() error { return fmt.Errorf("open: %v", err) }`, "%w"},
	{"error wrap", "p/a.go", `package p; func f() error { return fmt.Errorf("open %v: %w", x, err) }`, ""},

	{"errors.Is", "p/a.go", `package p; import ("errors"; "io"); func f(err error) bool { return errors.Is(io.EOF, err) }`, "comes first"},
	{"errors.Is", "p/a.go", "package p\nimport \"errors\"\nvar errX = errors.New(\"x\")\nfunc f(err error) bool { return errors.Is(errX, err) }", "comes first"},
	{"errors.Is", "p/a.go", "package p\nimport \"errors\"\nvar errX = errors.New(\"x\")\nfunc f(err error, t T) bool { return errors.Is(err, errX) || errors.Is(t.err, errX) }", ""},

	{"metrics", "p/a.go", metric(`prometheus.CounterOpts{Name: "dispatch_requests", Help: "h"}`), "_total"},
	{"metrics", "p/a.go", metric(`prometheus.GaugeOpts{Name: "dispatch_requests_total", Help: "h"}`), "no counter"},
	{"metrics", "p/a.go", metric(`prometheus.HistogramOpts{Name: "dispatch_route", Help: "h"}`), "its unit"},
	{"metrics", "p/a.go", metric(`prometheus.HistogramOpts{Name: "dispatch_route_ms", Help: "h"}`), "base unit"},
	{"metrics", "p/a.go", metric(`prometheus.CounterOpts{Name: "requests_total", Help: "h"}`), "noun_unit"},
	{"metrics", "p/a.go", metric(`prometheus.CounterOpts{Name: "dispatch_Requests_total", Help: "h"}`), "noun_unit"},
	{"metrics", "p/a.go", metric(`prometheus.CounterOpts{Name: prefix + "x_total", Help: "h"}`), "literal"},
	{"metrics", "p/a.go", metric(`prometheus.CounterOpts{Name: "dispatch_x_total"}`), "Help"},
	{"metrics", "p/a.go", metric(`prometheus.CounterOpts{Name: "dispatch_x_total", Help: "h"}, []string{"app", "device_id"}`), "every person"},
	{"metrics", "p/a.go", `package p; var d = prometheus.NewDesc("x", "h", nil, nil)`, "noun_unit"},
	{"metrics", "p/a.go", metricHelper + `var c = counter("dispatch_x", "app")`, "_total"},
	{"metrics", "p/a.go", metricHelper + `var c = counter("dispatch_x_total", "user")`, "every person"},
	{"metrics", "p/a.go", metricHelper + `var c = counter("dispatch_x_total", "app")`, ""},
	{"metrics", "p/a.go", metric(`prometheus.HistogramOpts{Name: "dispatch_route_seconds", Help: "h"}, []string{"app"}`), ""},
	{"metrics", "p/a.go", metric(`prometheus.GaugeOpts{Namespace: "dispatch", Name: "release_number", Help: help}`), ""},

	{"sql", "migrations/mysql/1.sql", "INSERT INTO a VALUES (1) RETURNING id;", "MySQL 8"},
	{"sql", "migrations/mysql/1.sql", "alter table a add column if not exists b int;", "MySQL 8"},
	{"sql", "migrations/mysql/1.sql", "  id UUID NOT NULL,", "MySQL 8"},
	{"sql", "migrations/sqlite/1.sql", "INSERT INTO a VALUES (1) RETURNING id;", ""},
	{"sql", "migrations/mysql/1.sql", "CREATE TABLE IF NOT EXISTS a (uuid BINARY(16) NOT NULL);", ""},

	{"machine words", "docs/a.md", "see /wo" + "rk/main/x", "one machine"},
	{"machine words", "deploy/a.yaml", "path: /ro" + "ot/.cache", "one machine"},
	{"machine words", "docs/a.md", "/ho" + "me/me/x", "one machine"},
	{"machine words", "docs/a.md", "the route /network/ and ${HOME}/wo" + "rk/x and a/wo" + "rk/b", ""},

	{"links", "docs/a.md", "[x](b.md)", "leads nowhere"},
	{"links", "docs/a.md", "[x](/deploy/x.yaml#part)", "leads nowhere"},
	{"links", "docs/a.md", "[x](../domain/) [y](https://bank.example/z) [z](#here) [a](a.md#here)", ""},

	{"decision records", "docs/adr/0099-x.md", "# x\nstatus: accepted\nDecision: y\nConsidered: z\nCosts: much", "Undo when:"},
	{"decision records", "docs/adr/README.md", "# Records", ""},
}

func metric(opts string) string {
	return "package p; var c = prometheus.NewCounterVec(" + opts + ")"
}

const metricHelper = `package p
func counter(name string, labels ...string) { prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "h"}, labels) }
`

// Each rule must turn red on what it guards against, and stay green beside it.
func TestRules(t *testing.T) {
	t.Parallel()
	red := map[string]bool{}
	for i, s := range sources {
		t.Run(fmt.Sprintf("%s_%d", strings.ReplaceAll(s.rule, " ", "_"), i), func(t *testing.T) {
			repo := New(map[string]string{"go.mod": "module m\n", "domain/b.txt": "b", "bench/peers/go.mod": "module peers\n", s.path: s.text})
			var text []string
			for _, f := range check(t, s.rule, repo) {
				if f.Path != s.path || f.Line < 1 {
					t.Errorf("finding %v is not in %s", f, s.path)
				}
				text = append(text, f.String())
			}
			all := strings.Join(text, "\n")
			if s.says == "" && all != "" {
				t.Errorf("%s\nmust pass, found:\n%s", s.text, all)
			}
			if !strings.Contains(all, s.says) {
				t.Errorf("%s\nmust fail with %q, found:\n%s", s.text, s.says, all)
			}
		})
		red[s.rule] = red[s.rule] || s.says != ""
	}
	for _, rule := range rules {
		if !red[rule.name] {
			t.Errorf("no source shows that rule %q turns red; add one", rule.name)
		}
	}
}

func check(t *testing.T, name string, repo *Repo) []Finding {
	t.Helper()
	for _, rule := range rules {
		if rule.name == name {
			return rule.check(repo)
		}
	}
	t.Fatalf("no rule %q", name)
	return nil
}

func TestMirrorsComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	hosts := mirrors([]string{"GOPROXY=https://mirror.corp.example/go|https://other.corp.example,http://127.0.0.1:1,direct",
		"npm_config_registry=http://npm.corp.example:8081/", "PIP_INDEX_URL=https://u:p@pip.corp.example/simple", "HOME=https://not.me"})
	if got := strings.Join(hosts, " "); got != "mirror.corp.example other.corp.example npm.corp.example pip.corp.example" {
		t.Fatalf("mirrors = %q", got)
	}
	repo := New(map[string]string{"docs/a.md": "fetch from npm.corp.example:8081"})
	if found := machineWordsOf(repo, hosts); len(found) != 1 || found[0].Line != 1 {
		t.Errorf("found = %v, want the mirror on line 1", found)
	}
}
