package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMirrorIsTheMachinesOwn(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"new form":           "Types: deb\nURIs: http://mirror.example/debian\nSuites: x\n",
		"new form and slash": "URIs:  http://mirror.example/debian/\n",
		"old form":           "# deb http://other.example/debian x main\ndeb http://mirror.example/debian x main\n",
		"old form, options":  "deb [signed-by=/k arch=amd64] http://mirror.example/debian/ x main\n",
		"not the security's": "URIs: http://other.example/debian-security\n\nURIs: http://mirror.example/debian\n",
	} {
		file := filepath.Join(t.TempDir(), "a.sources")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := mirrorOf(filepath.Join(filepath.Dir(file), "missing.list") + " " + filepath.Join(filepath.Dir(file), "*.sources"))
		if err != nil || got != "http://mirror.example/debian" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := mirrorOf(filepath.Join(t.TempDir(), "*.list")); err == nil {
		t.Error("a mirror was found where none is named")
	}
}
