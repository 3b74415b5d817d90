package drills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/internal/testenv"
)

// partKey is the environment variable that makes this binary play a part.
const partKey = "DISPATCH_DRILL_PART"

// part is what a process plays, as JSON in partKey.
type part struct {
	Server *serverPart `json:",omitempty"`
	Caller *callerPart `json:",omitempty"`
	Tier   *tierPart   `json:",omitempty"`
}

// home is where everybody stands who says nothing else.
func home(version string) discovery.Coordinates {
	return discovery.Coordinates{Cluster: "shared", Region: "sh", Env: "prod", Version: version}
}

// ready is the line by which a process says that it plays.
const ready = "drill: ready"

// play plays a part until it is told to end.
func play(text string) error {
	var p part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("%s: %w", partKey, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch {
	case p.Server != nil:
		return p.Server.play(ctx, log)
	case p.Caller != nil:
		return p.Caller.play(ctx, log)
	case p.Tier != nil:
		return p.Tier.play(ctx, log)
	}
	return errors.New("the part is none that is known")
}

// start starts a process with a part and waits until it plays; inside is where, see
// network.inside.
func start(t testing.TB, name string, p part, inside ...string) *testenv.Control {
	t.Helper()
	c := launch(t, name, p, inside...)
	awaitReady(t, c)
	return c
}

// launch is start without the wait.
func launch(t testing.TB, name string, p part, inside ...string) *testenv.Control {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	text, err := json.Marshal(p)
	must(t, err)
	c := &testenv.Control{Name: name, Args: append(slices.Clone(inside), self), Env: []string{partKey + "=" + string(text)},
		Log: filepath.Join(t.TempDir(), name+".log")}
	must(t, c.Launch())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed\n%s", c.Name, c.Tail())
		}
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// awaitReady waits until the processes play.
func awaitReady(t testing.TB, all ...*testenv.Control) {
	t.Helper()
	for _, c := range all {
		within(t, 30*time.Second, func() error {
			select {
			case <-c.Done():
				t.Fatalf("%s ended:\n%s", c.Name, c.Tail())
			default:
			}
			if !printed(c, ready) {
				return fmt.Errorf("%s does not play yet:\n%s", c.Name, c.Tail())
			}
			return nil
		})
	}
}

// printed says whether the program has printed the text.
func printed(c *testenv.Control, text string) bool {
	log, _ := os.ReadFile(c.Log) // asked again
	return strings.Contains(string(log), text)
}

// namespaces says whether this process may make network namespaces. Where it is root
// and they are missing, the drill fails instead.
func namespaces(t testing.TB) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	figure(t, "NET", "%s was not drilled: network namespaces need root", t.Name())
	return false
}

// roster writes instances into a file, which is a registry without leases, and
// returns what discovery.Open takes.
func roster(t testing.TB, instances ...discovery.Instance) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "instances.yaml")
	writeRoster(t, path, instances...)
	return "static:" + path
}

// writeRoster replaces the file.
func writeRoster(t testing.TB, path string, instances ...discovery.Instance) {
	t.Helper()
	var text strings.Builder
	text.WriteString("instances:\n")
	if len(instances) == 0 {
		text.Reset()
		text.WriteString("instances: []\n")
	}
	for _, in := range instances {
		fmt.Fprintf(&text, "  - {service: %s, address: %q, cluster: %s, region: %s, env: %s, version: %s, weight: %d}\n",
			in.Service, in.Address, in.Cluster, in.Region, in.Env, in.Version, in.Share())
	}
	must(t, os.WriteFile(path+".new", []byte(text.String()), 0o600))
	must(t, os.Rename(path+".new", path))
}

// instance is one at an address of this machine.
func instance(t testing.TB, service, address, version string) discovery.Instance {
	t.Helper()
	at, err := discovery.ParseAddress(address)
	must(t, err)
	return discovery.Instance{Service: service, Address: at, Coordinates: home(version)}
}

// freeAddr is an address of loopback that nobody has.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := testenv.FreeAddr()
	must(t, err)
	return addr
}
