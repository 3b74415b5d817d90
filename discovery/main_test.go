package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) {
	if target := os.Getenv(sdkTarget); target != "" {
		os.Exit(runSDK(target, os.Getenv(sdkTarget+"_DIR")))
	}
	os.Exit(testenv.Main(m))
}

// quiet discards; it is what Open gives to its sources when there is no log.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// home are the coordinates of most instances in these tests.
func home() Coordinates {
	return Coordinates{Cluster: "production", Region: "cn-hangzhou", Env: "prod", Version: "v2.3.1"}
}

// instance is one of a service at an address.
func instance(service, address string) Instance {
	a, err := ParseAddress(address)
	if err != nil {
		panic(err)
	}
	return Instance{ID: service + "-" + a.Host + "-" + fmt.Sprint(a.Port), Service: service, Address: a, Coordinates: home()}
}

// watching is a Watcher that runs until the returned function ends it, which
// reports what Run returned.
func watching(t *testing.T, source Source, service string) (*Watcher, func() error) {
	t.Helper()
	w, err := NewWatcher(source, service, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	end := func() error {
		cancel()
		err, open := <-done
		if open {
			close(done)
		}
		return err
	}
	t.Cleanup(func() { _ = end() })
	return w, end
}

// await returns the first snapshot that want likes. It fails after so long.
func await(t *testing.T, w *Watcher, within time.Duration, want func(Snapshot) bool) Snapshot {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		s, changed := w.Current()
		if s.Version > 0 && want(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("after %s the list is %v (version %d), problem %v", within, addresses(s), s.Version, w.State().Problem)
		}
	}
}

func addresses(s Snapshot) []string {
	var all []string
	for _, in := range s.Instances {
		all = append(all, in.Address.String())
	}
	slices.Sort(all)
	return all
}

// lists says whether a snapshot has these addresses and no others.
func lists(want ...string) func(Snapshot) bool {
	slices.Sort(want)
	return func(s Snapshot) bool { return slices.Equal(addresses(s), want) }
}

// listener is a port of loopback that answers.
func listener(t *testing.T) Address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a, err := ParseAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// listenAt listens at an address of loopback, at any port for port 0.
func listenAt(t *testing.T, a Address) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serviceOf is a service name of this test alone.
func serviceOf(t *testing.T) string {
	return strings.Map(toWord, strings.ReplaceAll(t.Name(), "/", "-"))
}
