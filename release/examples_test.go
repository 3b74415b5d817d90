package release

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

func suffixes(t testing.TB) domain.Suffixes {
	t.Helper()
	s, err := domain.NewSuffixes([]string{"a.com.cn", "b.com.cn", "bank.example"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// exampleTables are the tables that an example names, read from beside it.
func exampleTables(t *testing.T, folder string, doc *Document) map[string]*policy.Prefixes {
	t.Helper()
	tables := map[string]*policy.Prefixes{}
	for _, table := range doc.Tables {
		file, err := os.Open(filepath.Join(folder, table.File))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if tables[table.Key], err = policy.ParsePrefixes(file); err != nil {
			t.Fatalf("%s: %v", table.File, err)
		}
	}
	return tables
}

// exampleIndex is the index of the ids that a document names.
func exampleIndex(t *testing.T, doc *Document) *whitelist.Index {
	t.Helper()
	key, err := whitelist.NewKey("test", bytes.Repeat([]byte{7}, whitelist.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	var lists []whitelist.List
	for _, l := range doc.Lists {
		content, err := whitelist.Build(key, l.Of, slices.Values(*l.IDs))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, whitelist.List{Key: l.Key, Of: l.Of, Index: content.Index(), Chunk: content.Chunk})
	}
	index, err := new(whitelist.Index).With([]whitelist.Key{key}, lists)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// Every example is a document that can be published as it is.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("../examples", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		found++
		t.Run(filepath.Base(path), func(t *testing.T) {
			doc, source, err := ParseSource(path, read(t, path))
			if err != nil {
				t.Fatal(err)
			}
			checkRoundTrip(t, doc)
			warnings, err := Check(doc, CheckContext{Source: source, Suffixes: suffixes(t),
				Now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Tables: exampleTables(t, filepath.Dir(path), doc)})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings { // the address databases of MaxMind cannot be shipped
				if !slices.Contains([]string{"this replica has no city database, so this origin never answers",
					"this replica has no ASN database, so this never holds"}, w.Detail) {
					t.Errorf("warning %v", w)
				}
			}
		})
		return nil
	})
	if err != nil || found == 0 {
		t.Fatalf("%d examples, %v", found, err)
	}
}

// The rules of the example do what its comments and the README say.
func TestExampleMobileBankDecides(t *testing.T) {
	t.Parallel()
	doc, err := Parse("mobile-bank.yaml", read(t, "../examples/mobile-bank.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	env := policy.Env{Lists: exampleIndex(t, doc), Tables: exampleTables(t, "../examples", doc)}
	hefei, shanghai := netip.MustParseAddr("36.5.0.1"), netip.MustParseAddr("27.115.0.1")
	for _, c := range []struct {
		app  string
		req  policy.Request
		want string // region and policy
	}{
		{"mobile", policy.Request{Device: "d-1001", Addr: hefei}, "sh staff"},
		{"mobile", policy.Request{Device: "d-1", Addr: hefei}, "hf home-hf"},
		{"mobile", policy.Request{Device: "d-1", Addr: shanghai}, "sh home-sh"},
		{"corporate", policy.Request{Device: "d-1001", User: "u-1", Addr: hefei}, "hf home-hf"},
		{"corporate", policy.Request{User: "u-1", Attrs: []policy.Attr{{Name: "purpose", Value: "payroll"}}}, "hf payroll"},
	} {
		app := doc.app(c.app)
		table, err := policy.Compile(RulesOf(app, Operational{}), env)
		if err != nil {
			t.Fatal(err)
		}
		c.req.Now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		d := table.Decide(&c.req)
		if got := app.Regions[d.Region].Key + " " + table.PolicyKey(d.Policy); got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.app, c.req, got, c.want)
		}
	}
}

func TestExampleNeedsItsSuffixes(t *testing.T) {
	t.Parallel()
	doc, err := Parse("mobile-bank.yaml", read(t, "../examples/mobile-bank.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Check(doc, CheckContext{})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || len(e.Problems) != 9 {
		t.Errorf("want a problem for each of 9 hosts, got %v", err)
	}
}
