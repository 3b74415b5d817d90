package release

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/policy"
)

var checkedOn = time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC)

// document is testdata/document/contract.good.yaml, the document of the contract.
func document(t testing.TB) *Document {
	t.Helper()
	doc, err := Parse("contract.good.yaml", read(t, "testdata/document/contract.good.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// edited is a deep copy of doc with an edit.
func edited(t testing.TB, doc *Document, edit func(*Document)) *Document {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("edited.json", text)
	if err != nil {
		t.Fatal(err)
	}
	edit(again)
	return again
}

// e16, e36, e46, e51, e57: what a document means is judged whole, with lines.
func TestCheckNamesEveryMistake(t *testing.T) {
	t.Parallel()
	for _, file := range glob(t, "testdata/document/*.check.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc, source, err := ParseSource(filepath.Base(file), read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			warnings, err := Check(doc, CheckContext{Source: source, Suffixes: suffixes(t), Now: checkedOn,
				Lists: map[string]int{"stored": 3}})
			var b strings.Builder
			b.WriteString(problemsText(t, err))
			for _, w := range warnings {
				b.WriteString("warning " + w.String() + "\n")
			}
			same(t, strings.TrimSuffix(file, ".yaml")+".txt", b.String())
		})
	}
}

// mentions says whether some problem has the path and holds the text.
func mentions(problems []fault.Problem, path, text string) bool {
	return slices.ContainsFunc(problems, func(p fault.Problem) bool {
		return p.Path == path && strings.Contains(p.Detail+" "+p.Hint, text)
	})
}

func problemsOf(t *testing.T, err error) []fault.Problem {
	t.Helper()
	if err == nil {
		return nil
	}
	e, ok := err.(*fault.Error)
	if !ok {
		t.Fatal(err)
	}
	return e.Problems
}

func TestCheckLimitsAtPublish(t *testing.T) {
	t.Parallel()
	doc := edited(t, document(t), func(d *Document) {
		app := &d.Apps[0]
		one := 1
		for n := range 2000 {
			app.Policies = append(app.Policies, policy.Policy{Key: fmt.Sprint("p", n),
				When: policy.When{Platform: policy.Strings{fmt.Sprint("os", n)}}, Then: policy.Action{Share: &policy.Share{Region: "sh", Of: &one}}})
			d.Lists = append(d.Lists, List{Key: fmt.Sprint("l", n), Of: "device", IDs: &[]string{}})
		}
		for n := range 100 {
			host := fmt.Sprintf("n%d.a.com.cn", n)
			app.Hosts = append(app.Hosts, host)
			app.Regions = append(app.Regions, domain.Region{Key: fmt.Sprint("r", n), Endpoints: []domain.Endpoint{{Key: "main", Domain: host}}})
			app.Regions[0].Endpoints = append(app.Regions[0].Endpoints, domain.Endpoint{Key: fmt.Sprint("e", n), Domain: host})
			d.Tables = append(d.Tables, Table{Key: fmt.Sprint("t", n), File: "x.csv"})
		}
	})
	_, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn})
	problems := problemsOf(t, err)
	for path, most := range map[string]int{"apps[0].policies": MaxPolicies, "apps[0].regions": MaxAppRegions, "apps[0].hosts": MaxHosts,
		"apps[0].regions[0].endpoints": MaxRegionEndpoints, "lists": MaxLists, "tables": MaxTables} {
		if !mentions(problems, path, fmt.Sprint(most)) {
			t.Errorf("%s is not limited to %d: %v", path, most, problems)
		}
	}
	if len(problems) != 6 {
		t.Errorf("%d problems, want the 6 limits: %v", len(problems), problems)
	}
}

