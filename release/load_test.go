package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// resign signs manifest bytes as they are, with records that fit what they say if
// they can be read: what a publisher with a broken guard would do.
func (b *bank) resign(s Signed, edit func(string) string) Signed {
	s.Manifest = []byte(edit(string(s.Manifest)))
	s.Signature = must(b.keys.Publisher.Current().SignDetached(signed.TypManifest, s.Manifest))
	var m Manifest
	if json.Unmarshal(s.Manifest, &m) == nil {
		s.Stream, s.Number = m.Stream, m.Number
		s.Records = must(signRecords(&m, DigestOf(s.Manifest), b.keys.Record, recordTime{seq: 1, issued: madeAt()}))
	}
	return s
}

// rebook signs a set of records after changing it.
func (b *bank) rebook(s Signed, edit func(*recordBook)) Signed {
	var book recordBook
	if err := decodeStrict(s.Records.Bytes, &book); err != nil {
		panic(err)
	}
	edit(&book)
	s.Records = RecordSet{Release: book.Release, Seq: book.Seq, Bytes: must(json.Marshal(book))}
	s.Records.Signature = must(b.keys.Record.Current().SignDetached(signed.TypRecords, s.Records.Bytes))
	return s
}

func replace(from, to string) func(string) string {
	return func(text string) string {
		if !strings.Contains(text, from) {
			panic(fmt.Sprintf("%q is not in %s", from, text))
		}
		return strings.ReplaceAll(text, from, to)
	}
}

