package handler

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"dispatch.example/dispatch/policy"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, raw string
		field     field
		want      string
		bad       badInputs
	}{
		{"e27 escaped plus", "user_id=a%2Bb", fUser, "a+b", 0},
		{"e27 plus is a space", "user_id=a+b", fUser, "a b", 0},
		{"e27 escaped separators", "user_id=x%26y%3Dz", fUser, "x&y=z", 0},
		{"e27 semicolon is no separator", "user_id=a;b&app=m", fUser, "a;b", 0},
		{"field after a semicolon value", "user_id=a;b&app=m", fApp, "m", 0},
		{"undone once", "device_id=a%2525", fDevice, "a%25", 0},
		{"first of repeated", "device_id=one&device_id=two", fDevice, "one", 0},
		{"a blank first counts too", "device_id=&device_id=two", fDevice, "", 0},
		{"escaped name", "device%5Fid=d", fDevice, "d", 0},
		{"value with equals sign", "session=abc==", fSession, "abc==", 0},
		{"no value", "device_id", fDevice, "", 0},
		{"no name", "=x&&device_id=d&", fDevice, "d", 0},
		{"bad escape stays", "device_id=100%&app=m", fDevice, "100%", 1 << badEscape},
		{"half an escape stays", "device_id=a%4", fDevice, "a%4", 1 << badEscape},
		{"bad digits stay", "device_id=%zz%41", fDevice, "%zzA", 1 << badEscape},
		{"lower-case digits", "device_id=%c3%bc", fDevice, "ü", 0},
		{"names are exact", "Device_ID=d", fDevice, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var in inputs
			in.readQuery(tc.raw)
			if got := in.value[tc.field]; got != tc.want || in.bad != tc.bad {
				t.Errorf("%q: value %q bad %b, want %q %b", tc.raw, got, in.bad, tc.want, tc.bad)
			}
		})
	}
}

func TestHeaderWinsOverQueryAndBody(t *testing.T) {
	t.Parallel()
	var in inputs
	in.readHeaders(http.Header{"X-Device-Id": {"header", "second"}, "X-User-Id": {""}})
	in.readQuery("device_id=query&user_id=query&app=query")
	if err := in.readJSON([]byte(`{"device_id":"body","app":"body","platform":"body"}`)); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[field]string{fDevice: "header", fUser: "", fApp: "query", fPlatform: "body"} {
		if got := in.value[f]; got != want {
			t.Errorf("field %d = %q, want %q", f, got, want)
		}
	}
}

func TestEveryFieldHasItsInputs(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"app": "X-App", "device_id": "X-Device-Id", "user_id": "X-User-Id", "app_version": "X-App-Version",
		"platform": "X-Platform", "channel": "X-Channel", "carrier": "X-Carrier", "locale": "X-Locale",
		"session": "X-Session-Token", "origin": "X-Origin-Region",
	} {
		f, ok := fieldOf(name)
		if !ok || headers[f] != header {
			t.Errorf("%s: field %v, header %s, want %s", name, ok, headers[f], header)
		}
		if http.CanonicalHeaderKey(header) != header {
			t.Errorf("%s is not in the form in which net/http stores it", header)
		}
	}
}

func TestAttrs(t *testing.T) {
	t.Parallel()
	var in inputs
	in.readQuery("attr.tier=gold&attr.tier=silver&attr.=x&attr.city=a%20b")
	want := []policy.Attr{{Name: "tier", Value: "gold"}, {Name: "city", Value: "a b"}}
	if len(in.attrs) != 2 || in.attrs[0] != want[0] || in.attrs[1] != want[1] {
		t.Errorf("attrs = %v, want %v", in.attrs, want)
	}
	for i := range 2 * maxAttrs {
		in.putKey("attr.n"+string(rune('a'+i)), "v")
	}
	if len(in.attrs) != maxAttrs || in.bad != 1<<badAttrs {
		t.Errorf("%d attrs kept, bad %b; want %d and a note", len(in.attrs), in.bad, maxAttrs)
	}
	in.reset()
	if len(in.attrs) != 0 || in.attrs[:1][0] != (policy.Attr{}) {
		t.Error("reset keeps the attributes of the request before")
	}
}

func TestJSONBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		field      field
		want       string
		bad        badInputs
		err        error
	}{
		{name: "string", body: `{"device_id":"d\u00fc"}`, field: fDevice, want: "dü"},
		{name: "number keeps its digits", body: `{"user_id":13800000000000000001}`, field: fUser, want: "13800000000000000001"},
		{name: "number keeps its form", body: `{"app_version": 10.20}`, field: fVersion, want: "10.20"},
		{name: "first of repeated", body: `{"device_id":"a","device_id":"b"}`, field: fDevice, want: "a"},
		{name: "null says nothing", body: `{"device_id":null,"device_id":"b"}`, field: fDevice, want: "b"},
		{name: "object is left out", body: `{"device_id":{"a":[1]},"app":"m"}`, field: fApp, want: "m", bad: 1 << badType},
		{name: "array is left out", body: `{"device_id":["a"]}`, field: fDevice, bad: 1 << badType},
		{name: "true is text", body: `{"platform":true}`, field: fPlatform, want: "true"},
		{name: "byte order mark", body: "\xef\xbb\xbf{\"app\":\"m\"}", field: fApp, want: "m"},
		{name: "percent is a character", body: `{"device_id":"a%2Bb+c"}`, field: fDevice, want: "a%2Bb+c"},
		{name: "empty", body: ` `},
		{name: "empty object", body: `{}`},
		{name: "half an object", body: `{"app":"m"`, err: errBadBody},
		{name: "array", body: `[1]`, err: errBadBody},
		{name: "null", body: `null`, err: errBadBody},
		{name: "form", body: `app=m&device_id=d`, err: errBadBody},
		{name: "trailing object", body: `{"app":"m"}{}`, err: errBadBody},
		{name: "trailing text", body: `{"app":"m"} x`, err: errBadBody},
		{name: "bare name", body: `{app:1}`, err: errBadBody},
		{name: "number as name", body: `{1:1}`, err: errBadBody},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var in inputs
			err := in.readJSON([]byte(tc.body))
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: error %v, want %v", tc.body, err, tc.err)
			}
			if got := in.value[tc.field]; err == nil && (got != tc.want || in.bad != tc.bad) {
				t.Errorf("%s: value %q bad %b, want %q %b", tc.body, got, in.bad, tc.want, tc.bad)
			}
		})
	}
}

func TestReadUpTo(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]error{0: nil, 7: nil, 8: nil, 9: errBodyTooLarge, 5000: errBodyTooLarge} {
		got, err := readUpTo(strings.NewReader(strings.Repeat("x", n)), nil, 8)
		if !errors.Is(err, want) || (want == nil && len(got) != n) {
			t.Errorf("%d bytes: %d read, error %v, want %v", n, len(got), err, want)
		}
	}
}

// FuzzQuery compares with net/url wherever that has an opinion: on queries
// without semicolons and malformed escapes.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "app=m&device_id=d-1", "user_id=a%2Bb+c", "device_id=%", "&&=&;", "attr.a=1&attr.b=2", "device_id=%ff%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var in inputs
		in.readQuery(raw)
		if len(in.attrs) > maxAttrs {
			t.Errorf("%d attributes", len(in.attrs))
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		for _, name := range []string{"app", "device_id", "user_id", "session"} {
			f, _ := fieldOf(name)
			if got, want := in.value[f], values.Get(name); got != want {
				t.Errorf("%q: %s = %q, net/url says %q", raw, name, got, want)
			}
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"app":"m","device_id":1e9}`, `{"attr.a":true,"x":{"y":[{}]}}`, "\xef\xbb\xbf{", `{"a":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in inputs
		if err := in.readJSON(body); err != nil && !errors.Is(err, errBadBody) {
			t.Errorf("%q: %v", body, err)
		}
		for _, v := range in.value {
			if !utf8.ValidString(v) {
				t.Errorf("%q: a JSON value is not UTF-8: %q", body, v)
			}
		}
	})
}
