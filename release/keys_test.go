package release

import (
	"fmt"
	"os"
	"path/filepath"
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