// SEC1, SEC4 and P8 of safety.md: with every guard before it broken, the last one
// still refuses. cur is release 1 in use; each case is offered as what follows.
func TestLoadRefusesAttacks(t *testing.T) {
	t.Parallel()
	b, stranger := newBank(t), newBank(t)
	cur := b.load(t, b.first, nil)
	second := b.sign(next(b.first, nil))
	change := func(f func(*Document, *Operational, *Change)) Signed { return b.sign(next(b.first, f)) }
	mobile := func(o *Operational, s AppState) { o.Apps = map[string]AppState{"mobile": s} }

	for _, c := range []struct {
		name, code string
		offer      Signed
	}{
		{"a byte of the manifest changed", "bad_signature", edit(second, func(s *Signed) { s.Manifest = append([]byte(" "), s.Manifest...) })},
		{"signed by a stranger", "unknown_key", stranger.sign(next(stranger.first, nil))},
		{"signed with the record key", "bad_signature", edit(second, func(s *Signed) {
			s.Signature = must(b.keys.Record.Current().SignDetached(signed.TypRecords, s.Manifest))
		})},
		{"signature of the records", "bad_signature", edit(second, func(s *Signed) { s.Signature = s.Records.Signature })},
		{"no signature", "bad_signature", edit(second, func(s *Signed) { s.Signature = "" })},
		{"another number outside", "bad_manifest", edit(second, func(s *Signed) { s.Number = 3 })},
		{"another stream outside", "bad_manifest", edit(second, func(s *Signed) { s.Stream = "rules/sh" })},
		{"of another stream", "other_deployment", b.resign(second, replace(`"stream":"edge"`, `"stream":"shadow"`))},
		{"of another deployment", "other_deployment", b.resign(second, replace(`"deployment":"bank"`, `"deployment":"bank2"`))},
		{"of a newer format", "newer_format", b.resign(second, replace(`"format":1`, `"format":2`))},
		{"another release 1", "fork", b.resign(second, func(text string) string {
			return strings.Replace(text, `"number":2,"parent":1`, `"number":1,"parent":0`, 1)
		})},
		{"a jump", "bad_number", b.resign(second, replace(`"number":2`, `"number":100002`))},
		{"a host outside the suffixes", "host_outside_suffixes", change(func(d *Document, _ *Operational, c *Change) {
			d.Apps[0].Regions[0].Endpoints[0].Domain = "bank.example.evil.com"
			c.Approve.Hosts = []string{"bank.example.evil.com"}
		})},
		{"a fallback outside the suffixes", "host_outside_suffixes", change(func(d *Document, _ *Operational, c *Change) {
			d.Apps[0].Fallback = "evilbank.example"
			c.Approve.Hosts = []string{"evilbank.example"}
		})},
		{"a host that nobody approved", "host_not_approved", change(func(d *Document, _ *Operational, _ *Change) {
			d.Apps[0].Regions[0].Endpoints[1].Domain = "phish.a.com.cn"
		})},
		{"a host approved in the future", "host_not_approved", b.resign(second, replace(`"wapabst.a.com.cn":1`, `"wapabst.a.com.cn":3`))},
		{"two apps for one host", "ambiguous_app", change(func(d *Document, _ *Operational, _ *Change) { d.Apps[1].Hosts = d.Apps[0].Hosts })},
		{"two default apps", "ambiguous_app", change(func(d *Document, _ *Operational, _ *Change) { d.Apps[1].Default = true })},
		{"two apps of one name", "bad_records", b.resign(second, replace(`"key":"corporate"`, `"key":"mobile"`))},
		{"a region removed", "region_removed", change(func(d *Document, _ *Operational, _ *Change) {
			d.Apps[1].Regions = d.Apps[1].Regions[:1]
			d.Apps[1].Otherwise = policy.Action{Region: "bj"}
		})},
		{"an app removed", "region_removed", change(func(d *Document, _ *Operational, _ *Change) { d.Apps = d.Apps[:1] })},
		{"a big move", "big_move", change(func(_ *Document, o *Operational, _ *Change) {
			mobile(o, AppState{Regions: map[string]RegionOps{"hf": {State: domain.Off, Epoch: 1}}})
		})},
		{"a session key that is not here", "missing_key", change(func(_ *Document, _ *Operational, c *Change) {
			c.Keys = &KeyIDs{Session: []string{"session-other"}, List: b.keys.List.IDs()}
		})},
		{"a list key that is not here", "missing_key", change(func(_ *Document, _ *Operational, c *Change) {
			c.Keys = &KeyIDs{Session: b.keys.Session.IDs(), List: []string{"list-other"}}
		})},
		{"a list that nobody has", "missing_part", change(func(_ *Document, _ *Operational, c *Change) {
			c.Lists = map[string]Digest{"staff-devices": DigestOf([]byte("x"))}
		})},
		{"a table that nobody has", "missing_part", change(func(_ *Document, _ *Operational, c *Change) {
			c.Tables = map[string]Digest{"cn-prefixes": DigestOf([]byte("x"))}
		})},
		{"a split below 10,000", "bad_rules", b.resign(second, replace(`"of":4000`, `"of":3999`))}, // e16
		{"a policy for an unknown region", "bad_rules", b.resign(second, replace(`"then":{"region":"sh"}`, `"then":{"region":"zz"}`))},
		{"records missing", "bad_signature", edit(second, func(s *Signed) { s.Records = RecordSet{} })},
		{"records of the release before", "bad_records", edit(second, func(s *Signed) { s.Records = b.sign(b.first).Records })},
		{"records renumbered outside", "bad_records", edit(second, func(s *Signed) { s.Records.Seq = 7 })},
		{"records of other content", "bad_records", b.rebook(second, func(k *recordBook) { k.Manifest = Digest{} })},
		{"records of another deployment", "bad_records", b.rebook(second, func(k *recordBook) { k.Deployment = "bank2" })},
		{"records without keys", "bad_records", b.rebook(second, func(k *recordBook) { k.Keys = nil })},
		{"records that live for ever", "bad_records", b.rebook(second, func(k *recordBook) { k.Expires += 1e6 })},
		{"records without a sequence", "bad_records", b.rebook(second, func(k *recordBook) { k.Seq = 0 })},
		{"no records for an app", "bad_records", b.rebook(second, func(k *recordBook) { delete(k.Apps, "mobile") })},
		{"records for an app too many", "bad_records", b.rebook(second, func(k *recordBook) { k.Apps["x"] = k.Apps["mobile"] })},
		{"no record for an endpoint", "bad_records", b.rebook(second, func(k *recordBook) { delete(k.Apps["mobile"].Endpoints, "sh/sh-main") })},
		{"a record for an endpoint too many", "bad_records", b.rebook(second, func(k *recordBook) {
			k.Apps["mobile"].Endpoints["sh/sh-old"] = k.Apps["mobile"].Endpoints["sh/sh-main"]
		})},
		{"records exchanged", "bad_records", b.rebook(second, func(k *recordBook) {
			e := k.Apps["mobile"].Endpoints
			e["sh/sh-main"], e["hf/hf-main"] = e["hf/hf-main"], e["sh/sh-main"]
		})},
		{"records exchanged between apps", "bad_records", b.rebook(second, func(k *recordBook) {
			m, c := k.Apps["mobile"], k.Apps["corporate"]
			m.Fallback, c.Fallback = c.Fallback, m.Fallback
			k.Apps["mobile"], k.Apps["corporate"] = m, c
		})},
		{"a record under no key", "bad_records", b.rebook(second, func(k *recordBook) { k.Apps["mobile"].Endpoints["sh/sh-main"] = nil })},
		{"a record cut", "bad_signature", b.rebook(second, func(k *recordBook) {
			e := k.Apps["mobile"].Endpoints
			e["sh/sh-main"] = []string{e["sh/sh-main"][0][:100]}
		})},
		{"a record by a stranger", "unknown_key", b.rebook(second, func(k *recordBook) {
			k.Apps["mobile"].Endpoints["sh/sh-main"] = []string{must(stranger.keys.Record.Current().Sign(signed.TypRecord, []byte("{}")))}
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			snap, err := b.loader(nil).Load(context.Background(), c.offer, b.blobs, cur)
			wantCode(t, err, c.code)
			if snap != nil {
				t.Error("gave a snapshot although it failed")
			}
		})
	}
	if _, err := b.loader(nil).Load(t.Context(), second, b.blobs, cur); err != nil {
		t.Errorf("the release that all of these were made from must load: %v", err)
	}
}

func edit(s Signed, f func(*Signed)) Signed {
	f(&s)
	return s
}

func TestLoadRefusesEmptyAndActive(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	cur := b.load(t, b.first, nil)
	for name, c := range map[string]struct {
		code  string
		state AppState
	}{
		// e58 and P21: the last domain cannot be turned off in any lane.
		"every region off":                 {"last_domain", AppState{Regions: map[string]RegionOps{"sh": {State: domain.Off}, "hf": {State: domain.Off}}}},
		"the only endpoint off":            {"bad_rules", AppState{Endpoints: map[string]EndpointOps{"hf/hf-main": {State: domain.Closed}}}},
		"an unknown state, as if by typo":  {"bad_rules", AppState{Regions: map[string]RegionOps{"sh": {State: "of"}}}},
		"all draining, one without domain": {"", AppState{Regions: map[string]RegionOps{"sh": {State: domain.Draining}}}},
	} {
		m := next(b.first, func(_ *Document, o *Operational, ch *Change) {
			o.Apps = map[string]AppState{"mobile": c.state}
			ch.Approve.BigMove = true
		})
		_, err := b.loader(nil).Load(t.Context(), b.sign(m), b.blobs, cur)
		if c.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.code != "" && fault.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
}

func TestForkIsNamed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	cur := b.load(t, b.first, nil)
	other := *b.first
	other.Cause.Reason = "another publisher"
	_, err := b.loader(nil).Load(t.Context(), b.sign(&other), b.blobs, cur)
	wantCode(t, err, "fork")
}

func TestMarksLetMovesPass(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	one := b.load(t, b.first, nil)
	off := func(approve bool) func(*Document, *Operational, *Change) {
		return func(_ *Document, o *Operational, c *Change) {
			o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: domain.Off, Epoch: 1}}}}
			c.Approve.BigMove = approve
		}
	}
	two := next(b.first, off(true))
	b.load(t, two, one)
	three := next(two, nil)
	b.load(t, three, one) // which skipped two: the mark is newer than what it has
	atThree := b.load(t, three, b.load(t, two, one))
	back := next(three, func(_ *Document, o *Operational, _ *Change) { o.Apps = nil })
	_, err := b.loader(nil).Load(t.Context(), b.sign(back), b.blobs, atThree)
	wantCode(t, err, "big_move") // an old mark does not cover a new move
	if _, err := b.loader(nil).Load(t.Context(), b.sign(back), b.blobs, nil); err != nil {
		t.Errorf("an edge without a release has nobody to move: %v", err)
	}

	removed := next(b.first, func(d *Document, _ *Operational, c *Change) {
		d.Apps[1].Regions, d.Apps[1].Otherwise = d.Apps[1].Regions[:1], policy.Action{Region: "bj"}
		c.Approve = Approval{RegionRemoved: true, BigMove: true}
	})
	b.load(t, removed, one)
}

