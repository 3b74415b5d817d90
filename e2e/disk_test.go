package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dispatch.example/dispatch/e2e/topology"
	"dispatch.example/dispatch/internal/testenv"
)

// smallDisk is a file system of 10 MB. Only root may mount one.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dispatch-disk-")
	must(t, err)
	t.Cleanup(func() { must(t, os.Remove(dir)) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=10m"); err != nil {
		t.Fatalf("mount a disk of 10 MB: %v\ntry: as root, or in a container with CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves no byte free in dir, and returns what frees them.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for _, chunk := range []int{1 << 16, 1 << 12, 1} {
		for err == nil {
			_, err = f.Write(make([]byte, chunk))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	return func() { must(t, os.Remove(path)) }
}

// P15, the edge: a full disk changes no answer, holds up no release, and leaves
// break glass usable; when there is room again, copies are written again.
func TestP15FullDiskOfAnEdge(t *testing.T) {
	disk := smallDisk(t)
	top := start(t, topology.Options{NoProxy: true, EdgeData: map[string]string{"edge-sh-1": disk}})
	edge := top.Edge("edge-sh-1")
	free := fill(t, disk)
	stop := background(t, edge.Public)
	o, err := top.Swap(t.Context())
	must(t, err)
	must(t, top.WaitServing(t.Context(), o.Release))
	within(t, 10*time.Second, func() error {
		return topology.Get(t.Context(), "http://"+edge.Ops+"/readyz", http.StatusOK, "[-]copy on disk")
	})
	path, err := program()
	must(t, err)
	override := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), path, append([]string{"override"}, args...)...).CombinedOutput()
		return string(out), err
	}
	before, err := top.Route(t.Context(), edge.Public, "X-Device-Id", "d-1001")
	must(t, err)
	said, err := override("set", "--data", edge.Data, "--swap", "mobile/sh/"+top.Domain.Serving+"/"+top.Domain.Standby, "--reason", "the disk is full", "--for", "5m")
	if err != nil {
		t.Errorf("break glass with a full disk: %v\n%s", err, said)
	}
	after, err := top.Route(t.Context(), edge.Public, "X-Device-Id", "d-1001")
	if err != nil || after.Domain == before.Domain {
		t.Errorf("break glass changed nothing: %+v, %v", after, err)
	}
	free()
	if said, err := override("clear", "--data", edge.Data); err != nil {
		t.Errorf("end of break glass: %v\n%s", err, said)
	}
	o, err = top.Swap(t.Context())
	must(t, err)
	must(t, top.WaitServing(t.Context(), o.Release))
	recovered := within(t, 10*time.Second, func() error {
		return topology.Get(t.Context(), "http://"+edge.Ops+"/readyz", http.StatusOK, "[+]copy on disk")
	})
	r := stop()
	must(t, edge.Kill())
	stopEverything(t, top)
	must(t, edge.Start(t.Context()))
	must(t, top.WaitEdge(t.Context(), edge, o.Release))
	figure(t, "P15", "edge with a full disk: %d answers, 0 failed; break glass works; copies again %s after there is room", r.Served, ms(recovered))
}

// P15, a node with its database on the full disk: changes fail clearly, answers
// go on, and changes work again without a restart.
func TestP15FullDiskOfASingleNode(t *testing.T) {
	disk := smallDisk(t)
	top := single(t, filepath.Join(disk, "data"))
	node := top.Controls[0]
	swap := func() error {
		_, err := top.Swap(t.Context())
		return err
	}
	must(t, swap())
	free := fill(t, disk)
	stop := background(t, node.Public)
	failed := 0
	for range 20 {
		if err := swap(); err != nil {
			p, ok := err.(*topology.Problem)
			if !ok || p.Status < 500 || p.Code == "" || p.Code == "internal" {
				t.Errorf("with a full disk a swap answers %v", err)
			}
			failed++
		}
	}
	if failed == 0 {
		t.Error("20 swaps fitted onto a full disk")
	}
	free()
	recovered := within(t, 10*time.Second, swap)
	r := stop()
	must(t, top.Call(t.Context(), node, topology.Request{Path: "/audit/verify"}, nil))
	figure(t, "P15", "single node with a full disk: %d of 20 swaps refused, %d answers, 0 failed; changes again %s after there is room", failed, r.Served, ms(recovered))
}

// single is one process with everything in it: serve --demo on a folder.
func single(t *testing.T, data string) *topology.Topology {
	t.Helper()
	path, err := program()
	must(t, err)
	n := &topology.Node{Role: "all", Data: data}
	for _, addr := range []*string{&n.Public, &n.Admin, &n.Ops, &n.Fleet} {
		*addr, err = testenv.FreeAddr()
		must(t, err)
	}
	n.Control = &testenv.Control{Name: "single", Log: filepath.Join(t.TempDir(), "log"), Up: testenv.Answers("http://" + n.Ops + "/readyz"),
		Args: []string{path, "serve", "--demo", "--demo-traffic", "off", "--env", "prod", "--data", data, "--listen", n.Public, "--admin-listen", n.Admin, "--ops-listen", n.Ops, "--fleet-listen", n.Fleet}}
	must(t, n.Start(t.Context()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it printed\n%s", n.Tail())
		}
		if err := n.Stop(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	top := topology.Single(n)
	within(t, 10*time.Second, func() error {
		_, rest, ok := strings.Cut(n.Tail(), "token ")
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			top.Token = fields[0]
			return nil
		}
		return fmt.Errorf("no token printed")
	})
	return top
}
