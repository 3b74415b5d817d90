package release

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

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

// Every document among the examples can be published as it is. Instances and rules
// of internal calls lie in folders of their own, which discovery tries.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("../examples", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{"rules", "inner"}, entry.Name()) {
			return fs.SkipDir
		}
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

// example is the document that serve --demo publishes, with its tables and an
// address database that knows one network of China Mobile and one of China Telecom.
func example(t *testing.T) (*Document, policy.Env) {
	t.Helper()
	doc, err := Parse("mobile-bank.yaml", read(t, "../examples/mobile-bank.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return doc, policy.Env{Lists: exampleIndex(t, doc), Tables: exampleTables(t, "../examples", doc),
		Geo: networks(t, map[string]uint32{"203.0.113.0/24": 9808, "198.51.100.0/24": 4134})}
}

// networks is an ASN database in the MaxMind format.
func networks(t *testing.T, numbers map[string]uint32) *policy.Geo {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-ASN", IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for text, number := range numbers {
		_, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Insert(network, mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(number)}); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if _, err := tree.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "asn.mmdb")
	if err := os.WriteFile(name, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	geo, err := policy.OpenGeo("", name)
	if err != nil {
		t.Fatal(err)
	}
	return geo
}

// idIn is an id whose bucket under salt is at least from and below to.
func idIn(salt string, from, to uint16) string {
	for n := 0; ; n++ {
		id := fmt.Sprint("id-", n)
		if b := policy.Bucket(salt, id); b >= from && b < to {
			return id
		}
	}
}

func compiled(t *testing.T, app *App, env policy.Env) *policy.Table {
	t.Helper()
	table, err := policy.Compile(RulesOf(app, Operational{}), env)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// The rules of the example do what its comments and the README say.
func TestExampleMobileBankDecides(t *testing.T) {
	t.Parallel()
	doc, env := example(t)
	hefei, shanghai := netip.MustParseAddr("36.5.0.1"), netip.MustParseAddr("27.115.0.1")
	chinaMobile, chinaTelecom := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.51.100.7")
	const gray, rest = "mobile/gray-10-2", "mobile/otherwise"
	below, above := idIn(gray, 0, 500), idIn(gray, 500, policy.Whole)
	first, last := idIn(rest, 5999, 6000), idIn(rest, 6000, 6001)
	for _, c := range []struct {
		app  string
		req  policy.Request
		want string // region and policy
	}{
		{"mobile", policy.Request{Device: "d-1001", Addr: hefei}, "sh staff"},
		{"mobile", policy.Request{Device: "d-1", Addr: hefei}, "hf home-hf"},
		{"mobile", policy.Request{Device: "d-1", Addr: shanghai}, "sh home-sh"},
		{"mobile", policy.Request{Device: below, Addr: shanghai, Platform: "iOS", AppVersion: "10.2.0"}, "hf gray-10-2"},
		{"mobile", policy.Request{Device: above, Addr: shanghai, Platform: "iOS", AppVersion: "10.2.0"}, "sh home-sh"},
		{"mobile", policy.Request{Device: below, Addr: shanghai, Platform: "iOS", AppVersion: "10.1.9"}, "sh home-sh"},
		{"mobile", policy.Request{Device: below, Addr: shanghai, Platform: "iOS", AppVersion: "11.0.0-beta"}, "sh home-sh"},
		{"mobile", policy.Request{Device: below, Addr: shanghai, Platform: "android", AppVersion: "10.2.0"}, "sh home-sh"},
		{"mobile", policy.Request{User: below, Addr: shanghai, Platform: "iOS", AppVersion: "10.2.0"}, "sh home-sh"}, // bucketed by device
		{"mobile", policy.Request{Device: first, Addr: chinaMobile, Hint: "hf"}, "hf china-mobile"},
		{"mobile", policy.Request{Device: first, Addr: chinaMobile, Hint: "sh"}, "sh home-sh"},
		{"mobile", policy.Request{Device: first, Addr: chinaTelecom, Hint: "hf"}, "hf home-hf"},
		{"mobile", policy.Request{Device: first, Addr: chinaTelecom}, "sh "},
		{"mobile", policy.Request{Device: last, Addr: chinaTelecom}, "hf "},
		{"corporate", policy.Request{Device: "d-1001", User: "u-1", Addr: hefei}, "hf home-hf"},
		{"corporate", policy.Request{User: "u-1", Attrs: []policy.Attr{{Name: "purpose", Value: "payroll"}}}, "hf payroll"},
	} {
		app := doc.app(c.app)
		table := compiled(t, app, env)
		c.req.Now = checkedOn
		d := table.Decide(&c.req)
		if got := app.Regions[d.Region].Key + " " + table.PolicyKey(d.Policy); got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.app, c.req, got, c.want)
		}
	}
}

// The default split of the example is 60 to 40 of whoever has an id.
func TestExampleSplitsTheRest(t *testing.T) {
	t.Parallel()
	doc, env := example(t)
	table := compiled(t, doc.app("mobile"), env)
	const devices = 10_000
	shanghai := 0
	for n := range devices {
		if d := table.Decide(&policy.Request{Device: fmt.Sprintf("%08d", n), Now: checkedOn}); doc.app("mobile").Regions[d.Region].Key == "sh" {
			shanghai++
		}
	}
	if sigma := math.Sqrt(devices * 0.6 * 0.4); math.Abs(float64(shanghai)-devices*0.6) > 4*sigma {
		t.Errorf("%d of %d devices went to Shanghai, want 6000 ± %.0f", shanghai, devices, 4*sigma)
	}
}

// E07: where the document asks for a request's region first and for ids second,
// explain shows both steps in that order, the origin with what it was found by.
func TestExplainShowsOriginBeforeIDs(t *testing.T) {
	t.Parallel()
	doc, env := example(t)
	app := doc.app("mobile")
	isOrigin := func(p policy.Policy) bool { return p.When.Origin != nil }
	app.Policies = slices.Concat(slices.DeleteFunc(slices.Clone(app.Policies), func(p policy.Policy) bool { return !isOrigin(p) }),
		slices.DeleteFunc(slices.Clone(app.Policies), isOrigin))
	table := compiled(t, app, env)
	for _, c := range []struct {
		name string
		req  policy.Request
		want []string // key, outcome and region of each step up to the one that decides
		got  string   // of the first condition
	}{
		{"the region is known", policy.Request{Device: "d-1001", Addr: netip.MustParseAddr("36.5.0.1")},
			[]string{"home-sh does not match ", "home-hf decides hf"}, `"hf" from table cn-prefixes, prefix 36.5.0.0/16`},
		{"the region is not known", policy.Request{Device: "d-1001", Addr: netip.MustParseAddr("203.0.113.7")},
			[]string{"home-sh does not match ", "home-hf does not match ", "staff decides sh"}, "no origin answered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.Now = checkedOn
			_, trace := table.Explain(&c.req)
			var steps []string
			for _, s := range trace.Steps[:min(len(c.want), len(trace.Steps))] {
				steps = append(steps, s.Key+" "+string(s.Outcome)+" "+s.Region)
			}
			if !slices.Equal(steps, c.want) || trace.Steps[0].Checks[0].Got != c.got {
				t.Errorf("got %q with %+v, want %q with %s in\n%s", steps, trace.Steps[0].Checks, c.want, c.got, trace.String())
			}
		})
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
