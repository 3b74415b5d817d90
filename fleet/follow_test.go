package fleet

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dispatch.example/dispatch/release"
)

// once is a source that brings a release to whoever serves less, and else waits.
func once(name string, s release.Signed, blobs release.Blobs) *scripted {
	return &scripted{name: name, Blobs: blobs, next: func(ctx context.Context, r Report) (*release.Signed, error) {
		if r.Number < s.Number {
			return &s, nil
		}
		return waits(ctx)
	}}
}

func TestNewFollowerSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := NewFollower(FollowerOptions{})
	for _, want := range []string{"Keeper", "--replica-id", "Boot"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

// What is taken into use is told to every source at once, whoever brought it.
func TestEverySourceHearsOfAChangeAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		var heard [2]atomic.Uint64
		listen := func(i int) *scripted {
			return &scripted{name: string(rune('a' + i)), Blobs: b.blobs, next: func(ctx context.Context, r Report) (*release.Signed, error) {
				heard[i].Store(r.Number)
				return waits(ctx)
			}}
		}
		r := b.replica(t, "r1", nil)
		r.Use([]Source{listen(0), listen(1)})
		stop := start(t, r.Run)
		defer stop()
		time.Sleep(time.Second)
		if err := r.keeper.Accept(t.Context(), b.now(), b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if heard[0].Load() != 1 || heard[1].Load() != 1 {
			t.Errorf("the sources heard of %d and %d", heard[0].Load(), heard[1].Load())
		}
	})
}

// A refusal is told to every source at once too, and looked at again after a minute.
func TestRefusalIsToldAtOnceAndLookedAtAgainAfterAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		bad := b.now()
		bad.Signature = ""
		var told atomic.Pointer[release.Refusal]
		other := &scripted{name: "b", Blobs: b.blobs, next: func(ctx context.Context, r Report) (*release.Signed, error) {
			told.Store(r.Refusal)
			return waits(ctx)
		}}
		r := b.replica(t, "r1", nil)
		r.Use([]Source{once("a", bad, b.blobs), other})
		stop := start(t, r.Run)
		defer stop()
		synctest.Wait()
		if refusal := told.Load(); refusal == nil || refusal.Number != 1 || refusal.Source != "a" {
			t.Errorf("the other source was told %+v", refusal)
		}
		count := func() uint64 { return r.keeper.Status().Refused["bad_signature"] }
		time.Sleep(lookAgain - time.Second)
		if count() != 1 {
			t.Errorf("looked at %d times within a minute", count())
		}
		time.Sleep(2 * PollEvery)
		if count() != 2 {
			t.Errorf("looked at %d times after a minute", count())
		}
	})
}

// Whatever a source brings again and again is looked at once a minute.
func TestSourceThatInsistsIsNotAskedInACircle(t *testing.T) {
	t.Parallel()
	b := newBank(t, 10)
	old, forged := b.now(), b.now()
	forged.Signature = ""
	served := b.next(nil)
	next := b.next(nil)
	next.Signature = ""
	for name, insists := range map[string]release.Signed{"an old one": old, "a forged old one": forged, "the one in use": served, "a forged new one": next, "none": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				r := b.replica(t, "r1", nil)
				if err := r.keeper.Accept(t.Context(), served, b.blobs, "publisher"); err != nil {
					t.Fatal(err)
				}
				r.Use([]Source{&scripted{name: "a", Blobs: b.blobs, next: func(context.Context, Report) (*release.Signed, error) {
					asked++
					return &insists, nil
				}}})
				stop := start(t, r.Run)
				time.Sleep(10 * time.Minute)
				stop()
				refused := uint64(0)
				for _, n := range r.keeper.Status().Refused {
					refused += n
				}
				if asked < 60 || asked > 1000 || refused > 11 || r.keeper.Status().Number != 2 {
					t.Errorf("asked %d times and looked at %d times in ten minutes, serving %d", asked, refused, r.keeper.Status().Number)
				}
			})
		})
	}
}

