package drills

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/internal/testenv"
)

// R5, C05: requests go through five services in an order of their own, and from the
// logs alone, by one ID each, dispatchctl says in which.
func TestR5OneIDStringsFiveServices(t *testing.T) {
	names, logs := []string{"a", "b", "c", "d", "e"}, t.TempDir()
	var listed []discovery.Instance
	address := map[string]string{}
	for _, name := range names {
		address[name] = freeAddr(t)
		listed = append(listed, instance(t, name+".api", address[name], "v1"), instance(t, name+".control", freeAddr(t), "v1"))
	}
	registry, at := roster(t, listed...), home("v1")
	for i, name := range names {
		c := own(t, &testenv.Control{Name: name, Log: filepath.Join(logs, name+".log"),
			Env: []string{"cluster_name=" + at.Cluster, "region=" + at.Region, "env=" + at.Env, "version=" + at.Version, "deploy_type=vm", "POD_IP=127.0.0.1"},
			Args: []string{program(t, "examples/hop"), "-server", name, "-listen", address[name], "-control", listed[2*i+1].Address.String(), "-loopback",
				"-registry", registry, "-calls", "a.api,b.api,c.api,d.api,e.api"}})
		within(t, 30*time.Second, func() error {
			if !printed(c, " serves api on ") {
				return fmt.Errorf("%s does not serve yet", name)
			}
			return nil
		})
	}
	trips := pick(5, 100)
	right := 0
	var rows [][]string
	for n := range trips {
		trace := fmt.Sprintf("%032x", n+1)
		way := slices.Concat(names[n%5:], names[:n%5])
		walk(t, address, way, trace)
		found := order(t, logs, trace, len(way))
		rows = append(rows, []string{trace, strings.Join(way, " "), strings.Join(found, " ")})
		if slices.Equal(found, way) {
			right++
		} else {
			t.Errorf("the request went %v, the logs say %v", way, found)
		}
	}
	keep(t, "R5", []string{"trace", "went", "found"}, rows)
	figure(t, "R5", "five services, one ID: of %d requests in 5 orders, %s found in the logs of all five, in their order", trips, strconv.Itoa(right))
}

// walk sends a request with a trace on its way.
func walk(t *testing.T, address map[string]string, way []string, trace string) {
	t.Helper()
	path := strings.Join(way[1:], ".api,") + ".api"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address[way[0]]+"/?path="+path, nil)
	must(t, err)
	req.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	must(t, err)
	_ = resp.Body.Close() // nothing in it is needed
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%v: %s", way, resp.Status)
	}
}

// order is that of the services, as dispatchctl reads it from the logs, which have
// their lines a moment after the answer.
func order(t *testing.T, logs, trace string, hops int) (names []string) {
	t.Helper()
	within(t, 10*time.Second, func() error {
		cmd := exec.CommandContext(t.Context(), program(t, "cmd/dispatchctl"), "trace", trace, "--logs", logs, "-o", "json")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		var tree struct {
			Hops []struct {
				Service string `json:"service"`
				Depth   int    `json:"depth"`
			} `json:"hops"`
		}
		must(t, json.Unmarshal(out, &tree))
		names = nil
		for i, h := range tree.Hops {
			if h.Depth != i {
				return fmt.Errorf("%s is at depth %d of %s", h.Service, h.Depth, out)
			}
			names = append(names, strings.TrimSuffix(h.Service, ".api"))
		}
		if len(names) < hops {
			return fmt.Errorf("only %v are in the logs", names)
		}
		return nil
	})
	return names
}