func TestSmallMovesNeedNoMark(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	split := func(sh int) func(*Document, *Operational, *Change) {
		return func(d *Document, _ *Operational, _ *Change) {
			hf := policy.Whole - sh
			d.Apps[0].Policies = nil
			d.Apps[0].Otherwise = policy.Action{Split: []policy.Share{{Region: "sh", Of: &sh}, {Region: "hf", Of: &hf}}}
		}
	}
	at60 := next(b.first, split(6000))
	cur := b.load(t, at60, nil)
	for sh, ok := range map[int]bool{6900: true, 5100: true, 7300: false, 4700: false} {
		m := next(at60, split(sh))
		snap, err := b.loader(nil).Load(t.Context(), b.sign(m), b.blobs, cur)
		if (err == nil) != ok {
			t.Errorf("60 %% to %d: %v", sh, err)
		}
		if err == nil {
			if moved := Moved(cur, snap)["mobile"]; moved < 750 || moved > 1050 {
				t.Errorf("60 %% to %d moved %d of 10,000", sh, moved)
			}
		}
	}
	skipped := next(at60, func(_ *Document, _ *Operational, c *Change) { c.Above = at60.Number + 2 })
	if _, err := b.loader(nil).Load(t.Context(), b.sign(next(skipped, split(8000))), b.blobs, cur); err != nil {
		t.Errorf("20 %% over four releases: %v", err)
	}
}

