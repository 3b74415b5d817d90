package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// What the measured server is asked for besides /route: an import and a patch of its
// list, and a swap. Else a change of the API would be noticed after minutes of
// measuring.
func TestMeasuredServerDoesWhatItIsAsked(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "dispatch")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/dispatch").CombinedOutput(); err != nil {
		t.Fatalf("build dispatch: %v\n%s", err, out)
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		t.Fatal(err)
	}
	c, err := launch(t.Context(), "dispatch", addrs[0], "http://"+addrs[2]+"/readyz", binary, "serve", "--demo", "--demo-traffic", "off", "--data", filepath.Join(dir, "data"),
		"--listen", addrs[0], "--admin-listen", addrs[1], "--ops-listen", addrs[2], "--fleet-listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	if err := importIDs(t.Context(), addrs[1], c, 1000); err != nil {
		t.Error(err)
	}
	token, err := c.token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), "http://"+addrs[1]+"/api/v1/lists/staff-devices", token, []byte(`{"add":["d-new"],"reason":"benchmark"}`)); err != nil {
		t.Error(err)
	}
	if err := emergencySwap(t.Context(), post{"http://" + addrs[1] + "/api/v1/emergency", token, "application/json"}, "sh-main", "sh-spare"); err != nil {
		t.Error(err)
	}
}
