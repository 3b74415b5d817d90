package actions

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A flood of names neither grows the memory nor washes out the one that is guessed.
func TestBackoffIsBoundedAndRemembersTheGuessed(t *testing.T) {
	t.Parallel()
	b, now := newBackoff(5, time.Minute), time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	for range 40 {
		now = now.Add(b.take("guessed", now) + time.Millisecond)
	}
	for i := range 5 * b.size {
		b.take(fmt.Sprint("name-", i), now)
	}
	if len(b.tries) > b.size {
		t.Errorf("%d names are kept, want at most %d", len(b.tries), b.size)
	}
	if b.take("guessed", now) == 0 {
		t.Error("the guessed name was forgotten")
	}
}

func TestBackoffDoublesUpToItsLongest(t *testing.T) {
	t.Parallel()
	b, now := newBackoff(2, 10*time.Second), time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	var waits []time.Duration
	for range 8 {
		if b.take("a", now) > 0 {
			t.Fatal("a try after the wait is too early")
		}
		wait := b.tries["a"].until.Sub(now)
		waits = append(waits, wait)
		now = now.Add(wait)
	}
	if got, want := fmt.Sprint(waits), "[0s 0s 1s 2s 4s 8s 10s 10s]"; got != want {
		t.Errorf("waits are %s, want %s", got, want)
	}
	if b.take("a", now.Add(forgiven+time.Second)); b.tries["a"].count != 1 {
		t.Error("nothing is forgiven")
	}
}

// SEC08: guesses that come at once must not eat the memory.
func TestSEC08GuessesAtOnceHaveBoundedMemory(t *testing.T) {
	passwords := Argon2id()
	hash, err := passwords.Hash(t.Context(), "correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	slots := int64(min(runtime.GOMAXPROCS(0), maxSlots))
	guesses, each := 6*slots, int64(64<<20)
	done := make(chan struct{})
	watched, stop := context.WithCancel(t.Context())
	peak := uint64(0)
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
			select {
			case <-tick.C:
			case <-watched.Done():
				return
			}
		}
	}()
	var all sync.WaitGroup
	for range guesses {
		all.Go(func() {
			if same, err := passwords.Matches(t.Context(), "wrong", hash); same || err != nil {
				t.Errorf("a wrong password: %v, %v", same, err)
			}
		})
	}
	all.Wait()
	stop()
	<-done
	// The collector lets the heap grow to twice what lives, and what lives changes
	// hands meanwhile: three times the slots, half of what all guesses would take.
	if grown := int64(peak) - int64(before.HeapAlloc); grown > 3*slots*each || grown < each {
		t.Errorf("%d guesses took %d MiB at their peak", guesses, grown>>20)
	}
	if same, err := passwords.Matches(t.Context(), "correct horse battery", hash); !same || err != nil {
		t.Errorf("the right password: %v, %v", same, err)
	}
}

func TestPasswordsThatAreNotTaken(t *testing.T) {
	t.Parallel()
	for password, ok := range map[string]bool{
		"correct horse battery": true, "密码密码密码密码密码密码": true, "short": false, "li.wei-is-great": false, "aaaaaaaaaaaaaa": false, "": false, "abc\xff\xfe4567890": false,
	} {
		if problem := passwordProblem("li.wei", password); (problem == "") != ok {
			t.Errorf("%q: %q", password, problem)
		}
	}
}