func TestLoadReusesWhatDidNotChange(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	one := b.load(t, b.first, nil)
	swap := next(b.first, func(_ *Document, o *Operational, _ *Change) {
		*o = swapped()
	})
	reads := &countingBlobs{from: b.blobs}
	two, err := b.loader(nil).Load(t.Context(), b.sign(swap), reads, one)
	if err != nil {
		t.Fatal(err)
	}
	if two.Lists != one.Lists || two.Apps["corporate"].Table != one.Apps["corporate"].Table || reads.n != 0 {
		t.Errorf("a swap compiled lists or the other app anew, or read %d blobs", reads.n)
	}
	if two.Apps["mobile"].Table == one.Apps["mobile"].Table {
		t.Error("the app that changed kept its table")
	}
	if got := string(two.Apps["mobile"].Answer[0][1].Bodies[0]); !strings.Contains(got, `"release":2`) {
		t.Errorf("answer %s", got)
	}

	patch := next(swap, func(_ *Document, _ *Operational, c *Change) {
		c.Lists = map[string]Digest{"staff-devices": b.list(slices.Values([]string{"d-1001", "d-2000"}))}
	})
	three := b.load(t, patch, two)
	if three.parts.prefixes["cn-prefixes"] != two.parts.prefixes["cn-prefixes"] {
		t.Error("a patch of a list parsed a table anew")
	}
	in := func(s *Snapshot, id string) bool {
		n, ok := s.Lists.Number("staff-devices")
		return ok && s.Lists.Lookup(whitelist.Device, id).Has(n)
	}
	if !in(two, "d-1002") || in(two, "d-2000") || in(three, "d-1002") || !in(three, "d-2000") {
		t.Error("the snapshots hold a mix of old and new ids") // e30
	}
}

type countingBlobs struct {
	from Blobs
	n    int
}

func (c *countingBlobs) Blob(ctx context.Context, d Digest) ([]byte, error) {
	c.n++
	return c.from.Blob(ctx, d)
}

