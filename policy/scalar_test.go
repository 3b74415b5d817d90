package policy

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestPolicyRoundTripsThroughJSON(t *testing.T) {
	t.Parallel()
	// e17: an explicit 0 stays, what is absent stays absent.
	want := Policy{Key: "gray", Salt: "s", BucketBy: ByUser, When: When{
		InList: Strings{"a", "b"}, Platform: Strings{"ios"}, AppVersion: ">=10", ASN: []uint32{4134},
		Between: []time.Time{noon, noon.Add(time.Hour)}, Attr: map[string]Strings{"tier": {"gold"}}, HasUser: ptr(false),
		Not: &When{CIDR: Strings{"10.0.0.0/8"}},
	}, Then: share("hf", 0)}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Policy
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v\nfrom %s", got, want, data)
	}
	if plain, err := json.Marshal(Policy{Key: "p", MatchAll: true, Then: toRegion("sh")}); err != nil || string(plain) != `{"key":"p","match_all":true,"then":{"region":"sh"}}` {
		t.Errorf("%s, %v", plain, err)
	}
}

func TestStringsReadOneOrMany(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Strings{`"ios"`: {"ios"}, `["a","b"]`: {"a", "b"}, `[]`: {}, `null`: nil, `"\u00fc"`: {"ü"}} {
		var got Strings
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v", text, got, err)
		}
	}
	for _, text := range []string{`1`, `{}`, `[1]`, `[["a"]]`, `true`} {
		if err := json.Unmarshal([]byte(text), new(Strings)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	var bare Strings
	if err := bare.UnmarshalText([]byte("a, b")); err != nil || len(bare) != 1 || bare[0] != "a, b" {
		t.Errorf("a bare string: %v, %v", bare, err)
	}
}

func TestOriginReadsWordsAndObjects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Origin{
		`"hint"`:                                {Hint: true},
		`"replica"`:                             {Replica: true},
		`{"table":"cn"}`:                        {Table: "cn"},
		`{"geoip":{"subdivision":{"SH":"sh"}}}`: {GeoIP: &GeoIP{Subdivision: map[string]string{"SH": "sh"}}},
	} {
		var got Origin
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
			continue
		}
		if again, err := json.Marshal(got); err != nil || string(again) != text {
			t.Errorf("%s is written back as %s, %v", text, again, err)
		}
	}
	for _, text := range []string{`"moon"`, `1`, `{"tabel":"cn"}`, `{"geoip":{"city":{}}}`, `[]`} {
		if err := json.Unmarshal([]byte(text), new(Origin)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestTraceIsJSON(t *testing.T) {
	t.Parallel()
	_, trace := compile(t, rules(gray(5000)), Env{}).Explain(&Request{Now: noon, Device: "d"})
	data, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	var back Trace
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(&back, trace) {
		t.Errorf("%v\n%s", err, data)
	}
}
