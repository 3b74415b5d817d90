package release

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

var update = flag.Bool("update", false, "write the expected messages anew")

// problemsText is one problem a line, as dispatch check prints them.
func problemsText(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("error %v is no *fault.Error", err)
	}
	var b strings.Builder
	for _, p := range e.Problems {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// same compares with the text beside file, or writes it under -update.
func same(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("problems differ from %s\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

func glob(t *testing.T, patterns ...string) []string {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no files match %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// e16, e45, e46, e51: every mistake is named at once, with its line and the next step.
func TestParseNamesEveryMistake(t *testing.T) {
	t.Parallel()
	for _, file := range glob(t, "testdata/document/*.bad.yaml", "testdata/document/*.bad.json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc, err := Parse(filepath.Base(file), read(t, file))
			if err == nil || doc != nil {
				t.Fatalf("Parse accepted it: %v", err)
			}
			if fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "bad_document" {
				t.Errorf("kind %v, code %s", fault.KindOf(err), fault.CodeOf(err))
			}
			same(t, strings.TrimSuffix(strings.TrimSuffix(file, ".yaml"), ".json")+".txt", problemsText(t, err))
		})
	}
}

func TestParseRoundTripsThroughJSON(t *testing.T) {
	t.Parallel()
	for _, file := range glob(t, "testdata/document/*.good.yaml", "testdata/document/*.good.json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc, err := Parse(filepath.Base(file), read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			checkRoundTrip(t, doc)
		})
	}
}

func checkRoundTrip(t *testing.T, doc *Document) {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.json", text)
	if err != nil {
		t.Fatalf("Parse of %s: %v", text, err)
	}
	if !reflect.DeepEqual(doc, again) {
		t.Errorf("Parse(JSON(doc)) differs\nfirst  %+v\nsecond %+v\ntext %s", doc, again, text)
	}
	var plain Document
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Errorf("json.Unmarshal of %s: %v", text, err)
	} else if !reflect.DeepEqual(doc, &plain) {
		t.Errorf("json.Unmarshal gives another document\nfirst  %+v\nsecond %+v", doc, &plain)
	}
}

func TestParseReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	doc, err := Parse("every-field.good.yaml", read(t, "testdata/document/every-field.good.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	app := doc.Apps[0]
	sh, everything := app.Regions[0], app.Policies[0]
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"off is a word", string(sh.State), "off"},
		{"an explicit 0 stays 0 (e17)", *sh.Endpoints[0].Weight, 0},
		{"no weight stays absent (e17)", app.Regions[1].Endpoints[0].Weight == nil, true},
		{"a share of 0 (e17)", *app.Policies[1].Then.Share.Of, 0},
		{"a duration", time.Duration(app.SessionTTL), 90 * time.Minute},
		{"a bare word where a list may stand", fmt.Sprint(everything.When.Platform), "[ios]"},
		{"a quoted version", everything.When.AppVersion, "10.2"},
		{"an instant in UTC", everything.When.Between[0], time.Date(2026, 12, 31, 14, 0, 0, 0, time.UTC)},
		{"the largest ASN", everything.When.ASN[1], uint32(4294967295)},
		{"intervals as written", fmt.Sprint(everything.Then.Share.Buckets), "[[0 499] [9000 9099]]"},
		{"a ramp from 0 in UTC", app.Policies[2].Then.Share.Ramp.String(), "0 to 5000, 2027-01-01T01:00:00Z to 2027-01-02T01:00:00Z"},
		{"has_user: false is a condition", *everything.When.HasUser, false},
		{"NO is Norway", app.Origins[1].GeoIP.Country["NO"], "hf"},
		{"ids: [] is an import of nobody", doc.Lists[0].IDs != nil && len(*doc.Lists[0].IDs) == 0, true},
		{"ids absent leave the list as it is", doc.Lists[1].IDs == nil, true},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	t.Parallel()
	const head = "apps: [{key: a, fallback: a.bank.example, regions: [], otherwise: {region: x}}]\n"
	var aliases strings.Builder
	aliases.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1)
	}
	cases := map[string]struct {
		text string
		code string // of the error
		says string
	}{
		"one byte too large": {head + strings.Repeat("#", MaxDocument-len(head)+1), "document_too_large", "more than a document may have"},
		"aliases that swell": {aliases.String(), "bad_document", "anchors and aliases are not allowed"},
		"brackets":           {strings.Repeat("[", 2<<20), "bad_document", "max depth"},
		"dashes":             {strings.Repeat("- ", 2<<20), "bad_document", "max depth"},
		"question marks":     {strings.Repeat("? ", 2<<20), "bad_document", "max depth"},
		"JSON brackets":      {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "bad_document", "levels of nesting"},
		"many mistakes":      {"apps: [" + strings.Repeat("7, ", 100_000) + "8]", "bad_document", "99901 more problems are not shown"},
		"many keys":          {strings.Repeat("k: v\n", 200_000), "bad_document", "already written on line 1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("big.yaml", []byte(c.text))
			if fault.CodeOf(err) != c.code {
				t.Fatalf("code %s, want %s: %v", fault.CodeOf(err), c.code, err)
			}
			if text := problemsText(t, err); !strings.Contains(text, c.says) {
				t.Errorf("problems do not say %q:\n%.2000s", c.says, text)
			}
		})
	}
	t.Run("exactly the limit", func(t *testing.T) {
		if _, err := Parse("big.yaml", []byte(head+strings.Repeat("#", MaxDocument-len(head)))); err != nil {
			t.Error(err)
		}
	})
}

