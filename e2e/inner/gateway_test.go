package inner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// replica starts a dispatch of one cluster that registers itself.
func replica(t *testing.T, registry, cluster, id string) (*testenv.Control, string) {
	t.Helper()
	data, err := os.MkdirTemp("", "dispatch-inner-") // a socket's path may have 107 bytes only
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	public, ops := freeAddr(t), freeAddr(t)
	return start(t, &testenv.Control{Name: id, Up: testenv.Answers("http://" + public + "/readyz"),
		Args: []string{program(t, "dispatch"), "serve", "--demo", "--demo-traffic", "off", "--probes", "off", "--data", data, "--replica-id", id,
			"--listen", public, "--ops-listen", ops, "--admin-listen", freeAddr(t), "--fleet-listen", freeAddr(t),
			"--cluster", cluster, "--region", "sh", "--env", "prod", "--version-label", "v1", "--discovery", registry}}), ops
}

// A gateway knows no address: replicas register themselves, and one that leaves in
// order takes no request with it.
func TestAGatewayFindsReplicasByName(t *testing.T) {
	t.Parallel()
	agent, addr, err := testenv.ControlConsul(t.TempDir())
	must(t, err)
	start(t, agent)
	registry := "consul://" + addr
	first, _ := replica(t, registry, "k1", "first")
	_, _ = replica(t, registry, "k1", "second")
	_, _ = replica(t, registry, "k2", "elsewhere")

	entry := freeAddr(t)
	start(t, &testenv.Control{Name: "gateway", Up: testenv.Answers("http://" + entry + "/readyz"),
		Args: []string{program(t, "gateway"), "-listen", entry, "-registry", registry, "-cluster", "k1", "-region", "sh", "-env", "prod"}})

	route := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+entry+"/route?app=mobile", nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Device-Id", "d-1001")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // it was only read
		var got struct{ Domain string }
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK || got.Domain == "" {
			return fmt.Errorf("%s %+v: %w", resp.Status, got, err)
		}
		return nil
	}
	// T28: requests go on while one replica leaves.
	load, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	failures, asked := make(chan error, 1000), make(chan int, 4)
	for range cap(asked) {
		asking.Go(func() {
			n := 0
			for load.Err() == nil {
				if err := route(context.WithoutCancel(load)); err != nil {
					failures <- err
				}
				n++
			}
			asked <- n
		})
	}
	within(t, 10*time.Second, func() error { return route(t.Context()) })
	stopped := first.Stop(20 * time.Second)
	end()
	asking.Wait()
	must(t, stopped)
	close(failures)
	close(asked)
	total := 0
	for n := range asked {
		total += n
	}
	for err := range failures {
		t.Errorf("a request failed while a replica left: %v", err)
	}
	t.Logf("T28 %d requests while a replica left, none failed", total)
}

// The ten minutes of the manual, as they are printed there, on free ports.
func TestTheGuideWorks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"hop", "dispatch", "dispatchctl"} {
		must(t, os.Symlink(program(t, name), filepath.Join(dir, name)))
	}
	script := guide(t)
	begin := time.Now()
	out, err := shell(t, dir, script)
	must(t, err)
	counts := answers(t, out)
	if len(counts) != 6 {
		t.Fatalf("the guide printed %d answers:\n%s", len(counts), out)
	}
	share := func(of map[string]int) float64 { return float64(of["v2"]) / float64(of["v1"]+of["v2"]) }
	for i, want := range []struct {
		when      string
		low, high float64
	}{{"without a rule", 0.4, 0.6}, {"with the rule", 0.05, 0.15}, {"with the first rule of a control node", 0, 0}, {"at its first step", 0.14, 0.26}, {"at its second step", 0.4, 0.6}, {"after the abort", 0, 0}} {
		if s := share(counts[i]); s < want.low || s > want.high {
			t.Errorf("%s, v2 takes %.0f %%", want.when, 100*s)
		}
	}
	t.Logf("A58 the guide took %s of machine time", time.Since(begin).Round(time.Second))
}
