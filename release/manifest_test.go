package release

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

func TestManifestSurvivesItsBytes(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	share, weight := 250, 0
	m := next(b.first, func(_ *Document, ops *Operational, c *Change) {
		ops.Apps = map[string]AppState{"mobile": {
			Regions:   map[string]RegionOps{"hf": {State: "draining", Epoch: 3}},
			Endpoints: map[string]EndpointOps{"sh/sh-main": {State: "standby"}, "sh/sh-spare": {State: "active", Weight: &weight}},
			Policies:  map[string]PolicyOps{"gray-10-2": {Epoch: 1, Share: &share}},
		}}
		c.Approve, c.Clears = Approval{BigMove: true, RegionRemoved: true}, true
	})
	data := must(m.Encode())
	read := must(DecodeManifest(data))
	if again := must(read.Encode()); !bytes.Equal(again, data) {
		t.Errorf("encoded\n%s\nthen\n%s", data, again)
	}
	for range 20 { // maps have no order; bytes must have one
		if !bytes.Equal(must(clone(*m).encodeAgain()), data) {
			t.Fatal("equal manifests have other bytes")
		}
	}
	if strings.Contains(string(data), "d-1001") {
		t.Error("a raw id travels")
	}
	for _, secret := range [][]byte{b.keys.Session.Current().Secret(), b.keys.List.Current().Secret()} {
		if bytes.Contains(data, secret) { // SEC23
			t.Error("a secret travels")
		}
	}
}

func (m Manifest) encodeAgain() ([]byte, error) { return m.Encode() }

func TestDecodeManifestRefuses(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	good := string(must(b.first.Encode()))
	edit := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%q is not in %s", from, good)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, c := range []struct{ name, data, code string }{
		{"nothing", "", "bad_manifest"},
		{"null", "null", "bad_manifest"},
		{"an empty object", "{}", "bad_manifest"},
		{"half of it", good[:len(good)/2], "bad_manifest"},
		{"text behind it", good + "x", "bad_manifest"},
		{"two of it", good + good, "bad_manifest"},
		{"an unknown field", edit(`"format":1`, `"format":1,"extra":true`), "bad_manifest"},
		{"an unknown field deep inside", edit(`"capacity":60`, `"capacity":60,"evil":1`), "bad_manifest"},
		{"a newer format", edit(`"format":1`, `"format":2,"extra":true`), "newer_format"},
		{"format 0", edit(`"format":1`, `"format":0`), "bad_manifest"},
		{"number 0", edit(`"number":1`, `"number":0`), "bad_manifest"},
		{"number 2^53", edit(`"number":1`, `"number":9007199254740992`), "bad_manifest"},
		{"a negative number", edit(`"number":1`, `"number":-1`), "bad_manifest"},
		{"a fraction", edit(`"number":1`, `"number":1.5`), "bad_manifest"},
		{"a parent above it", edit(`"parent":0`, `"parent":1`), "bad_manifest"},
		{"no deployment", edit(`"deployment":"bank"`, `"deployment":""`), "bad_manifest"},
		{"no cause", edit(`"by":"ops"`, `"by":""`), "bad_manifest"},
		{"no session key", edit(`"session":["`+b.keys.Session.Current().ID()+`"]`, `"session":[]`), "bad_manifest"},
		{"raw ids", edit(`"owner":"release-team"`, `"owner":"release-team","ids":["d-1001"]`), "bad_manifest"},
		{"a list without a digest", edit(`"lists":{"staff-devices":`, `"lists":{"other":`), "bad_manifest"},
		{"a short digest", edit(`"lists":{"staff-devices":"`, `"lists":{"staff-devices":"00`), "bad_manifest"},
		{"a table without a digest", edit(`"tables":{"cn-prefixes":`, `"tables":{"other":`), "bad_manifest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := DecodeManifest([]byte(c.data))
			wantCode(t, err, c.code)
			if m != nil {
				t.Error("gave a manifest although it failed")
			}
		})
	}
}

