package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

// publisher signs releases.
type publisher struct{ keys signed.Keys }

func newPublisher(t testing.TB) publisher {
	t.Helper()
	keys, err := signed.NewKeys(signed.Publisher)
	if err != nil {
		t.Fatal(err)
	}
	return publisher{keys}
}

func (p publisher) trust() *signed.Trust { return signed.TrustOf(p.keys) }

func (p publisher) sign(t testing.TB, number uint64, manifest string) Signed {
	t.Helper()
	sig, err := p.keys.Current().SignDetached(signed.TypManifest, []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return Signed{Number: number, Manifest: []byte(manifest), Signature: sig}
}

// manifest is what a publisher signs, as far as callers read it, and a part of the rest.
func manifest(t testing.TB, s Set) string {
	t.Helper()
	return fmt.Sprintf(`{"format":1,"deployment":"bank","stream":"rules/cn-hangzhou","number":7,"parent":6,"document":{"apps":null},"rules":%s,"keys":{}}`, encode(t, s))
}

func TestVerifyReadsWhatWasSigned(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	set := mustParse(t, folder(t, "../../examples/rules")...)
	set.Direct = true
	got, err := Verify(p.sign(t, 7, manifest(t, set)), p.trust(), "bank", "cn-hangzhou")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Rules, set.Rules) || !reflect.DeepEqual(got.Groups, set.Groups) || !got.Direct {
		t.Errorf("read %+v, signed %+v", got, set)
	}
	var wire Signed
	if err := json.Unmarshal(must(t, p.sign(t, 7, manifest(t, set))), &wire); err != nil {
		t.Fatal(err)
	}
	if again, err := Verify(wire, p.trust(), "bank", "cn-hangzhou"); err != nil || len(Diff(got, again)) > 0 {
		t.Errorf("as it travels: %v, %+v", err, again)
	}
	if empty, err := Verify(p.sign(t, 7, manifest(t, Set{})), p.trust(), "bank", "cn-hangzhou"); err != nil || len(empty.Rules) > 0 {
		t.Errorf("a release without rules: %v, %+v", err, empty)
	}
}

func must(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	p, stranger := newPublisher(t), newPublisher(t)
	good := manifest(t, mustParse(t, File{"order-core.yaml", sample}, File{"groups.yaml", groupsText}))
	change := func(from, to string) Signed {
		if !strings.Contains(good, from) {
			t.Fatalf("%q is not in %s", from, good)
		}
		return p.sign(t, 7, strings.Replace(good, from, to, 1))
	}
	tampered := p.sign(t, 7, good)
	tampered.Manifest = []byte(strings.Replace(good, `"weight":70`, `"weight":0`, 1))
	record, err := signed.NewKeys(signed.Record)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := record.Current().SignDetached(signed.TypRecords, []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s    Signed
		code string
	}{
		"a weight changed on the way":    {tampered, "bad_signature"},
		"no signature":                   {Signed{Number: 7, Manifest: []byte(good)}, "bad_signature"},
		"nothing":                        {Signed{}, "bad_signature"},
		"signed by a stranger":           {stranger.sign(t, 7, good), "unknown_key"},
		"signed with a key of records":   {Signed{7, []byte(good), sig}, "bad_signature"},
		"too large":                      {Signed{Manifest: make([]byte, maxManifest+1)}, "manifest_too_large"},
		"another deployment":             {change(`"bank"`, `"bank2"`), "other_deployment"},
		"another region":                 {change(`rules/cn-hangzhou`, `rules/cn-shanghai`), "other_deployment"},
		"a release of edges":             {change(`rules/cn-hangzhou`, `edge`), "other_deployment"},
		"another number":                 {p.sign(t, 8, good), "bad_manifest"},
		"number 0":                       {p.sign(t, 0, strings.Replace(good, `"number":7`, `"number":0`, 1)), "bad_manifest"},
		"a newer format":                 {change(`"format":1`, `"format":2`), "newer_format"},
		"format 0":                       {change(`"format":1`, `"format":0`), "bad_manifest"},
		"no JSON":                        {p.sign(t, 7, "rules"), "bad_manifest"},
		"text behind the end":            {p.sign(t, 7, good+"{}"), "bad_manifest"},
		"no rules":                       {change(`"rules":`, `"rulez":`), "bad_manifest"},
		"null":                           {p.sign(t, 7, good[:strings.Index(good, `"rules"`)]+`"rules":null}`), "bad_manifest"},
		"a layer that we do not know":    {change(`"env":"prod"`, `"env":"prod","zone":"a"`), "bad_manifest"},
		"a key that we do not know":      {change(`"rules":[`, `"on_no_match":"all","rules":[`), "bad_manifest"},
		"T65 a negative weight":          {change(`"weight":70`, `"weight":-1`), "bad_rules"},
		"T65 a huge weight":              {change(`"weight":70`, `"weight":1000000`), "bad_rules"},
		"T65 a fraction":                 {change(`"weight":70`, `"weight":0.5`), "bad_manifest"},
		"A03 an empty env":               {change(`"env":"prod"`, `"env":""`), "bad_rules"},
		"A04 a wildcard":                 {change(`"env":"prod"`, `"env":"*"`), "bad_rules"},
		"no time":                        {change(`"2026-11-30T09:00:00Z"`, `"0001-01-01T00:00:00Z"`), "bad_rules"},
		"a metric that we do not know":   {change(`"metric":"target-load"`, `"metric":"latency"`), "bad_rules"},
		"an operator of the other side":  {change(`"operator":"\u003e"`, `"operator":"\u003c"`), "bad_rules"},
		"an empty condition":             {change(`{"metric":"target-load","operator":"\u003e","number":80}`, `{}`), "bad_rules"},
		"a version that stands twice":    {change(`"v2.3.0"`, `"v2.3.1"`), "bad_rules"},
		"a rule that stands twice":       {p.sign(t, 7, twice(good)), "bad_rules"},
		"a group without owners":         {change(`"owners":["ci-order"]`, `"owners":[]`), "bad_rules"},
		"a group that stands twice":      {change(`"prefix":"pay-"`, `"prefix":"order-"`), "bad_rules"},
		"a control character in a value": {change(`"env":"prod"`, `"env":"pr\u001bod"`), "bad_rules"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := Verify(c.s, p.trust(), "bank", "cn-hangzhou")
			if fault.CodeOf(err) != c.code || set.Rules != nil || set.Groups != nil {
				t.Errorf("got %+v, %v, want the code %s", set, err, c.code)
			}
		})
	}
	if _, err := Verify(p.sign(t, 7, good), nil, "bank", "cn-hangzhou"); fault.CodeOf(err) != "unknown_key" {
		t.Errorf("who trusts nobody: %v", err)
	}
}

