package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// override runs one override command against the process.
func (r *running) override(args ...string) (exit int, stdout, stderr string) {
	r.t.Helper()
	return command(r.t, append([]string{"override"}, args...)...)
}

const overrideHelper = "DISPATCH_TEST_OVERRIDE_SOCKET"

// SEC32 of safety.md: an override is for the login of the process, chooses only
// among domains that are signed already, has an end, is signed where it is for
// all, and is shown everywhere.
func TestSEC32OverrideIsForItsOwner(t *testing.T) {
	data := t.TempDir()
	r := start(t, "--demo", "--data", data)
	socket := filepath.Join(data, "override.sock")
	at := []string{"--data", data}
	before := r.route("app=mobile", "X-Device-Id", "d-1001").Domain

	t.Run("the socket is its owner's", func(t *testing.T) {
		info, err := os.Lstat(socket)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket has mode %v, %v, want 0600", info.Mode(), err)
		}
	})
	t.Run("another login", func(t *testing.T) { refusesAnotherLogin(t, socket) })
	t.Run("a domain that nobody signed", func(t *testing.T) {
		for _, bad := range [][]string{
			{"--swap", "mobile/sh/sh-main/evil"},
			{"--swap", "mobile/sh/sh-main/evil.example"},
			{"--region-state", "mobile/evil/active"},
			{"--region-state", "mobile/sh/evil"},
			{"--swap", "mobile/sh/sh-main/sh-spare", "--for", "25h"},
			{"--swap", "mobile/sh/sh-main/sh-spare", "--for", "0s"},
		} {
			exit, _, stderr := r.override(append(append([]string{"set", "--reason", "test"}, bad...), at...)...)
			if exit != 1 {
				t.Errorf("%v: exit %d: %s", bad, exit, stderr)
			}
		}
		if now := r.route("app=mobile", "X-Device-Id", "d-1001").Domain; now != before {
			t.Errorf("after what was refused the domain is %s", now)
		}
	})
	t.Run("shown everywhere", func(t *testing.T) {
		exit, stdout, stderr := r.override(append([]string{"set", "--reason", "sh-main burns", "--swap", "mobile/sh/sh-main/sh-spare"}, at...)...)
		if exit != 0 || !strings.Contains(stdout, "sh-main burns") {
			t.Fatalf("set: %d %s %s", exit, stdout, stderr)
		}
		if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" || a.Release != 1 {
			t.Errorf("under the override the answer is %+v", a)
		}
		if _, ready := r.get(r.ops + "/readyz"); !bytes.Contains(ready, []byte("[-]no override: override-")) {
			t.Errorf("readyz: %s", ready)
		}
		if _, metrics := r.get(r.ops + "/metrics"); !bytes.Contains(metrics, []byte("\ndispatch_override_active 1\n")) {
			t.Error("the metric does not say that an override is in force")
		}
		r.log.await(t, `"msg":"an override is in force".*"reason":"sh-main burns"`, nil)
		if _, stdout, _ := r.override(append([]string{"show"}, at...)...); !strings.Contains(stdout, "swap mobile/sh sh-main → sh-spare") {
			t.Errorf("show: %s", stdout)
		}
	})
	t.Run("taken away", func(t *testing.T) {
		if exit, stdout, stderr := r.override(append([]string{"clear"}, at...)...); exit != 0 || !strings.Contains(stdout, "none") {
			t.Errorf("clear: %d %s %s", exit, stdout, stderr)
		}
		if now := r.route("app=mobile", "X-Device-Id", "d-1001").Domain; now != before {
			t.Errorf("afterwards the domain is %s", now)
		}
		if exit, _, stderr := r.override(append([]string{"clear"}, at...)...); exit != 1 || !strings.Contains(stderr, "no override") {
			t.Errorf("clear again: %d %s", exit, stderr)
		}
	})
	t.Run("for all, signed", func(t *testing.T) { takesOnlyWhatItsPublisherSigned(t, r, data) })
	t.Run("open file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "override.json")
		if err := os.WriteFile(file, []byte(`{"actions":[{"swap":{"app":"mobile","region":"sh","from":"sh-main","to":"sh-spare"}}],"reason":"test"}`), 0o644); err != nil {
			t.Fatal(err)
		}
		if exit, _, stderr := r.override(append([]string{"apply", file}, at...)...); exit != 1 || !strings.Contains(stderr, "chmod 0600") {
			t.Errorf("a file that others can write: %d %s", exit, stderr)
		}
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if exit, stdout, stderr := r.override(append([]string{"apply", file}, at...)...); exit != 0 || !strings.Contains(stdout, "reason    test") {
			t.Errorf("a file of our own: %d %s %s", exit, stdout, stderr)
		}
	})
}

