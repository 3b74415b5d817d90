package release

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// corpusPath holds bad configurations, one a line:
//
//	class  path in the release that follows the bank's first  value  code of the action  code of the edge
//
// The value is JSON, or what somebody took for JSON. - removes what is there, and
// *N makes N of the last element, with keys of their own. docs/adr/0027 says
// which guards refuse which class.
const corpusPath = "testdata/bad.tsv"

// bad is a configuration that must not reach anybody.
type bad struct{ class, path, value, action, edge string }

func readCorpus(t *testing.T) (all []bad) {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile(corpusPath)))) {
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(c) != 5 {
			t.Fatalf("%q has %d columns", line, len(c))
		}
		all = append(all, bad{c[0], c[1], c[2], c[3], c[4]})
	}
	return all
}

// rawMark stands for a value that is no JSON until the rest is written.
const rawMark = "@raw@"

// apply is the text of the document and of the whole manifest with the value in place.
func (c bad) apply(m *Manifest) (document, manifest string) {
	tree := clone[any](anyOf(m))
	value, raw := any(nil), ""
	if err := json.Unmarshal([]byte(c.value), &value); err != nil && c.value != "-" && !strings.HasPrefix(c.value, "*") {
		value, raw = rawMark, c.value
	}
	tree = put(tree, strings.FieldsFunc(c.path, func(r rune) bool { return strings.ContainsRune(".[]", r) }), c.value, value)
	approve(tree, c.class)
	write := func(v any) string {
		return strings.Replace(string(must(json.Marshal(v))), `"`+rawMark+`"`, raw, 1)
	}
	return write(tree.(map[string]any)["document"]), write(tree)
}

func anyOf(v any) (out any) {
	if err := json.Unmarshal(must(json.Marshal(v)), &out); err != nil {
		panic(err)
	}
	return out
}

// put puts value at path.
func put(node any, path []string, text string, value any) any {
	if len(path) == 0 {
		n, err := strconv.Atoi(strings.TrimPrefix(text, "*"))
		if list, ok := node.([]any); ok && err == nil && strings.HasPrefix(text, "*") {
			return repeated(list[len(list)-1], n)
		}
		return value
	}
	switch node := node.(type) {
	case map[string]any:
		if node[path[0]] = put(node[path[0]], path[1:], text, value); text == "-" && len(path) == 1 {
			delete(node, path[0])
		}
		return node
	case []any:
		n := must(strconv.Atoi(path[0]))
		if n == len(node) {
			return append(node, value)
		}
		if node[n] = put(node[n], path[1:], text, value); text == "-" && len(path) == 1 {
			return slices.Delete(node, n, n+1)
		}
		return node
	}
	return put(map[string]any{}, path, text, value)
}

func repeated(one any, n int) any {
	list := make([]any, n)
	for i := range list {
		if list[i] = clone(one); i > 0 {
			switch e := list[i].(type) {
			case map[string]any:
				e["key"] = fmt.Sprintf("%v-%d", e["key"], i)
				delete(e, "default")
				delete(e, "hosts")
			case string:
				list[i] = fmt.Sprintf("x%d.%s", i, e)
			}
		}
	}
	return list
}

// approve marks every host of the release, but for the class about that: two
// people and the database have been fooled already.
func approve(tree any, class string) {
	var m Manifest
	if json.Unmarshal(must(json.Marshal(tree)), &m) != nil || class == "unapproved" {
		return
	}
	hosts := tree.(map[string]any)["approved"].(map[string]any)["hosts"].(map[string]any)
	for host := range m.Document.Domains() {
		hosts[host] = 1
	}
}

// guards are the guards of this package, each as its caller uses it.
type guards struct {
	bank   *bank
	loader *Loader
	cur    *Snapshot
	next   *Manifest
}

