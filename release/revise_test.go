package release

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// annotated is ruleText as a person would have it.
const annotated = `# Rules of the app, kept by the release team.

apps:
  # The app that people have.
  - key: mobile   # never change this
    fallback: "wap.bank.example"   # 手机银行

    regions:
      # Shanghai
      - {key: sh,  capacity: 60, failover: [hf], endpoints: [{key: main, domain: sh.bank.example}]}   # east

      # Hefei
      - key: hf
        capacity: 40      # half of Shanghai
        failover: [
          sh,   # nearest
        ]
        endpoints:
          - {key: main, domain: hf.bank.example}
          # the spare comes next year
      # foot of the regions

    policies:
      # first of all
      - {key: a, when: {app_version: ">=1.0.0"}, then: {region: sh}}
      - key: b          # after a
        when: {app_version: '>=2.0.0'}
        then: {region: hf}

      # ---- shares ----

      - key: c
        then:
          # a twentieth
          share: {of: 500, region: hf}
        # foot of c

    # everybody else
    otherwise: {region: sh}

lists:
- {key: staff, of: device, owner: team, expires: 2099-12-31}
# the end
`

// revisedText is the text with the document in it, in which it must find its place.
func revisedText(t *testing.T, text string, doc *Document) string {
	t.Helper()
	out, anew, err := Revise([]byte(text), doc)
	if err != nil || anew {
		t.Fatalf("anew %v, %v", anew, err)
	}
	sameAs(t, out, doc)
	return string(out)
}

// sameAs fails unless the text reads as what Text would write.
func sameAs(t *testing.T, text []byte, doc *Document) {
	t.Helper()
	fresh, err := Text(doc)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("text.yaml", fresh)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse("revised.yaml", text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it reads as another document (%v):\n%s", err, text)
	}
}

