package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// written is a folder with releases 1 to n and the bank that made them.
func written(t *testing.T, n int) (*bank, string) {
	t.Helper()
	b, dir := newBank(t), t.TempDir()
	k := b.keeper(must(OpenDisk(dir)))
	for m := b.first; n > 0; n-- {
		if err := k.Accept(t.Context(), b.sign(m), b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		m = next(m, nil)
	}
	if s := k.Status(); s.DiskErr != "" {
		t.Fatal(s.DiskErr)
	}
	return b, dir
}

// restored is the number that a fresh start finds in a folder, 0 for none, and what it set aside.
func restored(t *testing.T, b *bank, dir string) (number, bad uint64) {
	t.Helper()
	k := b.keeper(must(OpenDisk(dir)))
	if err := k.Restore(t.Context()); err == nil {
		number = k.Current().Number
	}
	return number, k.Status().DiskBad
}

func newest(t *testing.T, dir string) string {
	t.Helper()
	return must((&Disk{dir: dir}).files())[0].path
}

// P6 of safety.md: of a disk copy, no flipped byte and no shortened file is ever
// taken for a release or a part of one.
func TestP06DamagedCopyIsDetected(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 1)
	path := newest(t, dir)
	data := must(os.ReadFile(path))
	for i := range data {
		for _, flip := range []byte{0x01, 0x20, 0x80} {
			bad := slices.Clone(data)
			bad[i] ^= flip
			if s, _, err := decodeGeneration(bad); !errors.Is(err, errDamaged) || s.Manifest != nil {
				t.Fatalf("byte %d flipped by %x: %v", i, flip, err)
			}
		}
		if _, _, err := decodeGeneration(data[:i]); !errors.Is(err, errDamaged) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if _, _, err := decodeGeneration(append(slices.Clone(data), '\n')); !errors.Is(err, errDamaged) {
		t.Errorf("a byte more: %v", err)
	}
	s, blobs, err := decodeGeneration(data)
	if err != nil || !bytes.Equal(s.Manifest, must(b.first.Encode())) || len(blobs) == 0 {
		t.Errorf("the file as it was: %v", err)
	}
	for _, digest := range blobs {
		data := must(os.ReadFile((&Disk{dir: dir}).blobPath(digest)))
		for i := range data {
			disk := must(OpenDisk(t.TempDir()))
			bad := slices.Clone(data)
			bad[i] ^= 0x01
			for _, damaged := range [][]byte{bad, data[:i]} {
				overwrite(t, disk.blobPath(digest), damaged)
				if got, err := disk.Blob(t.Context(), digest); !errors.Is(err, fs.ErrNotExist) || got != nil {
					t.Fatalf("byte %d of blob %s: %v", i, digest, err)
				}
			}
		}
	}
}

func TestDamagedFileIsSetAsideAndAnOlderOneServes(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*testing.T, string) string{
		"one byte": func(t *testing.T, dir string) string {
			path := newest(t, dir)
			data := must(os.ReadFile(path))
			data[len(data)/2] ^= 1
			return overwrite(t, path, data)
		},
		"empty":    func(t *testing.T, dir string) string { return overwrite(t, newest(t, dir), nil) }, // e46
		"one line": func(t *testing.T, dir string) string { return overwrite(t, newest(t, dir), []byte("{}")) },
		"a blob of its own": func(t *testing.T, dir string) string {
			b := must(os.ReadDir(filepath.Join(dir, "blobs")))
			for _, e := range b {
				if data := must(os.ReadFile(filepath.Join(dir, "blobs", e.Name()))); bytes.HasPrefix(data, []byte("192.0.2.0/24,hf")) {
					return overwrite(t, filepath.Join(dir, "blobs", e.Name()), append(data, ' '))
				}
			}
			t.Fatal("no such blob")
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, dir := written(t, 2)
			third := next(next(b.first, nil), func(_ *Document, _ *Operational, c *Change) {
				c.Tables = map[string]Digest{"cn-prefixes": b.blobs.Add([]byte("192.0.2.0/24,hf\n"))}
				c.Approve.BigMove = true
			})
			k := b.keeper(must(OpenDisk(dir)))
			if err := errors.Join(k.Restore(t.Context()), k.Accept(t.Context(), b.sign(third), b.blobs, "publisher")); err != nil {
				t.Fatal(err)
			}
			path := damage(t, dir)
			if number, bad := restored(t, b, dir); number != 2 || bad != 1 {
				t.Errorf("started from %d with %d set aside, want 2 and 1", number, bad)
			}
			if _, err := os.Stat(path + badExt); err != nil {
				t.Errorf("not kept for a look: %v", err)
			}
			if number, bad := restored(t, b, dir); number != 2 || bad != 0 {
				t.Errorf("started again from %d with %d set aside, want 2 and 0", number, bad)
			}
			k = b.keeper(must(OpenDisk(dir)))
			if err := errors.Join(k.Restore(t.Context()), k.Accept(t.Context(), b.sign(third), b.blobs, "publisher")); err != nil {
				t.Fatal(err)
			}
			if number, bad := restored(t, b, dir); number != 3 || bad != 0 {
				t.Errorf("after it came again started from %d with %d set aside, want 3 and 0", number, bad)
			}
		})
	}
}

