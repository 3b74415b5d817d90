package drills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery/caller"
	"dispatch.example/dispatch/internal/signed"
	"dispatch.example/dispatch/internal/testenv"
)

// programs are compiled when the first drill asks for them, from the source that the
// drills were compiled from, into a folder that ends with the tests.
type programs struct {
	mu   sync.Mutex // held while one is compiled
	dir  string
	done map[string]bool
}

// path of a program by the last part of its package's path.
func (p *programs) path(of string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "dispatch-drills-")
		if err != nil {
			return "", err
		}
		p.dir, p.done = dir, map[string]bool{}
	}
	path := filepath.Join(p.dir, filepath.Base(of))
	if p.done[of] {
		return path, nil
	}
	if out, err := exec.Command("go", "build", "-o", path, "dispatch.example/dispatch/"+of).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", of, err, out)
	}
	p.done[of] = true
	return path, nil
}

// remove them all.
func (p *programs) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // a temporary folder
	}
}

// built are those of this binary.
var built programs

// program is the path of one.
func program(t testing.TB, of string) string {
	t.Helper()
	path, err := built.path(of)
	must(t, err)
	return path
}

// own starts a program that ends with the test.
func own(t testing.TB, c *testenv.Control) *testenv.Control {
	t.Helper()
	c.Log = cmp.Or(c.Log, filepath.Join(t.TempDir(), c.Name+".log"))
	must(t, c.Start(t.Context()))
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

// node is a control node, alone with its database.
type node struct {
	*testenv.Control
	admin, token string // of the admin API
	fleet        string // URL of the fleet listener
	tokenFile    string // of it
	trust        string // file of the keys that sign
}

// startNode starts a control node that follows a registry.
func startNode(t testing.TB, registry string) *node {
	t.Helper()
	// Not t.TempDir: a socket's path may have 107 bytes only.
	data, err := os.MkdirTemp("", "dispatch-drills-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(data) }) // a temporary folder
	fleet := freeAddr(t)
	n := &node{admin: freeAddr(t), fleet: "http://" + fleet, tokenFile: filepath.Join(data, "keys/fleet.token"), trust: filepath.Join(data, "trust.jwks")}
	n.Control = own(t, &testenv.Control{Name: "control", Up: testenv.Answers("http://" + n.admin + "/api/v1/openapi.json"),
		Args: []string{program(t, "cmd/dispatch"), "serve", "--demo", "--demo-traffic", "off", "--probes", "off", "--data", data, "--listen", freeAddr(t),
			"--ops-listen", freeAddr(t), "--admin-listen", n.admin, "--fleet-listen", fleet, "--region", home("").Region, "--registry", "main=" + strings.ReplaceAll(registry, ",", `\,`)}}) // commas part registries
	within(t, 10*time.Second, func() error {
		text, err := os.ReadFile(n.Log)
		must(t, err)
		if n.token = regexp.MustCompile(`dsp_\w+`).FindString(string(text)); n.token == "" {
			return errors.New("no token was printed")
		}
		return nil
	})
	keys, err := exec.CommandContext(t.Context(), program(t, "cmd/dispatch"), "keys", "export", "--publisher-key-file", filepath.Join(data, "keys/publisher.jwks"),
		"--record-key-file", filepath.Join(data, "keys/record.jwks")).Output()
	must(t, err)
	must(t, os.WriteFile(n.trust, keys, 0o600))
	return n
}

// reach is how a caller reaches the node.
func (n *node) reach() *controlled {
	return &controlled{URL: n.fleet, TokenFile: n.tokenFile, Trust: n.trust}
}

// ctl runs dispatchctl, which must succeed.
func (n *node) ctl(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "cmd/dispatchctl"), args...)
	cmd.Env = append(os.Environ(), "DISPATCH_SERVER=http://"+n.admin, "DISPATCH_TOKEN="+n.token)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dispatchctl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// controlled is how a caller reaches a control node.
type controlled struct{ URL, TokenFile, Trust string }

// options are those of a caller that follows it, beside a registry.
func (c *controlled) options(to *caller.Options) error {
	if c == nil {
		return nil
	}
	tokens, err := signed.ReadTokens(c.TokenFile)
	if err != nil {
		return err
	}
	to.Control, to.Token = []string{c.URL}, tokens[0]
	to.Trust, err = signed.ReadTrust(c.Trust)
	return err
}

// apply publishes the one rule that there is; weights are those of a rule file.
func (n *node) apply(t testing.TB, service, weights string) {
	t.Helper()
	dir, at := t.TempDir(), home("")
	text := fmt.Sprintf("service: %s\nupdated: %s\nselector: {cluster: %s, region: %s, env: %s}\n%s\n", service, time.Now().UTC().Format(time.RFC3339), at.Cluster, at.Region, at.Env, weights)
	must(t, os.WriteFile(filepath.Join(dir, service+".yaml"), []byte(text), 0o600))
	n.ctl(t, "rules", "apply", dir, "--reason", "drill", "--confirm", at.Region)
}

// during works until the test ends.
func during(t testing.TB, work func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { work(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
}
