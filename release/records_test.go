package release

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/signed"
)

// e67: the primary and ordered alternates, all serving, none drained, never twice.
func TestAlternates(t *testing.T) {
	t.Parallel()
	ends := func(hosts ...string) []domain.Endpoint {
		var out []domain.Endpoint
		for _, h := range hosts {
			host, state, _ := strings.Cut(h, " ")
			out = append(out, domain.Endpoint{Key: host, Domain: host, State: domain.EndpointState(state)})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		regions []domain.Region
		of      string // region, empty for the fallback
		host    string
		want    string
	}{
		{"failover first, then its own, then the others", []domain.Region{
			{Key: "a", Failover: []string{"c"}, Endpoints: ends("a1", "a2")}, {Key: "b", Endpoints: ends("b1")}, {Key: "c", Endpoints: ends("c1")}},
			"a", "a1", "[c1 a2 b1]"},
		{"at most three", []domain.Region{
			{Key: "a", Failover: []string{"b"}, Endpoints: ends("a1")}, {Key: "b", Endpoints: ends("b1", "b2", "b3", "b4")}},
			"a", "a1", "[b1 b2 b3]"},
		{"no duplicates and never itself", []domain.Region{
			{Key: "a", Failover: []string{"b"}, Endpoints: ends("a1")}, {Key: "b", Endpoints: ends("a1", "b1", "b1")}, {Key: "c", Endpoints: ends("b1", "c1")}},
			"a", "a1", "[b1 c1]"},
		{"only what serves", []domain.Region{
			{Key: "a", Failover: []string{"b", "d"}, Endpoints: ends("a1", "a2 standby", "a3 off")},
			{Key: "b", State: domain.Draining, Endpoints: ends("b1")}, {Key: "c", Endpoints: ends("c1 standby", "c2")},
			{Key: "d", State: domain.Off, Endpoints: ends("d1")}},
			"a", "a1", "[c2]"},
		{"a draining region is no alternate of its own endpoint", []domain.Region{
			{Key: "a", State: domain.Draining, Endpoints: ends("a1", "a2")}, {Key: "b", Endpoints: ends("b1")}},
			"a", "a1", "[b1]"},
		{"the fallback's are all that serve", []domain.Region{
			{Key: "a", Endpoints: ends("a1")}, {Key: "b", State: domain.Off, Endpoints: ends("b1")}, {Key: "c", Endpoints: ends("fall", "c1")}},
			"", "fall", "[a1 c1]"},
		{"none", []domain.Region{{Key: "a", Endpoints: ends("a1")}}, "a", "a1", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			app := &App{Key: "x", Fallback: "fall", Regions: c.regions}
			got := alternates(app, app.region(c.of), c.host)
			if fmt.Sprint(got) != c.want || got == nil {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// payload is what a JWS says, without belief.
func payload(tb testing.TB, jws string) Record {
	tb.Helper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(jws, ".")[1])
	if err != nil {
		tb.Fatal(err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		tb.Fatal(err)
	}
	return r
}

func bookOf(tb testing.TB, set RecordSet) *recordBook {
	tb.Helper()
	var book recordBook
	if err := decodeStrict(set.Bytes, &book); err != nil {
		tb.Fatal(err)
	}
	return &book
}

func TestEveryUsableEndpointHasItsRecordUnderEveryKey(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.keys.Record = must(b.keys.Record.Rotate())
	s := b.sign(b.first)
	book := bookOf(t, s.Records)
	if !slices.Equal(book.Keys, b.keys.Record.IDs()) || len(book.Keys) != 2 {
		t.Fatalf("keys %v, want %v", book.Keys, b.keys.Record.IDs())
	}
	mobile := book.Apps["mobile"]
	var have []string
	for key := range mobile.Endpoints {
		have = append(have, key)
	}
	slices.Sort(have)
	if want := []string{"hf/hf-main", "sh/sh-main", "sh/sh-spare"}; !slices.Equal(have, want) {
		t.Errorf("records of %v, want %v: standby ones too, closed ones not", have, want)
	}
	for i, jws := range append(mobile.Endpoints["sh/sh-spare"], mobile.Fallback...) {
		data, kid, err := b.keys.Trust().Verify(signed.TypRecord, jws)
		if err != nil || kid != book.Keys[i%2] {
			t.Errorf("record %d is signed by %q, %v", i, kid, err)
		}
		r := payload(t, jws)
		want := Record{Issuer: "bank", App: "mobile", Region: "sh", Endpoint: "sh-spare", Domain: "wapabst2.a.com.cn",
			Alternates: []string{"wapcdst.b.com.cn", "wapabst.a.com.cn"}, Fallback: "wap.bank.example", Release: 1,
			Issued: madeAt().Unix(), Expires: madeAt().Add(7 * 24 * time.Hour).Unix()}
		if i >= 2 {
			want.Region, want.Endpoint, want.Domain = "", "", "wap.bank.example"
			want.Alternates = []string{"wapabst.a.com.cn", "wapcdst.b.com.cn"}
		}
		if fmt.Sprint(r) != fmt.Sprint(want) {
			t.Errorf("got  %+v\nwant %+v (%s)", r, want, data)
		}
	}
}

func TestRenewalNeedsTheRecordKeyAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	s := b.sign(b.first)
	cur, err := b.loader(nil).Load(t.Context(), s, b.blobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	renewed := s
	renewed.Records, err = Renew(s, b.keys.Trust(), b.keys.Record, madeAt().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if renewed.Records.Release != 1 || renewed.Records.Seq != 2 {
		t.Errorf("renewed is release %d, seq %d", renewed.Records.Release, renewed.Records.Seq)
	}
	after, err := b.loader(nil).Load(t.Context(), renewed, nil, cur) // no blobs: nothing else is read
	if err != nil {
		t.Fatal(err)
	}
	was, is := cur.Apps["mobile"], after.Apps["mobile"]
	if was.Table != is.Table || cur.Lists != after.Lists {
		t.Error("a renewal compiled something anew")
	}
	if string(was.Fallback.Bodies[0]) == string(is.Fallback.Bodies[0]) || after.Seq != 2 || after.Number != 1 {
		t.Error("the records are the old ones")
	}
	if after.Default != is || after.Hosts["mobile.bank.example"] != is {
		t.Error("the app is found no more")
	}
	if _, err := b.loader(nil).Load(t.Context(), s, b.blobs, after); err == nil {
		t.Error("the older records came back")
	}
}

// What Renew signs, clients believe: it must not sign what somebody wrote over a copy on disk.
func TestRenewBelievesNothingUnsigned(t *testing.T) {
	t.Parallel()
	b, other := newBank(t), newBank(t)
	good := b.sign(b.first)
	second := b.sign(next(b.first, nil))
	for name, change := range map[string]func(*Signed){
		"a domain changed":     func(s *Signed) { s.Manifest = []byte(strings.Replace(string(s.Manifest), "wapabst.a", "wapevil.a", 1)) },
		"signed by a stranger": func(s *Signed) { *s = other.sign(other.first) },
		"records of another":   func(s *Signed) { s.Records = second.Records },
		"records changed":      func(s *Signed) { s.Records.Bytes = append([]byte(" "), s.Records.Bytes...) },
		"records renumbered":   func(s *Signed) { s.Records.Seq = 9 },
		"release renumbered":   func(s *Signed) { s.Number = 9 },
		"manifest of another":  func(s *Signed) { s.Manifest, s.Signature, s.Number = second.Manifest, second.Signature, 2 },
		"signature of records": func(s *Signed) { s.Signature = s.Records.Signature },
		"record key as publisher": func(s *Signed) {
			s.Signature = must(b.keys.Record.Current().SignDetached(signed.TypRecords, s.Manifest))
		},
	} {
		s := good
		change(&s)
		if set, err := Renew(s, b.keys.Trust(), b.keys.Record, madeAt()); err == nil || set.Bytes != nil {
			t.Errorf("%s: renewed", name)
		}
	}
	if _, err := Renew(good, b.keys.Trust(), b.keys.Publisher, madeAt()); err == nil {
		t.Error("renewed with a publisher key")
	}
}