// A blob that nobody has is no fault of the release: it is not refused but asked
// for again, and has loaded as soon as somebody has it.
func TestMissingBlobIsNoRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		var there atomic.Bool
		blobs := blobsFunc(func(ctx context.Context, d release.Digest) ([]byte, error) {
			if !there.Load() {
				return nil, fs.ErrNotExist
			}
			return b.blobs.Blob(ctx, d)
		})
		r := b.replica(t, "r1", nil)
		r.Use([]Source{once("a", b.now(), blobs)})
		stop := start(t, r.Run)
		defer stop()
		time.Sleep(20 * time.Second)
		if s := r.keeper.Status(); s.Number != 0 || s.Refusal != nil || len(s.Refused) != 0 {
			t.Errorf("the keeper has %+v", s)
		}
		if state := r.States()[0]; state.OK || !strings.Contains(state.Problem, "cannot be fetched") {
			t.Errorf("the source is %+v", state)
		}
		there.Store(true)
		time.Sleep(6 * time.Second)
		if r.keeper.Status().Number != 1 || !r.States()[0].OK {
			t.Errorf("serves %d, %+v", r.keeper.Status().Number, r.States()[0])
		}
	})
}

type blobsFunc func(context.Context, release.Digest) ([]byte, error)

func (f blobsFunc) Blob(ctx context.Context, d release.Digest) ([]byte, error) { return f(ctx, d) }

// Blobs come from whoever has them, and from the disk first; what is damaged on
// the way is fetched elsewhere.
func TestBlobsComeFromWhoeverHasThem(t *testing.T) {
	t.Parallel()
	b := newBank(t, 20_000)
	for name, broken := range map[string]blobsFunc{
		"it has none":       func(context.Context, release.Digest) ([]byte, error) { return nil, fs.ErrNotExist },
		"it fails":          func(context.Context, release.Digest) ([]byte, error) { return nil, errors.New("reset by peer") },
		"it brings another": func(context.Context, release.Digest) ([]byte, error) { return []byte("another"), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.replica(t, "r1", nil)
			idle := &scripted{name: "b", Blobs: b.blobs, next: func(ctx context.Context, _ Report) (*release.Signed, error) { return waits(ctx) }}
			r.Use([]Source{once("a", b.now(), broken), idle})
			run(t, r.Run)
			r.serves(t, 1)
			if s := r.keeper.Status(); s.Source != "a" || s.Refusal != nil {
				t.Errorf("the keeper has %+v", s)
			}
		})
	}
	t.Run("the disk has all", func(t *testing.T) {
		t.Parallel()
		r := b.replica(t, "r1", nil)
		for d, data := range b.blobs {
			if err := r.disk.Keep(d, data); err != nil {
				t.Fatal(err)
			}
		}
		r.Use([]Source{once("a", b.now(), blobsFunc(func(_ context.Context, d release.Digest) ([]byte, error) {
			t.Errorf("blob %s is fetched", d)
			return nil, fs.ErrNotExist
		}))})
		run(t, r.Run)
		r.serves(t, 1)
	})
}

// An emergency is not held up by the blobs of an older release.
func TestNewerReleaseOvertakesOneThatLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		first := b.now()
		r := b.replica(t, "r1", nil)
		if err := r.keeper.Accept(t.Context(), first, b.blobs, "publisher"); err != nil {
			t.Fatal(err)
		}
		operational := b.last.Lists
		slow := b.next(func(c *release.Change) { c.Lists = map[string]release.Digest{"staff-devices": b.list(11)} })
		emergency := b.next(func(c *release.Change) { c.Lists = operational })
		hangs := blobsFunc(func(ctx context.Context, _ release.Digest) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		second := once("b", emergency, b.blobs)
		ask := second.next
		second.next = func(ctx context.Context, r Report) (*release.Signed, error) {
			if !pause(ctx, 2*time.Second) {
				return nil, ctx.Err()
			}
			return ask(ctx, r)
		}
		r.Use([]Source{once("a", slow, hangs), second})
		stop := start(t, r.Run)
		defer stop()
		time.Sleep(time.Second)
		if r.keeper.Status().Number != 1 {
			t.Fatal("the slow one has loaded")
		}
		time.Sleep(1100 * time.Millisecond)
		if s := r.keeper.Status(); s.Number != 3 || s.Refusal != nil || len(s.Refused) != 0 {
			t.Errorf("the keeper has %+v", s)
		}
		for _, state := range r.States() {
			if !state.OK && state.Name == "b" || strings.Contains(state.Problem, "cannot be fetched") {
				t.Errorf("source %+v", state)
			}
		}
	})
}

