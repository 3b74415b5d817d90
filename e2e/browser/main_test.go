package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/internal/testenv"
)

var full = flag.Bool("full", false, "run the walks with their full figures")

// program is the product, compiled once, from the source that the tests were compiled from.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dispatch-build-")
	if err != nil {
		return "", err
	}
	return topology.Build(context.Background(), dir)
})

// chromium is the browser of all tests.
var chromium = sync.OnceValues(func() (*Chromium, error) { return Start(context.Background()) })

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path, err := program()
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		return 1
	}
	defer os.RemoveAll(filepath.Dir(path))
	c, err := chromium()
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		return 1
	}
	code := testenv.Main(m, goleak.IgnoreCurrent()) // the browser goes on until the line below
	c.Stop()
	return code
}

// pick chooses between the figure of make promises and that of make chaos.
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

// figure prints one line of a promise, which make chaos shows.
func figure(promise, format string, args ...any) {
	fmt.Printf("%-4s %s\n", promise, fmt.Sprintf(format, args...))
}

// serve starts the program for one test.
func serve(t *testing.T, flags ...string) *Server {
	t.Helper()
	path, err := program()
	must(t, err)
	dir, err := os.MkdirTemp("", "dispatch-browser-") // a socket's path may have 107 bytes only
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := Serve(t.Context(), path, dir, flags...)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed\n%s", s.Name, s.Tail())
		}
		if err := s.End(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tab opens a window on the server.
func tab(t *testing.T, s *Server, look Look) *Tab {
	t.Helper()
	c, err := chromium()
	must(t, err)
	return c.Tab(t, look, s.Console)
}
