package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Consul returns the host:port of an agent that the tests of the binary share.
// It is a server of its own without peers; use names of your own in it.
func Consul(tb testing.TB) string {
	tb.Helper()
	s := shared()
	if !s.owned.Load() {
		tb.Fatal("nobody would stop the agent\ntry: func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }")
	}
	agent, err := s.consul()
	if err != nil {
		tb.Fatal(err)
	}
	return agent.Addr
}

// ConsulAgent is a Consul agent that one test may stop and start again. It keeps
// nothing on disk: what was registered is gone after a restart.
type ConsulAgent struct {
	Addr string // host:port of its HTTP API

	binary, dir string
	args        []string
	config      string // HCL on top of ours
	proc        *process
}

// NewConsul starts an agent for this test alone, with the lines of HCL on top of
// our configuration. The test ends it.
func NewConsul(tb testing.TB, hcl string) *ConsulAgent {
	tb.Helper()
	agent, err := startConsul(hcl)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := agent.end(); err != nil {
			tb.Error(err)
		}
	})
	return agent
}

// Stop kills the agent, as a crash does.
func (a *ConsulAgent) Stop(tb testing.TB) {
	tb.Helper()
	if err := a.kill(); err != nil {
		tb.Fatal(err)
	}
}

// Start starts a stopped agent again at the same address.
func (a *ConsulAgent) Start(tb testing.TB) {
	tb.Helper()
	if err := a.start(); err != nil {
		tb.Fatal(err)
	}
}

func startConsul(hcl string) (_ *ConsulAgent, err error) {
	binary, err := Lookup("consul")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dispatch-consul-")
	if err != nil {
		return nil, fmt.Errorf("start consul: %w", err)
	}
	for range 3 { // another process may take a free port first
		a := &ConsulAgent{binary: binary, dir: dir, config: hcl}
		if err = a.configure(); err == nil {
			if err = a.start(); err == nil {
				return a, nil
			}
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// configure chooses ports and writes the configuration file.
func (a *ConsulAgent) configure() error {
	var ports [4]string
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[i] = port
	}
	a.Addr = "127.0.0.1:" + ports[0]
	file := filepath.Join(a.dir, "agent.hcl")
	// No update check: a test talks to nobody outside. Raft as fast as it may be.
	text := fmt.Sprintf("disable_update_check = true\ndisable_host_node_id = true\nperformance { raft_multiplier = 1 }\n"+
		"limits { http_max_conns_per_client = 2000 }\n"+
		"ports { http = %s\n server = %s\n serf_lan = %s\n serf_wan = %s\n dns = -1\n grpc = -1 }\n",
		ports[0], ports[1], ports[2], ports[3])
	more := filepath.Join(a.dir, "more.hcl")
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(more, []byte(a.config+"\n"), 0o600)); err != nil {
		return fmt.Errorf("configure consul: %w", err)
	}
	a.args = []string{"agent", "-dev", "-node=test", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn",
		"-config-file=" + file, "-config-file=" + more}
	return nil
}

func (a *ConsulAgent) start() error {
	if err := a.launch(); err != nil {
		return err
	}
	if err := a.wait(); err != nil {
		text, _ := os.ReadFile(filepath.Join(a.dir, "log")) // a help for the reader only
		return errors.Join(fmt.Errorf("start consul: %w\n%s", err, text), a.kill())
	}
	return nil
}

// wait returns when the agent has a leader and has entered itself.
func (a *ConsulAgent) wait() error {
	return a.proc.wait("leader", func(ctx context.Context) bool { return a.hasLeader(ctx) })
}

func (a *ConsulAgent) hasLeader(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Addr+"/v1/status/leader", nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true} // leaves no goroutine behind
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 100))
	return err == nil && resp.StatusCode == http.StatusOK && len(body) > len(`""`)
}

// kill ends the process and waits for it.
func (a *ConsulAgent) kill() error {
	if err := a.proc.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill consul: %w", err)
	}
	<-a.proc.done
	return nil
}

func (a *ConsulAgent) end() error { return errors.Join(a.kill(), os.RemoveAll(a.dir)) }

// sharedConsul starts the agent of a test binary when it is first asked for.
func sharedConsul(s *servers) func() (*ConsulAgent, error) {
	return sync.OnceValues(func() (*ConsulAgent, error) {
		agent, err := startConsul("")
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.stops = append(s.stops, agent.end)
		}
		return agent, err
	})
}
