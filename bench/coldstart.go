package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

const (
	manyIDs  = 5_000_000
	idleTime = 60 * time.Second
)

// coldStart fills a list with five million ids through the admin API, stops the
// process, and measures from exec to the first 200 of /readyz, three times. Then
// it lets the process idle for a minute and reads what that cost.
func coldStart(ctx context.Context, dir, binary string) ([]row, error) {
	data := filepath.Join(dir, "cold")
	var ready, imported []float64
	var idle []row
	for run := range 4 {
		addrs, err := freeAddrs(3)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		c, err := launch(ctx, "dispatch", addrs[0], "http://"+addrs[2]+"/readyz", binary, "serve", "--demo", "--demo-traffic", "off", "--data", data,
			"--listen", addrs[0], "--admin-listen", addrs[1], "--ops-listen", addrs[2], "--fleet-listen", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		took := time.Since(start)
		switch run {
		case 0: // the only one that prints a token
			start = time.Now()
			err = importIDs(ctx, addrs[1], c, manyIDs)
			imported = append(imported, time.Since(start).Seconds())
		case 3:
			ready = append(ready, took.Seconds())
			idle, err = idleCost(ctx, c)
		default:
			ready = append(ready, took.Seconds())
		}
		c.stop()
		if err != nil {
			return nil, err
		}
	}
	return append([]row{
		{Name: "durable import of 5,000,000 ids through the API", Value: imported[0], Unit: "s", Raw: imported},
		row{Name: "cold start with 5,000,000 ids, exec to ready", Value: median(ready), Unit: "s", Raw: ready}.atMost(2),
	}, idle...), nil
}

func importIDs(ctx context.Context, admin string, c *contender, count int) error {
	var ids bytes.Buffer
	for i := range count {
		fmt.Fprintf(&ids, "d-%012d\n", i)
	}
	token, err := c.token(ctx)
	if err != nil {
		return err
	}
	return post{"http://" + admin + "/api/v1/lists/staff-devices/import?reason=benchmark&confirm=staff-devices", token, "text/plain"}.send(ctx, &ids)
}

// idleCost is the processor and disk time of a minute in which nobody asks anything.
func idleCost(ctx context.Context, c *contender) ([]row, error) {
	settle := time.NewTimer(5 * time.Second) // what the start left to do
	defer settle.Stop()
	select {
	case <-settle.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	cpuBefore, err := cpuTime(c.pids())
	if err != nil {
		return nil, err
	}
	diskBefore, err := written(c.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	minute := time.NewTimer(idleTime)
	defer minute.Stop()
	select {
	case <-minute.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	cpuAfter, err := cpuTime(c.pids())
	if err != nil {
		return nil, err
	}
	diskAfter, err := written(c.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	share := 100 * (cpuAfter - cpuBefore).Seconds() / idleTime.Seconds()
	return []row{
		row{Name: "idle with 5,000,000 ids: processor", Value: share, Unit: "%", Raw: []float64{share}}.atMost(1),
		row{Name: "idle with 5,000,000 ids: written to disk in a minute", Value: diskAfter - diskBefore, Unit: "B", Raw: []float64{diskAfter - diskBefore}}.atMost(0),
	}, nil
}

// writeBytes is a line of /proc/PID/io: what the process caused to be written to storage.
var writeBytes = regexp.MustCompile(`(?m)^write_bytes: (\d+)$`)

func written(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, fmt.Errorf("read disk use: %w", err)
	}
	m := writeBytes.FindSubmatch(data)
	if m == nil {
		return 0, fmt.Errorf("read disk use: no write_bytes in /proc/%d/io", pid)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
