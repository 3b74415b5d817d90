package release

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/policy"
)

// testdata/formatN is what a replica of format N left: a copy of a release, its
// blobs and an override, the public keys and the keys that it needs, a session
// token, and the digest of its golden answers. The keys are of no deployment.
const (
	tokenFile  = "session.token"
	goldenSum  = "golden.sha256"
	trustFile  = "trust.jwks"
	sessionFor = "d-5"
)

// P26 of safety.md: every format that a program ever wrote loads for ever, gives
// the same golden answers, and its sessions go on. -update writes the folder of the
// newest format if there is none, and the digests if the golden requests changed.
func TestP26FormatsOfThePastLoad(t *testing.T) {
	t.Parallel()
	newest := filepath.Join("testdata", fmt.Sprint("format", Format))
	if _, err := os.Stat(newest); err != nil && *update {
		writeFormat(t, newest)
	}
	folders := must(filepath.Glob("testdata/format*"))
	if len(folders) != Format {
		t.Fatalf("%d folders of formats 1 to %d", len(folders), Format)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"session.jwks", "list.jwks", overrideName} { // a checkout has other modes
				if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b := &bank{keys: must(LoadKeys(KeyFiles{Session: filepath.Join(dir, "session.jwks"), List: filepath.Join(dir, "list.jwks")}, false))}
			trust := must(signed.ReadTrust(filepath.Join(dir, trustFile)))
			kept, err := must(OpenDisk(dir)).override()
			if err != nil || len(kept.Actions) != 2 || kept.Over != 1 {
				t.Errorf("its override: %+v, %v", kept, err)
			}
			k := must(NewKeeper(b.loader(func(o *LoaderOptions) { o.Trust = trust }), must(OpenDisk(dir))))
			if err := k.Restore(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s := k.Status(); s.Number != 1 || s.DiskBad != 0 || s.OverrideErr != "" || s.Override != nil {
				t.Errorf("status %+v", s) // the override is over
			}
			sum := fmt.Sprintf("%x\n", sha256.Sum256(must(Golden(k.Current()))))
			if *update {
				if err := os.WriteFile(filepath.Join(folder, goldenSum), []byte(sum), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if want := string(must(os.ReadFile(filepath.Join(folder, goldenSum)))); sum != want {
				t.Errorf("golden answers %s, want %s", sum, want)
			}
			token := strings.TrimSpace(string(must(os.ReadFile(filepath.Join(folder, tokenFile)))))
			req := &policy.Request{Now: madeAt().Add(time.Minute), Device: sessionFor}
			var notes policy.Notes
			if req.Session, notes = k.Current().Apps["mobile"].Table.OpenSession(token, req); notes != 0 {
				t.Errorf("its session token: %v", notes.Strings())
			}
			if d := k.Current().Apps["mobile"].Table.Decide(req); d.Reason != policy.Sticky {
				t.Errorf("its session is %s", d.Reason)
			}
		})
	}
}

// writeFormat makes the folder of the format that this program writes.
func writeFormat(t *testing.T, folder string) {
	t.Helper()
	keyDir := t.TempDir()
	b := newBankIn(t, keyDir)
	k := b.serving(t, must(OpenDisk(folder)))
	o := breakGlass(swapAction(), regionAction("hf", domain.Draining))
	o.Created = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // over, whenever it is read
	o.Until = o.Created.Add(4 * time.Hour)
	if err := k.disk.keepOverride(newKept(o, 1)); err != nil {
		t.Fatal(err)
	}
	req := &policy.Request{Now: madeAt(), Device: sessionFor}
	app := k.Current().Apps["mobile"]
	token, _ := app.Table.AppendSession(nil, app.Table.Decide(req), req, app.Life)
	for name, data := range map[string][]byte{
		tokenFile:      append(token, '\n'),
		trustFile:      must(signed.Public(b.keys.Publisher, b.keys.Record)),
		"session.jwks": must(os.ReadFile(filepath.Join(keyDir, "session.jwks"))),
		"list.jwks":    must(os.ReadFile(filepath.Join(keyDir, "list.jwks"))),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// P26: a control node writes what the oldest replica reads, or says that it cannot.
func TestP26FormatIsTheOldestThatSomebodyReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lowest, oldest, newest, want int }{
		{0, 1, 1, 1}, // nobody has asked yet
		{1, 1, 1, 1}, {2, 1, 1, 1},
		{0, 2, 4, 4}, {9, 2, 4, 4}, {4, 2, 4, 4}, {3, 2, 4, 3}, {2, 2, 4, 2},
		{1, 2, 4, 0}, {-1, 1, 1, 0},
	} {
		got, err := formatFor(c.lowest, c.oldest, c.newest)
		if got != c.want || (err != nil) != (c.want == 0) || err != nil && codeOf(err) != "fleet_too_old" {
			t.Errorf("lowest %d, written %d to %d: got %d, %v", c.lowest, c.oldest, c.newest, got, err)
		}
	}
	b := newBank(t)
	if m := next(b.first, func(_ *Document, _ *Operational, c *Change) { c.Format = 7 }); m.Format != Format {
		t.Errorf("a fleet of newer replicas gets format %d", m.Format)
	}
	_, err := b.first.Next(Change{Format: -1, Cause: b.first.Cause, Created: madeAt()})
	wantCode(t, err, "fleet_too_old")
}

// P3 and P26: another start, and a fresh load of the same release, answer the
// golden requests alike; another release does not.
func TestGoldenAnswersSurviveARestart(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	dir := t.TempDir()
	k := b.serving(t, must(OpenDisk(dir)))
	b.accept(t, k, swapOf(b.first)) // which is asked a sample only
	before := must(Golden(k.Current()))
	if n := bytes.Count(before, []byte("\n")); n != 2*goldenCount || !bytes.HasPrefix(before, []byte("corporate\t0\t")) {
		t.Errorf("%d lines, the first is %.80s", n, before)
	}
	for _, column := range []string{"\twapabst2.a.com.cn\t", "\tgray-10-2\t", "\tNO_ID\t", "\tDEFAULT\t"} {
		if !bytes.Contains(before, []byte(column)) {
			t.Errorf("no answer with %q", column)
		}
	}
	again := b.keeper(must(OpenDisk(dir)))
	if err := again.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, must(Golden(again.Current()))) {
		t.Error("other answers after a restart")
	}
	b.override(t, k, regionAction("hf", domain.Off))
	if bytes.Equal(before, must(Golden(k.Current()))) {
		t.Error("an override shows in no answer")
	}
	if must(Golden(&Snapshot{})) != nil {
		t.Error("no app answers")
	}
}

func TestGoldenFileIsRefusedWhereItIsWrong(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "a\tb", strings.Repeat("\t", 9), strings.Repeat("\t", 8) + "1.2.3", `"a` + strings.Repeat("\t", 8)} {
		if r, err := parseGolden(line); err == nil {
			t.Errorf("%q is read as %+v", line, r)
		}
	}
	if r, err := parseGolden(`"\xff\t"` + strings.Repeat("\t", 8) + "::1"); err != nil || r.Device != "\xff\t" || !r.Addr.IsLoopback() {
		t.Errorf("got %+v, %v", r, err)
	}
}