func overwrite(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNothingUsableSaysWhy(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 1)
	overwrite(t, newest(t, dir), []byte("x"))
	k := b.keeper(must(OpenDisk(dir)))
	err := k.Restore(t.Context())
	if err == nil || !strings.Contains(err.Error(), "damaged") || k.Current() != nil {
		t.Errorf("got %v", err)
	}
	if err := k.Restore(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}

// P26 of safety.md: what an older program cannot read it must not destroy.
func TestP26NewerFormatStaysUntouched(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 2)
	body := []byte(`{"a format":"to come"}`)
	line := header{Format: generationFormat + 1, Number: 3, Seq: 1, Created: madeAt(), Length: len(body)}.line()
	disk := must(OpenDisk(dir))
	path := overwrite(t, disk.path(3, 1), append(fmt.Appendf(nil, "%s sha256=%s\n", line, checksum(line, body)), body...))
	if number, bad := restored(t, b, dir); number != 2 || bad != 0 {
		t.Errorf("started from %d with %d set aside, want 2 and 0", number, bad)
	}
	k := b.keeper(disk)
	m := next(b.first, func(_ *Document, _ *Operational, c *Change) { c.Above = 3 })
	if err := errors.Join(k.Restore(t.Context()), k.Accept(t.Context(), b.sign(m), b.blobs, "publisher")); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(); s.DiskErr != "" {
		t.Error(s.DiskErr)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.HasSuffix(data, body) {
		t.Errorf("the newer file is gone: %v", err)
	}
}

func TestFiveGenerationsShareTheirBlobs(t *testing.T) {
	t.Parallel()
	b, dir := newBank(t), t.TempDir()
	disk := must(OpenDisk(dir))
	k := b.keeper(disk)
	m := b.first
	for n := range 8 {
		if err := k.Accept(t.Context(), b.sign(m), b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		m = next(m, func(_ *Document, _ *Operational, c *Change) {
			c.Lists = map[string]Digest{"staff-devices": b.list(slices.Values([]string{fmt.Sprint("d-", n), "d-1001"}))}
		})
	}
	renewed := b.sign(k.Current().Manifest)
	var err error
	if renewed.Records, err = Renew(renewed, b.keys.Trust(), b.keys.Record, madeAt().AddDate(0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := k.Accept(t.Context(), renewed, b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	var numbers []string
	named := map[string]bool{}
	for _, f := range must(disk.files()) {
		numbers = append(numbers, fmt.Sprintf("%d/%d", f.number, f.seq))
		_, blobs, err := disk.read(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range blobs {
			named[d.String()] = true
		}
	}
	if want := []string{"8/2", "7/1", "6/1", "5/1", "4/1"}; !slices.Equal(numbers, want) {
		t.Errorf("generations %v, want %v: a renewal takes the place of its release", numbers, want)
	}
	entries := must(os.ReadDir(filepath.Join(dir, "blobs")))
	// Each list is an index and a chunk of its own; the table is shared.
	if len(entries) != len(named) || len(named) != 5*2+1 {
		t.Errorf("%d blobs on disk, %d named, want %d", len(entries), len(named), 5*2+1)
	}
	for _, e := range entries {
		if !named[e.Name()] {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

func TestGoodIsNeverReplacedByLess(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 3)
	disk := must(OpenDisk(dir))
	wantCode(t, errors.Unwrap(disk.Write(t.Context(), b.sign(b.first), nil, b.blobs)), codeStale)
	fourth := b.sign(next(next(next(b.first, nil), nil), nil))
	missing := DigestOf([]byte("missing"))
	for name, from := range map[string]Blobs{
		"a blob is missing": b.blobs,
		"a blob is another": brokenBlobs(func(Digest) ([]byte, error) { return []byte("x"), nil }),
	} {
		if err := disk.Write(t.Context(), fourth, []Digest{missing}, from); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if files := must(disk.files()); len(files) != 3 || files[0].number != 3 {
		t.Errorf("the disk holds %v", files)
	}
	if left := must(filepath.Glob(filepath.Join(dir, "*", "*"+tempExt))); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A write stopped between any two of its steps leaves the old release whole.
func TestInterruptedWriteLeavesTheOldRelease(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 2)
	files := must(os.ReadDir(dir))
	blob := filepath.Join(dir, "blobs", DigestOf([]byte("new")).String())
	data := must(os.ReadFile(newest(t, dir)))
	for name, leave := range map[string]func() string{
		"a part of a blob":                  func() string { return overwrite(t, blob+tempExt, []byte("n")) },
		"a blob without its generation":     func() string { return overwrite(t, blob, []byte("new")) },
		"a part of a generation":            func() string { return overwrite(t, must(OpenDisk(dir)).path(3, 1)+tempExt, data[:100]) },
		"a generation that was not renamed": func() string { return overwrite(t, must(OpenDisk(dir)).path(3, 1)+tempExt, data) },
	} {
		path := leave()
		if number, bad := restored(t, b, dir); number != 2 || bad != 0 {
			t.Errorf("%s: started from %d with %d set aside, want 2 and 0", name, number, bad)
		}
		if _, err := os.Stat(path); strings.HasSuffix(path, tempExt) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: still there", name)
		}
	}
	if now := must(os.ReadDir(dir)); len(now) != len(files) {
		t.Errorf("%d files, there were %d", len(now), len(files))
	}
}

func TestDiskGivesBlobs(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 1)
	disk := must(OpenDisk(dir))
	digest := b.first.Tables["cn-prefixes"]
	if data, err := disk.Blob(t.Context(), digest); err != nil || DigestOf(data) != digest {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := disk.Blob(t.Context(), Digest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown one: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := disk.Blob(ctx, digest); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// What was fetched for a release that has not loaded yet is there once, is taken
// over by it, and outlives what others write meanwhile.
func TestDiskKeepsWhatWasFetched(t *testing.T) {
	t.Parallel()
	b, dir := written(t, 1)
	disk := must(OpenDisk(dir))
	data := []byte("198.51.100.0/24,hf\n")
	digest := DigestOf(data)
	if err := disk.Keep(digest, []byte("other")); err == nil {
		t.Error("kept under a wrong name")
	}
	for range 2 {
		if err := disk.Keep(digest, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Keep(b.first.Tables["cn-prefixes"], b.blobs[b.first.Tables["cn-prefixes"]]); err != nil {
		t.Fatal(err) // which is there already
	}
	second := next(b.first, nil)
	if err := disk.Write(t.Context(), b.sign(second), nil, b.blobs); err != nil { // which prunes
		t.Fatal(err)
	}
	disk = must(OpenDisk(dir)) // a start in between
	if got, err := disk.Blob(t.Context(), digest); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("read %q, %v", got, err)
	}
	third := b.sign(next(second, nil))
	nobody := brokenBlobs(func(Digest) ([]byte, error) { return nil, errors.New("fetched again") })
	if err := disk.Write(t.Context(), third, []Digest{digest}, nobody); err != nil {
		t.Fatal(err)
	}
	left := must(filepath.Glob(filepath.Join(dir, "blobs", "*"+fetchedExt)))
	if got, err := os.ReadFile(disk.blobPath(digest)); err != nil || !bytes.Equal(got, data) || len(left) != 0 {
		t.Errorf("taken over as %q, %v; left %v", got, err, left)
	}

	waiting, damaged := DigestOf([]byte("waiting")), DigestOf([]byte("damaged"))
	if err := errors.Join(disk.Keep(waiting, []byte("waiting")), disk.Keep(damaged, []byte("damaged"))); err != nil {
		t.Fatal(err)
	}
	overwrite(t, disk.blobPath(damaged)+fetchedExt, nil) // a crash before it was synced
	if _, err := disk.Blob(t.Context(), damaged); !errors.Is(err, fs.ErrNotExist) || disk.Bad() != 1 {
		t.Errorf("a damaged one: %v", err)
	}
	old := time.Now().Add(-2 * fetchedFor)
	if err := os.Chtimes(disk.blobPath(waiting)+fetchedExt, old, old); err != nil {
		t.Fatal(err)
	}
	if err := disk.Write(t.Context(), b.sign(next(next(second, nil), nil)), nil, b.blobs); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Blob(t.Context(), waiting); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that nobody took over for two hours: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := disk.Keep(waiting, []byte("waiting")); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("without a folder: %v", err)
	}
}

func TestReadAheadGivesEveryBlobOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := must(OpenDisk(dir))
	blobs := MemoryBlobs{}
	var order []Digest
	for n := range 3*aheadBlobs + 7 {
		order = append(order, blobs.Add(fmt.Appendf(nil, "blob %d", n)))
	}
	if err := disk.Write(t.Context(), Signed{Number: 1, Records: RecordSet{Seq: 1}}, append(order, order[:9]...), blobs); err != nil {
		t.Fatal(err)
	}
	ahead := &readAhead{disk: disk, blobs: order}
	wanted := append(slices.Clone(order), order[3], order[0]) // and two out of order
	for i, d := range wanted {
		if data, err := ahead.Blob(t.Context(), d); err != nil || DigestOf(data) != d {
			t.Fatalf("blob %d: %q, %v", i, data, err)
		}
	}
	if _, err := ahead.Blob(t.Context(), Digest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown one: %v", err)
	}
}

// FuzzDecodeGeneration: what the checksum covers is damaged, newer, or reads as
// the same once it is written again. The checksum and the length are made to
// hold, or nothing behind them would ever be met.
func FuzzDecodeGeneration(f *testing.F) {
	b := newBank(f)
	line, body, _ := bytes.Cut(must(encodeGeneration(b.sign(b.first), madeAt(), []Digest{{1}})), []byte("\n"))
	head, _, _ := bytes.Cut(line, []byte(" length="))
	text := slices.Concat(head, []byte("\n"), body)
	at := func(part string) uint16 { return uint16(bytes.Index(text, []byte(part))) }
	f.Add(uint16(0), uint16(0), []byte{})
	f.Add(uint16(0), uint16(len(text)), []byte{})
	f.Add(at("format=1"), uint16(len("format=1")), []byte("format=2"))
	f.Add(at("number=1"), uint16(len("number=1")), []byte("number=01"))
	f.Add(at(`"manifest":"`)+uint16(len(`"manifest":"`)), uint16(4), []byte{})
	f.Add(at(`"blobs":`), uint16(len(text)), []byte(`"blobs":[]}`))
	f.Add(at(`"blobs":`), uint16(0), []byte(`"more":1,`))
	f.Fuzz(func(t *testing.T, at, cut uint16, piece []byte) {
		if len(piece) > longestPiece {
			return
		}
		head, body, _ := bytes.Cut(splice(text, at, cut, piece), []byte("\n"))
		line := fmt.Sprintf("%s length=%d", head, len(body))
		s, blobs, err := decodeGeneration(fmt.Appendf(nil, "%s sha256=%s\n%s", line, checksum(line, body), body))
		if err != nil {
			if !errors.Is(err, errDamaged) && !errors.Is(err, errNewer) {
				t.Errorf("%s: %v", line, err)
			}
			return
		}
		again, same, err := decodeGeneration(must(encodeGeneration(s, madeAt(), blobs)))
		if err != nil || !reflect.DeepEqual(again, s) || !slices.Equal(same, blobs) {
			t.Errorf("%s reads another release once it is written again: %v", line, err)
		}
	})
}
