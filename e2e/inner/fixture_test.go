// Package inner shows the inner layer with real processes: control nodes of three
// regions over one Consul, services built from examples/hop, and a gateway.
//
//	Consul ◄── control node of each region ── rules, tables ──► hop … hop
//
// Each test starts what it needs on loopback and ends it. Nothing measures: it
// runs beside others.
package inner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// programs are compiled once, from the source that the tests were compiled from.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "dispatch-inner-"); err != nil {
		return "", err
	}
	for _, name := range []string{"cmd/dispatch", "cmd/dispatchctl", "examples/hop", "examples/gateway"} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(dir, filepath.Base(name)), "dispatch.example/dispatch/"+name).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	dir, err := programs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e/inner:", err)
		os.Exit(1)
	}
	code := testenv.Main(m)
	_ = os.RemoveAll(dir) // a temporary folder
	os.Exit(code)
}

func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := programs()
	must(t, err)
	return filepath.Join(dir, name)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := testenv.FreeAddr()
	must(t, err)
	return addr
}

// start starts a program that ends with the test; one that fails shows what it
// printed last.
func start(t testing.TB, c *testenv.Control) *testenv.Control {
	t.Helper()
	c.Log = cmp.Or(c.Log, filepath.Join(t.TempDir(), c.Name+".log"))
	must(t, c.Start(t.Context()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed\n%s", c.Name, c.Tail())
		}
		if err := c.Stop(15 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return c
}

// control is a control node of one region, alone with its SQLite.
type control struct {
	*testenv.Control
	admin, fleet, token string
	tokenFile, trust    string
}

// startControl starts a control node that follows the registry.
func startControl(t testing.TB, region, registry string) *control {
	t.Helper()
	// Not t.TempDir: a socket's path may have 107 bytes only.
	data, err := os.MkdirTemp("", "dispatch-inner-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	c := &control{admin: freeAddr(t), fleet: freeAddr(t), tokenFile: filepath.Join(data, "keys/fleet.token"), trust: filepath.Join(data, "trust.jwks")}
	c.Control = start(t, &testenv.Control{Name: "control-" + region, Up: testenv.Answers("http://" + c.admin + "/api/v1/openapi.json"),
		Args: []string{program(t, "dispatch"), "serve", "--demo", "--demo-traffic", "off", "--probes", "off", "--data", data, "--listen", freeAddr(t), "--ops-listen", freeAddr(t),
			"--admin-listen", c.admin, "--fleet-listen", c.fleet, "--region", region, "--registry", "main=" + registry}})
	within(t, 10*time.Second, func() error {
		text, err := os.ReadFile(c.Log)
		must(t, err)
		if c.token = regexp.MustCompile(`dsp_\w+`).FindString(string(text)); c.token == "" {
			return errors.New("no token was printed")
		}
		return nil
	})
	keys, err := exec.CommandContext(t.Context(), program(t, "dispatch"), "keys", "export", "--publisher-key-file", filepath.Join(data, "keys/publisher.jwks"),
		"--record-key-file", filepath.Join(data, "keys/record.jwks")).Output()
	must(t, err)
	must(t, os.WriteFile(c.trust, keys, 0o600))
	return c
}

// ctl runs dispatchctl and returns what it printed and how it ended.
func (c *control) ctl(t testing.TB, args ...string) (out string, exit int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "dispatchctl"), args...)
	cmd.Env = append(os.Environ(), "DISPATCH_SERVER=http://"+c.admin, "DISPATCH_TOKEN="+c.token)
	text, err := cmd.CombinedOutput()
	if exited := new(exec.ExitError); errors.As(err, &exited) {
		return string(text), exited.ExitCode()
	}
	must(t, err)
	return string(text), 0
}

// place is where a hop stands; version defaults to v1, cluster to shared. hosts is a
// file that stands for /etc/hosts there, empty for the machine's own; only root can.
type place struct {
	server, region, env, base, version string
	hosts                              string
}

// hop is a running service.
type hop struct {
	*testenv.Control
	place
	addr, admin string
}

// launch starts a hop without waiting; args come on top of its place.
func launch(t testing.TB, p place, args ...string) *hop {
	t.Helper()
	h := &hop{place: p, addr: freeAddr(t), admin: freeAddr(t)}
	env := []string{"cluster_name=shared", "region=" + p.region, "version=" + cmp.Or(p.version, "v1"), "deploy_type=vm", "POD_IP=127.0.0.1"}
	if p.base == "" {
		env = append(env, "env="+p.env)
	} else {
		env = append(env, "env_id="+p.env, "base_env="+p.base)
	}
	h.Control = &testenv.Control{Name: strings.Join([]string{p.server, p.region, p.env, p.version}, "-"), Env: env, Log: filepath.Join(t.TempDir(), "hop.log"),
		Args: append([]string{program(t, "hop"), "-server", p.server, "-listen", h.addr, "-control", h.admin, "-loopback"}, args...), Rude: true} // leaving takes each 2 s
	if p.hosts != "" {
		h.Args = append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, p.hosts}, h.Args...)
	}
	must(t, h.Launch())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed\n%s", h.Name, h.Tail())
		}
		if err := h.Stop(15 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return h
}

// registered waits until the hops stand in their registry.
func registered(t testing.TB, hops ...*hop) {
	t.Helper()
	for _, h := range hops {
		within(t, 30*time.Second, func() error {
			select {
			case <-h.Done():
				t.Fatalf("%s ended:\n%s", h.Name, h.Tail())
			default:
			}
			if text := h.Tail(); !strings.Contains(text, " serves api on ") {
				return fmt.Errorf("%s is not registered:\n%s", h.Name, text)
			}
			return nil
		})
	}
}

// trip is a hop's answer.
type trip struct {
	Places []struct{ Server, Env, Version, Region, Address, Lane string }
	ID     string
	Counts map[string]int
	Errors map[string]int
}

// ask asks a hop; header lines are NAME: VALUE.
func (h *hop) ask(ctx context.Context, query url.Values, headers ...string) (got trip, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.addr+"/?"+query.Encode(), nil)
	if err != nil {
		return got, err
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return got, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return got, err
	}
	if resp.StatusCode != http.StatusOK {
		return got, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return got, json.Unmarshal(text, &got)
}

// calls lets the hop make n calls and counts them by "ENV VERSION" of who answered.
func (h *hop) calls(t testing.TB, n int, path string, headers ...string) (counts, errs map[string]int) {
	t.Helper()
	got, err := h.ask(t.Context(), url.Values{"path": {path}, "n": {fmt.Sprint(n)}}, headers...)
	must(t, err)
	counts = map[string]int{}
	for where, n := range got.Counts {
		counts[where[:strings.LastIndex(where, " ")]] += n
	}
	return counts, got.Errors
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

// quantile is the q-th of the durations, 0 to 1.
func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
