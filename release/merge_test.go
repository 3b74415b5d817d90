package release

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// ruleText has three policies over two regions.
const ruleText = `apps:
  - key: mobile
    fallback: wap.bank.example
    regions:
      - {key: sh, capacity: 60, failover: [hf], endpoints: [{key: main, domain: sh.bank.example}]}
      - {key: hf, capacity: 40, failover: [sh], endpoints: [{key: main, domain: hf.bank.example}]}
    policies:
      - {key: a, when: {app_version: ">=1.0.0"}, then: {region: sh}}
      - {key: b, when: {app_version: ">=2.0.0"}, then: {region: hf}}
      - {key: c, then: {share: {region: hf, of: 500}}}
    otherwise: {region: sh}
lists:
  - {key: staff, of: device, owner: team, expires: 2099-12-31}
`

func parsed(t *testing.T, pairs ...string) *Document {
	t.Helper()
	text := ruleText
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the document has no %q", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	doc, err := Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestMerge(t *testing.T) {
	t.Parallel()
	const (
		rowA = "      - {key: a, when: {app_version: \">=1.0.0\"}, then: {region: sh}}\n"
		rowB = "      - {key: b, when: {app_version: \">=2.0.0\"}, then: {region: hf}}\n"
		rowC = "      - {key: c, then: {share: {region: hf, of: 500}}}\n"
		fund = "lists:\n"
	)
	added := func(key string) string { return rowA + "      - {key: " + key + ", then: {region: hf}}\n" }
	for name, test := range map[string]struct {
		ours, theirs, want []string
		conflicts          []string
	}{
		"nobody changed anything": {},
		"ours alone":              {ours: []string{"of: 500", "of: 700"}, want: []string{"of: 500", "of: 700"}},
		"theirs alone":            {theirs: []string{"of: 500", "of: 700"}, want: []string{"of: 500", "of: 700"}},
		"both the same":           {ours: []string{"of: 500", "of: 700"}, theirs: []string{"of: 500", "of: 700"}, want: []string{"of: 500", "of: 700"}},
		"one part each":           {ours: []string{"of: 500", "of: 700"}, theirs: []string{"capacity: 60", "capacity: 70"}, want: []string{"of: 500", "of: 700", "capacity: 60", "capacity: 70"}},
		"one part, two values":    {ours: []string{"of: 500", "of: 700"}, theirs: []string{"of: 500", "of: 900"}, conflicts: []string{"apps[mobile].policies[c].then.share.of"}},
		"changed and removed":     {ours: []string{"of: 500", "of: 700"}, theirs: []string{rowC, ""}, conflicts: []string{"apps[mobile].policies[c]"}},
		"removed and another":     {ours: []string{rowC, ""}, theirs: []string{"capacity: 60", "capacity: 70"}, want: []string{rowC, "", "capacity: 60", "capacity: 70"}},
		"order and a value":       {ours: []string{rowA + rowB, rowB + rowA}, theirs: []string{"of: 500", "of: 700"}, want: []string{rowA + rowB, rowB + rowA, "of: 500", "of: 700"}},
		"value and an order":      {ours: []string{"of: 500", "of: 700"}, theirs: []string{rowA + rowB, rowB + rowA}, want: []string{rowA + rowB, rowB + rowA, "of: 500", "of: 700"}},
		"two orders":              {ours: []string{rowA + rowB, rowB + rowA}, theirs: []string{rowB + rowC, rowC + rowB}, conflicts: []string{"apps[mobile].policies"}},
		"a new policy stays where it stood": {ours: []string{rowA, added("x")}, theirs: []string{"capacity: 60", "capacity: 70"},
			want: []string{rowA, added("x"), "capacity: 60", "capacity: 70"}},
		"two new policies":          {ours: []string{rowA, added("x")}, theirs: []string{rowA, added("y")}, conflicts: []string{"apps[mobile].policies"}},
		"a list that is no map":     {ours: []string{"failover: [hf]", "failover: []"}, theirs: []string{"failover: [hf]", "failover: [hf, sh]"}, conflicts: []string{"apps[mobile].regions[sh].failover"}},
		"both added the same field": {ours: []string{"owner: team", "owner: team"}, theirs: []string{fund, fund}},
	} {
		t.Run(name, func(t *testing.T) {
			got, conflicts, err := Merge(parsed(t), parsed(t, test.ours...), parsed(t, test.theirs...))
			if err != nil || !slices.Equal(conflicts, test.conflicts) {
				t.Fatalf("conflicts %q, %v; want %q", conflicts, err, test.conflicts)
			}
			over, err := Overwrite(parsed(t), parsed(t, test.ours...), parsed(t, test.theirs...))
			if err != nil || len(conflicts) == 0 && !reflect.DeepEqual(over, got) {
				t.Errorf("Overwrite differs without a conflict: %v", err)
			}
			if len(test.conflicts) > 0 {
				return
			}
			if want := parsed(t, test.want...); !reflect.DeepEqual(got, want) {
				d, _ := Writes(want, got)
				t.Errorf("merged is not what was wanted: %v", d)
			}
		})
	}
}

