package release

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/internal/fault"
)

// region is whose callers follow the rules of these tests.
const region = "cn-hangzhou"

// rulesOf is a set of the examples.
func rulesOf(tb testing.TB) *rules.Set {
	tb.Helper()
	var files []rules.File
	for _, name := range []string{"groups.yaml", "order-core.yaml", "pay-core.yaml"} {
		files = append(files, rules.File{Name: name, Text: string(read(tb, "../examples/rules/"+name))})
	}
	set := must(rules.Parse(files))
	return &set
}

// rulesRelease is the first release of rules of a deployment.
func rulesRelease(tb testing.TB) *Manifest {
	tb.Helper()
	return must(First("bank", rules.Stream(region), Change{Rules: rulesOf(tb), Cause: Cause{Action: "rules", By: "ci"}, Created: madeAt()}))
}

// asCaller is how a release travels to callers.
func asCaller(s Signed) rules.Signed {
	return rules.Signed{Number: s.Number, Manifest: s.Manifest, Signature: s.Signature}
}

// What Sign makes of rules is what callers verify, although they know no manifest.
func TestCallersReadWhatIsSigned(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	first := rulesRelease(t)
	thrown := *rulesOf(t)
	thrown.Direct = true
	second := must(first.Next(Change{Rules: &thrown, Cause: Cause{Action: "rules_switch", By: "ops"}, Created: madeAt()}))
	for _, m := range []*Manifest{first, second} {
		s := b.sign(m)
		if s.Records.Bytes != nil || s.Stream != rules.Stream(region) {
			t.Errorf("release %d of %s has records %s", s.Number, s.Stream, s.Records.Bytes)
		}
		got, err := rules.Verify(asCaller(s), b.keys.Trust(), "bank", region)
		if err != nil {
			t.Fatal(err)
		}
		want := must(json.Marshal(m.Rules))
		if text := must(json.Marshal(got)); string(text) != string(want) || got.Direct != (m == second) {
			t.Errorf("release %d: callers read\n%s\nsigned\n%s", m.Number, text, want)
		}
		if decoded := must(DecodeManifest(s.Manifest)); !reflect.DeepEqual(must(json.Marshal(decoded.Rules)), want) {
			t.Errorf("release %d: a control node reads other rules", m.Number)
		}
	}
	if second.Number != 2 || second.Parent != 1 {
		t.Errorf("the second release is %d after %d", second.Number, second.Parent)
	}
}

// Callers refuse what edges would refuse, with the same codes; and the bounds are the same.
func TestCallersRefuseWhatEdgesRefuse(t *testing.T) {
	t.Parallel()
	b, stranger := newBank(t), newBank(t)
	m := rulesRelease(t)
	good := b.sign(m)
	for name, c := range map[string]struct {
		offer Signed
		code  string
	}{
		"a byte changed":         {edit(good, func(s *Signed) { s.Manifest = append([]byte(" "), s.Manifest...) }), "bad_signature"},
		"signed by a stranger":   {stranger.sign(m), "unknown_key"},
		"another number outside": {edit(good, func(s *Signed) { s.Number = 3 }), "bad_manifest"},
		"another deployment":     {b.resign(good, replace(`"deployment":"bank"`, `"deployment":"bank2"`)), "other_deployment"},
		"a newer format":         {b.resign(good, replace(`"format":1`, `"format":2`)), "newer_format"},
		"no rules":               {b.resign(good, func(text string) string { return cutRules(t, text) }), "bad_manifest"},
		"a release of edges":     {b.sign(b.first), "other_deployment"},
		"as large as may be":     {edit(good, func(s *Signed) { s.Manifest = make([]byte, MaxManifest) }), "bad_signature"},
		"larger than may be":     {edit(good, func(s *Signed) { s.Manifest = make([]byte, MaxManifest+1) }), "manifest_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := rules.Verify(asCaller(c.offer), b.keys.Trust(), "bank", region)
			if wantCode(t, err, c.code); set.Rules != nil {
				t.Errorf("it returns %+v", set)
			}
		})
	}
}

// cutRules takes the rules out of a manifest.
func cutRules(t *testing.T, text string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "rules")
	return string(must(json.Marshal(m)))
}

// A release of rules never becomes what an edge serves, whoever hands it on.
func TestEdgesRefuseReleasesOfRules(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	s := b.sign(rulesRelease(t))
	cur := b.load(t, b.first, nil)
	for name, offer := range map[string]Signed{
		"as it is":             s,
		"said to be of edges":  edit(s, func(s *Signed) { s.Stream = StreamEdge }),
		"with records":         edit(s, func(s *Signed) { s.Records = b.sign(b.first).Records }),
		"signed for edges":     b.resign(s, replace(rules.Stream(region), StreamEdge)),
		"an edge's with rules": b.resign(b.sign(b.first), replace(`"operational":`, `"rules":{"rules":[]},"operational":`)),
	} {
		for state, now := range map[string]*Snapshot{"with a release": cur, "without one": nil} {
			if snap, err := b.loader(nil).Load(t.Context(), offer, b.blobs, now); err == nil || snap != nil || fault.KindOf(err) == fault.Internal {
				t.Errorf("%s, %s: loaded %v, %v", name, state, snap, err)
			}
		}
	}
	_, err := b.loader(nil).Load(t.Context(), s, b.blobs, cur)
	wantCode(t, err, "other_deployment")
}

func TestStreamsHoldTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	doc := b.first.Document
	cause := Cause{Action: "publish", By: "ops"}
	for name, c := range map[string]struct {
		stream, says string
		change       Change
	}{
		"rules in a stream of edges":      {StreamEdge, "rules: belong to a stream of rules", Change{Document: &doc, Rules: rulesOf(t)}},
		"no rules in a stream of rules":   {rules.Stream(region), "rules: are missing", Change{}},
		"a document in a stream of rules": {rules.Stream(region), "document.apps: a release of rules has none", Change{Document: &doc, Rules: rulesOf(t)}},
	} {
		c.change.Cause, c.change.Created = cause, madeAt()
		_, err := First("bank", c.stream, c.change)
		if wantCode(t, err, "bad_manifest"); err == nil || !strings.Contains(problemsText(t, err), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
