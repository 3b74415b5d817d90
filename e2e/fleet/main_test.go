package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// screen collects what is printed and stops the fleet when all is said.
type screen struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	stop context.CancelFunc
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(p)
	if bytes.Contains(s.text.Bytes(), []byte("Ctrl-C ends everything.")) {
		s.stop()
	}
	return n, err
}

// Whoever ends the fleet finds nothing of it afterwards.
func TestTheFleetEndsWhole(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &screen{stop: stop}
	if err := run(ctx, topology.Options{}, out); err != nil {
		t.Fatal(err)
	}
	text := out.text.String()
	pids := regexp.MustCompile(`pid (\d+)`).FindAllStringSubmatch(text, -1)
	if len(pids) != 8 { // control, four edges, three servers
		t.Errorf("%d processes are named in\n%s", len(pids), text)
	}
	for _, match := range pids {
		pid, _ := strconv.Atoi(match[1]) // digits
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d still runs: %v", pid, err)
		}
	}
	logs := regexp.MustCompile(`logs +(\S+)/\*/log`).FindStringSubmatch(text)
	if len(logs) != 2 {
		t.Fatalf("no folder is named in\n%s", text)
	}
	if _, err := os.Stat(logs[1]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", logs[1], err)
	}
}
