package release

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"dispatch.example/dispatch/internal/signed"
)

// P7 of safety.md, the edge's side: an old release from a source that lags or was
// restored from a backup is refused and counted, before and after a restart.
func TestP07OldReleasesAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	dir := t.TempDir()
	k := b.keeper(must(OpenDisk(dir)))
	var old []Signed
	m := b.first
	for range 4 {
		old = append(old, b.sign(m))
		b.accept(t, k, m)
		m = next(m, nil)
	}
	renewed := old[3]
	renewed.Records = must(Renew(renewed, b.keys.Trust(), b.keys.Record, madeAt().AddDate(0, 0, 1)))
	if err := k.Accept(t.Context(), renewed, b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"running", "restarted"} {
		if start == "restarted" {
			k = b.keeper(must(OpenDisk(dir)))
			if err := k.Restore(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cur := k.Current()
		for _, s := range old { // the last one has the number in use and older records
			wantCode(t, k.Accept(t.Context(), s, b.blobs, "lagging"), codeStale)
		}
		s := k.Status()
		if k.Current() != cur || s.Number != 4 || s.Seq != 2 || s.Refused[codeStale] != 4 || s.Refusal.Code != codeStale || s.Refusal.Source != "lagging" {
			t.Errorf("%s: %+v", start, s)
		}
		if file := must(k.disk.files())[0]; file.number != 4 || file.seq != 2 {
			t.Errorf("%s: the disk went back to release %d (%d)", start, file.number, file.seq)
		}
	}
	wantCode(t, k.disk.Write(t.Context(), old[0], nil, b.blobs), codeStale)
}

// SEC1 of safety.md, the edge's side: a row that somebody edits in the database is
// no release any more, and one that a publisher was tricked into is refused too.
func TestSEC01EditedRowsAreRefused(t *testing.T) {
	t.Parallel()
	b, thief := newBank(t), newBank(t)
	k := b.serving(t, nil)
	cur, second := k.Current(), b.sign(next(b.first, nil))
	const evil = "bank.example.evil.com"
	swapHost := replace("wapabst.a.com.cn", evil)
	forge := func(by *bank, s Signed) Signed {
		s.Manifest = []byte(swapHost(string(s.Manifest)))
		s.Signature = must(by.keys.Publisher.Current().SignDetached(signed.TypManifest, s.Manifest))
		return s
	}
	approved := next(b.first, func(d *Document, _ *Operational, c *Change) {
		d.Apps[0].Regions[0].Endpoints[0].Domain, c.Approve.Hosts = evil, []string{evil}
	})
	inside := next(b.first, func(d *Document, _ *Operational, _ *Change) {
		d.Apps[0].Regions[0].Endpoints[0].Domain = "login.bank.example"
	})
	for name, c := range map[string]struct {
		offer Signed
		code  string
	}{
		"the manifest":                         {edit(second, func(s *Signed) { s.Manifest = []byte(swapHost(string(s.Manifest))) }), "bad_signature"},
		"the records":                          {edit(second, func(s *Signed) { s.Records.Bytes = append([]byte(" "), s.Records.Bytes...) }), "bad_signature"},
		"manifest and signature, by a thief":   {forge(thief, second), "unknown_key"},
		"all, by a thief":                      {thief.sign(approved), "unknown_key"},
		"the manifest, by a tricked publisher": {forge(b, second), "bad_records"},
		"all of it: outside the suffixes":      {b.sign(approved), "host_outside_suffixes"},
		"all of it: never approved":            {b.sign(inside), "host_not_approved"},
		"the number":                           {edit(second, func(s *Signed) { s.Number = 9 }), "bad_manifest"},
	} {
		if err := k.Accept(t.Context(), c.offer, b.blobs, "redis"); codeOf(err) != c.code || k.Current() != cur {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	if err := k.Accept(t.Context(), second, b.blobs, "redis"); err != nil {
		t.Errorf("the row as it was: %v", err)
	}
}

// SEC4 of safety.md: yesterday's release is signed and refused, and a number that
// nobody signed moves no ratchet: a refused release leaves no trace.
func TestSEC04ReplayIsRefusedAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	b, thief := newBank(t), newBank(t)
	k := b.serving(t, nil)
	yesterday := b.sign(b.first)
	second := next(b.first, nil)
	b.accept(t, k, second)
	wantCode(t, k.Accept(t.Context(), yesterday, b.blobs, "replay"), codeStale)
	wantCode(t, k.Accept(t.Context(), edit(yesterday, func(s *Signed) { s.Number = 3 }), b.blobs, "replay"), "bad_manifest")
	mixed := edit(b.sign(next(second, nil)), func(s *Signed) { s.Records = b.sign(second).Records })
	wantCode(t, k.Accept(t.Context(), mixed, b.blobs, "replay"), "bad_records")
	for _, above := range []uint64{1000, signed.MaxJump} {
		far := next(second, func(_ *Document, _ *Operational, c *Change) { c.Above = above })
		wantCode(t, k.Accept(t.Context(), thief.sign(far), b.blobs, "thief"), "unknown_key")
	}
	leaked := b.resign(b.sign(second), replace(`"number":2,"parent":1`, fmt.Sprintf(`"number":%d,"parent":1`, uint64(signed.MaxNumber))))
	wantCode(t, k.Accept(t.Context(), leaked, b.blobs, "leaked key"), "bad_number")
	b.accept(t, k, next(second, nil))
	if k.Current().Number != 3 {
		t.Errorf("release %d is in use", k.Current().Number)
	}
}

// SEC23 of safety.md: no byte of a secret key is in a manifest, in records, in an
// override or on the disk of a replica.
func TestSEC23NoKeyLeavesItsFile(t *testing.T) {
	t.Parallel()
	keyDir, dir := t.TempDir(), t.TempDir()
	b := newBankIn(t, keyDir)
	secrets := secretsIn(t, keyDir)
	if len(secrets) != len(signed.Purposes()) {
		t.Fatalf("%d secrets", len(secrets))
	}
	search := func(where string, text []byte) {
		text = slices.Concat(text, []byte("\n"), nested(text))
		for name, secret := range secrets {
			for _, form := range []string{string(secret), hex.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret),
				base64.RawStdEncoding.EncodeToString(secret)} {
				if bytes.Contains(text, []byte(form)) {
					t.Errorf("a secret of %s is in %s", name, where)
				}
			}
		}
	}
	s := b.sign(b.first)
	search("the manifest", s.Manifest)
	search("the records", s.Records.Bytes)
	if !bytes.Contains(s.Manifest, []byte(b.keys.Session.IDs()[0])) {
		t.Error("the manifest does not name the session key")
	}
	k := b.serving(t, must(OpenDisk(dir)))
	o := breakGlass(swapAction())
	o.Deployment = "bank"
	if err := k.Override(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	search("a signed override", must(SignOverride(o, b.keys.Publisher)))
	search("the answers", must(Golden(k.Current())))
	files := 0
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			search(path, must(os.ReadFile(path)))
			files++
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if copied := must(os.ReadFile(must(k.disk.files())[0].path)); files < 4 || !bytes.Contains(nested(copied), s.Manifest) {
		t.Errorf("%d files, or the search does not see what is in base64", files)
	}
}

// secretsIn are the secrets of all key files in a folder, by file.
func secretsIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	secrets := map[string][]byte{}
	for _, path := range must(filepath.Glob(filepath.Join(dir, "*.jwks"))) {
		var set struct{ Keys []struct{ K, D string } }
		if err := json.Unmarshal(must(os.ReadFile(path)), &set); err != nil {
			t.Fatal(err)
		}
		for _, key := range set.Keys {
			secrets[filepath.Base(path)] = must(base64.RawURLEncoding.DecodeString(key.K + key.D))
		}
	}
	return secrets
}

// nested is what a generation file holds in base64, nothing for another text.
func nested(text []byte) []byte {
	_, body, _ := bytes.Cut(text, []byte("\n"))
	var g generation
	if json.Unmarshal(body, &g) != nil {
		return nil
	}
	return slices.Concat(g.Manifest, g.Records.Bytes)
}