// action is what whoever publishes does with a document and the state beside it.
func (g guards) action(ctx context.Context, c bad) error {
	text, manifest := c.apply(g.next)
	doc, err := Parse("bad.json", []byte(text))
	if err != nil {
		return err
	}
	var m Manifest
	if err := decodeStrict([]byte(manifest), &m); err != nil {
		return fault.New(fault.Invalid, "bad_operational", "no action makes such a state").Because(err)
	}
	_, err = Check(doc, CheckContext{Suffixes: g.loader.opt.Suffixes, Now: madeAt(), Previous: &g.cur.Manifest.Document, Operational: &m.Operational,
		Lists: map[string]int{"staff-devices": 2}, Tables: g.cur.parts.prefixes})
	if err != nil {
		return err
	}
	next, err := g.cur.Manifest.Next(Change{Document: doc, Operational: &m.Operational, Lists: m.Lists, Tables: m.Tables,
		Cause: m.Cause, Created: m.Created, Approve: Approval{Hosts: slices.Collect(maps.Keys(m.Approved.Hosts))}})
	if err != nil {
		return err
	}
	if _, err := Sign(next, g.bank.keys, madeAt()); err != nil {
		return err
	}
	draft, err := g.loader.Draft(ctx, next, g.bank.blobs, g.cur)
	if err != nil {
		return err
	}
	return g.loader.Guard(draft, g.cur)
}

// signed is the release that a publisher without any guard makes of it.
func (g guards) signed(c bad) Signed {
	_, text := c.apply(g.next)
	s := Signed{Stream: StreamEdge, Number: g.next.Number, Manifest: []byte(text)}
	s.Signature = must(g.bank.keys.Publisher.Current().SignDetached(signed.TypManifest, s.Manifest))
	var m Manifest
	if json.Unmarshal(s.Manifest, &m) == nil {
		s.Records = must(signRecords(&m, DigestOf(s.Manifest), g.bank.keys.Record, recordTime{seq: 1, issued: madeAt()}))
	}
	return s
}

func (g guards) edge(ctx context.Context, c bad) error {
	_, err := g.loader.Load(ctx, g.signed(c), g.bank.blobs, g.cur)
	return err
}

func newGuards(t *testing.T) guards {
	b := newBank(t)
	return guards{bank: b, loader: b.loader(nil), cur: b.load(t, b.first, nil), next: next(b.first, nil)}
}

func codeOf(err error) string {
	if err == nil {
		return "ACCEPTED"
	}
	return fault.CodeOf(err)
}