func TestOverwriteHasOurWay(t *testing.T) {
	t.Parallel()
	got, err := Overwrite(parsed(t), parsed(t, "of: 500", "of: 5000"), parsed(t, "of: 500", "of: 1000", "capacity: 60", "capacity: 70"))
	if want := parsed(t, "of: 500", "of: 5000", "capacity: 60", "capacity: 70"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %+v", err, got)
	}
}

// What Diff cuts for people must not be cut where it is compared.
func TestWritesCutsNothing(t *testing.T) {
	t.Parallel()
	long := "{key: c, when: {app_version: \">=1.0.0 " + strings.Repeat("|| =3.0.0 ", 40) + "\"}, then: {share: {region: hf, of: 500}}}"
	with := parsed(t, "{key: c, then: {share: {region: hf, of: 500}}}", long)
	without := parsed(t, "      - {key: c, then: {share: {region: hf, of: 500}}}\n", "")
	writes, err := Writes(without, with)
	if err != nil || len(writes) != 1 || writes[0].Kind != Added || strings.Contains(writes[0].To, "…") || len(writes[0].To) < 300 {
		t.Errorf("%v %v", writes, err)
	}
}

func TestTouches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"apps[mobile]", "apps[mobile].regions[sh]", true},
		{"apps[mobile].regions[sh].capacity", "apps[mobile].regions[sh]", true},
		{"apps[mobile].regions[sh]", "apps[mobile].regions[sh-2]", false},
		{"apps[mobile].name", "apps[mobile].names", false},
		{"apps[mobile].policies", "apps[mobile].policies[a]", true},
		{"apps[mobile]", "apps[mobile]", true},
		{"", "lists[staff]", true},
	} {
		if Touches(c.a, c.b) != c.want || Touches(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}

// What Text writes reads as what it was made from, and names no part that a
// publication adds.
func TestTextReadsAsTheSameDocument(t *testing.T) {
	t.Parallel()
	for _, file := range glob(t, "testdata/document/*.good.yaml", "testdata/document/*.good.json") {
		doc, err := Parse(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for i := range doc.Lists {
			doc.Lists[i].IDs, doc.Lists[i].Digest, doc.Lists[i].Count = nil, "", 0
		}
		text, err := Text(doc)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		again, err := Parse("text.yaml", text)
		if err != nil || !reflect.DeepEqual(doc, again) {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	doc := parsed(t)
	doc.Lists[0].Digest, doc.Lists[0].Count = strings.Repeat("0", 64), 3
	text, err := Text(doc)
	if err != nil || strings.Contains(string(text), "digest") || strings.Contains(string(text), "count") {
		t.Errorf("%v\n%s", err, text)
	}
	if !strings.Contains(string(text), "\n      - {key: a, when: {app_version: ") {
		t.Errorf("a short policy is not on one line:\n%s", text)
	}
	if doc.Lists[0].Count != 3 {
		t.Error("Text changed its argument")
	}
}

func TestNoIDs(t *testing.T) {
	t.Parallel()
	if err := NoIDs(parsed(t)); err != nil {
		t.Error(err)
	}
	if err := NoIDs(parsed(t, "2099-12-31}", "2099-12-31, ids: [u-secret]}")); err == nil || strings.Contains(err.Error(), "u-secret") {
		t.Errorf("%v", err)
	}
}
