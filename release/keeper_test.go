package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/policy"
)

func TestKeeperIsEmptyUntilTheFirstRelease(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.keeper(nil)
	if k.Current() != nil || k.Status().Number != 0 || k.Status().Age != 0 {
		t.Errorf("an empty keeper has %+v", k.Status())
	}
	if err := k.Restore(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("restore without a disk: %v", err)
	}
	if err := k.Accept(t.Context(), b.sign(b.first), b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(); s.Number != 1 || s.Seq != 1 || s.Source != "publisher" || s.Refusal != nil || s.Digest != k.Current().Digest {
		t.Errorf("status %+v", s)
	}
	if want := madeAt().Add(RecordLife); !k.Status().Expires.Equal(want) {
		t.Errorf("the records expire at %v, want %v", k.Status().Expires, want)
	}
	if _, err := NewKeeper(nil, nil); err == nil {
		t.Error("a keeper without a loader")
	}
}

// e45, e46 and e51: whatever is wrong with a release, the one in use stays.
func TestKeeperKeepsTheOldOneOnEveryFailure(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	disk := must(OpenDisk(t.TempDir()))
	k := b.keeper(disk)
	if err := k.Accept(t.Context(), b.sign(b.first), b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	cur, second := k.Current(), b.sign(next(b.first, nil))
	for i, c := range []struct {
		offer Signed
		blobs Blobs
		code  string
	}{
		{Signed{}, b.blobs, "bad_signature"},
		{edit(second, func(s *Signed) { s.Manifest = nil }), b.blobs, "bad_signature"},
		{b.resign(second, func(text string) string { return text[:len(text)/2] }), b.blobs, "bad_manifest"},
		{b.resign(second, func(string) string { return "{}" }), b.blobs, "bad_manifest"},
		{b.resign(second, replace(`"policies":[`, `"policies":[{"key":"x","then":{}},`)), b.blobs, "bad_rules"},
		{b.sign(next(b.first, func(_ *Document, _ *Operational, c *Change) {
			c.Lists = map[string]Digest{"staff-devices": {}}
		})), brokenBlobs(func(Digest) ([]byte, error) { panic("boom") }), "load_panic"},
	} {
		err := k.Accept(t.Context(), c.offer, c.blobs, "redis")
		wantCode(t, err, c.code)
		s := k.Status()
		if k.Current() != cur || s.Number != 1 {
			t.Fatalf("%d: the release in use is gone", i)
		}
		if s.Refusal == nil || s.Refusal.Code != c.code || s.Refusal.Source != "redis" || s.Refused[c.code] == 0 || s.Refusal.Reason == "" {
			t.Errorf("%d: status %+v", i, s)
		}
	}
	if files := must(disk.files()); len(files) != 1 || files[0].number != 1 {
		t.Errorf("the disk holds %v", files)
	}
	if err := k.Accept(t.Context(), second, b.blobs, "redis"); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(); s.Refusal != nil || s.Number != 2 || s.Refused["bad_manifest"] != 2 {
		t.Errorf("after a good one: %+v", s)
	}
	if err := k.Accept(t.Context(), second, b.blobs, "poll"); err != nil || k.Status().Source != "redis" {
		t.Errorf("the same release again: %v, from %s", err, k.Status().Source)
	}
	wantCode(t, k.Accept(t.Context(), b.sign(b.first), b.blobs, "poll"), "stale")
}

func TestKeeperWakesEveryWaiter(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.keeper(nil)
	var waiters sync.WaitGroup
	for range 10 {
		changed := k.Changed()
		waiters.Go(func() { <-changed })
	}
	if err := k.Accept(t.Context(), Signed{}, b.blobs, "x"); err == nil {
		t.Fatal("nothing was accepted")
	}
	select {
	case <-k.Changed():
		t.Fatal("a refusal woke the waiters")
	default:
	}
	if err := k.Accept(t.Context(), b.sign(b.first), b.blobs, "x"); err != nil {
		t.Fatal(err)
	}
	waiters.Wait()
	select {
	case <-k.Changed():
		t.Error("the next change is signalled before it happens")
	default:
	}
}

// Readers see whole releases in rising order while several sources bring them.
func TestKeeperUnderConcurrentSources(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.keeper(must(OpenDisk(t.TempDir())))
	const releases = 12
	all := make([]Signed, 0, releases)
	for m := b.first; len(all) < releases; m = next(m, nil) {
		all = append(all, b.sign(m))
	}
	if err := k.Accept(t.Context(), all[0], b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers, sources sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			last := uint64(0)
			for {
				s := k.Current()
				want := fmt.Sprintf(`"release":%d,`, s.Number)
				if s.Number < last || !strings.Contains(string(s.Apps["mobile"].Fallback.Bodies[0]), want) || s.Apps["mobile"].App.Key != "mobile" {
					t.Errorf("release %d after %d, or a mix", s.Number, last)
					return
				}
				last = s.Number
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 4 {
		sources.Go(func() {
			for _, s := range all[1:] {
				if err := k.Accept(t.Context(), s, b.blobs, "source"); err != nil && !slices.Contains([]string{codeStale, "superseded"}, codeOf(err)) {
					t.Error(err)
				}
			}
		})
	}
	sources.Wait()
	close(done)
	readers.Wait()
	if n := k.Current().Number; n != releases {
		t.Errorf("ended at %d, want %d", n, releases)
	}
	if s := k.Status(); s.DiskErr != "" || s.DiskErrs != 0 {
		t.Errorf("disk: %s", s.DiskErr)
	}
}

func TestKeeperWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.keeper(nil)
	held, release := make(chan struct{}), make(chan struct{})
	var holder sync.WaitGroup
	holder.Go(func() {
		_ = k.Accept(context.Background(), b.sign(b.first), brokenBlobs(func(d Digest) ([]byte, error) {
			select {
			case <-held:
			default:
				close(held)
			}
			<-release
			return b.blobs.Blob(context.Background(), d)
		}), "slow")
	})
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Accept(ctx, b.sign(b.first), b.blobs, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	holder.Wait()
	if k.Current() == nil || len(k.Status().Refused) != 0 {
		t.Errorf("a cancelled caller counts as a refusal: %+v", k.Status())
	}
}

// lostBlobs is a store that fails in turns: the blob is not there, the store
// answers nonsense, it gives no answer in time.
type lostBlobs struct{ asked int }

func (l *lostBlobs) Blob(ctx context.Context, d Digest) ([]byte, error) {
	l.asked++
	switch l.asked % 3 {
	case 0:
		return nil, &fs.PathError{Op: "read blob", Path: d.String(), Err: fs.ErrNotExist}
	case 1:
		return []byte("<html>500</html>"), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// e47: a source that fails for an hour changes no answer, and the age grows on
// the monotonic clock.
func TestKeeperOutlivesItsSource(t *testing.T) {
	b := newBank(t)
	b.first.Document.Apps[0].Policies = b.first.Document.Apps[0].Policies[:2] // staff and gray; the split is the rest
	s := b.sign(b.first)
	newer := b.sign(next(b.first, func(d *Document, _ *Operational, c *Change) {
		d.Apps[0].Otherwise = policy.Action{Region: "hf"}
		c.Lists = map[string]Digest{"staff-devices": b.list(slices.Values([]string{"d-7"}))}
		c.Approve = Approval{BigMove: true}
	}))
	answers := func(snap *Snapshot) (all []string) {
		for n := range 1_000 {
			all = append(all, decide(snap, "mobile", fmt.Sprint("d-", n+500)))
		}
		return all
	}
	synctest.Test(t, func(t *testing.T) {
		k := b.keeper(nil)
		if err := k.Accept(t.Context(), s, b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		before, began := answers(k.Current()), time.Now()
		store := new(lostBlobs)
		for time.Since(began) < time.Hour {
			if err := k.Accept(t.Context(), newer, store, "publisher"); err == nil {
				t.Fatal("a release without its lists was accepted")
			}
			if !slices.Equal(answers(k.Current()), before) {
				t.Fatalf("other answers after %v without a source", time.Since(began))
			}
			if age := k.Status().Age; age != time.Since(began) {
				t.Fatalf("age %v after %v", age, time.Since(began))
			}
			time.Sleep(time.Minute)
		}
		if st := k.Status(); st.Number != 1 || st.Age < time.Hour || st.Refusal == nil || store.asked < 50 {
			t.Errorf("after %d questions the status is %+v", store.asked, st)
		}
		if err := k.Accept(t.Context(), newer, b.blobs, "publisher"); err != nil {
			t.Fatalf("the source is back: %v", err)
		}
		if st := k.Status(); st.Number != 2 || st.Age != 0 || slices.Equal(answers(k.Current()), before) {
			t.Errorf("the source is back, and the status is %+v", st)
		}
	})
}

// e48 and P3: a start without any source serves what was served before.
func TestKeeperStartsFromDisk(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	dir := t.TempDir()
	before := b.keeper(must(OpenDisk(dir)))
	m := b.first
	for range 3 {
		if err := before.Accept(t.Context(), b.sign(m), b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		m = next(m, func(_ *Document, o *Operational, _ *Change) {
			*o = swapped()
		})
	}
	after := b.keeper(must(OpenDisk(dir)))
	if err := after.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := after.Status(); s.Number != 3 || s.Source != FromDisk || s.DiskBad != 0 {
		t.Errorf("status %+v", s)
	}
	for n := range 10_000 {
		device := fmt.Sprintf("device-%d", n)
		if a, c := decide(before.Current(), "mobile", device), decide(after.Current(), "mobile", device); a != c {
			t.Fatalf("%s: %s before, %s after", device, a, c)
		}
	}
	if string(before.Current().Apps["mobile"].Answer[0][1].Bodies[0]) != string(after.Current().Apps["mobile"].Answer[0][1].Bodies[0]) {
		t.Error("another answer after the restart")
	}
	if decide(after.Current(), "mobile", "d-1001") != "sh" {
		t.Error("the list is lost")
	}
}

// P15: a disk that takes nothing changes nothing for requests.
func TestKeeperServesWithoutItsDisk(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	dir := filepath.Join(t.TempDir(), "releases")
	k := b.keeper(must(OpenDisk(dir)))
	if err := k.Accept(t.Context(), b.sign(b.first), b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	second := next(b.first, nil)
	if err := k.Accept(t.Context(), b.sign(second), b.blobs, "publisher"); err != nil {
		t.Fatalf("a lost disk refused a release: %v", err)
	}
	if s := k.Status(); s.Number != 2 || s.DiskErrs != 1 || !strings.Contains(s.DiskErr, dir) {
		t.Errorf("status %+v", s)
	}
	if err := os.MkdirAll(filepath.Join(dir, "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := k.Accept(t.Context(), b.sign(next(second, nil)), b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(); s.DiskErr != "" || s.DiskErrs != 1 {
		t.Errorf("the disk is back, status says %q", s.DiskErr)
	}
}

func TestCurrentCostsNothing(t *testing.T) {
	b := newBank(t)
	k := b.keeper(nil)
	if err := k.Accept(t.Context(), b.sign(b.first), b.blobs, "publisher"); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = k.Current().Apps["mobile"] }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a publisher has prepared is loaded once, unless another release came between.
func TestPreparedReleaseIsLoadedOnce(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	k := b.keeper(nil)
	first := must(k.Prepare(t.Context(), b.sign(b.first), b.blobs))
	if k.Current() != nil {
		t.Fatal("preparing took it into use")
	}
	nobody := brokenBlobs(func(Digest) ([]byte, error) { return nil, fs.ErrNotExist })
	if err := k.Take(t.Context(), first, nobody, "publisher"); err != nil {
		t.Fatalf("what was prepared was loaded again: %v", err)
	}
	second := next(b.first, nil)
	late := must(k.Prepare(t.Context(), b.sign(second), b.blobs))
	if err := k.Accept(t.Context(), b.sign(second), b.blobs, "redis"); err != nil {
		t.Fatal(err)
	}
	if err := k.Take(t.Context(), late, b.blobs, "publisher"); err != nil || k.Status().Source != "redis" {
		t.Errorf("the release in use was taken again from %s: %v", k.Status().Source, err)
	}
	third := next(second, nil)
	overtaken := must(k.Prepare(t.Context(), b.sign(third), b.blobs))
	if err := k.Accept(t.Context(), b.sign(next(third, nil)), b.blobs, "redis"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, k.Take(t.Context(), overtaken, b.blobs, "publisher"), "stale")
	if _, err := k.Prepare(t.Context(), b.sign(third), b.blobs); err == nil {
		t.Error("a release that came too late was prepared")
	}
}
