// Package e2e holds the promises of the fleet with real processes: the product as
// it is built, MariaDB, Redis, Consul and a reverse proxy, started by topology
// and asked as an app or an operator asks. Each test has a small form, which make
// check runs, and a full one with the figures of the promise (-args -full, make
// chaos). Each logs a line of figures that begins with its promise.
//
// Tests run one after the other: they measure, and the machine is theirs.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/internal/testenv"
)

var (
	full = flag.Bool("full", false, "run the promises with their full figures")
	soak = flag.Duration("soak", 0, "how long TestSoak takes; 0: a minute")
)

// program is the product, compiled once, from the source
// that the tests were compiled from.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dispatch-build-")
	if err != nil {
		return "", err
	}
	return topology.Build(context.Background(), dir)
})

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path, err := program()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(filepath.Dir(path))
	return testenv.Main(m)
}

// pick chooses between the figure of make check and that of make chaos.
func pick[T any](small, large T) T {
	if *full {
		return large
	}
	return small
}

// start starts a topology that ends with the test. A test that fails shows what
// each process printed last.
func start(t *testing.T, opt topology.Options) *topology.Topology {
	t.Helper()
	var err error
	if opt.Program, err = program(); err != nil {
		t.Fatal(err)
	}
	top, err := topology.Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range slices.Concat(top.Controls, top.Edges) {
				t.Logf("%s printed\n%s", n.Name, n.Tail())
			}
		}
		if err := top.Stop(); err != nil {
			t.Error(err)
		}
	})
	return top
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// figure prints one line of a promise, which make chaos shows.
func figure(t testing.TB, promise, format string, args ...any) {
	t.Helper()
	fmt.Printf("%-4s %s\n", promise, fmt.Sprintf(format, args...))
}

// within waits for what must become true, and fails the test with the last error.
func within(t testing.TB, limit time.Duration, try func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
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
