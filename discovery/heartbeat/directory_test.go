package heartbeat

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/discovery/directory"
)

// A10: a real control node takes the reports and shows the load of each instance.
func TestControlNodeShowsTheLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "instances.yaml")
	var b strings.Builder
	b.WriteString("instances:\n")
	for _, in := range two() {
		fmt.Fprintf(&b, "  - {id: %q, service: %q, address: %q, cluster: %q, region: %q, env: %q, version: %q}\n",
			in.ID, in.Service, in.Address, in.Cluster, in.Region, in.Env, in.Version)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := discovery.Open("static:"+path, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	d, err := directory.New(directory.Options{Region: "cn-hangzhou", Registries: []directory.Registry{{Name: "file", Source: source}}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := directory.NewServer(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	node := httptest.NewServer(server)
	defer node.Close()
	r, err := New(Options{Control: []string{node.URL}, Instances: two(), InWork: func() int64 { return 3 }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- d.Run(ctx) }()
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		server.Stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	deadline := time.After(20 * time.Second)
	for {
		view, changed := d.View()
		loads := 0
		for _, service := range view.Services {
			for _, in := range service.Instances {
				if in.Load.Connections != nil && *in.Load.Connections == 3 && in.Load.Memory != nil && in.Load.CPU == nil {
					loads++
				}
			}
		}
		if loads == 2 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("the load of %d instances is known: %+v", loads, view.Services)
		}
	}
}
