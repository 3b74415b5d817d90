package rules

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

var update = flag.Bool("update", false, "write the expected texts anew")

// same compares with a file of testdata, or writes it under -update.
func same(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
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
		t.Errorf("differs from %s\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// folder reads all files of a folder.
func folder(t testing.TB, dir string) (files []File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.y*ml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no rules in %s: %v", dir, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: filepath.Base(path), Text: string(text)})
	}
	return files
}

// problems is one problem a line, as people read them.
func problems(t testing.TB, err error) string {
	t.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("error %v is no *fault.Error", err)
	}
	return lines(e.Problems)
}

func lines(all fault.Problems) string {
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

func mustParse(t testing.TB, files ...File) Set {
	t.Helper()
	set, err := Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// sample is the rule that all others are made from.
const sample = `service: order-core
updated: 2026-11-30T09:00:00Z
selector: {cluster: production, region: cn-hangzhou, env: prod}
strategy: {version: v2.3.1, weight: 70}
fallback: {version: v2.3.0, weight: 30, condition: "target-load > 80"}
`

// edit is the sample with one text replaced.
func edit(t testing.TB, from, to string) File {
	t.Helper()
	if strings.Count(sample, from) != 1 {
		t.Fatalf("%q is not in the sample once", from)
	}
	return File{Name: "order-core.yaml", Text: strings.Replace(sample, from, to, 1)}
}

// write is a rule as a file, with quotes everywhere.
func write(r Rule) string {
	text := fmt.Sprintf("service: %q\nupdated: %s\nselector: {cluster: %q, region: %q, env: %q}\nstrategy: {version: %q, weight: %d}\n",
		r.Service, r.Updated.Format(time.RFC3339), r.Selector.Cluster, r.Selector.Region, r.Selector.Env, r.Strategy.Version, r.Strategy.Weight)
	if f := r.Fallback; f != nil {
		text += fmt.Sprintf("fallback: {version: %q, weight: %d", f.Version, f.Weight)
		if f.Condition != nil {
			text += fmt.Sprintf(", condition: %q", f.Condition)
		}
		text += "}\n"
	}
	return text
}

// A21: the rule that the requirement shows is read as written, and survives both of its forms.
func TestTheSampleSurvivesItsForms(t *testing.T) {
	t.Parallel()
	want := Rule{Service: "order-core", Updated: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
		Selector: Selector{Cluster: "production", Region: "cn-hangzhou", Env: "prod"},
		Strategy: Strategy{Version: "v2.3.1", Weight: 70},
		Fallback: &Fallback{Version: "v2.3.0", Weight: 30, Condition: &Condition{Metric: "target-load", Operator: ">", Number: 80}},
		File:     "order-core.yaml"}
	set := mustParse(t, File{"order-core.yaml", sample})
	if len(set.Rules) != 1 || !reflect.DeepEqual(set.Rules[0], want) {
		t.Fatalf("read %+v", set.Rules)
	}
	if id := set.Rules[0].ID(); id != "order-core/prod@2026-11-30T09:00:00Z" {
		t.Errorf("ID %s", id)
	}
	if again := mustParse(t, File{"order-core.yaml", write(want)}); !reflect.DeepEqual(again.Rules, set.Rules) {
		t.Errorf("written and read again: %+v", again.Rules)
	}
	var decoded Set
	if err := json.Unmarshal(encode(t, set), &decoded); err != nil || !reflect.DeepEqual(decoded.Rules, set.Rules) {
		t.Errorf("through JSON: %+v, %v", decoded.Rules, err)
	}
}

func encode(t testing.TB, s Set) []byte {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheExamplesAreRules(t *testing.T) {
	t.Parallel()
	set := mustParse(t, folder(t, "../../examples/rules")...)
	if len(set.Rules) < 4 || len(set.Groups) < 2 {
		t.Errorf("%d rules, %d groups", len(set.Rules), len(set.Groups))
	}
	if found := Lint(set, "cn-hangzhou", worldOf(set)); len(found) > 0 {
		t.Errorf("in a world that has everything:\n%s", lines(found))
	}
}

// A22: every mistake of every file is named at once, with its line and the next step.
func TestParseNamesEveryMistake(t *testing.T) {
	t.Parallel()
	set, err := Parse(folder(t, "testdata/bad"))
	if err == nil || len(set.Rules) > 0 {
		t.Fatalf("accepted: %+v", set)
	}
	if fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "invalid_rules" {
		t.Errorf("kind %v, code %s", fault.KindOf(err), fault.CodeOf(err))
	}
	same(t, "bad.txt", problems(t, err))
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"T57 2.10":                   {"v2.3.1", "2.10", `order-core.yaml:4: strategy.version: 2.10 without quotes is a number to YAML (write "2.10")`},
		"T57 1e3":                    {"v2.3.1", "1e3", `1e3 without quotes is a number to YAML (write "1e3")`},
		"T57 0x10":                   {"v2.3.1", "0x10", `write "0x10"`},
		"T57 0o10":                   {"v2.3.1", "0o10", `write "0o10"`},
		"T57 an underscore":          {"v2.3.1", "1_000", `write "1_000"`},
		"T57 base 60":                {"v2.3.1", "1:30", `1:30 without quotes is a number to YAML`},
		"T57 a date":                 {"v2.3.1", "2026-11-30", `2026-11-30 without quotes is a timestamp to YAML`},
		"T57 a date without zeros":   {"v2.3.1", "2026-1-3", `is a timestamp to YAML`},
		"T57 a number too large":     {"v2.3.1", "1e400", `is a number to YAML`},
		"T57 a hash of digits":       {"v2.3.1", "20261130", `is a number to YAML`},
		"T57 no":                     {"env: prod", "env: no", `order-core.yaml:3: selector.env: no without quotes is a boolean to YAML (write "no")`},
		"T57 On":                     {"env: prod", "env: On", `write "On"`},
		"T57 y":                      {"env: prod", "env: y", `write "y"`},
		"T57 true":                   {"env: prod", "env: true", `is a boolean to YAML`},
		"T57 ~":                      {"env: prod", "env: ~", `~ without quotes is nothing to YAML (write "~")`},
		"T57 null":                   {"production", "Null", `selector.cluster: Null without quotes is nothing to YAML`},
		"T57 a region":               {"cn-hangzhou", "12", `selector.region: 12 without quotes is a number to YAML`},
		"T57 a service":              {"order-core", "7", `service: 7 without quotes is a number to YAML`},
		"no value":                   {"env: prod", "env: ", `selector.env: has no value`},
		"A04 a region missing":       {"region: cn-hangzhou, ", "", `order-core.yaml:3: selector.region: is required and missing`},
		"A04 an empty text":          {"env: prod", `env: ""`, `selector.env: is empty`},
		"A04 blanks":                 {"env: prod", `env: "  "`, `selector.env: is empty`},
		"A04 T51 a wildcard":         {"cn-hangzhou", `"*"`, `selector.region: "*": there are no wildcards`},
		"A04 a part of a wildcard":   {"cn-hangzhou", `"cn-*"`, `there are no wildcards`},
		"A04 a regex":                {"cn-hangzhou", `"^cn"`, `there are no patterns`},
		"A04 a list in a text":       {"cn-hangzhou", `"cn-hangzhou,cn-shanghai"`, `there are no patterns and no lists`},
		"A04 a list":                 {"cn-hangzhou", `[cn-hangzhou]`, `selector.region: must be a text`},
		"A07 a fifth layer":          {"env: prod", "env: prod, zone: a", `selector.zone: the key is unknown (known here: cluster, region, env; four layers: cluster, region, env, version)`},
		"A07 a slip":                 {"region:", "regoin:", `selector.regoin: the key is unknown (did you mean region? four layers`},
		"T50 on_no_match":            {"service: order-core", "service: order-core\non_no_match: all", `order-core.yaml:2: on_no_match: a rule that matches nothing is an error of each call; that cannot be changed`},
		"T50 on_no_match inside":     {"env: prod", "env: prod, on_no_match: error", `selector.on_no_match: a rule that matches nothing`},
		"A30 a slash":                {"order-core", "order/core", `"order/core": / and .. are not allowed`},
		"A30 two dots":               {"order-core", "order..core", `/ and .. are not allowed`},
		"A30 a slash in an env":      {"env: prod", "env: a/prod", `selector.env: "a/prod": / and .. are not allowed`},
		"a name of three parts":      {"order-core", "a.b.c", `"a.b.c" is not NAME or SERVER.NAME`},
		"a name with a blank":        {"order-core", "order core", `letters, digits and - _ . + : ~ are allowed`},
		"a name too long":            {"order-core", strings.Repeat("a", 129), `has 129 bytes, at most 128`},
		"T65 a negative weight":      {"weight: 70", "weight: -1", `strategy.weight: -1 is not from 0 to 10000`},
		"T65 NaN":                    {"weight: 70", "weight: .nan", `strategy.weight: .nan is no whole number`},
		"T65 NaN as a word":          {"weight: 70", "weight: NaN", `strategy.weight: must be a whole number`},
		"T65 1e18":                   {"weight: 70", "weight: 1e18", `1e18 is no whole number in plain digits`},
		"T65 overflow":               {"weight: 70", "weight: 9223372036854775808", `9223372036854775808 is not from 0 to 10000`},
		"T65 more than 10,000":       {"weight: 70", "weight: 10001", `10001 is not from 0 to 10000`},
		"a fraction":                 {"weight: 70", "weight: 0.7", `0.7 is no whole number`},
		"octal":                      {"weight: 70", "weight: 070", `070 is no whole number in plain digits`},
		"a sign":                     {"weight: 70", "weight: +70", `no whole number in plain digits`},
		"a percentage":               {"weight: 70", "weight: 70%", `strategy.weight: must be a whole number`},
		"a weight in quotes":         {"weight: 70", `weight: "70"`, `must be a whole number, without quotes`},
		"weight beside a fallback":   {", weight: 70", "", `strategy.weight: is required beside a fallback`},
		"a fallback's weight":        {"weight: 30, ", "", `fallback.weight: is required and missing`},
		"the same version twice":     {"v2.3.0", "v2.3.1", `fallback.version: "v2.3.1" is the version of the strategy too`},
		"A40 no operator":            {"target-load > 80", "target-load 80", `fallback.condition: "target-load 80" has no operator (write METRIC OPERATOR NUMBER`},
		"A40 less than":              {"target-load > 80", "target-load < 80", `"<" is no operator; > and >= are`},
		"A40 another metric":         {"target-load > 80", "cpu > 80", `"cpu" is no metric`},
		"A40 no number":              {"target-load > 80", "target-load > many", `is no condition`},
		"A40 NaN":                    {"target-load > 80", "target-load > NaN", `is no condition`},
		"A40 more than all":          {"target-load > 80", "target-load > 101", `101 is no percentage from 1 to 100`},
		"A40 never comes back":       {"target-load > 80", "target-load > 0", `0 is no percentage from 1 to 100 (write 1 or more`},
		"A40 hardly comes back":      {"target-load > 80", "target-load >= 0.9", `0.9 is no percentage from 1 to 100`},
		"A40 two conditions":         {"target-load > 80", "target-load > 80 and target-load > 90", `is no condition`},
		"A40 nothing":                {`"target-load > 80"`, `""`, `"" has no operator`},
		"no time":                    {"updated: 2026-11-30T09:00:00Z\n", "", `order-core.yaml:1: updated: is required and missing`},
		"a time without a zone":      {"09:00:00Z", "09:00:00", `order-core.yaml:2: updated: "2026-11-30T09:00:00" has no time of day or no zone`},
		"a day":                      {"2026-11-30T09:00:00Z", "2026-11-30", `has no time of day or no zone`},
		"no instant":                 {"2026-11-30T09:00:00Z", "yesterday", `"yesterday" is no instant`},
		"a fraction of a second":     {"09:00:00Z", "09:00:00.5Z", `updated: must be an instant in whole seconds`},
		"a key twice":                {"env: prod", "env: prod, env: test", `selector.env: the key is written on line 3 already`},
		"a rule that is a list":      {"service: order-core", "- service: order-core", `no YAML`},
		"an alias":                   {"env: prod", "env: *prod", `no YAML`},
		"an anchor":                  {"env: prod", "env: &e prod", `anchors, aliases and tags are not allowed`},
		"a tag":                      {"env: prod", "env: !!str prod", `anchors, aliases and tags are not allowed`},
		"a control character":        {"env: prod", "env: pr\x01od", `order-core.yaml:3: there is a control character, U+0001`},
		"a hidden line break":        {"env: prod", "env: pr\u2028od", `there is a control character, U+2028`},
		"no UTF-8":                   {"env: prod", "env: pr\xffod", `byte 0xff is not UTF-8`},
		"too deep":                   {"env: prod", "env: " + strings.Repeat("[", 20) + strings.Repeat("]", 20), `no YAML`},
		"too long":                   {"env: prod", "env: prod}\n" + strings.Repeat("#", maxFile), `bytes are more than a file may have`},
		"an open bracket":            {"env: prod}", "env: prod", `order-core.yaml:4: no YAML`},
		"a mistake behind the end":   {sample, "service: [\n", `order-core.yaml:1: no YAML`},
		"a value behind a tab":       {"service: order-core", "service: order-core\n\tx: y", `no YAML`},
		"a second document":          {"service: order-core", "service: a\n---\nservice: order-core", `order-core.yaml:2: a second rule begins here (give each rule a file of its own)`},
		"a rule in one word":         {sample, "order-core", `must be keys with values`},
		"a comment alone":            {sample, "# later\n", `the file is empty`},
		"a combining mark in an env": {"env: prod", "env: \"pro\u0301d\"", `letters, digits and - _ . + : ~ are allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := Parse([]File{edit(t, c.from, c.to)})
			if err == nil || len(set.Rules) > 0 {
				t.Fatalf("accepted: %+v", set)
			}
			text := problems(t, err)
			if !strings.Contains(text, c.want) {
				t.Errorf("got\n%swant %s", text, c.want)
			}
			if n := strings.Count(text, "\n"); n > 1 {
				t.Errorf("%d problems for one mistake:\n%s", n, text)
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	weight := func(n int) func(Rule) bool { return func(r Rule) bool { return r.Strategy.Weight == n } }
	version := func(v string) func(Rule) bool { return func(r Rule) bool { return r.Strategy.Version == v } }
	for name, c := range map[string]struct {
		from, to string
		is       func(Rule) bool
	}{
		"T57 a quoted number stays as written": {"v2.3.1", `"2.10"`, version("2.10")},
		"T57 single quotes":                    {"v2.3.1", `'1e3'`, version("1e3")},
		"T57 a quoted no":                      {"env: prod", `env: "no"`, func(r Rule) bool { return r.Selector.Env == "no" }},
		"three numbers are a text":             {"v2.3.1", "2.3.1", version("2.3.1")},
		"a build's version":                    {"v2.3.1", `"2.3.1+b7"`, version("2.3.1+b7")},
		"letters of any language":              {"env: prod", "env: 测试", func(r Rule) bool { return r.Selector.Env == "测试" }},
		"T66 a weight of 0":                    {"weight: 70", "weight: 0", weight(0)},
		"a weight of 10,000":                   {"weight: 70", "weight: 10000", weight(10000)},
		"T66 no weight and no fallback": {sample, strings.NewReplacer(", weight: 70", "", `fallback: {version: v2.3.0, weight: 30, condition: "target-load > 80"}`, "").Replace(sample),
			weight(defaultWeight)},
		"A40 at least":           {"target-load > 80", "target-load >= 80.5", func(r Rule) bool { return r.Fallback.Condition.String() == "target-load >= 80.5" }},
		"A40 without blanks":     {"target-load > 80", "target-load>80", func(r Rule) bool { return r.Fallback.Condition.String() == "target-load > 80" }},
		"A40 without quotes":     {`"target-load > 80"`, "target-load > 80", func(r Rule) bool { return r.Fallback.Condition.Number == 80 }},
		"no condition":           {`, condition: "target-load > 80"`, "", func(r Rule) bool { return r.Fallback.Condition == nil }},
		"a port of a server":     {"order-core", "order.rpc", func(r Rule) bool { return r.Service == "order.rpc" }},
		"another zone":           {"09:00:00Z", "17:00:00+08:00", func(r Rule) bool { return r.ID() == "order-core/prod@2026-11-30T09:00:00Z" }},
		"a time in quotes":       {"2026-11-30T09:00:00Z", `"2026-11-30T09:00:00Z"`, func(r Rule) bool { return r.Updated.Hour() == 9 }},
		"a byte order mark":      {"service", "\ufeffservice", version("v2.3.1")},
		"lines of another house": {sample, strings.ReplaceAll(sample, "\n", "\r\n"), version("v2.3.1")},
		"JSON": {sample, `{"service":"a","updated":"2026-11-30T09:00:00Z","selector":{"cluster":"c","region":"r","env":"e"},"strategy":{"version":"1","weight":1}}`,
			version("1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := mustParse(t, edit(t, c.from, c.to))
			if len(set.Rules) != 1 || !c.is(set.Rules[0]) {
				t.Errorf("read %+v", set.Rules)
			}
		})
	}
}

func TestNamesOfFiles(t *testing.T) {
	t.Parallel()
	const groups = "groups:\n  - {prefix: order-, owners: [ci]}\n"
	for name, c := range map[string]struct {
		files []File
		want  string // empty: accepted
	}{
		"none":                     {nil, ""},
		"groups alone":             {[]File{{"groups.yaml", groups}}, ""},
		"no groups":                {[]File{{"groups.yaml", "groups: []\n"}}, ""},
		"a folder":                 {[]File{{"order/order-core.yaml", sample}}, ""},
		"the same name twice":      {[]File{{"a.yaml", sample}, {"b.yaml", sample}, {"a.yaml", sample}}, "a.yaml: there are two files of this name"},
		"out of the folder":        {[]File{{"../a.yaml", sample}}, "leads out of the folder"},
		"out of it in the middle":  {[]File{{"a/../../b.yaml", sample}}, "leads out of the folder"},
		"an absolute path":         {[]File{{"/a.yaml", sample}}, "leads out of the folder"},
		"another system":           {[]File{{`a\b.yaml`, sample}}, "leads out of the folder"},
		"no YAML":                  {[]File{{"README.md", "x"}}, "files of rules end in .yaml (name it README.yaml)"},
		"groups.yml":               {[]File{{"groups.yml", groups}}, "name it groups.yaml"},
		"groups elsewhere":         {[]File{{"order/groups.yaml", groups}}, "stands at the top of the folder"},
		"no name":                  {[]File{{"", sample}}, "1 to 200 bytes"},
		"a name for terminals":     {[]File{{"a\x1b[2J.yaml", sample}}, "of plain text"},
		"groups that are no list":  {[]File{{"groups.yaml", "groups: {}\n"}}, "groups.yaml:1: groups: must be a list"},
		"groups without owners":    {[]File{{"groups.yaml", "groups: [{prefix: a-, owners: []}]\n"}}, "could be changed by nobody"},
		"a rule among the groups":  {[]File{{"groups.yaml", sample}}, "groups.yaml:1: service: the key is unknown"},
		"a group among the rules":  {[]File{{"a.yaml", groups}}, "a.yaml:1: groups: the key is unknown"},
		"a prefix that two have":   {[]File{{"groups.yaml", groups + "  - {prefix: order-, owners: [x]}\n"}}, "groups.yaml:3: groups[1].prefix: there is a group order- already"},
		"a prefix for everything":  {[]File{{"groups.yaml", "groups: [{prefix: \"\", owners: [x]}]\n"}}, "groups[0].prefix: is empty"},
		"a prefix with a wildcard": {[]File{{"groups.yaml", "groups: [{prefix: \"order-*\", owners: [x]}]\n"}}, `"order-*" is not the beginning of a name`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := Parse(c.files)
			if c.want == "" {
				if err != nil || set.Rules == nil {
					t.Errorf("%+v, %v", set, err)
				}
				return
			}
			if err == nil || !strings.Contains(problems(t, err), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestParseIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := Parse(make([]File, maxFiles+1)); fault.KindOf(err) != fault.TooLarge {
		t.Errorf("too many files: %v", err)
	}
	var files []File
	for i := range maxProblems + 7 {
		files = append(files, File{fmt.Sprintf("%04d.yaml", i), "# nothing\n"})
	}
	_, err := Parse(files)
	if text := problems(t, err); strings.Count(text, "\n") != maxProblems+1 || !strings.HasSuffix(text, "\n7 more problems are not shown\n") {
		t.Errorf("ends with %s", text[len(text)-100:])
	}
}

// A32: two rules for one service and environment are allowed; the newest comes first,
// whatever the names of the files and the order they come in.
func TestTheNewestRuleComesFirst(t *testing.T) {
	t.Parallel()
	newer := edit(t, "09:00:00Z", "09:00:01Z")
	newer.Name = "z.yaml"
	other := edit(t, "env: prod", "env: test")
	other.Name = "b.yaml"
	files := []File{{"c.yaml", sample}, newer, other, {"a.yaml", sample}}
	var first []byte
	for range 3 {
		set := mustParse(t, files...)
		var names []string
		for _, r := range set.For("order-core", "prod") {
			names = append(names, r.File)
		}
		if fmt.Sprint(names) != "[z.yaml a.yaml c.yaml]" {
			t.Errorf("rules in order: %v", names)
		}
		if len(set.For("order-core", "test")) != 1 || set.For("order-core", "pre") != nil || set.For("order", "prod") != nil {
			t.Error("rules of others are found")
		}
		text := encode(t, set)
		if first == nil {
			first = text
		}
		if string(first) != string(text) {
			t.Errorf("equal sets have other bytes:\n%s\n%s", first, text)
		}
		files = append(files[1:], files[0])
	}
}

// A set that was put together otherwise has the bytes of the one that Parse made.
func TestEqualSetsHaveEqualBytes(t *testing.T) {
	t.Parallel()
	set := mustParse(t, folder(t, "../../examples/rules")...)
	other := Set{Rules: slices.Clone(set.Rules), Groups: slices.Clone(set.Groups)}
	slices.Reverse(other.Rules)
	slices.Reverse(other.Groups)
	for i := range other.Rules {
		other.Rules[i].Updated = other.Rules[i].Updated.In(time.FixedZone("", 8*3600))
	}
	for i := range other.Groups {
		other.Groups[i].Owners = slices.Clone(other.Groups[i].Owners)
		slices.Reverse(other.Groups[i].Owners)
	}
	if a, b := string(encode(t, set)), string(encode(t, other)); a != b {
		t.Errorf("bytes\n%s\nand\n%s", a, b)
	}
	if d := Diff(set, other); len(d) > 0 {
		t.Errorf("differ in %+v", d)
	}
	if text := string(encode(t, Set{})); text != `{"rules":[]}` {
		t.Errorf("no rules are %s", text)
	}
}

// longestPiece bounds what splice puts in, so that a fuzzer has little to minimise.
const longestPiece = 64

// splice is text with cut bytes from at on replaced by piece: most of what a fuzzer
// makes so stays near a text that is accepted.
func splice(text string, at, cut uint16, piece string) string {
	from := min(int(at), len(text))
	to := min(from+int(cut), len(text))
	return text[:from] + piece[:min(len(piece), longestPiece)] + text[to:]
}

func FuzzParse(f *testing.F) {
	bases := append(folder(f, "../../examples/rules"), folder(f, "testdata/bad")...)
	bases = append(bases, File{"order-core.yaml", sample})
	for i := range bases {
		f.Add(uint8(i), uint16(0), uint16(0), "")
	}
	last := uint8(len(bases) - 1)
	for _, piece := range []string{"~", "2.10", "&a", "*a", "!!str ", "---\n", "\r", "\u2028", "{", "[", "? ", "<<: ", "|\n", "1:30", "\xff", "on_no_match: all\n"} {
		f.Add(last, uint16(strings.Index(sample, "cn-hangzhou")), uint16(11), piece)
		f.Add(last, uint16(0), uint16(0), piece)
	}
	f.Fuzz(func(t *testing.T, base uint8, at, cut uint16, piece string) {
		file := bases[int(base)%len(bases)]
		name, text := file.Name, splice(file.Text, at, cut, piece)
		set, err := Parse([]File{{name, text}})
		if err != nil {
			for _, p := range err.(*fault.Error).Problems {
				if p.File != name || p.Detail == "" || p.Line > strings.Count(text, "\n")+1 {
					t.Errorf("problem %+v", p)
				}
			}
			return
		}
		holdsTogether(t, set, name)
	})
}

// holdsTogether checks what is true of every set that Parse returns.
func holdsTogether(t *testing.T, set Set, name string) {
	t.Helper()
	if err := set.check(); err != nil {
		t.Errorf("a set that callers refuse: %v", err)
	}
	var decoded Set
	if err := json.Unmarshal(encode(t, set), &decoded); err != nil || len(Diff(set, decoded)) > 0 {
		t.Errorf("through JSON: %v, %+v", err, Diff(set, decoded))
	}
	for _, r := range set.Rules {
		again, err := Parse([]File{{name, write(r)}})
		if err != nil || len(again.Rules) != 1 || !reflect.DeepEqual(again.Rules[0], r) {
			t.Errorf("written %q, read %+v, %v", write(r), again.Rules, err)
		}
	}
	if found := Lint(set, "cn-hangzhou", worldOf(set)); len(set.Rules) == 0 && len(set.Groups) == 0 && len(found) > 0 {
		t.Errorf("nothing has problems: %s", lines(found))
	}
}
