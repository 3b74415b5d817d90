// Package drills breaks what calls between services stand on, and holds the inner
// layer to its numbers. README.md says which number each file drills.
//
//	drill ── starts ──► servers, callers: this binary again, with a part to play
//	  │                    │ each call: when, where, how it ended, how long it took
//	  └──── reads ◄── file ┘
//
// Services are real processes, registries real servers; who is to fall silent
// stands behind a link of its own in a network namespace (network_linux_test.go),
// for which root is needed. Each drill has a small form, which make check runs,
// and a full one with the figures of its requirement (-args -full, make drills).
// It prints one line that begins with the row of its requirement; in full it also
// leaves what the line was computed from in samples/, and drills again with the
// layer off, to show that it can fail.
//
// A drill owns what it starts: processes, namespaces and files end with the test.
package drills

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

var full = flag.Bool("full", false, "drill with the full figures, and once more with the layer off")

func TestMain(m *testing.M) {
	if text := os.Getenv(partKey); text != "" {
		if err := play(text); err != nil {
			fmt.Fprintln(os.Stderr, "drills:", err)
			os.Exit(1)
		}
		return
	}
	code := testenv.Main(m)
	built.remove()
	os.Exit(code)
}

// pick chooses between the figure of make check and that of make drills.
func pick[T any](small, large T) T {
	if *full {
		return large
	}
	return small
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// figure prints the line of a requirement, which make drills shows.
func figure(t testing.TB, row, format string, args ...any) {
	t.Helper()
	fmt.Printf("%-4s %s\n", row, fmt.Sprintf(format, args...))
}

// within waits for what must become true, and fails the test with the last error.
func within(t testing.TB, limit time.Duration, try func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		took := time.Since(begin)
		if err == nil {
			return took
		}
		if took > limit {
			t.Fatalf("after %s: %v", took.Round(time.Millisecond), err)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// pass lets time pass.
func pass(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