func TestNextNumbersAndCarries(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	if b.first.Number != 1 || b.first.Parent != 0 || b.first.Approved.Hosts["wap.bank.example"] != 1 {
		t.Fatalf("first: %d after %d, marks %v", b.first.Number, b.first.Parent, b.first.Approved)
	}
	second := next(b.first, func(doc *Document, _ *Operational, c *Change) {
		doc.Apps[0].Fallback = "new.bank.example"
		doc.Apps[1].Fallback = "unapproved.bank.example"
		c.Approve.Hosts = []string{"new.bank.example", "unused.bank.example"}
		c.Above = 40
	})
	if second.Number != 41 || second.Parent != 1 {
		t.Errorf("%d after %d, want 41 after 1: above all that was seen", second.Number, second.Parent)
	}
	hosts := second.Approved.Hosts
	if hosts["new.bank.example"] != 41 || hosts["wapabst.a.com.cn"] != 1 {
		t.Errorf("marks %v", hosts)
	}
	for _, absent := range []string{"wap.bank.example", "unused.bank.example", "unapproved.bank.example"} {
		if n, ok := hosts[absent]; ok {
			t.Errorf("%s is marked with %d", absent, n)
		}
	}
	third := must(second.Next(Change{Cause: Cause{Action: "freeze", By: "ops"}, Created: madeAt(), Approve: Approval{BigMove: true}}))
	if third.Document.Apps[0].Fallback != "new.bank.example" || third.Lists["staff-devices"] != b.first.Lists["staff-devices"] {
		t.Error("what a change does not name must stay")
	}
	fourth := must(third.Next(Change{Cause: Cause{Action: "freeze", By: "ops"}, Created: madeAt()}))
	if fourth.Approved.BigMove != 42 || fourth.Number != 43 {
		t.Errorf("mark %d at %d: an edge that skipped 42 must still find it", fourth.Approved.BigMove, fourth.Number)
	}
	if len(b.first.Approved.Hosts) != 8 {
		t.Errorf("making the next release changed the first: %v", b.first.Approved.Hosts)
	}
}

func TestNextRefuses(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	cause := Cause{Action: "publish", By: "ops"}
	for name, c := range map[string]struct {
		change Change
		code   string
	}{
		"a jump":          {Change{Cause: cause, Created: madeAt(), Above: 2 + signed.MaxJump}, "number_jump"},
		"above 2^53-1":    {Change{Cause: cause, Created: madeAt(), Above: signed.MaxNumber}, "number_jump"},
		"an overflow":     {Change{Cause: cause, Created: madeAt(), Above: ^uint64(0)}, "number_jump"},
		"no cause":        {Change{Created: madeAt()}, "bad_manifest"},
		"no time":         {Change{Cause: cause}, "bad_manifest"},
		"an empty docu":   {Change{Cause: cause, Created: madeAt(), Document: &Document{}}, "bad_manifest"}, // e46
		"lists forgotten": {Change{Cause: cause, Created: madeAt(), Lists: map[string]Digest{}}, "bad_manifest"},
	} {
		_, err := b.first.Next(c.change)
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	last := *b.first
	last.Number = signed.MaxNumber
	_, err := last.Next(Change{Cause: cause, Created: madeAt()})
	wantCode(t, err, "bad_manifest")
}

func TestNextKeepsTimeInUTCSeconds(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	shanghai := time.FixedZone("", 8*3600)
	m := must(b.first.Next(Change{Cause: Cause{Action: "publish", By: "ops"}, Created: madeAt().In(shanghai).Add(123456789)}))
	if !m.Created.Equal(madeAt()) || m.Created.Location() != time.UTC {
		t.Errorf("created %v", m.Created)
	}
}

func TestDigestText(t *testing.T) {
	t.Parallel()
	d := DigestOf([]byte("x"))
	var back Digest
	if err := back.UnmarshalText([]byte(d.String())); err != nil || back != d {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []string{"", "00", d.String() + "00", strings.ToUpper(d.String()), d.String()[:63] + "g"} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
	if err := json.Unmarshal([]byte(`{"a":"`+d.String()+`"}`), &map[string]Digest{}); err != nil {
		t.Error(err)
	}
}

// FuzzDecodeManifest: what is read can be written, and then reads as the same.
func FuzzDecodeManifest(f *testing.F) {
	b := newBank(f)
	text := must(next(b.first, func(_ *Document, ops *Operational, _ *Change) {
		ops.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: "off", Epoch: 1}}}}
	}).Encode())
	at := func(field string) uint16 { return uint16(bytes.Index(text, []byte(field))) }
	f.Add(uint16(0), uint16(0), []byte{})
	f.Add(uint16(0), uint16(len(text)), []byte(`{"format":2}`))
	f.Add(at(`"number":2`), uint16(len(`"number":2`)), []byte(`"number":1e3`))
	f.Add(at(`"apps":[`), uint16(0), []byte(`"absent_ids":["x"],`))
	f.Add(at(`"operational"`), uint16(0), []byte(`"more":null,`))
	f.Fuzz(func(t *testing.T, at, cut uint16, piece []byte) {
		if len(piece) > longestPiece {
			return
		}
		m, err := DecodeManifest(splice(text, at, cut, piece))
		if err != nil {
			return
		}
		once, err := m.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := DecodeManifest(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once)
		}
		if twice := must(again.Encode()); !bytes.Equal(once, twice) {
			t.Errorf("\n%s\nthen\n%s", once, twice)
		}
	})
}
