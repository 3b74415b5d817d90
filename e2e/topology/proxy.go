package topology

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"dispatch.example/dispatch/internal/testenv"
)

// nginxMain is what surrounds deploy/nginx.conf in the official image.
const nginxMain = `daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  include %[1]s/entries.conf;
}
`

// startProxy runs deploy/nginx.conf with the addresses of this topology.
func (t *Topology) startProxy(ctx context.Context) error {
	if t.opt.NoProxy {
		return nil
	}
	nginx, err := testenv.Lookup("nginx")
	if err != nil {
		return err
	}
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	conf, err := os.ReadFile(filepath.Join(root, "deploy", "nginx.conf"))
	if err != nil {
		return err
	}
	entries, err := t.entries(string(conf))
	if err != nil {
		return err
	}
	dir := filepath.Join(t.Dir, "nginx")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for file, text := range map[string]string{"entries.conf": entries, "nginx.conf": fmt.Sprintf(nginxMain, dir)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	t.Proxy = &testenv.Control{Name: "nginx", Args: []string{nginx, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf")},
		Log: filepath.Join(dir, "log"), Up: func(ctx context.Context) error { // its edges may serve nothing yet
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.Entries["sh"])
			if err == nil {
				_ = conn.Close()
			}
			return err
		}}
	return t.Proxy.Start(ctx)
}

// entries is deploy/nginx.conf with our addresses. More edges than the file names
// stand beside the first of their city.
func (t *Topology) entries(conf string) (string, error) {
	t.Entries = map[string]string{}
	for city, port := range map[string]string{"sh": "8080", "hf": "8090"} {
		addr, err := testenv.FreeAddr()
		if err != nil {
			return "", err
		}
		t.Entries[city] = addr
		conf = strings.Replace(conf, "listen "+port+";", "listen "+addr+";", 1)
	}
	for _, n := range t.Edges {
		named := n.Name + ":8080"
		if !strings.Contains(conf, named) {
			first := "server " + t.Edge("edge-"+n.Region+"-1").Public
			conf = strings.Replace(conf, first, "server "+n.Public+";\n  "+first, 1)
		}
		conf = strings.Replace(conf, named, n.Public, 1)
	}
	if left := strings.Index(conf, ":8080 "); left >= 0 {
		return "", fmt.Errorf("deploy/nginx.conf names an edge that this topology lacks: %.60q", conf[max(0, left-30):])
	}
	return conf, nil
}