type brokenBlobs func(Digest) ([]byte, error)

func (f brokenBlobs) Blob(_ context.Context, d Digest) ([]byte, error) { return f(d) }

// R9 of safety.md: no release can end the process.
func TestLoadSurvivesBrokenParts(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	s := b.sign(b.first)
	for name, c := range map[string]struct {
		blobs brokenBlobs
		code  string
	}{
		"panics":         {func(Digest) ([]byte, error) { panic("boom") }, "load_panic"},
		"out of range":   {func(d Digest) ([]byte, error) { return b.blobs[d][len(b.blobs[d])+1:], nil }, "load_panic"},
		"other bytes":    {func(Digest) ([]byte, error) { return []byte("x"), nil }, "missing_part"},
		"no bytes":       {func(Digest) ([]byte, error) { return nil, nil }, "missing_part"},
		"not found":      {func(Digest) ([]byte, error) { return nil, fs.ErrNotExist }, "missing_part"},
		"chunks only":    {func(d Digest) ([]byte, error) { return cut(b.blobs[d]), nil }, "missing_part"},
		"table is wrong": {func(d Digest) ([]byte, error) { return append(slices.Clone(b.blobs[d]), '\n'), nil }, "missing_part"},
	} {
		snap, err := b.loader(nil).Load(t.Context(), s, c.blobs, nil)
		if fault.CodeOf(err) != c.code || snap != nil {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	_, err := b.loader(nil).Load(t.Context(), s, brokenBlobs(func(Digest) ([]byte, error) { return nil, fs.ErrNotExist }), nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is lost: %v", err)
	}
}

func cut(data []byte) []byte { return data[:len(data)/2] }

func TestLoaderNeedsItsOptions(t *testing.T) {
	t.Parallel()
	_, err := NewLoader(LoaderOptions{})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || len(e.Problems) != 4 {
		t.Errorf("got %v, want all four options at once", err)
	}
}

func TestRotatedKeysLoadInTheOrderOfTheRelease(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	old := b.keys.Session.IDs()[0]
	b.keys.Session = must(b.keys.Session.Rotate())
	cur := b.load(t, b.first, nil) // made before: seals with the old key
	req := &policy.Request{Now: madeAt(), Device: "d-5"}
	seal := func(s *Snapshot) string {
		app := s.Apps["mobile"]
		token, _ := app.Table.AppendSession(nil, app.Table.Decide(req), req, app.Life)
		return string(token)
	}
	m := next(b.first, func(_ *Document, _ *Operational, c *Change) {
		c.Keys = &KeyIDs{Session: b.keys.Session.IDs(), List: b.keys.List.IDs()}
	})
	after := b.load(t, m, cur)
	before := seal(cur)
	if before == "" || before[:8] == seal(after)[:8] {
		t.Error("the new release must seal with the new key")
	}
	if _, notes := after.Apps["mobile"].Table.OpenSession(before, req); notes != 0 {
		t.Errorf("a token of key %s is not read any more: %v", old, notes.Strings())
	}
}

func TestDraftShowsWhatWouldMove(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	cur := b.load(t, b.first, nil)
	m := next(b.first, func(d *Document, o *Operational, _ *Change) {
		o.Apps = map[string]AppState{"mobile": {Regions: map[string]RegionOps{"hf": {State: domain.Off}}}}
		d.Apps[1].Fallback = "new.bank.example" // which nobody approved yet
	})
	draft, err := b.loader(nil).Draft(t.Context(), m, b.blobs, cur)
	if err != nil {
		t.Fatal(err)
	}
	moved := Moved(cur, draft)
	if moved["mobile"] < 1000 || moved["mobile"] > 5000 || moved["corporate"] != 0 {
		t.Errorf("moved %v", moved)
	}
	if first := Moved(nil, draft); len(first) != 0 {
		t.Errorf("the first release moved %v", first)
	}
	wantCode(t, b.loader(nil).Guard(draft, cur), "host_not_approved")
	if strings.Contains(string(draft.Apps["mobile"].Fallback.Bodies[0]), "eyJ") {
		t.Error("a draft is signed")
	}
}
