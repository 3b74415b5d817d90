package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

const (
	windows    = 8      // interleaved, the first is warm-up and not counted
	perWindow  = 20_000 // requests, keep-alive
	keptRate   = 6_000  // requests a second, about a quarter of what one core can do
	perConnect = 4_000  // requests, one connection each
	newRate    = 2_000
	openConns  = 32
)

// wholeProcesses compares /route with what a bank would use instead, and
// measures a cold start.
func wholeProcesses(ctx context.Context) ([]row, error) {
	dir, err := os.MkdirTemp("", "dispatch-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "dispatch")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/dispatch").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build dispatch: %w\n%s", err, out)
	}
	rows, err := compare(ctx, dir, binary)
	if err != nil {
		return nil, err
	}
	flipped, err := flip(ctx, dir, binary)
	if err != nil {
		return nil, fmt.Errorf("swap under load: %w", err)
	}
	edited, err := edits(ctx, dir, binary)
	if err != nil {
		return nil, fmt.Errorf("edit a list under load: %w", err)
	}
	cold, err := coldStart(ctx, dir, binary)
	return slices.Concat(rows, flipped, edited, cold), err
}

// compare runs all contenders at once and gives each a window in turn.
func compare(ctx context.Context, dir, binary string) ([]row, error) {
	if err := pinSelf(); err != nil {
		return nil, err
	}
	field, err := contenders(ctx, dir, binary)
	for _, c := range field {
		defer c.stop()
	}
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, mode := range []struct {
		name      string
		requests  int
		rate      int
		keepAlive bool
	}{{"keep-alive", perWindow, keptRate, true}, {"a connection per request", perConnect, newRate, false}} {
		perRequest := make([][]float64, len(field)) // µs of CPU, by contender and window
		for window := range windows {
			for i, c := range field {
				µs, err := oneWindow(ctx, c, load{addr: c.addr, conns: openConns, requests: mode.requests, rate: mode.rate, keepAlive: mode.keepAlive})
				if err != nil {
					return nil, fmt.Errorf("measure %s: %w", c.name, err)
				}
				if window > 0 {
					perRequest[i] = append(perRequest[i], µs)
				}
			}
		}
		for i, c := range field {
			rows = append(rows, row{Name: "/route, " + mode.name + ": " + c.name, Value: median(perRequest[i]), Unit: "µs CPU", Raw: perRequest[i]})
		}
		for i, c := range field[1:] {
			r := ratio("/route, "+mode.name+": dispatch / "+c.name, perRequest[0], perRequest[i+1])
			if c.name == "bare Echo" && mode.keepAlive {
				r = r.atMost(1.3)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// contenders starts dispatch first, then what it is compared with.
func contenders(ctx context.Context, dir, binary string) (field []*contender, err error) {
	start := func(name, path string, argv func(addr string) ([]string, error)) {
		if err != nil {
			return
		}
		var addr string
		if addr, err = freeAddr(); err != nil {
			return
		}
		var args []string
		if args, err = argv(addr); err != nil {
			return
		}
		var c *contender
		if c, err = launch(ctx, name, addr, "http://"+addr+path, args...); err == nil {
			field = append(field, c)
		}
	}
	start("dispatch", "/route?app=mobile", func(addr string) ([]string, error) {
		return []string{binary, "serve", "--demo", "--demo-traffic", "off", "--data", filepath.Join(dir, "demo"), "--listen", addr,
			"--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--fleet-listen", "127.0.0.1:0"}, nil
	})
	start("bare Echo", "/route", func(addr string) ([]string, error) {
		self, err := os.Executable()
		return []string{self, "bare-echo", addr}, err
	})
	start("nginx", "/route", func(addr string) ([]string, error) {
		conf, err := configured(dir, "nginx.conf", nginxConf, addr)
		return []string{"nginx", "-c", conf, "-e", "stderr"}, err
	})
	start("HAProxy", "/route", func(addr string) ([]string, error) {
		conf, err := configured(dir, "haproxy.cfg", haproxyConf, addr)
		return []string{"haproxy", "-f", conf}, err
	})
	return field, err
}

// oneWindow is the CPU time a request of c, in µs.
func oneWindow(ctx context.Context, c *contender, l load) (float64, error) {
	before, err := cpuTime(c.pids())
	if err != nil {
		return 0, err
	}
	if err := l.run(ctx); err != nil {
		return 0, err
	}
	after, err := cpuTime(c.pids())
	return float64((after - before).Nanoseconds()) / float64(l.requests) / 1e3, err
}

// ratio is the median of the ratios window by window.
func ratio(name string, a, b []float64) row {
	raw := make([]float64, len(a))
	for i := range a {
		raw[i] = a[i] / b[i]
	}
	return row{Name: name, Value: median(raw), Unit: "×", Raw: raw}
}