// Another source that brings the same release late is no fault of anybody.
func TestLateSourceIsNoRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		first := b.now()
		second := b.next(nil)
		late := &scripted{name: "late", Blobs: b.blobs, next: func(ctx context.Context, r Report) (*release.Signed, error) {
			if r.Number > 0 {
				return waits(ctx)
			}
			time.Sleep(time.Second) // and does not hear that it is cut short
			return &first, nil
		}}
		r := b.replica(t, "r1", nil)
		r.Use([]Source{late, once("a", second, b.blobs)})
		stop := start(t, r.Run)
		defer stop()
		time.Sleep(10 * time.Second)
		if s := r.keeper.Status(); s.Number != 2 || s.Refusal != nil || len(s.Refused) != 0 {
			t.Errorf("the keeper has %+v", s)
		}
		if states := r.States(); !states[0].OK || !states[1].OK {
			t.Errorf("sources %+v", states)
		}
	})
}

// A disk that is slow delays the copy and not the acknowledgement.
func TestSlowDiskDoesNotDelayTheAcknowledgement(t *testing.T) {
	t.Parallel()
	b := newBank(t, 10)
	r := b.replica(t, "r1", nil)
	told := make(chan uint64, 16)
	block := make(chan struct{})
	var loaded sync.Map
	slow := blobsFunc(func(ctx context.Context, d release.Digest) ([]byte, error) {
		if _, again := loaded.LoadOrStore(d, true); again { // the second reading is that of the copy
			select {
			case <-block:
			case <-ctx.Done():
			}
		}
		return b.blobs.Blob(ctx, d)
	})
	opt := r.opt
	opt.Disk = nil // so that the copy reads from the source again
	r.Follower = must(NewFollower(opt))
	s := b.now()
	r.Use([]Source{&scripted{name: "a", Blobs: slow, next: func(ctx context.Context, rep Report) (*release.Signed, error) {
		told <- rep.Number
		if rep.Number == 0 {
			return &s, nil
		}
		return waits(ctx)
	}}})
	run(t, r.Run)
	for _, want := range []uint64{0, 1} {
		if got := <-told; got != want {
			t.Errorf("the source is told %d, want %d", got, want)
		}
	}
	if len(copies(t, r.disk)) != 0 {
		t.Error("the copy is there already")
	}
	close(block)
	eventually(t, 10*time.Second, func() bool { return len(copies(t, r.disk)) == 1 })
}

func TestUseWhileRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, 10)
		asking := map[string]*atomic.Int64{}
		source := func(name string) *scripted {
			n := new(atomic.Int64)
			asking[name] = n
			return &scripted{name: name, next: func(ctx context.Context, _ Report) (*release.Signed, error) {
				n.Add(1)
				defer n.Add(-1)
				return waits(ctx)
			}}
		}
		r := b.replica(t, "r1", nil)
		one, two := source("one"), source("two")
		r.Use([]Source{one, two, one})
		if states := r.States(); len(states) != 2 || states[0].OK || states[0].Problem == "" {
			t.Errorf("before Run: %+v", states)
		}
		stop := start(t, r.Run)
		synctest.Wait()
		three := source("three")
		r.Use([]Source{two, three})
		synctest.Wait()
		for name, want := range map[string]int64{"one": 0, "two": 1, "three": 1} {
			if n := asking[name].Load(); n != want {
				t.Errorf("%s is asked %d times at once, want %d", name, n, want)
			}
		}
		r.Use(nil)
		synctest.Wait()
		if len(r.States()) != 0 || asking["two"].Load() != 0 {
			t.Error("sources are left")
		}
		stop()
	})
}

func TestShorten(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("上", 400)
	if got := shorten(long); len(got) > maxText+3 || !strings.HasPrefix(long, strings.TrimSuffix(got, "…")) || got == long {
		t.Errorf("%d bytes", len(got))
	}
	if got := shorten("short"); got != "short" {
		t.Errorf("got %q", got)
	}
}