// Ids of people and devices never appear in a message.
func TestParseShowsNoIDs(t *testing.T) {
	t.Parallel()
	_, err := Parse("ids.yaml", []byte("apps: []\nlists:\n  - {key: a, of: user, ids: [13812345678, [u-secret], {u-secret: 1}]}\n"))
	text := problemsText(t, err)
	if strings.Contains(text, "13812345678") || strings.Contains(text, "secret") {
		t.Errorf("an id is shown:\n%s", text)
	}
}

func TestLocateFindsTheDeepestWrittenPart(t *testing.T) {
	t.Parallel()
	_, source, err := ParseSource("every.yaml", read(t, "testdata/document/every-field.good.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(read(t, "testdata/document/every-field.good.yaml")), "\n")
	for path, want := range map[string]string{
		"apps[0].regions[0].endpoints[0].domain":      "domain: wapabst.a.com.cn",
		"apps[0].regions[1].endpoints[0].domain":      "- {key: hf-main",
		"apps[0].regions[1].state":                    "- key: hf",
		"apps[0].policies[0].when.attr.risk.level[1]": "attr:",
		"apps[0].policies[0].when.between[1]":         "between:",
		"apps[0].origins[1].geoip.subdivision.SH":     "subdivision: {SH: sh}",
		"apps[0].salts.failover/sh":                   "salts:",
		"apps[0].policies[1].then.share.of":           "then: {share: {region: hf, of: 0}}",
		"apps[7]":                                     "apps:",
		"lists[1].owner":                              "- key: blocked",
		"tables[0].digest":                            "digest: 4355",
		"apps[0].otherwise.split[1]":                  "- {region: hf, of: 4000}",
		"nowhere":                                     "absent_ids",
	} {
		problems := []fault.Problem{{Path: path, Detail: "x"}}
		source.Locate(problems)
		if p := problems[0]; p.File != "every.yaml" || p.Line == 0 || !strings.Contains(lines[p.Line-1], want) {
			t.Errorf("%s is located at %s:%d %q, want the line of %q", path, p.File, p.Line, lines[max(p.Line-1, 0)], want)
		}
	}
}

func TestDurationIsWrittenShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		30 * time.Minute: "30m", 12 * time.Hour: "12h", 90 * time.Second: "1m30s", 90 * time.Minute: "1h30m",
		time.Second: "1s", time.Hour + 5*time.Second: "1h0m5s", 10 * time.Minute: "10m", 20 * time.Hour: "20h",
	} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
		var back Duration
		if err := back.UnmarshalText([]byte(want)); err != nil || time.Duration(back) != d {
			t.Errorf("%s reads as %v, %v", want, back, err)
		}
	}
}

// FuzzParse: no text makes Parse panic or hang, every mistake has a line, and
// what it accepts survives a trip through JSON.
func FuzzParse(f *testing.F) {
	var files []string
	var texts [][]byte
	for _, pattern := range []string{"*.yaml", "*.json"} {
		for _, file := range must(filepath.Glob("testdata/document/" + pattern)) {
			f.Add(uint8(len(files)), uint16(0), uint16(0), []byte{})
			files, texts = append(files, file), append(texts, read(f, file))
		}
	}
	f.Add(uint8(0), uint16(0), uint16(math.MaxUint16), []byte("\rA"))
	f.Fuzz(func(t *testing.T, n uint8, at, cut uint16, piece []byte) {
		if len(piece) > longestPiece {
			return
		}
		file, data := files[int(n)%len(files)], splice(texts[int(n)%len(texts)], at, cut, piece)
		doc, source, err := ParseSource(file, data)
		if err != nil {
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || len(e.Problems) == 0 {
				t.Fatalf("no problems in %v", err)
			}
			lines := strings.Count(string(data), "\n") + 1
			for _, p := range e.Problems {
				if p.Line < 0 || p.Line > lines {
					t.Errorf("line %d of %d: %v", p.Line, lines, p)
				}
			}
			return
		}
		checkRoundTrip(t, doc)
		problems := []fault.Problem{{Path: "apps[0].key"}}
		if source.Locate(problems); problems[0].Line == 0 {
			t.Error("an app without a line")
		}
	})
}