func TestCheckSeesRenamesThatMovePeople(t *testing.T) {
	t.Parallel()
	old := document(t)
	ops, _ := Operational{}.Carry(nil, old, false)
	for name, c := range map[string]struct {
		edit func(*Document)
		path string // of the problem; none if empty
		says string
	}{
		"a policy that draws": {func(d *Document) { d.Apps[0].Policies[1].Key = "gray-10" },
			"apps[0].policies[1].salt", "mobile/gray-10-2"},
		"with the salt stated": {func(d *Document) {
			d.Apps[0].Policies[1].Key, d.Apps[0].Policies[1].Salt = "gray-10", "mobile/gray-10-2"
		}, "", ""},
		"with a new salt stated": {func(d *Document) {
			d.Apps[0].Policies[1].Key, d.Apps[0].Policies[1].Salt = "gray-10", "mobile/gray-10"
		}, "", ""},
		"a policy that draws nothing": {func(d *Document) { d.Apps[0].Policies[0].Key = "employees" }, "", ""},
		"another policy altogether": {func(d *Document) {
			d.Apps[0].Policies[1].Key, d.Apps[0].Policies[1].When.AppVersion = "gray-11", ">=11"
		}, "", ""},
		"an app": {func(d *Document) { d.Apps[0].Key = "mobi" }, "apps[0].salts.otherwise", "mobile/otherwise"},
		"an app with its salts": {func(d *Document) {
			app := &d.Apps[0]
			app.Key, app.Policies[1].Salt = "mobi", "mobile/gray-10-2"
			app.Salts = map[string]string{"otherwise": "mobile/otherwise", "endpoint/sh": "endpoint/mobile/sh"}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := edited(t, old, c.edit)
			_, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Previous: old, Operational: &ops})
			if problems := problemsOf(t, err); c.path == "" && len(problems) > 0 || c.path != "" && !mentions(problems, c.path, c.says) {
				t.Errorf("want a problem at %q with %q, got %v", c.path, c.says, err)
			}
		})
	}
}

func TestCheckRenameUsesTheStoredSalt(t *testing.T) {
	t.Parallel()
	old := document(t)
	ops, _ := Operational{Apps: map[string]AppState{"mobile": {Salts: map[string]string{"gray-10-2": "2024"}}}}.Carry(old, old, false)
	doc := edited(t, old, func(d *Document) { d.Apps[0].Policies[1].Key = "gray-10" })
	_, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Previous: old, Operational: &ops})
	if !mentions(problemsOf(t, err), "apps[0].policies[1].salt", `from "2024"`) {
		t.Errorf("the stored salt is not named: %v", err)
	}
}

// A document may be right alone and leave nobody serving together with what was
// changed by hand.
func TestCheckLaysTheOperationalStateOverIt(t *testing.T) {
	t.Parallel()
	doc := document(t)
	ops, err := SetRegion{App: "mobile", Region: "sh", Expect: "active", State: "off"}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Operational: &ops}); err != nil {
		t.Errorf("one of two regions off: %v", err)
	}
	without := edited(t, doc, func(d *Document) { d.Apps[0].Regions[1].State = domain.Draining })
	_, err = Check(without, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Operational: &ops})
	if !mentions(problemsOf(t, err), "apps[0].regions", "with the changes made by hand") {
		t.Errorf("no usable region is left, and Check says %v", err)
	}
	swapped, err := Swap{App: "mobile", Region: "sh", From: "sh-main", To: "sh-spare"}.On(doc, Operational{})
	if err != nil {
		t.Fatal(err)
	}
	removed := edited(t, doc, func(d *Document) { d.Apps[0].Regions[0].Endpoints = d.Apps[0].Regions[0].Endpoints[:1] })
	_, err = Check(removed, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Operational: &swapped})
	if !mentions(problemsOf(t, err), "apps[0].regions[0].endpoints", "with the changes made by hand") {
		t.Errorf("the serving endpoint is removed, and Check says %v", err)
	}
}

func TestCheckLetsReliveUseAnExpiredList(t *testing.T) {
	t.Parallel()
	doc := document(t)
	late := time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC)
	if _, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: late.Add(-time.Second)}); err != nil {
		t.Errorf("on the last second of its last day: %v", err)
	}
	_, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: late})
	if !mentions(problemsOf(t, err), "lists[0].expires", "expired") {
		t.Errorf("an expired list is published: %v", err)
	}
	warnings, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: late, AllowExpired: true})
	if err != nil || !mentions(warnings, "lists[0].expires", "expired") {
		t.Errorf("relive: warnings %v, error %v", warnings, err)
	}
}