func TestReviseChangesNothingElse(t *testing.T) {
	t.Parallel()
	const (
		rowA = "      - {key: a, when: {app_version: \">=1.0.0\"}, then: {region: sh}}\n"
		rowB = "      - {key: b, when: {app_version: \">=2.0.0\"}, then: {region: hf}}\n"
		rowC = "      - {key: c, then: {share: {region: hf, of: 500}}}\n"
		b    = "      - key: b          # after a\n        when: {app_version: '>=2.0.0'}\n        then: {region: hf}\n"
	)
	for name, test := range map[string]struct{ change, want []string }{
		"nothing":                    {},
		"a scalar among brackets":    {[]string{"capacity: 60", "capacity: 70"}, []string{"capacity: 60,", "capacity: 70,"}},
		"a scalar on its line":       {[]string{"capacity: 40", "capacity: 45"}, []string{"capacity: 40 ", "capacity: 45 "}},
		"a quoted scalar":            {[]string{"fallback: wap", "fallback: web"}, []string{`"wap.bank`, `"web.bank`}},
		"a single-quoted scalar":     {[]string{">=2.0.0", ">=2.1.0"}, []string{"'>=2.0.0'", "'>=2.1.0'"}},
		"two policies":               {[]string{">=2.0.0", ">=2.1.0", "of: 500", "of: 700"}, []string{"'>=2.0.0'", "'>=2.1.0'", "of: 500", "of: 700"}},
		"a key among brackets":       {[]string{"capacity: 60, ", ""}, []string{" capacity: 60, ", " "}},
		"a key on its line":          {[]string{"capacity: 40, ", ""}, []string{"        capacity: 40      # half of Shanghai\n", ""}},
		"a new key among brackets":   {[]string{"{key: a, when", "{key: a, name: first, when"}, []string{">=1.0.0\"}, then: {region: sh}}", ">=1.0.0\"}, then: {region: sh}, name: first}"}},
		"what text leaves out":       {[]string{"owner: team", "owner: team, count: 4"}, nil},
		"a new key on its line":      {[]string{"{key: c, then", "{key: c, when: {in_list: staff}, then"}, []string{"      - key: c\n", "      - key: c\n        when: {in_list: [staff]}\n"}},
		"a new key of the app":       {[]string{"    otherwise", "    session_ttl: 20m\n    otherwise"}, []string{"\"   # 手机银行\n", "\"   # 手机银行\n    session_ttl: 20m\n"}},
		"a new item among brackets":  {[]string{"failover: [hf]", "failover: [hf, sz]"}, []string{"failover: [hf]", "failover: [hf, sz]"}},
		"a list with comments grows": {[]string{"failover: [sh]", "failover: [sz, sh, gz]"}, []string{"          sh,   # nearest\n", "          sz, sh, gz,   # nearest\n"}},
		"a new policy behind":        {[]string{rowC, rowC + "      - {key: d, then: {region: hf}}\n"}, []string{"        # foot of c\n", "        # foot of c\n      - {key: d, then: {region: hf}}\n"}},
		"a new policy between":       {[]string{rowA, rowA + "      - {key: d, then: {region: hf}}\n"}, []string{b, "      - {key: d, then: {region: hf}}\n" + b}},
		"a new policy before":        {[]string{rowA, "      - {key: d, then: {region: hf}}\n" + rowA}, []string{"      # first of all\n", "      - {key: d, then: {region: hf}}\n      # first of all\n"}},
		"a new endpoint":             {[]string{"domain: hf.bank.example}", "domain: hf.bank.example}, {key: two, domain: h2.bank.example}"}, []string{"          # the spare comes next year\n", "          # the spare comes next year\n          - {key: two, domain: h2.bank.example}\n"}},
		"a policy goes":              {[]string{rowB, ""}, []string{b, ""}},
		"the first policy goes":      {[]string{rowA, ""}, []string{"      # first of all\n" + rowA, ""}},
		"the last policy goes":       {[]string{rowC, ""}, []string{"      - key: c\n        then:\n          # a twentieth\n          share: {of: 500, region: hf}\n        # foot of c\n", ""}},
		"all policies go":            {[]string{"    policies:\n" + rowA + rowB + rowC, ""}, []string{annotated[strings.Index(annotated, "    policies:"):strings.Index(annotated, "    # everybody else")], ""}},
		"another order":              {[]string{rowA + rowB, rowB + rowA}, []string{"      # first of all\n" + rowA + b, b + "\n      # ---- shares ----\n\n      # first of all\n" + rowA, "\n      # ---- shares ----\n\n      - key: c", "      - key: c"}},
		"a short action, a long one": {[]string{"otherwise: {region: sh}", "otherwise: {split: [{region: sh, of: 2500}, {region: hf, of: 7500}]}"}, []string{"otherwise: {region: sh}", "otherwise: {split: [{region: sh, of: 2500}, {region: hf, of: 7500}]}"}},
		"a list that is new":         {[]string{"2099-12-31}\n", "2099-12-31}\n  - {key: more, of: user}\n"}, []string{"2099-12-31}\n# the end\n", "2099-12-31}\n# the end\n- {key: more, of: user}\n"}},
		"lists go":                   {[]string{"lists:\n  - {key: staff, of: device, owner: team, expires: 2099-12-31}\n", ""}, []string{annotated[strings.Index(annotated, "lists:"):], ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := revisedText(t, annotated, parsed(t, test.change...)), annotated
			for i := 0; i < len(test.want); i += 2 {
				if !strings.Contains(want, test.want[i]) {
					t.Fatalf("the text has no %q", test.want[i])
				}
				want = strings.Replace(want, test.want[i], test.want[i+1], 1)
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What each side may do, in the author's text and in the document of the others.
// The comments behind it are those that may go with it.
var edits = []struct{ name, ours, oursTo, theirs, theirsTo, gone string }{
	{"capacity", "capacity: 40 ", "capacity: 44 ", "capacity: 40", "capacity: 44", ""},
	{"fallback", `"wap.bank`, `"web.bank`, "fallback: wap", "fallback: web", ""},
	{"version", "'>=2.0.0'", "'>=2.5.0'", ">=2.0.0", ">=2.5.0", ""},
	{"share", "of: 500", "of: 600", "of: 500", "of: 600", ""},
	{"otherwise", "otherwise: {region: sh}", "otherwise: {region: hf}", "otherwise: {region: sh}", "otherwise: {region: hf}", ""},
	{"first policy gone", "      # first of all\n      - {key: a, when: {app_version: \">=1.0.0\"}, then: {region: sh}}\n", "",
		"      - {key: a, when: {app_version: \">=1.0.0\"}, then: {region: sh}}\n", "", "# first of all"},
	{"new policy", "        # foot of c\n", "        # foot of c\n      - key: d # mine\n        then: {region: hf}\n",
		"500}}}\n", "500}}}\n      - {key: d, then: {region: hf}}\n", ""},
	{"new endpoint", "          # the spare", "          - {key: two, domain: h2.bank.example}\n          # the spare",
		"domain: hf.bank.example}", "domain: hf.bank.example}, {key: two, domain: h2.bank.example}", ""},
	{"new list", "# the end", "- {key: more, of: user} # mine\n# the end", "2099-12-31}\n", "2099-12-31}\n  - {key: more, of: user}\n", ""},
	{"owner", "owner: team", "owner: 发布组", "owner: team", "owner: 发布组", ""},
}

// Whatever two sides do without a conflict, the author's text takes the other side's
// part, keeps every comment, and reads as what Text writes of the merged document.
func TestReviseTakesEveryMerge(t *testing.T) {
	t.Parallel()
	merges := 0
	for _, own := range edits {
		for _, other := range edits {
			mine := strings.Replace(annotated, own.ours, own.oursTo, 1)
			ours, err := Parse("mine.yaml", []byte(mine))
			if err != nil || mine == annotated {
				t.Fatal(own.name, err)
			}
			merged, conflicts, err := Merge(parsed(t), ours, parsed(t, other.theirs, other.theirsTo))
			if err != nil {
				t.Fatal(err)
			}
			if len(conflicts) > 0 {
				continue
			}
			merges++
			got := revisedText(t, mine, merged)
			for line := range strings.Lines(mine) {
				_, comment, ok := strings.Cut(strings.TrimSpace(line), "#")
				if ok && "#"+comment != other.gone && !strings.Contains(got, "#"+comment) {
					t.Errorf("%s, then %s: the comment %q is gone from\n%s", own.name, other.name, comment, got)
				}
			}
		}
	}
	if merges < 90 {
		t.Errorf("%d merges were tried", merges)
	}
}

// Any document goes into the text of any other.
func TestReviseReadsAsTheDocument(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"annotated": annotated, "rules": ruleText}
	for _, file := range glob(t, "testdata/document/*.good.yaml", "testdata/document/*.good.json", "../examples/*.yaml") {
		texts[file] = string(read(t, file))
	}
	for from, text := range texts {
		for to, other := range texts {
			doc, err := Parse(to, []byte(other))
			if err != nil {
				t.Fatal(err)
			}
			out, anew, err := Revise([]byte(text), doc)
			if err != nil {
				t.Fatalf("%s into %s: %v", to, from, err)
			}
			sameAs(t, out, doc)
			if from == to && string(out) != text && !strings.HasSuffix(from, ".json") && !strings.Contains(text, "digest") && !strings.Contains(text, "ids:") {
				t.Errorf("%s is another text:\n%s", from, out)
			}
			if anew {
				t.Errorf("%s found no place in %s", to, from)
			}
		}
	}
}

// What cannot be placed is written anew, and said.
func TestReviseSaysThatItWroteAnew(t *testing.T) {
	t.Parallel()
	const two = "          {key: main, domain: hf.bank.example},   # serves\n          {key: next, domain: h2.bank.example},   # waits\n"
	text := strings.Replace(annotated, "        endpoints:\n          - {key: main, domain: hf.bank.example}\n", "        endpoints: [\n"+two+"        ]\n", 1)
	doc := parsed(t, "{key: main, domain: hf.bank.example}", "{key: next, domain: h2.bank.example}, {key: main, domain: hf.bank.example}")
	out, anew, err := Revise([]byte(text), doc)
	if err != nil || !anew || strings.Contains(string(out), "#") {
		t.Errorf("anew %v, %v:\n%s", anew, err, out)
	}
	sameAs(t, out, doc)
	if _, anew, err := Revise([]byte(`{"apps": []}`), doc); err != nil || anew {
		t.Errorf("JSON has nothing to lose: anew %v, %v", anew, err)
	}
}

// JSON becomes YAML that reads as the same document, also what Text leaves out.
func TestAsYAML(t *testing.T) {
	t.Parallel()
	for _, file := range glob(t, "testdata/document/*.good.yaml", "testdata/document/*.good.json") {
		doc, err := Parse(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for i := range doc.Lists {
			doc.Lists[i].IDs = nil
		}
		sent, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		text, err := AsYAML(sent)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("text.yaml", text)
		if err != nil || !reflect.DeepEqual(doc, again) {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
		if !strings.HasPrefix(string(text), "apps:\n  - key: ") && !strings.HasPrefix(string(text), "absent_ids: [") {
			t.Errorf("%s is not YAML in the order of fields:\n%s", file, text)
		}
	}
	if text, err := AsYAML([]byte(annotated)); err != nil || string(text) != annotated {
		t.Errorf("YAML did not stay (%v):\n%s", err, text)
	}
	if _, err := AsYAML([]byte(`{"apps": [], "x": 1}`)); err == nil {
		t.Error("what is no document became YAML")
	}
}

// Whatever the author's YAML looks like, the document goes in and nothing panics.
func FuzzRevise(f *testing.F) {
	fresh, err := Parse("rules.yaml", []byte(ruleText))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{annotated, ruleText, "{apps: [{key: mobile, fallback: a.b, regions: [], otherwise: {region: x}}]}",
		"apps:\n- key: mobile\n  fallback: |-\n    a.b\n  regions: [{\"key\":\"sh\"}, # x\n  ]\n  otherwise:\n    region:\n      sh\n",
		"---\n\"apps\" :\n  -\n    key: mobile\n    fallback: a.b\n    ? regions\n    : []\n    otherwise: {region: sh}\n...\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if own, err := Parse("own.yaml", []byte(text)); err != nil || NoIDs(own) != nil {
			return
		}
		out, _, err := Revise([]byte(text), fresh)
		if err != nil {
			t.Fatal(err)
		}
		sameAs(t, out, fresh)
	})
}
