package release

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writer is what a child process needs to write releases as a real one does.
type writer struct {
	Releases []Signed
	Blobs    map[string][]byte
	Keys     KeyFiles
	Limit    uint64 // bytes of a file, 0 for none
}

// writeUntilKilled is the child: it keeps one release after the other and says so.
func writeUntilKilled(dir string) int {
	var w writer
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "writer.json"))), &w); err != nil {
		fmt.Println(err)
		return 2
	}
	if w.Limit > 0 {
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: w.Limit, Max: w.Limit}); err != nil {
			fmt.Println(err)
			return 2
		}
	}
	b := &bank{keys: must(LoadKeys(w.Keys, false)), blobs: MemoryBlobs{}}
	for _, data := range w.Blobs {
		b.blobs.Add(data)
	}
	k := b.keeper(must(OpenDisk(filepath.Join(dir, "releases"))))
	if err := k.Restore(context.Background()); err != nil {
		fmt.Println(err)
		return 2
	}
	for _, s := range w.Releases {
		if s.Number <= k.Current().Number {
			continue
		}
		if err := k.Accept(context.Background(), s, b.blobs, "publisher"); err != nil {
			fmt.Println(err)
			return 2
		}
		if status := k.Status(); status.DiskErr != "" {
			fmt.Println("disk", k.Current().Number, status.DiskErr)
			continue
		}
		fmt.Println("kept", s.Number)
	}
	return 0
}

// prepare makes a folder with release 1 in it and n more for a child to write.
func prepare(t *testing.T, n int, limit uint64) (*bank, string) {
	t.Helper()
	dir := t.TempDir()
	files := KeyFilesIn(filepath.Join(dir, "keys"))
	keys := must(LoadKeys(files, true))
	b := newBank(t)
	b.keys = keys
	ids := keys.IDs()
	b.first.Keys = ids
	b.first.Lists = map[string]Digest{"staff-devices": b.list(func(yield func(string) bool) { yield("d-1001") })}
	w := writer{Keys: files, Limit: limit, Blobs: map[string][]byte{}}
	m := b.first
	for i := range n + 1 {
		w.Releases = append(w.Releases, b.sign(m))
		m = next(m, func(_ *Document, _ *Operational, c *Change) {
			c.Lists = map[string]Digest{"staff-devices": b.list(func(yield func(string) bool) {
				_ = yield("d-1001") && yield(fmt.Sprint("d-", i))
			})}
		})
	}
	for d, data := range b.blobs {
		w.Blobs[d.String()] = data
	}
	k := b.keeper(must(OpenDisk(filepath.Join(dir, "releases"))))
	if err := k.Accept(t.Context(), w.Releases[0], b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(); s.DiskErr != "" {
		t.Fatal(s.DiskErr)
	}
	overwrite(t, filepath.Join(dir, "writer.json"), must(json.Marshal(w)))
	return b, dir
}

func child(dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RELEASE_TEST_WRITER="+dir)
	return cmd
}

// P5: kill -9 at any moment leaves a whole release, and never an older one than
// the process had said it kept.
func TestKilledWriterLeavesAWholeRelease(t *testing.T) {
	t.Parallel()
	b, dir := prepare(t, 200, 0)
	last := uint64(1)
	const kills = 12
	for n := range kills {
		before := last
		last = max(last, killed(t, dir, time.Duration(rand.IntN(20_000))*time.Microsecond))
		if number, bad := restored(t, b, filepath.Join(dir, "releases")); number < last || bad != 0 {
			t.Fatalf("kill %d: %d was kept, %d found with %d damaged files", n, last, number, bad)
		}
		if last == before {
			t.Fatalf("kill %d: the child kept nothing after %d", n, before)
		}
	}
	t.Logf("%d kills, %d releases", kills, last)
}

// killed runs a child, kills it some time after it said that it kept its first
// release, and returns the last one that it said it kept.
func killed(t *testing.T, dir string, after time.Duration) (last uint64) {
	t.Helper()
	cmd := child(dir)
	said := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); { // until the kill closes the pipe
		text, ok := strings.CutPrefix(lines.Text(), "kept ")
		if !ok {
			t.Fatalf("the child said %s", lines.Text())
		}
		if last == 0 {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) // it may have ended
		}
		last, _ = strconv.ParseUint(text, 10, 64) // a number cut by the kill is a lower one
	}
	_ = cmd.Wait() // killed
	return last
}

// P15: a full disk is an error of the copy alone, and the old copy stays.
func TestFullDiskLeavesTheOldRelease(t *testing.T) {
	t.Parallel()
	b, dir := prepare(t, 3, 2048) // a generation is larger, a blob is not
	out, err := child(dir).CombinedOutput()
	if err != nil {
		t.Fatalf("the release was refused: %v\n%s", err, out)
	}
	if text := string(out); !strings.Contains(text, "disk 4 ") || strings.Contains(text, "kept") || !strings.Contains(text, "file too large") {
		t.Errorf("the child said\n%s", text)
	}
	if number, bad := restored(t, b, filepath.Join(dir, "releases")); number != 1 || bad != 0 {
		t.Errorf("started from %d with %d set aside, want 1 and 0", number, bad)
	}
}
