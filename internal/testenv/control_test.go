package testenv

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A harness freezes, kills and restarts a server at one address.
func TestControlledServerKeepsItsAddress(t *testing.T) {
	c, addr, err := ControlRedis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(time.Second) })
	answers := func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = conn.Write([]byte("PING\r\n"))
		n, err := conn.Read(make([]byte, 7))
		return err == nil && n > 0
	}
	for _, step := range []struct {
		name string
		do   func() error
		up   bool
	}{
		{"start", func() error { return c.Start(t.Context()) }, true},
		{"pause", c.Pause, false},
		{"resume", c.Resume, true},
		{"kill", c.Kill, false},
		{"start again", func() error { return c.Start(t.Context()) }, true},
		{"stop while it is frozen", func() error { return errors.Join(c.Pause(), c.Stop(5*time.Second)) }, false},
		{"stop again", func() error { return c.Stop(time.Second) }, false},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := answers(); got != step.up {
			t.Errorf("%s: answers %v, want %v", step.name, got, step.up)
		}
	}
}

func TestProgramThatEndsBeforeItIsUpIsAnError(t *testing.T) {
	c := &Control{Name: "x", Args: []string{"sh", "-c", "echo no such luck; exit 3"}, Log: filepath.Join(t.TempDir(), "log"), Up: Answers("http://127.0.0.1:1/")}
	if err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("start: %v", err)
	}
	if err := syscall.Kill(c.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestServersOfAHarnessAnswer(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(dir string) (*Control, string, error){
		"mariadb": ControlMariaDB, "consul": ControlConsul,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, err := prepare(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Stop(20 * time.Second); err != nil {
					t.Error(err)
				}
			})
			for range 2 {
				if err := c.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := c.Stop(20 * time.Second); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
