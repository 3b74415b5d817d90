package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ConsulCluster starts n Consul servers that elect a leader among them, for this
// test alone, and ends them with it. Each keeps its data on disk, so one that was
// stopped comes back as itself.
func ConsulCluster(tb testing.TB, n int) []*ConsulAgent {
	tb.Helper()
	binary, err := Lookup("consul")
	if err != nil {
		tb.Fatal(err)
	}
	for range 3 { // another process may take a free port first
		var servers []*ConsulAgent
		if servers, err = startCluster(binary, n); err == nil {
			tb.Cleanup(func() {
				if err := endAll(servers); err != nil {
					tb.Error(err)
				}
			})
			return servers
		}
	}
	tb.Fatal(err)
	return nil
}

func startCluster(binary string, n int) (servers []*ConsulAgent, err error) {
	var join []string
	for i := range n {
		dir, err := os.MkdirTemp("", "dispatch-consul-")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start consul: %w", err), endAll(servers))
		}
		a := &ConsulAgent{binary: binary, dir: dir}
		servers = append(servers, a)
		serf, err := a.configureServer(i, n)
		if err != nil {
			return nil, errors.Join(err, endAll(servers))
		}
		join = append(join, "-retry-join=127.0.0.1:"+serf)
	}
	for _, a := range servers {
		a.args = append(a.args, join...)
		if err := a.launch(); err != nil {
			return nil, errors.Join(err, endAll(servers))
		}
	}
	for _, a := range servers {
		if err := a.wait(); err != nil {
			text, _ := os.ReadFile(filepath.Join(a.dir, "log")) // a help for the reader only
			return nil, errors.Join(fmt.Errorf("start consul cluster: %w\n%s", err, text), endAll(servers))
		}
	}
	return servers, nil
}

// configureServer chooses ports and writes the configuration of server i of n. It
// returns the port of the gossip, which the others join.
func (a *ConsulAgent) configureServer(i, n int) (serf string, err error) {
	var ports [4]string
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return "", err
		}
	}
	a.Addr = "127.0.0.1:" + ports[0]
	file := filepath.Join(a.dir, "agent.hcl")
	text := strings.Join([]string{
		"disable_update_check = true", "disable_host_node_id = true", "performance { raft_multiplier = 1 }",
		"limits { http_max_conns_per_client = 2000 }",
		"autopilot { cleanup_dead_servers = false }", // two of three that are down are no majority
		`retry_interval = "1s"`,
		fmt.Sprintf("ports { http = %s\n server = %s\n serf_lan = %s\n serf_wan = %s\n dns = -1\n grpc = -1 }", ports[0], ports[1], ports[2], ports[3]),
	}, "\n")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("configure consul: %w", err)
	}
	a.args = []string{"agent", "-server", fmt.Sprintf("-bootstrap-expect=%d", n), fmt.Sprintf("-node=server-%d", i),
		"-data-dir=" + filepath.Join(a.dir, "data"), "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn", "-config-file=" + file}
	return ports[2], nil
}

// launch starts the process and does not wait for a leader.
func (a *ConsulAgent) launch() error {
	logFile, err := os.Create(filepath.Join(a.dir, "log"))
	if err != nil {
		return fmt.Errorf("start consul: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the agent has its own handle
	cmd := exec.Command(a.binary, a.args...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	a.proc, err = run(cmd)
	return err
}

// endAll ends those that were started.
func endAll(servers []*ConsulAgent) error {
	var errs []error
	for _, a := range servers {
		if a.proc == nil {
			errs = append(errs, os.RemoveAll(a.dir))
			continue
		}
		errs = append(errs, a.end())
	}
	return errors.Join(errs...)
}
