package release

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/internal/signed"
)

func TestLoadKeysMakesWhatIsMissingOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	files := KeyFilesIn(filepath.Join(t.TempDir(), "keys"))
	_, err := LoadKeys(files, false)
	e, ok := err.(*fault.Error)
	if !ok || len(e.Problems) != 5 {
		t.Fatalf("got %v, want one problem for each file", err)
	}
	for i, p := range signed.Purposes() {
		if text := e.Problems[i].String(); !strings.Contains(text, fmt.Sprintf("--%s-key-file", p)) || !strings.Contains(text, "dispatch keys new") {
			t.Errorf("%s: must name flag and command: %s", p, text)
		}
	}
	made, err := LoadKeys(files, true)
	if err != nil {
		t.Fatal(err)
	}
	read, err := LoadKeys(files, true)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(made.IDs()) != fmt.Sprint(read.IDs()) || made.Publisher.Current().ID() != read.Publisher.Current().ID() {
		t.Error("keys were made twice")
	}
}

// A damaged key file must not be replaced by a new one: its sessions and lists would be lost.
func TestLoadKeysNeverReplaces(t *testing.T) {
	t.Parallel()
	files := KeyFilesIn(t.TempDir())
	if err := os.WriteFile(files.Session, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadKeys(files, true)
	wantCode(t, err, "bad_keys")
	if data, err := os.ReadFile(files.Session); err != nil || len(data) != 0 {
		t.Errorf("the file is now %q, %v", data, err)
	}
}

func TestEdgeNeedsNoSigningKey(t *testing.T) {
	t.Parallel()
	all := KeyFilesIn(t.TempDir())
	if _, err := LoadKeys(all, true); err != nil {
		t.Fatal(err)
	}
	edge, err := LoadKeys(KeyFiles{Session: all.Session, List: all.List}, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(edge.Publisher.All())+len(edge.Record.All())+len(edge.ListSeal.All()) != 0 {
		t.Error("an edge has keys that it does not need")
	}
	if _, err := Sign(&Manifest{}, edge, madeAt()); err == nil {
		t.Error("an edge signs")
	}
}

// Each purpose is rotated in two steps, in which nobody is refused: bring the new
// file to every node, then publish. After the second rotation the first key is gone.
func TestEveryPurposeIsRotated(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	one := b.sign(b.first)
	trusted := func() *signed.Trust { // as a file for edges and clients, with two keys of each purpose
		return must(signed.ParseTrust(must(signed.Public(b.keys.Publisher, b.keys.Record, b.keys.Session))))
	}
	load := func(s Signed, cur *Snapshot) (*Snapshot, error) {
		return b.loader(func(o *LoaderOptions) { o.Trust = trusted() }).Load(t.Context(), s, b.blobs, cur)
	}
	cur := must(load(one, nil))
	rotate := func() {
		for _, keys := range []*signed.Keys{&b.keys.Publisher, &b.keys.Record, &b.keys.Session, &b.keys.List, &b.keys.ListSeal} {
			old := keys.Current()
			if *keys = must(keys.Rotate()); keys.Current().ID() == old.ID() || keys.All()[1].ID() != old.ID() || keys.Current().Purpose() != old.Purpose() {
				t.Errorf("%s was not rotated: %v", old.Purpose(), keys.IDs())
			}
		}
	}
	rotate()
	if _, err := load(one, nil); err != nil {
		t.Errorf("a release of before the rotation: %v", err)
	}
	ids := b.keys.IDs()
	second := next(b.first, func(_ *Document, _ *Operational, c *Change) {
		c.Keys, c.Lists = &ids, map[string]Digest{"staff-devices": b.list(slices.Values([]string{"d-1001", "d-1002"}))}
	})
	cur, err := load(b.sign(second), cur)
	if err != nil {
		t.Fatalf("a release of after the rotation: %v", err)
	}
	fallback := cur.Apps["mobile"].Fallback
	if !slices.Equal(fallback.Kids, b.keys.Record.IDs()) || !bytes.Equal(fallback.Body(b.keys.Record.IDs()[1]), fallback.Bodies[1]) {
		t.Errorf("records are signed by %v", fallback.Kids)
	}
	if decide(cur, "mobile", "d-1001") != "sh" {
		t.Error("the list is lost")
	}
	rotate()
	third := next(second, nil)
	_, err = load(b.sign(third), cur) // which still names the session key that is gone now
	wantCode(t, err, "missing_key")
	_, err = load(one, nil)
	wantCode(t, err, "unknown_key")
	renewed := b.sign(second)
	renewed.Records.Seq = 1
	if _, err := load(renewed, nil); codeOf(err) != "missing_key" {
		t.Errorf("signed anew under new keys: %v", err)
	}
	ids = b.keys.IDs()
	third = next(second, func(_ *Document, _ *Operational, c *Change) {
		c.Keys, c.Lists = &ids, map[string]Digest{"staff-devices": b.list(slices.Values([]string{"d-1001", "d-1002"}))}
	})
	if _, err := load(b.sign(third), cur); err != nil {
		t.Errorf("after the second rotation: %v", err)
	}
}
