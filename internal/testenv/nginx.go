package testenv

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// nginxMain is what every nginx of a test has; its own lines follow in http.
const nginxMain = `daemon off; worker_processes 1; pid pid; error_log stderr;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
%s
}
`

// StartNginx starts a private nginx that ends with the test, and returns when
// addr answers. conf is what stands in its http block; a relative path in it is
// below a temporary folder.
func StartNginx(tb testing.TB, addr, conf string) *Control {
	tb.Helper()
	nginx := Tool(tb, "nginx")
	// Its workers are nobody where it is started by root; tb.TempDir is closed to them.
	dir, err := os.MkdirTemp("", "dispatch-nginx-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // what stays is in the system's temporary folder
	file := filepath.Join(dir, "nginx.conf")
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxMain, conf), 0o644); err != nil {
		tb.Fatal(err)
	}
	c := &Control{Name: "nginx", Args: []string{nginx, "-p", dir + "/", "-e", "stderr", "-c", file}, Log: filepath.Join(dir, "log"),
		Up: func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}}
	if err := c.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Stop(10 * time.Second); err != nil {
			tb.Error(err)
		}
	})
	return c
}