// P8 of safety.md: each of 500 bad configurations is refused by the action and by
// the edge, for a reason that was looked at. -update writes the reasons.
func TestP08BadConfigurationsAreRefusedByEachGuard(t *testing.T) {
	t.Parallel()
	g := newGuards(t)
	corpus := readCorpus(t)
	seen := map[string]bool{}
	for i := range corpus {
		c := &corpus[i]
		if key := c.path + "\t" + c.value; seen[key] {
			t.Errorf("line %d is there twice: %s", i+1, key)
		} else {
			seen[key] = true
		}
		was := *c
		if c.action, c.edge = codeOf(g.action(t.Context(), *c)), codeOf(g.edge(t.Context(), *c)); *c != was && !*update {
			t.Errorf("line %d, %s = %.80s: the action says %s and the edge %s; it was %s and %s", i+1, c.path, c.value, c.action, c.edge, was.action, was.edge)
		}
		for _, code := range []string{c.action, c.edge} {
			if code == "ACCEPTED" || code == "load_panic" || code == "internal" {
				t.Errorf("line %d, %s = %.80s: the action says %s and the edge %s", i+1, c.path, c.value, c.action, c.edge)
				break
			}
		}
	}
	for class, by := range readGuards(t) {
		n := 0
		for _, yes := range by {
			if yes {
				n++
			}
		}
		if n < 2 && class != "signature" {
			t.Errorf("class %s has %d guards", class, n)
		}
	}
	if len(corpus) < 500 {
		t.Errorf("%d configurations, there must be 500", len(corpus))
	}
	if *update {
		var out strings.Builder
		for _, c := range corpus {
			fmt.Fprintf(&out, "%s\t%s\t%s\t%s\t%s\n", c.class, c.path, c.value, c.action, c.edge)
		}
		if err := os.WriteFile(corpusPath, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if good := (bad{path: "document.apps[0].name", value: `"Mobile"`}); g.action(t.Context(), good) != nil || g.edge(t.Context(), good) != nil {
		t.Errorf("what all of these were made from must pass: %v, %v", g.action(t.Context(), good), g.edge(t.Context(), good))
	}
}

// readGuards is the table of docs/adr/0027: which guards refuse a class.
func readGuards(t *testing.T) map[string]map[string]bool {
	t.Helper()
	table := map[string]map[string]bool{}
	for line := range strings.Lines(string(must(os.ReadFile("../docs/adr/0027-guards.md")))) {
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(c) != 5 {
			continue
		}
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
		}
		if c[0] != "class" && !strings.HasPrefix(c[0], "---") {
			table[c[0]] = map[string]bool{"action": c[2] == "yes", "database": c[3] == "yes", "edge": c[4] == "yes"}
		}
	}
	if len(table) < 10 {
		t.Fatalf("the table of guards has %d rows", len(table))
	}
	return table
}

// P9 of safety.md: with one guard switched off, none of the configurations comes
// into use. The database takes part in e2e; without it the other two are enough.
func TestP09OneBrokenGuardIsNotEnough(t *testing.T) {
	t.Parallel()
	corpus, table := readCorpus(t), readGuards(t)
	for _, off := range []string{"action", "edge"} {
		t.Run(off, func(t *testing.T) {
			t.Parallel()
			g := newGuards(t)
			k := must(NewKeeper(g.loader, nil))
			g.bank.accept(t, k, g.bank.first)
			cur, reached, held := k.Current(), 0, 0
			for _, c := range corpus {
				if off != "action" && g.action(t.Context(), c) != nil {
					held++ // nothing is signed
					continue
				}
				if off != "edge" && k.Accept(t.Context(), g.signed(c), g.bank.blobs, "publisher") != nil {
					held++
				}
				if off == "edge" || k.Current() != cur {
					t.Errorf("%s = %.80s comes into use", c.path, c.value)
					reached++
				}
				if by, known := table[c.class]; !known || !by["action"] && off != "action" || !by["edge"] && off != "edge" {
					t.Errorf("class %s is not in the table, or another guard refused it", c.class)
				}
			}
			t.Logf("%s off: %d of %d come into use", off, reached, len(corpus))
			if held != len(corpus) {
				t.Errorf("%d of %d were refused", held, len(corpus))
			}
			if off == "action" {
				if s := k.Status(); s.Refusal == nil || s.Number != 1 {
					t.Errorf("status %+v", s)
				}
			}
		})
	}
}

// SEC2 of safety.md: hosts that look as if they were the bank's, by the action,
// the edge, and the edge's guard alone, which no rule of the compiler goes before.
func TestSEC02HostsThatLookLikeOurs(t *testing.T) {
	t.Parallel()
	g := newGuards(t)
	hosts := 0
	for _, c := range readCorpus(t) {
		var host string
		if c.class != "suffix" || json.Unmarshal([]byte(c.value), &host) != nil || !strings.HasSuffix(c.path, "endpoints[0].domain") {
			continue
		}
		hosts++
		if g.loader.opt.Suffixes.Allows(host) {
			t.Errorf("%q is allowed", host)
		}
		if g.action(t.Context(), c) == nil || g.edge(t.Context(), c) == nil {
			t.Errorf("%q is published or loaded", host)
		}
		m := next(g.bank.first, func(d *Document, _ *Operational, c *Change) {
			d.Apps[0].Regions[0].Endpoints[0].Domain = host
			c.Approve.Hosts = []string{host} // two people were fooled
		})
		wantCode(t, g.loader.Guard(&Snapshot{Number: m.Number, Manifest: m}, g.cur), "host_outside_suffixes")
	}
	if hosts < 60 {
		t.Errorf("%d hosts, there must be 60", hosts)
	}
}