// refusesAnotherLogin asks as somebody else. Only root can become one; then the
// socket and its folders are opened wide first, so that the kernel's word is the
// one thing that stands in the way.
func refusesAnotherLogin(t *testing.T, socket string) {
	for uid, ok := range map[int]bool{0: true, 1000: true, 1001: false, 65534: false} {
		if err := admit(context.WithValue(t.Context(), peerKey{}, peer{uid: uid}), 1000); (err == nil) != ok {
			t.Errorf("uid %d on a process of uid 1000: %v", uid, err)
		}
	}
	if err := admit(t.Context(), 0); err == nil {
		t.Error("a peer that nobody knows was let in")
	}
	if os.Getuid() != 0 {
		return
	}
	for dir := filepath.Dir(socket); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(socket, 0o600) }()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAskAsAnotherLogin$", "-test.v")
	cmd.Env = append(os.Environ(), overrideHelper+"="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("may not override what this process serves")) {
		t.Errorf("another login: %v\n%s", err, out)
	}
}

// The other half of refusesAnotherLogin, in a process of its own.
func TestAskAsAnotherLogin(t *testing.T) {
	socket := os.Getenv(overrideHelper)
	if socket == "" {
		return
	}
	if err := os.Unsetenv(overrideHelper); err != nil { // no flag reads it
		t.Fatal(err)
	}
	exit, stdout, stderr := command(t, "override", "show", "--override-socket", socket)
	t.Logf("exit %d: %s %s", exit, stdout, stderr)
	if exit != 1 {
		t.Error("it was let in")
	}
}

func takesOnlyWhatItsPublisherSigned(t *testing.T, r *running, data string) {
	other := filepath.Join(t.TempDir(), "keys")
	if exit, _, stderr := command(t, "keys", "new", other); exit != 0 {
		t.Fatal(stderr)
	}
	sign := func(keys, deployment string) string {
		exit, stdout, stderr := r.override("sign", "--publisher-key-file", filepath.Join(keys, "publisher.jwks"), "--deployment", deployment,
			"--reason", "both cities", "--region-state", "mobile/hf/off")
		if exit != 0 {
			t.Fatal(stderr)
		}
		file := filepath.Join(t.TempDir(), "signed")
		if err := os.WriteFile(file, []byte(stdout), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	own := filepath.Join(data, "keys")
	for name, file := range map[string]string{"another key": sign(other, "dispatch"), "another deployment": sign(own, "elsewhere")} {
		if exit, _, stderr := r.override("apply", file, "--data", data); exit != 1 {
			t.Errorf("signed by or for %s: %d %s", name, exit, stderr)
		}
	}
	exit, stdout, stderr := r.override("apply", sign(own, "dispatch"), "--data", data)
	if exit != 0 || !strings.Contains(stdout, "by        publisher-") {
		t.Errorf("signed: %d %s %s", exit, stdout, stderr)
	}
}

// e50: break glass outlives the process, and so does its end.
func TestAnOverrideSurvivesARestart(t *testing.T) {
	data := t.TempDir()
	r := start(t, "--demo", "--data", data)
	exit, _, stderr := r.override("set", "--reason", "sh-main burns", "--swap", "mobile/sh/sh-main/sh-spare", "--data", data)
	if exit != 0 {
		t.Fatal(stderr)
	}
	r.stop()
	r = start(t, "--demo", "--data", data)
	if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Domain != "wapabst2.a.com.cn" {
		t.Errorf("after a restart the answer is %+v", a)
	}
}

// Two processes on one folder would write over each other; a socket that a killed
// process left behind keeps nobody out.
func TestTheSocketOfAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "override.sock")
	l, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("beside a living process: %v", err)
	}
	l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = listenUnix(t.Context(), path)
	if err != nil {
		t.Fatalf("after a dead one: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// The end of an override needs nobody to ask.
func TestAnOverrideEndsByItself(t *testing.T) {
	data := t.TempDir()
	r := start(t, "--demo", "--data", data)
	file := filepath.Join(data, "override.json")
	text := fmt.Sprintf(`{"actions":[{"region_state":{"app":"mobile","region":"sh","state":"draining"}}],"reason":"test","until":%q}`,
		time.Now().Add(2*time.Second).UTC().Format(time.RFC3339Nano))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit, _, stderr := r.override("apply", file, "--data", data); exit != 0 {
		t.Fatal(stderr)
	}
	if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Region != "hf" {
		t.Errorf("under the override the answer is %+v", a)
	}
	r.log.await(t, `"msg":"an override is over"`, nil)
	if a := r.route("app=mobile", "X-Device-Id", "d-1001"); a.Region != "sh" {
		t.Errorf("afterwards the answer is %+v", a)
	}
}
