package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/labstack/echo/v4"
)

// contender is a server under measurement, pinned to the first processor.
type contender struct {
	name string
	addr string
	cmd  *exec.Cmd
	log  *output
}

// pids is every process that may have spent the time.
func (c *contender) pids() []int {
	return append(childrenOf(c.cmd.Process.Pid), c.cmd.Process.Pid)
}

// stop ends the process we started and waits for it.
func (c *contender) stop() {
	_ = c.cmd.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		_ = c.cmd.Process.Kill()
		<-done
	}
}

// output is what a process printed so far.
type output struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write keeps what the process prints.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

// String is a copy.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// demoToken finds the administrator's token among the lines the demo prints.
var demoToken = regexp.MustCompile(`dsp_[A-Za-z0-9_]+`)

// token waits for the administrator's token, which is printed at the first start only.
func (c *contender) token(ctx context.Context) (string, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		if token := demoToken.FindString(c.log.String()); token != "" {
			return token, nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return "", fmt.Errorf("%s printed no token:\n%s", c.name, c.log)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// launch starts argv on processor 0 and waits until url answers 200.
func launch(ctx context.Context, name, addr, url string, argv ...string) (*contender, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, fmt.Errorf("start %s: %s is not installed; try: go run ./internal/testenv/install bench", name, argv[0])
	}
	c := &contender{name: name, addr: addr, log: new(output)}
	c.cmd = exec.CommandContext(ctx, "taskset", append([]string{"-c", "0"}, argv...)...)
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := waitFor(ctx, url, 30*time.Second); err != nil {
		c.stop()
		return nil, fmt.Errorf("start %s: %w\n%s", name, err, c.log)
	}
	return c, nil
}

// waitFor polls url every 5 ms until it answers 200.
func waitFor(ctx context.Context, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err != nil {
			last = err
		} else {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Errorf("status %d", resp.StatusCode)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s within %s: %w", url, limit, last)
		case <-tick.C:
		}
	}
}

// freeAddr is a loopback address nobody listens on at this moment.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// sampleAnswer is as long as a real answer, so that all contenders write alike.
var sampleAnswer = `{"app":"mobile","region":"sh","domain":"wapabst.a.com.cn","alternates":["wapcdst.b.com.cn"],` +
	`"fallback":"wap.bank.example","release":412,"record":"` + strings.Repeat("r", 480) + `","ttl":1200,"session":"` + strings.Repeat("s", 118) + `"}`

// bareEcho serves a constant: the least an Echo service can do.
func bareEcho(addr string) error {
	e := echo.New()
	body := []byte(sampleAnswer)
	e.GET("/route", func(c echo.Context) error {
		c.Response().Header().Set("Cache-Control", "private, no-store")
		return c.Blob(http.StatusOK, "application/json", body)
	})
	return (&http.Server{Addr: addr, Handler: e, ReadHeaderTimeout: 2 * time.Second}).ListenAndServe()
}

// nginxConf splits devices 60:40 as the example does, by split_clients and map.
const nginxConf = `daemon off; worker_processes 1; pid {{.Dir}}/nginx.pid; error_log stderr;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000000; default_type application/json;
  client_body_temp_path {{.Dir}}/b; proxy_temp_path {{.Dir}}/p; fastcgi_temp_path {{.Dir}}/f; uwsgi_temp_path {{.Dir}}/u; scgi_temp_path {{.Dir}}/s;
  split_clients "mobile/otherwise$http_x_device_id" $split { 60% sh; * hf; }
  map $http_x_device_id $region { d-1001 sh; d-1002 sh; default $split; }
  map $region $answer { sh '{{.Body}}'; hf '{{.Body}}'; }
  server { listen {{.Addr}}; location = /route { add_header Cache-Control "private, no-store"; return 200 $answer; } }
}
`

// haproxyConf looks the device up in a map and answers by itself.
const haproxyConf = `global
  maxconn 1024
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout connect 5s
  timeout server 60s
frontend route
  bind {{.Addr}}
  http-request set-var(txn.region) req.hdr(x-device-id),map_str({{.Dir}}/devices.map,hf)
  http-request return status 200 content-type application/json hdr Cache-Control "private, no-store" lf-file {{.Dir}}/answer.json
`

// configured writes a contender's files into dir and returns the path of its configuration.
func configured(dir, name, text, addr string) (string, error) {
	conf := new(bytes.Buffer)
	body := sampleAnswer
	err := template.Must(template.New(name).Parse(text)).Execute(conf, map[string]string{"Dir": dir, "Addr": addr, "Body": body})
	if err != nil {
		return "", err
	}
	answer := strings.Replace(body, `"region":"sh"`, `"region":"%[var(txn.region)]"`, 1)
	files := map[string]string{name: conf.String(), "devices.map": "d-1001 sh\nd-1002 sh\n", "answer.json": answer}
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			return "", fmt.Errorf("configure %s: %w", name, err)
		}
	}
	return filepath.Join(dir, name), nil
}