// With the real table at hand, a label that it does not give is a mistake.
func TestCheckKnowsTheLabelsOfTables(t *testing.T) {
	t.Parallel()
	doc := edited(t, document(t), func(d *Document) { d.Apps[0].Policies[2].When.Origin = policy.Strings{"north"} })
	if _, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn}); err != nil {
		t.Errorf("without the table: %v", err)
	}
	for label, ok := range map[string]bool{"north": true, "south": false} {
		table, err := policy.ParsePrefixes(strings.NewReader("10.0.0.0/8," + label + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Tables: map[string]*policy.Prefixes{"cn-prefixes": table}})
		if (err == nil) != ok {
			t.Errorf("with a table of %s: %v", label, err)
		}
	}
}

// e25: one list cannot hold both folded and exact ids.
func TestCheckRefusesAListUsedInTwoCases(t *testing.T) {
	t.Parallel()
	doc := edited(t, document(t), func(d *Document) {
		other := d.Apps[0]
		other.Key, other.IDCase, other.Hosts, other.Default = "corporate", CaseFold, nil, false
		d.Apps = append(d.Apps, other)
	})
	_, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn})
	if problems := problemsOf(t, err); len(problems) != 1 || !mentions(problems, "lists[0]", "staff-devices") {
		t.Errorf("want one problem at lists[0], got %v", problems)
	}
}

// A document that never was text is checked as well, without lines.
func TestCheckNeedsNoSource(t *testing.T) {
	t.Parallel()
	_, err := Check(&Document{}, CheckContext{})
	if !mentions(problemsOf(t, err), "apps", "nobody served") {
		t.Errorf("the empty document: %v", err)
	}
	doc := edited(t, document(t), func(d *Document) {
		d.Apps[0].IDCase, d.Apps[0].Identity.User, d.Lists[0].Expires = "lower", "anyone", "soon"
		d.Apps[0].Fallback, d.Lists[0].Of = "", ""
	})
	_, err = Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn})
	problems := problemsOf(t, err)
	for path, says := range map[string]string{"apps[0].id_case": "is not", "apps[0].identity.user": "is not", "lists[0].expires": "is not",
		"apps[0].fallback": "missing", "lists[0].of": "does not say"} {
		if !mentions(problems, path, says) {
			t.Errorf("nothing said of %s: %v", path, problems)
		}
	}
}

// e34: "not in an empty list" is everybody, which is seldom meant. Of a list that
// holds ids, here or in the store, there is nothing to say.
func TestCheckWarnsOfNotInAnEmptyListOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ids    *[]string
		stored map[string]int
		warns  bool
	}{
		{"ids in the document", &[]string{"d-1"}, map[string]int{}, false},
		{"ids in the document over an empty stored list", &[]string{"d-1"}, map[string]int{"staff-devices": 0}, false},
		{"stored ids", nil, map[string]int{"staff-devices": 3}, false},
		{"nothing known of the store", nil, nil, false},
		{"emptied by the document", &[]string{}, map[string]int{"staff-devices": 3}, true},
		{"stored without ids", nil, map[string]int{"staff-devices": 0}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := edited(t, document(t), func(d *Document) {
				d.Lists[0].IDs = c.ids
				d.Apps[0].Policies[0].When = policy.When{Not: &policy.When{InList: policy.Strings{"staff-devices"}}}
			})
			warnings, err := Check(doc, CheckContext{Suffixes: suffixes(t), Now: checkedOn, Lists: c.stored})
			if err != nil {
				t.Fatal(err)
			}
			if got := mentions(warnings, "apps[0].policies[0].when.not.in_list", "is empty"); got != c.warns {
				t.Errorf("warned %v, want %v: %v", got, c.warns, warnings)
			}
		})
	}
}
