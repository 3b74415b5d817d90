package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dispatch.example/dispatch/release"
)

// pair is a control node and an edge whose folders outlive their processes.
type pair struct {
	t             *testing.T
	data, listen  string
	dir           string
	flags         []string
	control, edge *running
	token         string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, data: t.TempDir(), listen: free(t)}
	p.startControl()
	p.token = p.control.token
	p.dir, p.flags = edgeFiles(t, p.data)
	p.flags = append(p.flags, "--control", "http://"+p.listen, "--replica-id", "edge-1")
	p.startEdge()
	p.serves(1)
	return p
}

func (p *pair) startControl() {
	if p.control != nil {
		p.control.stop()
	}
	p.control = start(p.t, "--demo", "--data", p.data, "--fleet-listen", p.listen)
	if p.token != "" {
		p.control.token = p.token
	}
}

func (p *pair) startEdge() {
	if p.edge != nil {
		p.edge.stop()
	}
	p.edge = start(p.t, p.flags...)
}

// bring copies a key file to the edge and starts it again.
func (p *pair) bring(name string) {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.data, "keys", name))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "keys", name), data, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.startEdge()
}

func (p *pair) rotate(flag, name string) {
	p.t.Helper()
	if exit, stdout, stderr := command(p.t, "keys", "rotate", flag, filepath.Join(p.data, "keys", name)); exit != 0 || !strings.Contains(stdout, "next: ") {
		p.t.Fatalf("rotate %s: %d %s %s", name, exit, stdout, stderr)
	}
}

// serves waits until the edge serves a release.
func (p *pair) serves(number int) {
	p.t.Helper()
	p.edge.awaitReady(`\[\+\]release ok: number ` + string(rune('0'+number)) + `,`)
}

// swap publishes and wants the edge to follow.
func (p *pair) swap(from, to string, number int) {
	p.t.Helper()
	status, body := p.control.post("/emergency", `{"action":"swap","reason":"after a rotation","confirm":"sh","override":["flap_wait","rate"],"targets":[{"app":"mobile","region":"sh","expect":"`+from+`","from":"`+from+`","to":"`+to+`"}]}`)
	if status != http.StatusOK {
		p.t.Fatalf("swap: %d %s", status, body)
	}
	p.serves(number)
}

