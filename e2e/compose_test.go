package e2e

import (
	"bytes"
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"dispatch.example/dispatch/e2e/topology"
)

// docker-compose.yml and make fleet are one topology: the same nodes with the
// same flags. Nobody here can run containers; this much is known without.
func TestComposeFileIsWhatTheFleetRuns(t *testing.T) {
	top := start(t, topology.Options{Canary: 10 * time.Second})
	project := compose(t)
	nodes := map[string]*topology.Node{}
	for _, n := range slices.Concat(top.Controls, top.Edges) {
		nodes[n.Name] = n
	}
	for name, service := range project.Services {
		if service.Image != "dispatch" || len(service.Command) == 0 || service.Command[0] != "serve" {
			continue
		}
		n := nodes[name]
		if n == nil {
			t.Errorf("service %s: make fleet has no such node", name)
			continue
		}
		delete(nodes, name)
		want := flags(t, n.Args[1:])
		got := flags(t, onLoopback(service.Command, n, top))
		if !maps.Equal(got, want) {
			t.Errorf("service %s has\n%v\nmake fleet runs\n%v", name, got, want)
		}
		understood(t, service)
	}
	for name := range nodes {
		t.Errorf("docker-compose.yml has no service %s", name)
	}
	for _, name := range []string{"mysql", "redis", "consul", "proxy", "keys", "schema"} {
		if _, ok := project.Services[name]; !ok {
			t.Errorf("docker-compose.yml has no service %s", name)
		}
	}
	for city, entry := range top.Entries {
		a, err := top.Route(t.Context(), entry, "X-Device-Id", "d-1001")
		if err != nil || a.Domain == "" {
			t.Errorf("entry %s: %+v, %v", city, a, err)
		}
	}
}

func compose(t *testing.T) *types.Project {
	t.Helper()
	root, err := topology.Root(t.Context())
	must(t, err)
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithWorkingDirectory(root),
		cli.WithEnv([]string{"MYSQL_PASSWORD=secret"}), cli.WithDiscardEnvFile)
	must(t, err)
	project, err := options.LoadProject(t.Context())
	must(t, err)
	return project
}

// flags is a serve command by flag. Both forms of writing a flag are one.
func flags(t *testing.T, args []string) map[string]string {
	t.Helper()
	if args[0] != "serve" {
		t.Fatalf("%v is no serve command", args)
	}
	all := map[string]string{}
	for i := 1; i < len(args); i++ {
		name, value, ok := strings.Cut(args[i], "=")
		if !ok {
			i++
			value = args[i]
		}
		if _, twice := all[name]; twice {
			t.Errorf("%s stands twice", name)
		}
		all[name] = value
	}
	return all
}

// onLoopback is a service's command with the addresses and folders of this machine.
func onLoopback(command []string, n *topology.Node, top *topology.Topology) []string {
	r := strings.NewReplacer("--listen=:8080", "--listen="+n.Public, "--admin-listen=:8081", "--admin-listen="+n.Admin,
		"--ops-listen=:8082", "--ops-listen="+n.Ops, "--fleet-listen=:8083", "--fleet-listen="+n.Fleet,
		"=/keys", "="+filepath.Join(top.Dir, "keys", n.Role), "=/data", "="+n.Data, "172.30.0.0/24", "127.0.0.1/32",
		"//redis:6379", "//"+top.RedisAddr(), "//consul:8500", strings.TrimPrefix(top.ConsulURL(), "http:"), "//control:8083", "//"+top.Controls[0].Fleet)
	out := make([]string, len(command))
	for i, arg := range command {
		out[i] = r.Replace(arg)
	}
	return out
}

// understood runs the service's command as it stands but for its data folder,
// which cannot be made: the program gets as far as that only if it accepted every
// flag (exit status 1; a command line that it refuses is 2).
func understood(t *testing.T, service types.ServiceConfig) {
	t.Helper()
	path, err := program()
	must(t, err)
	args := slices.Clone([]string(service.Command))
	for i, arg := range args {
		if strings.HasPrefix(arg, "--data=") {
			args[i] = "--data=/dev/null/data"
		}
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	for name, value := range service.Environment {
		cmd.Env = append(cmd.Env, name+"="+*value)
	}
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || !bytes.Contains(out, []byte("/dev/null/data")) {
		t.Errorf("service %s: %v\n%s", service.Name, err, out)
	}
}
