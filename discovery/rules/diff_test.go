package rules

import (
	"fmt"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
)

const groupsText = `groups:
  - {prefix: order-, owners: [ci-order], key: [order-core]}
  - {prefix: pay-, owners: [ci-pay, on-call]}
`

// set is a set of the sample's rule, edited, and of groups.
func set(t testing.TB, groups, from, to string) Set {
	t.Helper()
	file := File{"order-core.yaml", sample}
	if from != "" {
		file = edit(t, from, to)
	}
	files := []File{file}
	if groups != "" {
		files = append(files, File{"groups.yaml", groups})
	}
	return mustParse(t, files...)
}

// text is what people read of differences, one a line.
func text(all []Difference) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%s %s %s key=%v\n  - %s\n  + %s\n", d.Kind, d.Service, d.Env, d.Key, d.Before, d.After)
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	t.Parallel()
	base := set(t, groupsText, "", "")
	shadow := edit(t, "09:00:00Z", "08:00:00Z")
	shadow.Name = "old.yaml"
	thrown := set(t, groupsText, "", "")
	thrown.Direct = true
	var all strings.Builder
	for _, c := range []struct {
		name string
		a, b Set
	}{
		{"nothing", base, base},
		{"everything", Set{}, base},
		{"all of it gone", base, Set{}},
		{"A33 a weight of a key service", base, set(t, groupsText, "weight: 70", "weight: 0")},
		{"another environment", base, set(t, groupsText, "env: prod", "env: test")},
		{"a service of nobody", base, mustParse(t, File{"order-core.yaml", sample}, edit(t, "order-core", "crm").renamed("crm.yaml"), File{"groups.yaml", groupsText})},
		{"a newer time alone", base, set(t, groupsText, "09:00:00Z", "10:00:00Z")},
		{"another file", base, mustParse(t, File{"core.yaml", sample}, File{"groups.yaml", groupsText})},
		{"a shadowed rule", base, mustParse(t, File{"order-core.yaml", sample}, shadow, File{"groups.yaml", groupsText})},
		{"the switch", base, thrown},
		{"a key service less", base, set(t, strings.Replace(groupsText, ", key: [order-core]", "", 1), "", "")},
		{"another owner", base, set(t, strings.Replace(groupsText, ", on-call", "", 1), "", "")},
		{"a group less, and its service", base, set(t, "groups: [{prefix: pay-, owners: [ci-pay, on-call]}]\n", "weight: 70", "weight: 71")},
	} {
		all.WriteString("# " + c.name + "\n" + text(Diff(c.a, c.b)))
	}
	same(t, "diff.txt", all.String())
}

func (f File) renamed(name string) File { f.Name = name; return f }

// A31: who owns a group changes its services and no others; every refusal is named.
func TestMayChange(t *testing.T) {
	t.Parallel()
	files := []File{{"groups.yaml", groupsText}, {"order-core.yaml", sample}, edit(t, "order-core", "pay-core").renamed("pay-core.yaml"),
		edit(t, "order-core", "crm").renamed("crm.yaml")}
	before := mustParse(t, files...)
	// with is before with some files edited, which are named FILE|FROM|TO.
	with := func(edits ...string) Set {
		var all []File
		for _, f := range files {
			for _, e := range edits {
				part := strings.Split(e, "|")
				if part[0]+".yaml" == f.Name {
					f.Text = strings.ReplaceAll(f.Text, part[1], part[2])
				}
			}
			all = append(all, f)
		}
		return mustParse(t, all...)
	}
	thrown := before
	thrown.Direct = true
	for name, c := range map[string]struct {
		actor Actor
		after Set
		want  string // the problems; empty: allowed
	}{
		"nothing":                        {Actor{Name: "anybody"}, before, ""},
		"the own service":                {Actor{Name: "ci-order"}, with("order-core|70|0"), ""},
		"the service of others":          {Actor{Name: "ci-order"}, with("pay-core|70|0"), "pay-core: belongs to the group pay- of ci-pay, on-call\n"},
		"both":                           {Actor{Name: "ci-order"}, with("pay-core|70|0", "order-core|70|0"), "pay-core: belongs to the group pay- of ci-pay, on-call\n"},
		"two of others":                  {Actor{Name: "ci"}, with("pay-core|70|0", "order-core|70|0"), "order-core: belongs to the group order- of ci-order\npay-core: belongs to the group pay- of ci-pay, on-call\n"},
		"a second owner":                 {Actor{Name: "on-call"}, with("pay-core|70|0"), ""},
		"a service of nobody":            {Actor{Name: "ci"}, with("crm|70|0"), ""},
		"an administrator":               {Actor{Name: "root", Administrator: true}, with("pay-core|70|0", "groups|ci-pay|root"), ""},
		"all rules gone":                 {Actor{Name: "ci-order"}, mustParse(t, files[0]), "pay-core: belongs to the group pay- of ci-pay, on-call\n"},
		"the own group":                  {Actor{Name: "ci-order"}, with("groups|ci-order|ci-order, li"), ""},
		"the group of others":            {Actor{Name: "ci-order"}, with("groups|on-call|ci-order"), "groups.yaml: groups[pay-]: belongs to ci-pay, on-call\n"},
		"the group of others goes":       {Actor{Name: "ci-order"}, mustParse(t, files[1:]...), "groups.yaml: groups[pay-]: belongs to ci-pay, on-call\n"},
		"taking a group and its service": {Actor{Name: "ci"}, with("groups|ci-pay|ci", "pay-core|70|0"), "groups.yaml: groups[pay-]: belongs to ci-pay, on-call\npay-core: belongs to the group pay- of ci-pay, on-call\n"},
		"a new group by an owner":        {Actor{Name: "ci-order"}, with("groups|  - {prefix: pay-,|  - {prefix: crm, owners: [ci-order]}\n  - {prefix: pay-,"), ""},
		"the switch is not asked here":   {Actor{Name: "anybody"}, thrown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := MayChange(c.actor, before, c.after)
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if fault.KindOf(err) != fault.Denied || fault.CodeOf(err) != "not_your_group" || problems(t, err) != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
	two := mustParse(t, files[0], edit(t, "order-core", "pay-core").renamed("prod.yaml"), File{"test.yaml", strings.ReplaceAll(files[2].Text, "env: prod", "env: test")})
	if err := MayChange(Actor{Name: "ci-order"}, Set{Groups: before.Groups}, two); err == nil || strings.Count(problems(t, err), "pay-core") != 1 {
		t.Errorf("a service in two environments: %v", err)
	}
	first := "groups.yaml: groups[pay-]: a new group is made by an owner of another, or by an administrator"
	if err := MayChange(Actor{Name: "ci-pay"}, Set{}, before); err == nil || !strings.Contains(problems(t, err), first) {
		t.Errorf("the first groups: %v", err)
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	s := Set{Groups: []Group{{Prefix: "order-"}, {Prefix: "order-core"}, {Prefix: "pay-"}}}
	for service, want := range map[string]string{"order-api": "order-", "order-core": "order-core", "order-core.rpc": "order-core", "pay-x": "pay-", "pay": "", "crm": ""} {
		if g, ok := s.Owner(service); g.Prefix != want || ok != (want != "") {
			t.Errorf("%s belongs to %q", service, g.Prefix)
		}
	}
}