// Keys are rotated as docs/operate.md says, one file at a time, and at no moment
// does an edge refuse a release or lose a session.
func TestKeysAreRotatedUnderTraffic(t *testing.T) {
	p := newPair(t)
	first := p.edge.route("app=mobile", "X-Device-Id", "d-77")
	sticks := func(after string) {
		t.Helper()
		if a := p.edge.route("app=mobile", "X-Device-Id", "d-77", "X-Session-Token", first.Session); a.Region != first.Region {
			t.Errorf("after the rotation of %s the session moved from %s to %s", after, first.Region, a.Region)
		}
	}

	p.rotate("--session-key-file", "session.jwks")
	p.bring("session.jwks")
	p.serves(1)
	sticks("session keys on the edge")
	p.startControl()
	p.swap("sh-main", "sh-spare", 2)
	sticks("session keys")

	p.rotate("--publisher-key-file", "publisher.jwks")
	p.rotate("--record-key-file", "record.jwks")
	exit, jwks, stderr := command(t, "keys", "export", "--publisher-key-file", filepath.Join(p.data, "keys/publisher.jwks"), "--record-key-file", filepath.Join(p.data, "keys/record.jwks"))
	if exit != 0 || strings.Count(jwks, `"kid"`) != 4 {
		t.Fatalf("export: %d %s %s", exit, jwks, stderr)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "trust.jwks"), []byte(jwks), 0o644); err != nil {
		t.Fatal(err)
	}
	p.startEdge()
	p.serves(2)
	p.startControl()
	p.swap("sh-spare", "sh-main", 3)
	sticks("signing keys")

	p.rotate("--fleet-token-file", "fleet.token")
	p.startControl()
	p.swap("sh-main", "sh-spare", 4) // the edge still shows the token before
	p.bring("fleet.token")
	p.swap("sh-spare", "sh-main", 5)

	p.rotate("--list-key-file", "list.jwks")
	p.rotate("--list-seal-key-file", "list-seal.jwks")
	p.bring("list.jwks")
	p.startControl()
	status, body := p.control.post("/keys/rehash", `{"reason":"list keys were rotated"}`)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"staff-devices"`)) {
		t.Fatalf("rehash: %d %s", status, body)
	}
	p.serves(6)
	if a := p.edge.route("app=mobile", "X-Device-Id", "d-1001"); a.Region != "sh" {
		t.Errorf("a listed device went to %s after its list was hashed anew", a.Region)
	}
	sticks("list keys")
}

func TestARotationIsNotRepeatedTooSoon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if exit, _, stderr := command(t, "keys", "new", dir); exit != 0 {
		t.Fatal(stderr)
	}
	session, token := filepath.Join(dir, "session.jwks"), filepath.Join(dir, "fleet.token")
	if exit, _, stderr := command(t, "keys", "rotate", "--session-key-file", session); exit != 0 {
		t.Fatal(stderr)
	}
	before, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	exit, _, stderr := command(t, "keys", "rotate", "--session-key-file", session, "--fleet-token-file", token)
	if exit != 1 || !strings.Contains(stderr, "--force") {
		t.Errorf("a second rotation: %d %s", exit, stderr)
	}
	if after, err := os.ReadFile(token); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a refused rotation has changed another file (%v)", err)
	}
	if exit, _, stderr := command(t, "keys", "rotate", "--session-key-file", session, "--force"); exit != 0 {
		t.Errorf("with --force: %d %s", exit, stderr)
	}
	if exit, _, stderr := command(t, "keys", "rotate"); exit != 1 || !strings.Contains(stderr, "at least one file") {
		t.Errorf("without a file: %d %s", exit, stderr)
	}
}

// Records are renewed with the record key and a copy of the release alone, and a
// copy that nobody signed gets none.
func TestRenewNeedsNoDatabase(t *testing.T) {
	data := t.TempDir()
	start(t, "--demo", "--data", data).stop()
	_, flags := edgeFiles(t, data)
	trust := flags[5]
	renew := func(trust string) (int, string) {
		exit, stdout, stderr := command(t, "renew", "--record-key-file", filepath.Join(data, "keys/record.jwks"), "--trust-keys", trust, "--data", data)
		return exit, stdout + stderr
	}
	other := filepath.Join(t.TempDir(), "keys")
	if exit, _, stderr := command(t, "keys", "new", other); exit != 0 {
		t.Fatal(stderr)
	}
	_, foreign, _ := command(t, "keys", "export", "--publisher-key-file", filepath.Join(other, "publisher.jwks"))
	foreignFile := filepath.Join(other, "trust.jwks")
	if err := os.WriteFile(foreignFile, []byte(foreign), 0o644); err != nil {
		t.Fatal(err)
	}
	if exit, said := renew(foreignFile); exit != 1 || !strings.Contains(said, "does not trust") {
		t.Errorf("with keys that did not sign the release: %d %s", exit, said)
	}
	if exit, said := renew(trust); exit != 0 || !strings.Contains(said, "records of release 1 are valid until") {
		t.Fatalf("renew: %d %s", exit, said)
	}
	disk, err := release.OpenDisk(filepath.Join(data, "releases"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := disk.Newest(); err != nil || s.Number != 1 || s.Records.Seq != 2 {
		t.Errorf("the copy is release %d (%d), %v, want 1 (2)", s.Number, s.Records.Seq, err)
	}
	r := start(t, "--demo", "--data", data)
	r.log.await(t, `"msg":"release in use","release":1,"seq":2,"from":"disk"`, nil)
}