// twice has the first rule of a manifest two times.
func twice(text string) string {
	from := strings.Index(text, `"rules":[`) + len(`"rules":[`)
	rule := text[from : from+strings.Index(text[from:], "],")]
	return text[:from] + rule + "," + text[from:]
}

// Whatever a publisher signs, what Verify returns can be followed.
func FuzzVerify(f *testing.F) {
	p := newPublisher(f)
	trust := p.trust()
	grown, err := mustParse(f, File{"order-core.yaml", sample}, File{"groups.yaml", groupsText}).WithGray(
		Gray{Service: "order-core", Env: "prod", Version: "v2.4.0", Share: 5, Steps: DefaultSteps(), WithoutFallback: true, By: "eng"})
	if err != nil {
		f.Fatal(err)
	}
	good := manifest(f, grown)
	f.Add(uint16(0), uint16(0), "")
	for _, c := range []struct{ from, piece string }{{`:70`, ":-1"}, {`"rules":[`, `"direct":true,"rules":[`}, {`"env"`, `"zone"`}, {`{"rules"`, "null"}, {`7,`, "0,"}, {`"prod"`, `"*"`}, {`"share":5`, `"share":0`}, {`"version":"v2.4.0"`, `"version":"v2.3.1"`}} {
		f.Add(uint16(strings.Index(good, c.from)), uint16(len(c.from)), c.piece)
	}
	f.Fuzz(func(t *testing.T, at, cut uint16, piece string) {
		s := p.sign(t, 7, splice(good, at, cut, piece))
		set, err := Verify(s, trust, "bank", "cn-hangzhou")
		if err != nil {
			if _, ok := errors.AsType[*fault.Error](err); !ok || set.Rules != nil {
				t.Errorf("%+v, %v", set, err)
			}
			return
		}
		for _, r := range set.Rules {
			r.Gray = nil // it was put in
			if found := r.check(); len(found) > 0 {
				t.Errorf("cannot be followed: %+v", found)
			}
		}
		var again Set
		if err := json.Unmarshal(encode(t, set), &again); err != nil || len(Diff(set, again)) > 0 {
			t.Errorf("other bytes: %v", err)
		}
		s.Manifest = append(s.Manifest, ' ')
		if _, err := Verify(s, trust, "bank", "cn-hangzhou"); fault.CodeOf(err) != "bad_signature" {
			t.Errorf("one byte more: %v", err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	p := newPublisher(b)
	var set Set
	for i := range 200 {
		r := mustParse(b, File{"order-core.yaml", sample}).Rules[0]
		r.Service = fmt.Sprintf("order-%d", i)
		set.Rules = append(set.Rules, r)
	}
	s, trust := p.sign(b, 7, manifest(b, set)), p.trust()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(s, trust, "bank", "cn-hangzhou"); err != nil {
			b.Fatal(err)
		}
	}
}
